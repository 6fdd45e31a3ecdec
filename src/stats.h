/*
 * stats.h
 *		Progress: the last batches of every view, in shared memory.
 */
#ifndef SA_STATS_H
#define SA_STATS_H

#include "catalog.h"

#define SA_RETRY_SIZE 256

typedef struct SaProgress
{
	Oid			database;		/* InvalidOid: an empty place */
	Oid			view;
	TimestampTz finished_at;
	int64		duration;		/* microseconds */
	int64		counters[SA_NCOUNTERS]; /* of this batch */
	int64		written;		/* result rows */
	int64		lag;			/* records left at its end; -1: unknown */
	TimestampTz watermark;		/* DT_NOBEGIN: not known */
	int64		groups;
	int64		windows;
	int64		largest_window; /* groups of the one that has most */
	TimestampTz oldest_window_end;	/* DT_NOBEGIN: there is none */
	int64		state_bytes;
} SaProgress;

extern void sa_stats_init(void);

/* One more batch, after its commit. */
extern void sa_stats_report(const SaProgress *progress);

/* A view's last batch; false: there was none since the server started. */
extern bool sa_stats_last(Oid view, SaProgress *progress);

/*
 * The view's part of a batch has failed and is tried again, for this reason (NULL: no more); the next report ends that.
 * Why, a copy; NULL: it is not so.
 */
extern void sa_stats_note_retry(Oid view, const char *reason);
extern char *sa_stats_retry(Oid view);

/* Where a partition of a stream ends, as its worker knows; false: nobody has told since the server started. */
extern void sa_stats_note_end(Oid stream, const char *topic, int32 partition, int64 end);
extern bool sa_stats_end(Oid stream, const char *topic, int32 partition, int64 *end);

/* Copies of the batches of this database's views, oldest first, in CurrentMemoryContext. */
extern List *sa_stats_list(void);

#endif							/* SA_STATS_H */
