/*
 * source_staged_segment.h
 *		Segments: the heap tables that hold the rows of staged streams.
 */
#ifndef SA_SOURCE_STAGED_SEGMENT_H
#define SA_SOURCE_STAGED_SEGMENT_H

#include "access/htup.h"
#include "access/xlogdefs.h"
#include "datatype/timestamp.h"
#include "storage/block.h"
#include "storage/bufmgr.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"

#include "source_staged_catalog.h"

/*
 * Columns of a segment: the number, then c<attnum> for every column of the stream, then the arrival, which
 * only the first row of a chunk has; the others end before it.
 */
#define SA_SEGMENT_NUMBER	1
#define SA_SEGMENT_ARRIVAL(desc)	((desc)->natts)

/* See that the stream has what it needs, and a segment to write to that its rows fit into. */
extern void sa_staged_ensure(Oid stream, SaStagedStream *staged);

/* After pg_upgrade: hang the segments of this database on their streams again. */
extern void sa_staged_mend(void);

/* Can what is staged still be read, after the stream's columns have changed?  An error if not. */
extern void sa_staged_check_columns(Oid stream);

extern Oid	sa_staged_create_segment(const SaStagedStream *staged, TupleDesc desc);
extern void sa_staged_empty_segment(Relation segment);
extern void sa_staged_drop_segment(Oid segment);

/* Where each column of the stream is in a segment (0: nowhere); false unless all are there. */
extern bool sa_staged_map(TupleDesc stream, TupleDesc segment, AttrNumber *map);

/* A row's columns as the stream has them; scratch has room for the segment's columns. */
typedef struct SaRowReader
{
	TupleDesc	segment;
	int			natts;			/* of the stream */
	AttrNumber *map;
	Datum	   *scratch;
	bool	   *scratch_nulls;
} SaRowReader;

extern SaRowReader *sa_staged_reader(TupleDesc stream, Relation segment);
extern void sa_staged_read_row(SaRowReader *reader, HeapTuple tuple, Datum *values, bool *nulls);
extern int64 sa_staged_row_number(HeapTuple tuple);
extern TimestampTz sa_staged_row_arrival(SaRowReader *reader, HeapTuple tuple);	/* DT_NOBEGIN: has none */

typedef enum SaRowState
{
	SA_ROW_VISIBLE,
	SA_ROW_PENDING,				/* its transaction may yet become visible */
	SA_ROW_DEAD					/* aborted: it never will */
} SaRowState;

/* Called for each row of a page while it is locked: may copy it, but nothing slow. */
typedef void (*SaRowVisitor) (void *arg, HeapTuple tuple, int64 n, SaRowState state);

extern BlockNumber sa_staged_blocks(Relation segment);
extern int64 sa_staged_bytes(Relation segment); /* with values stored out of line */
extern XLogRecPtr sa_staged_scan_page(Relation segment, BlockNumber block, Snapshot snapshot,
									  SaRowVisitor visit, void *arg, bool *full);
extern XLogRecPtr sa_staged_page_lsn(Relation segment, BlockNumber block);

#endif							/* SA_SOURCE_STAGED_SEGMENT_H */
