/*
 * batch.h
 *		A batch: the events that one turn reads, with the hidden facts that time needs.
 *
 * A source fills a batch (sa_batch_create, sa_batch_partition, sa_batch_add), seals it, and the
 * views' queries read it through the foreign scan of the stream.  Everything lives in batch->cxt.
 */
#ifndef SA_BATCH_H
#define SA_BATCH_H

#include "access/tupdesc.h"
#include "datatype/timestamp.h"
#include "option.h"
#include "storage/itemptr.h"

/* What became of an event before any view saw it. */
typedef enum SaVerdict
{
	SA_EVENT_GOOD,
	SA_EVENT_NULL_TIME,			/* no event time, or an infinite one */
	SA_EVENT_FUTURE				/* further ahead of its arrival than max_future */
} SaVerdict;

typedef struct SaEvent
{
	int64		position;		/* in its partition */
	TimestampTz arrival;		/* DT_NOBEGIN: unknown */
	TimestampTz time;			/* event time; only when good or future */
	TimestampTz max_before;		/* running maximum in this batch before it; DT_NOBEGIN: none */
	Datum	   *values;			/* as the foreign table's columns */
	bool	   *nulls;
	int32		partition;		/* index into batch->partitions */
	uint8		verdict;		/* SaVerdict */
} SaEvent;

typedef struct SaBatchPartition
{
	const char *topic;			/* '' for staged streams */
	int32		partition;
	int64		first;			/* position before this batch */
	int64		next;			/* position after it */
	int64		skipped;		/* positions passed over by an explicit policy or TRUNCATE */
	int64		lost;			/* records before next that the source no longer has: not to be passed over */
	TimestampTz max_time;		/* running maximum over this batch; DT_NOBEGIN: none */
} SaBatchPartition;

typedef struct SaBatch
{
	MemoryContext cxt;
	Oid			stream;
	TupleDesc	desc;			/* of the foreign table, copied */
	int			nevents;
	int			maxevents;
	SaEvent    *events;
	int			npartitions;
	SaBatchPartition *partitions;
	bool		at_end;			/* everything as of the last refresh has been read */
} SaBatch;

extern SaBatch *sa_batch_create(MemoryContext parent, Oid stream, TupleDesc desc);
extern int	sa_batch_partition(SaBatch *batch, const char *topic, int32 partition, int64 first);

/*
 * A new event at the end of the batch, with room for values and nulls of every column in batch->cxt
 * (all NULL at first); the caller fills them, and position, arrival, partition.
 */
extern SaEvent *sa_batch_add(SaBatch *batch);

/* Once filled: event times, verdicts and running maxima (DESIGN.md 6). */
extern void sa_batch_seal(SaBatch *batch, const SaStreamOptions *options);

/* Rows read: events, and those skipped. */
extern int64 sa_batch_read(const SaBatch *batch);

/* A part [lo, hi) of a batch offered to scans of its stream in this process, minus excluded events. */
typedef struct SaBatchScan
{
	SaBatch    *batch;
	int			lo;
	int			hi;
	const bool *exclude;		/* per event, or NULL */
} SaBatchScan;

/* Offer (or, with NULL, withdraw) a batch; what scans of the stream find meanwhile. */
extern void sa_batch_offer(const SaBatchScan *scan);
extern const SaBatchScan *sa_batch_offered(Oid stream);

/* An event's ordinal travels as the scan's ctid, which survives joins. */
static inline void
sa_batch_ordinal_to_tid(int ordinal, ItemPointer tid)
{
	ItemPointerSet(tid, (BlockNumber) (ordinal >> 10), (OffsetNumber) ((ordinal & 1023) + 1));
}

static inline int
sa_batch_tid_to_ordinal(ItemPointer tid)
{
	return (int) ((ItemPointerGetBlockNumberNoCheck(tid) << 10) |
				  (ItemPointerGetOffsetNumberNoCheck(tid) - 1));
}

#endif							/* SA_BATCH_H */
