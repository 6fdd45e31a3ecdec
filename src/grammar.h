/*
 * grammar.h
 *		CREATE STREAM, CREATE CONTINUOUS VIEW and their like, as statements.
 */
#ifndef SA_GRAMMAR_H
#define SA_GRAMMAR_H

#include "nodes/parsenodes.h"

/* Teaches the server our statements, if stream_agg.syntax lets us and all is as expected. */
extern void sa_grammar_init(void);

/* Parses statements, ours among them, whether or not the server has been taught; errors as raw_parser's. */
extern List *sa_grammar_parse(const char *text);

/* Of errors in a text within a statement, as a context callback: the caret is in that text. */
extern void sa_grammar_point_inside(void *text);

/*
 * In the statements that change a relation: the kind of relation that the user named, "stream" or
 * "continuous view"; NULL in PostgreSQL's own statements.
 */
#define SA_GRAMMAR_STREAM	"stream"
#define SA_GRAMMAR_VIEW		"continuous view"

extern const char *sa_grammar_kind(const RangeVar *relation);
extern const char *sa_grammar_dropped_kind(const DropStmt *drop);

#endif							/* SA_GRAMMAR_H */
