/*
 * duplicate.h
 *		The places of duplicates among the records that a view with unlogged state would read again.  DESIGN.md 5.
 */
#ifndef SA_DUPLICATE_H
#define SA_DUPLICATE_H

#include "batch.h"
#include "nodes/pg_list.h"

/* Keep those of a batch, by the ordinals of its events; of none, duplicates may be NULL. */
extern void sa_duplicate_save(int view_id, const SaBatch *batch, const bool *duplicates);

/* Forget those before the first step (of a sorted list of SaStep) of each partition; with the last step, all go (catalog.c). */
extern void sa_duplicate_forget(int view_id, List *steps);

/* For every event of a batch that is read again, whether it was one.  In the batch's context. */
extern bool *sa_duplicate_read(int view_id, SaBatch *batch);

#endif							/* SA_DUPLICATE_H */
