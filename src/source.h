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
#include "executor/tuptable.h"
#include "nodes/execnodes.h"
#include "option.h"

typedef struct SaPosition
{
	const char *topic;
	int32		partition;
	int64		position;
} SaPosition;

typedef struct SaSource SaSource;	/* a stream as one worker holds it open; private to its source */
typedef struct SaStaging SaStaging; /* rows being staged by one INSERT or COPY; private likewise */
typedef struct SaPeek SaPeek;		/* a SELECT from the stream; private likewise */

typedef struct SaSourceRoutine
{
	const char *type;

	/* --- the worker's side --- */

	/* Opens the stream; lives in cxt, which the caller deletes to close it (after close). */
	SaSource   *(*open) (const SaStreamOptions *options, MemoryContext cxt);
	void		(*close) (SaSource *source);

	/* Where a new view begins: a list of SaPosition, one per partition. */
	List	   *(*start) (SaSource *source, bool latest);

	/* Note the end as of now: later reads say at_end once they have come this far. */
	void		(*refresh) (SaSource *source);

	/* Read on from these positions (list of SaPosition), at most about max_rows, into a batch. */
	void		(*read) (SaSource *source, List *from, int max_rows, SaBatch *batch);

	/* The transaction that read has ended. */
	void		(*end_batch) (SaSource *source, bool committed);

	/*
	 * Every view has read up to these positions (NIL: there is no view): what lies before may be given
	 * back.  Called now and then, in its own transaction.
	 */
	void		(*release) (SaSource *source, List *positions);

	/* End position of a partition as last known, for lag. */
	int64		(*end_position) (SaSource *source, const char *topic, int32 partition);

	/* --- the user's side: any backend --- */

	/* The stream has been created: make what the source needs (idempotent). */
	void		(*prepare) (Oid stream);

	SaPeek	   *(*peek_begin) (Relation stream, Snapshot snapshot);
	bool		(*peek_next) (SaPeek *peek, TupleTableSlot *slot);	/* slot: the stream's columns */
	void		(*peek_rewind) (SaPeek *peek);
	void		(*peek_end) (SaPeek *peek);

	/* NULL where a source cannot be written to. */
	SaStaging  *(*stage_begin) (Relation stream, MemoryContext cxt);
	void		(*stage_row) (SaStaging *staging, TupleTableSlot *slot);
	void		(*stage_end) (SaStaging *staging);
	void		(*truncate) (Relation stream);
} SaSourceRoutine;

/* The routine of a source type; errors when there is no such source. */
extern const SaSourceRoutine *sa_source_routine(const char *type);

extern const SaSourceRoutine sa_source_staged;

#endif							/* SA_SOURCE_H */
