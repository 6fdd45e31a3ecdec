/*
 * grammar_convert.h
 *		From what the grammar made of our statements to what they mean.
 */
#ifndef SA_GRAMMAR_CONVERT_H
#define SA_GRAMMAR_CONVERT_H

#include "grammar_scan.h"
#include "nodes/parsenodes.h"

/* Changes the statement; errors have a caret into the text. */
extern void sa_grammar_convert(RawStmt *raw, const SaStatement *statement, const char *text);

#endif							/* SA_GRAMMAR_CONVERT_H */
