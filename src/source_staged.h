/*
 * source_staged.h
 *		What the files of the staged source offer each other: numbers of rows, the worker's side, the
 *		writer's, SELECT.  Outside callers need sa_staged_init alone.
 */
#ifndef SA_SOURCE_STAGED_H
#define SA_SOURCE_STAGED_H

#include "nodes/pg_list.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"

#include "source.h"

/* Settings; called by _PG_init. */
extern void sa_staged_init(void);

extern int	sa_staged_segment_size; /* kB: a segment is left when it is larger */

/*
 * A row's stored number says its chunk (what one writer wrote at once), its place in the chunk, and
 * whether it is the chunk's last.
 */
#define SA_CHUNK_SHIFT		13
#define SA_CHUNK_ROWS		1000
#define SA_CHUNK_BYTES		65536
#define SaStagedNumber(chunk, index, last)	(((chunk) << SA_CHUNK_SHIFT) | ((int64) (index) << 1) | ((last) ? 1 : 0))
#define SaStagedChunk(n)	((n) >> SA_CHUNK_SHIFT)
#define SaStagedIndex(n)	((int) (((n) & ((1 << SA_CHUNK_SHIFT) - 1)) >> 1))
#define SaStagedIsLast(n)	(((n) & 1) != 0)

/* ---------- the worker's side: _order, _pass, _read, _release ---------- */

extern SaSource *sa_staged_open(const SaStreamOptions *options, MemoryContext cxt);
extern void sa_staged_close(SaSource *source);
extern bool sa_staged_resolve(SaSource *source, const SaBoundary *start, const SaBoundary *end, List **positions);
extern bool sa_staged_refresh(SaSource *source, SaClock as_of);
extern void sa_staged_read(SaSource *source, List *from, const SaReadLimits *limits, SaBatch *batch);
extern void sa_staged_end_batch(SaSource *source, bool committed);
extern void sa_staged_release(SaSource *source, List *positions);
extern int64 sa_staged_end_position(SaSource *source, const char *topic, int32 partition);

/* Puts every visible row that is not yet ordered at the end of the order; how many there were. */
extern int64 sa_staged_order_rest(SaSource *source, bool skipped);

/* ---------- SELECT: _peek ---------- */

extern SaPeek *sa_staged_peek_begin(Relation stream, Snapshot snapshot, List *restrictions);
extern bool sa_staged_peek_next(SaPeek *peek, TupleTableSlot *slot);
extern void sa_staged_peek_rewind(SaPeek *peek);
extern void sa_staged_peek_end(SaPeek *peek);

/* ---------- the writer's side: _write ---------- */

extern SaStaging *sa_staged_stage_begin(Relation stream, MemoryContext cxt);
extern void sa_staged_stage_row(SaStaging *staging, TupleTableSlot *slot);
extern void sa_staged_stage_end(SaStaging *staging);

/*
 * A later command of this transaction reads the stream with this snapshot: what is buffered is written
 * first.  Where that cannot be done now, the rows (HeapTuple, shaped like *desc) and the chunk that
 * they will come to are returned instead.
 */
typedef struct SaPendingRows
{
	int64		chunk;
	TupleDesc	desc;
	AttrNumber *map;			/* of the stream's columns */
	List	   *tuples;
} SaPendingRows;

extern List *sa_staged_flush_pending(Relation stream, Snapshot snapshot);

#endif							/* SA_SOURCE_STAGED_H */
