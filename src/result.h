/*
 * result.h
 *		Writing a view's result table: an ordinary table, written row by row by place.
 */
#ifndef SA_RESULT_H
#define SA_RESULT_H

#include "query.h"
#include "state.h"

typedef struct SaResult SaResult;

extern SaResult *sa_result_create(SaQuery *query, Oid relid, MemoryContext parent);
extern void sa_result_free(SaResult *result);

/*
 * The table still has the view's columns, from here to the end of the transaction.  DDL that would change them is
 * refused by name, and names can be made to change between that and the lock.
 */
extern void sa_result_check(const SaQuery *query, Oid relid);

/* Open the table, its indexes and triggers for a batch; in the view's own part of the transaction. */
extern void sa_result_begin(SaResult *result);

/* Fire the row triggers that are due, and close. */
extern void sa_result_end(SaResult *result);

/*
 * Write groups as they are now: changed rows in the order of their places, new rows together in key
 * order, rows that HAVING refuses deleted.  Groups' places are updated.
 */
extern void sa_result_write_groups(SaResult *result, SaState *state, SaTouched *groups, int ngroups);

extern void sa_result_delete_groups(SaResult *result, SaState *state, SaTouched *groups, int ngroups);	/* their rows */

/* Write the rows of groups that have none; keep: they are to know their places. */
extern void sa_result_emit(SaResult *result, SaState *state, SaTouched *groups, int ngroups, bool keep);

/* Append a row of a transform (from below: the ctid, then the view's columns). */
extern void sa_result_append(SaResult *result, TupleTableSlot *row);

/* Rows written since begin. */
extern int64 sa_result_written(const SaResult *result);

#endif							/* SA_RESULT_H */
