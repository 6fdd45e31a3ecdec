/*
 * source.h
 *		What a source can do, as a table of functions; one source_*.c file hides each kind.
 *
 * The worker's side runs inside a transaction.  A position says: exactly the records before it have
 * been read.  The first read of a staged row fixes its place; so reading may write, and what it wrote
 * commits with the batch (end_batch tells how the transaction ended).
 */
#ifndef SA_SOURCE_H
#define SA_SOURCE_H

#include "batch.h"
#include "clock.h"
#include "executor/tuptable.h"
#include "nodes/execnodes.h"
#include "option.h"

typedef struct SaReadLimits
{
	int			max_rows;
	int64		max_bytes;		/* of records */
} SaReadLimits;

/* What a query asks of a column that tells a record's place: column (op) value. */
typedef struct SaRestriction
{
	AttrNumber	attnum;
	int			strategy;		/* of a btree: BTLessStrategyNumber ... */
	int64		value;			/* a number, or a timestamptz */
} SaRestriction;

typedef struct SaSource SaSource;	/* a stream as one worker holds it open; private to its source */
typedef struct SaStaging SaStaging; /* rows being staged by one INSERT or COPY; private likewise */
typedef struct SaPeek SaPeek;		/* a SELECT from the stream; private likewise */

typedef struct SaSourceRoutine
{
	const char *type;
	bool		named_places;	/* views may begin and end at a time or at explicit positions */
	bool		serial;			/* peeking needs subtransactions, so no parallel plans */

	/* --- the worker's side --- */

	/* Opens the stream; lives in cxt, which the caller deletes to close it (after close). */
	SaSource   *(*open) (const SaStreamOptions *options, MemoryContext cxt);
	void		(*close) (SaSource *source);

	/*
	 * Where a new view begins and ends: a list of SaPosition.  False when that is not known yet; then the
	 * caller asks again.
	 */
	bool		(*resolve) (SaSource *source, const SaBoundary *start, const SaBoundary *end, List **positions);

	/*
	 * Note the end as of this moment or later: reads from now on say at_end once they have come this far.
	 * False when it is not known yet; then the caller asks again.  0: as far as what is at hand reaches.
	 */
	bool		(*refresh) (SaSource *source, SaClock as_of);

	/* Read on from these positions (list of SaPosition) into a batch, at most about so much. */
	void		(*read) (SaSource *source, List *from, const SaReadLimits *limits, SaBatch *batch);

	/* The transaction that read has ended. */
	void		(*end_batch) (SaSource *source, bool committed);

	/*
	 * Every view has read up to these positions (NIL: there is no view): what lies before may be given
	 * back.  Called now and then, in its own transaction.
	 */
	void		(*release) (SaSource *source, List *positions);

	/*
	 * Outside a transaction, every time around the worker's loop (NULL: nothing to do): take in what has
	 * come, without waiting.  readers: the positions (list of lists of SaPosition) that views stand at;
	 * what was read ahead for others may go.  *news: there may be more to read than the last one found.
	 * Returns when to call again at the latest.
	 */
	SaClock		(*attend) (SaSource *source, List *readers, bool *news);

	/* Readable when there is something to attend to, or -1; NULL where latches tell. */
	int			(*wake_fd) (SaSource *source);

	/* What keeps the source from reading, since when; NULL: nothing.  NULL where nothing ever does. */
	const char *(*trouble) (SaSource *source, TimestampTz *since);

	/* End position of a partition as last known, for lag. */
	int64		(*end_position) (SaSource *source, const char *topic, int32 partition);

	/* --- the user's side: any backend --- */

	/* The stream has been created: make what the source needs (idempotent). */
	void		(*prepare) (Oid stream);

	/* restrictions (of SaRestriction): rows that fail them need not be returned */
	SaPeek	   *(*peek_begin) (Relation stream, Snapshot snapshot, List *restrictions);
	bool		(*peek_next) (SaPeek *peek, TupleTableSlot *slot);	/* slot: the stream's columns */
	void		(*peek_rewind) (SaPeek *peek);
	void		(*peek_end) (SaPeek *peek);

	/* NULL where a source cannot be written to. */
	SaStaging  *(*stage_begin) (Relation stream, MemoryContext cxt);
	void		(*stage_row) (SaStaging *staging, TupleTableSlot *slot);
	void		(*stage_end) (SaStaging *staging);
	void		(*truncate) (Relation stream);
} SaSourceRoutine;

/* The place in that partition, of a list of SaPosition; NULL: there is none. */
extern SaPosition *sa_source_find_position(List *positions, const char *topic, int32 partition);

/* The routine of a source type; errors when there is no such source. */
extern const SaSourceRoutine *sa_source_routine(const char *type);

extern const SaSourceRoutine sa_source_staged;
extern const SaSourceRoutine sa_source_kafka;

#endif							/* SA_SOURCE_H */
