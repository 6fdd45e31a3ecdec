/*
 * source_staged.h
 *		What the files of the staged source share: segments, chunk numbers, and the fixed order as the
 *		catalog keeps it.  Outside callers need sa_staged_init and sa_staged_forget alone.
 */
#ifndef SA_SOURCE_STAGED_H
#define SA_SOURCE_STAGED_H

#include "access/htup.h"
#include "nodes/pg_list.h"
#include "storage/block.h"
#include "storage/bufmgr.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"

#include "source.h"

/* Settings; called by _PG_init. */
extern void sa_staged_init(void);

/* The stream is being dropped: its rows in the catalog go.  Its segments go by dependency. */
extern void sa_staged_forget(Oid stream);

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

/* Columns of a segment: these two, then c<attnum> for every column of the stream. */
#define SA_SEGMENT_NUMBER	1
#define SA_SEGMENT_ARRIVAL	2
#define SA_SEGMENT_FIXED	2

/* ---------- the catalog ---------- */

typedef struct SaStagedStream
{
	Oid			stream;
	int			id;				/* in the names of segments and sequence */
	Oid			chunks;			/* sequence of chunk numbers */
	int64		first_position; /* lowest position still kept */
	int64		next_position;	/* end of the fixed order */
	Oid			writing;		/* segment that writers use */
} SaStagedStream;

typedef struct SaChunkRange
{
	int64		first;
	int64		last;
} SaChunkRange;

/* A stretch of the fixed order: the records of these chunks, by number. */
typedef struct SaStagedEntry
{
	int64		first_position;
	int64		records;
	bool		skipped;
	int			nranges;
	SaChunkRange *ranges;		/* ascending */
} SaStagedEntry;

extern bool sa_staged_get(Oid stream, SaStagedStream *staged);
extern void sa_staged_ensure(Oid stream, SaStagedStream *staged);
extern void sa_staged_update(const SaStagedStream *staged);
extern List *sa_staged_entries(Oid stream, Snapshot snapshot);	/* by position */
extern void sa_staged_insert_entry(Oid stream, const SaStagedEntry *entry);
extern void sa_staged_update_entry(Oid stream, const SaStagedEntry *entry);
extern void sa_staged_delete_entry(Oid stream, int64 first_position);

/* ---------- segments ---------- */

extern List *sa_staged_segments(Oid stream);	/* OIDs, ascending */
extern Oid	sa_staged_create_segment(const SaStagedStream *staged, TupleDesc desc);
extern void sa_staged_empty_segment(Relation segment);
extern void sa_staged_drop_segment(Oid segment);

/* Where each column of the stream is in a segment (0: nowhere); false unless all are there. */
extern bool sa_staged_map(TupleDesc stream, TupleDesc segment, AttrNumber *map);

typedef enum SaRowState
{
	SA_ROW_VISIBLE,
	SA_ROW_PENDING,				/* its transaction may yet become visible */
	SA_ROW_DEAD					/* aborted: it never will */
} SaRowState;

/* Called for each row of a page while it is locked: may copy it, but nothing slow. */
typedef void (*SaRowVisitor) (void *arg, HeapTuple tuple, int64 n, SaRowState state);

extern BlockNumber sa_staged_blocks(Relation segment);
extern XLogRecPtr sa_staged_scan_page(Relation segment, BlockNumber block, Snapshot snapshot,
									  BufferAccessStrategy strategy, SaRowVisitor visit, void *arg);

/* A row's columns as the stream has them; scratch has room for the segment's columns. */
typedef struct SaRowReader
{
	TupleDesc	segment;
	int			natts;			/* of the stream */
	AttrNumber *map;
	Datum	   *scratch;
	bool	   *scratch_nulls;
} SaRowReader;

extern XLogRecPtr sa_staged_page_lsn(Relation segment, BlockNumber block, BufferAccessStrategy strategy);

extern SaRowReader *sa_staged_reader(TupleDesc stream, Relation segment);
extern void sa_staged_read_row(SaRowReader *reader, HeapTuple tuple, Datum *values, bool *nulls);
extern int64 sa_staged_row_number(HeapTuple tuple);
extern TimestampTz sa_staged_row_arrival(HeapTuple tuple);

/* ---------- the worker's side, source_staged_order.c ---------- */

extern int	sa_staged_segment_size; /* kB: a segment is left when it is larger */

extern SaSource *sa_staged_open(const SaStreamOptions *options, MemoryContext cxt);
extern void sa_staged_close(SaSource *source);
extern List *sa_staged_start(SaSource *source, bool latest);
extern void sa_staged_refresh(SaSource *source);
extern void sa_staged_read(SaSource *source, List *from, int max_rows, SaBatch *batch);
extern void sa_staged_end_batch(SaSource *source, bool committed);
extern void sa_staged_release(SaSource *source, List *positions);
extern int64 sa_staged_end_position(SaSource *source, const char *topic, int32 partition);

/* Puts every visible row that is not yet ordered at the end of the order. */
extern int64 sa_staged_order_rest(SaSource *source, bool skipped);

/* ---------- the writer's side, source_staged_write.c ---------- */

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
