/*
 * option_column.h
 *		Options of a stream's columns, as the validator and the stream's own checks need them.
 */
#ifndef SA_OPTION_COLUMN_H
#define SA_OPTION_COLUMN_H

#include "option.h"

/* The options of one column by themselves: names, values, and what excludes each other. */
extern void sa_option_column_validate(List *defs);

/* The options of all columns, held against the stream's. */
extern void sa_option_column_check(Relation stream, const SaStreamOptions *options);

#endif							/* SA_OPTION_COLUMN_H */
