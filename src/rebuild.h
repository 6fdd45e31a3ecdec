/*
 * rebuild.h
 *		From where, and how, the groups of a view with unlogged state are read again.  DESIGN.md 5.
 *
 * Steps (SaStep) are kept sorted by partition and position.  The first one of each partition is where rebuilding
 * begins; the others are where the floor was moved.  Lists are made in CurrentMemoryContext; what they
 * are made of is shared.
 */
#ifndef SA_REBUILD_H
#define SA_REBUILD_H

#include "catalog.h"

/* Where the view stood at the beginning of a batch in which a window was born. */
typedef struct SaCut
{
	MemoryContext cxt;			/* it and what is in it */
	uint64		batch;
	List	   *places;			/* of SaStep, one per partition */
} SaCut;

/* The place of every partition at these positions, where the view's floor was this. */
extern List *sa_rebuild_places(List *positions, TimestampTz floor);

/* The steps when rebuilding begins at these places instead. */
extern List *sa_rebuild_begin_at(List *steps, List *places);

/*
 * The steps after a batch from `before` to `after` (lists of SaViewPosition): with partitions that are new, and
 * with the floor (the view's watermark after) where it says more than a partition's own records do.  The same list
 * when there is nothing to add.
 */
extern List *sa_rebuild_advance(List *steps, List *before, List *after, int64 delay);

/* The floor by which the record at this position was judged. */
extern TimestampTz sa_rebuild_floor(List *steps, const char *topic, int32 partition, int64 position);

/* No record that is left to be read is accepted if its time is before this. */
extern TimestampTz sa_rebuild_bound(List *steps, List *places, int64 delay);

/* Where rebuilding begins, and ends: places (of SaViewPosition) from the first steps to these positions. */
extern List *sa_rebuild_begin(List *steps, List *positions);

/* Records that are left to be read. */
extern int64 sa_rebuild_distance(List *places);

/* The record at which the partition's rebuilding begins, or position where there is no step. */
extern int64 sa_rebuild_first(List *steps, const char *topic, int32 partition, int64 position);

extern bool sa_rebuild_same(List *a, List *b);
extern List *sa_rebuild_copy(List *steps);

#endif							/* SA_REBUILD_H */
