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
#include "clock.h"
#include "datatype/timestamp.h"
#include "option.h"

/* What became of an event before any view saw it. */
typedef enum SaVerdict
{
	SA_EVENT_GOOD,
	SA_EVENT_TOMBSTONE,			/* a record without value */
	SA_EVENT_MALFORMED,			/* a record that could not be decoded */
	SA_EVENT_NULL_TIME,			/* no event time, or an infinite one */
	SA_EVENT_FUTURE				/* further ahead of its arrival than max_future */
} SaVerdict;

/* Records that the source no longer has. */
typedef enum SaLoss
{
	SA_LOSS_NONE,
	SA_LOSS_STOP,				/* must not be passed over: the batch is empty there */
	SA_LOSS_PASSED				/* passed over, as on_data_loss = 'skip' says */
} SaLoss;

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
	bool		gone;			/* no longer part of the stream: nothing will come */
	SaLoss		loss;			/* what the views are to read next is no longer kept, */
	int64		kept_first;		/* but only the records from here (where it was passed over, reading goes on here) */
	int64		kept_next;		/* to before here */
	TimestampTz max_time;		/* running maximum over this batch; DT_NOBEGIN: none */
	SaClock		quiet_since;	/* read to its end, and nothing has come since; DT_NOEND: it is not */
	SaClock		quiet_until;	/* when the source last made sure of that; DT_NOBEGIN: never */
} SaBatchPartition;

/* A record that no event could be made of, for its dead letter. */
typedef struct SaRefusal
{
	int			ordinal;
	const char *message;		/* NULL for a tombstone */
	struct varlena *key;		/* bytea; NULL: none */
	struct varlena *payload;	/* bytea; NULL: none */
} SaRefusal;

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
	int			nrefusals;
	SaRefusal  *refusals;		/* by ordinal */
	const char *failure;		/* a record that on_malformed = 'fail' stops at; NULL: none */
	bool		taken;			/* by a view, whose table is locked */
	bool		at_end;			/* everything as of the last refresh has been read */
	bool		drained;		/* nothing more is at hand: the source wakes its reader when there is */
} SaBatch;

extern SaBatch *sa_batch_create(MemoryContext parent, Oid stream, TupleDesc desc);
extern int	sa_batch_partition(SaBatch *batch, const char *topic, int32 partition, int64 first);
extern const SaBatchPartition *sa_batch_find(const SaBatch *batch, const char *topic, int32 partition); /* or NULL */

/*
 * A new event at the end of the batch, with room for values and nulls of every column in batch->cxt
 * (all NULL at first); the caller fills them, and position, arrival, partition.
 */
extern SaEvent *sa_batch_add(SaBatch *batch);

/*
 * The event at this ordinal, which is greater than those refused before, is none: a record that could not be
 * decoded (message says why), or a tombstone to be kept (NULL).
 */
extern void sa_batch_refuse(SaBatch *batch, int ordinal, const char *message, struct varlena *key,
							struct varlena *payload);

/* The refusal of the event at this ordinal, or NULL. */
extern const SaRefusal *sa_batch_refusal(const SaBatch *batch, int ordinal);

/* Once filled: event times, verdicts and running maxima (DESIGN.md 6). */
extern void sa_batch_seal(SaBatch *batch, const SaStreamOptions *options);

/* Rows read: events, and those skipped. */
extern int64 sa_batch_read(const SaBatch *batch);

#endif							/* SA_BATCH_H */
