/*
 * commit.h
 *		What commits together with a view's results: its positions, running maxima, watermarks, counters.
 */
#ifndef SA_COMMIT_H
#define SA_COMMIT_H

#include "batch.h"
#include "catalog.h"
#include "clock.h"

/* What became of an event in one view. */
typedef enum SaOutcome
{
	SA_OUTCOME_FILTERED,		/* until a row of it comes out of the query */
	SA_OUTCOME_LATE,
	SA_OUTCOME_ACCEPTED,
	SA_OUTCOME_FAILED,
	SA_OUTCOME_DUPLICATE
} SaOutcome;

/* A time in which nothing comes from any partition, and event time goes on with the clock. */
typedef struct SaSilence
{
	SaClock		since;			/* 0: there was none yet */
	TimestampTz from;			/* the view's watermark then */
} SaSilence;

/* How a view keeps time. */
typedef struct SaTimekeeping
{
	int64		delay;			/* of its watermark; SA_NO_DELAY: it has none */
	int64		idle_timeout;	/* microseconds; 0: partitions are never idle */
	SaClock		now;			/* for idleness alone */
	SaSilence  *silence;		/* of the view, to be kept; NULL: event time holds still in it */
	TimestampTz oldest;			/* end of the oldest window; DT_NOEND: there is none; DT_NOBEGIN: not known */
	TimestampTz advance_to;		/* an administrator wants the watermark there; DT_NOBEGIN: nobody does */
} SaTimekeeping;

/*
 * The view's places after this batch, from those before it (lists of SaViewPosition): advanced to the
 * batch's end, running maxima and watermarks moved forward, outcomes (one per event) counted.  In
 * CurrentMemoryContext.
 */
extern List *sa_commit_advance(List *before, const SaBatch *batch, const uint8 *outcomes, const int64 *late_windows,
							   const int64 *corrections, const SaTimekeeping *time);

/* The view's places after a batch of dead letters (DESIGN.md 6): what is accepted is counted, and nothing moves. */
extern List *sa_commit_replay(List *before, const SaBatch *batch, const uint8 *outcomes);

/*
 * Would a batch without events move the view's places or its watermark?  *next_idle is lowered to when the
 * source is to make sure that partitions are quiet, whereupon the watermark may move.
 */
extern bool sa_commit_moves(List *positions, const SaBatch *batch, const SaTimekeeping *time, SaClock *next_idle);

/* The view's watermark: the minimum over its partitions; DT_NOBEGIN while one is not known. */
extern TimestampTz sa_commit_watermark(List *positions);

/* A deep copy in CurrentMemoryContext. */
extern List *sa_commit_copy(List *positions);

/* Save those that differ from what is on disk (before; NIL: nothing is). */
extern void sa_commit_save(int view_id, List *before, List *positions);

/* Has the view come to its end? */
extern bool sa_commit_finished(List *positions);

/* Sum of a counter over partitions. */
extern int64 sa_commit_counter(List *positions, SaCounter counter);

extern SaViewPosition *sa_commit_find(List *positions, const char *topic, int32 partition);

#endif							/* SA_COMMIT_H */
