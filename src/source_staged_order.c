/*
 * source_staged_order.c
 *		The worker's side of staged streams: fixing the order, reading along it, giving back.
 *
 * Invariant: a row's position is its ordinal in the stream's fixed order.  An entry of staged_order says
 * that the records of certain chunks, sorted by their stored numbers, are the ones from first_position
 * on; entries never change but for the last one, which may grow at its end.  Every committed row of
 * every segment is in the order, or will be found by the next pass: a pass looks at every page that
 * is not known to hold nothing but ordered or dead rows, and at those whose LSN has moved since that
 * was known.  Only whole chunks are taken.  So commit order, numbers and page order need not
 * agree, and a transaction that stays open for long delays nobody but itself.
 *
 * A segment other than the writing one is closed once a ShareLock on it was to be had: no writer has
 * it locked, and later ones will look up the new one.  A closed segment that was swept since and has
 * no page left to look at is not visited again, until its rows are read anew or given back.
 *
 * Locks: AccessShareLock on the stream and the segments, to the end of the transaction; nothing that a
 * writer could wait for, but for the moment in which a segment is given back (AccessExclusiveLock, had
 * without waiting, on a segment that no writer uses).  A stream has one worker; TRUNCATE holds
 * AccessExclusiveLock on the stream.
 *
 * Crash: what was ordered is in the catalog or was not read.  All that is kept in memory is found again by
 * looking at the segments.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "compat.h"

#include "source_staged.h"

#define ENTRY_RECORDS 100000	/* an entry with as many is not added to */
#define ENTRY_RANGES 64			/* nor one with as many ranges */
#define READ_BYTES (64 * 1024 * 1024)	/* of rows in a batch, about */
#define ROW_BLOCK 65536			/* rows are copied into blocks of this size */
#define OPEN_ENTRIES 4			/* whose rows' places are remembered */
#define SPARE_SEGMENTS 2		/* empty ones kept for reuse */

/* ---------- what is kept in memory, all of it in state_cxt ---------- */

/* An entry of the order, and which blocks of which segments hold its rows. */
typedef struct Place
{
	int			segment;
	BlockNumber first;
	BlockNumber last;
} Place;

typedef struct Entry
{
	SaStagedEntry order;
	int			maxranges;
	int			nplaces;
	int			maxplaces;
	Place	   *places;
} Entry;

/* The chunks of all entries, ascending. */
typedef struct Range
{
	int64		first;
	int64		last;
	int			entry;
} Range;

typedef struct Segment
{
	Oid			relid;			/* InvalidOid: gone */
	Oid			file;
	bool		closed;			/* no writer will come any more */
	bool		closed_before_pass;
	bool		swept;			/* visited from beginning to end since it was closed */
	bool		done;			/* closed, swept, nothing left to look at */
	bool		seen;			/* the places of all its ordered rows are known */
	BlockNumber next;			/* to visit in this pass */
	BlockNumber limit;			/* of this pass */
	BlockNumber npages;
	uint64	   *pages;			/* LSN + 1 when there was nothing left to look at; 0: look */
	FullTransactionId passed;	/* all views had read it before this transaction */

	/* during one call */
	Relation	rel;
	SaRowReader *reader;
} Segment;

/* Where the rows of one entry are, in order. */
typedef struct RowPlace
{
	int64		n;
	BlockNumber block;
	OffsetNumber offset;
	uint16		segment;
} RowPlace;

typedef struct OpenEntry
{
	MemoryContext cxt;			/* NULL: unused */
	int64		first_position;
	int64		records;
	RowPlace   *rows;
	uint64		used;			/* when last */
} OpenEntry;

struct SaSource
{
	SaStreamOptions options;
	Oid			stream;
	MemoryContext cxt;
	MemoryContext state_cxt;
	MemoryContext call_cxt;
	Snapshot	snapshot;		/* of the call at hand */

	bool		loaded;
	bool		changed;		/* by the transaction at hand: forget all if it fails */
	SaStagedStream staged;
	bool		in_pass;
	bool		passed;			/* a pass has ended since all was forgotten */
	int			nentries;
	int			maxentries;
	Entry	   *entries;
	int			nranges;
	int			maxranges;
	Range	   *ranges;
	int			last_range;		/* where a chunk was last found */
	int			nsegments;
	int			maxsegments;
	Segment    *segments;
	OpenEntry	open[OPEN_ENTRIES];
	uint64		uses;
};

/* Rows found by a pass, not yet ordered. */
typedef struct Row
{
	int64		n;
	HeapTuple	tuple;			/* NULL: not copied */
	BlockNumber block;
	uint16		segment;
} Row;

typedef struct Rows
{
	MemoryContext copy_cxt;		/* NULL: do not copy */
	char	   *space;
	Size		space_left;
	int			nrows;
	int			maxrows;
	Row		   *rows;
	Size		bytes;
} Rows;

/* ---------- loading and forgetting ---------- */

static void
forget(SaSource *source)
{
	MemoryContextReset(source->state_cxt);
	source->loaded = false;
	source->changed = false;
	source->in_pass = false;
	source->passed = false;
	source->nentries = source->maxentries = 0;
	source->nranges = source->maxranges = 0;
	source->nsegments = source->maxsegments = 0;
	source->entries = NULL;
	source->ranges = NULL;
	source->segments = NULL;
	source->last_range = 0;
	memset(source->open, 0, sizeof(source->open));
}

/* Room for one more element in an array of state_cxt. */
static void *
grow_array(SaSource *source, void *array, int count, int *max, Size size)
{
	if (count < *max)
		return array;
	*max = Max(16, *max * 2);
	if (array == NULL)
		return MemoryContextAllocHuge(source->state_cxt, size * (Size) *max);
	return repalloc_huge(array, size * (Size) *max);
}

static Entry *
add_entry(SaSource *source, int64 first_position, bool skipped)
{
	Entry	   *entry;

	source->entries = grow_array(source, source->entries, source->nentries,
								 &source->maxentries, sizeof(Entry));
	entry = &source->entries[source->nentries++];
	memset(entry, 0, sizeof(Entry));
	entry->order.first_position = first_position;
	entry->order.skipped = skipped;
	return entry;
}

static void
add_entry_range(SaSource *source, Entry *entry, int64 first, int64 last)
{
	SaStagedEntry *order = &entry->order;

	if (order->nranges > 0 && order->ranges[order->nranges - 1].last + 1 == first)
	{
		order->ranges[order->nranges - 1].last = last;
		return;
	}
	order->ranges = grow_array(source, order->ranges, order->nranges,
							   &entry->maxranges, sizeof(SaChunkRange));
	order->ranges[order->nranges].first = first;
	order->ranges[order->nranges++].last = last;
}

static int
compare_ranges(const void *a, const void *b)
{
	int64		x = ((const Range *) a)->first;
	int64		y = ((const Range *) b)->first;

	return x < y ? -1 : x > y ? 1 : 0;
}

static void
add_range(SaSource *source, int64 first, int64 last, int entry)
{
	Range	   *range;

	if (source->nranges > 0)
	{
		range = &source->ranges[source->nranges - 1];
		if (range->entry == entry && range->last + 1 == first)
		{
			range->last = last;
			return;
		}
	}
	source->ranges = grow_array(source, source->ranges, source->nranges,
								&source->maxranges, sizeof(Range));
	range = &source->ranges[source->nranges++];
	range->first = first;
	range->last = last;
	range->entry = entry;
}

/* After ranges were added at the end. */
static void
sort_ranges(SaSource *source)
{
	qsort(source->ranges, source->nranges, sizeof(Range), compare_ranges);
	source->last_range = 0;
}

static Oid
current_file(Oid relid)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	Oid			file = InvalidOid;

	if (HeapTupleIsValid(tuple))
	{
		file = ((Form_pg_class) GETSTRUCT(tuple))->relfilenode;
		ReleaseSysCache(tuple);
	}
	return file;
}

static Segment *
find_segment(SaSource *source, Oid relid)
{
	for (int i = 0; i < source->nsegments; i++)
	{
		if (source->segments[i].relid == relid)
			return &source->segments[i];
	}
	return NULL;
}

static void
add_segment(SaSource *source, Oid relid)
{
	Segment    *segment;

	if (source->nsegments > PG_UINT16_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("too many segments in a staged stream"),
				 errhint("Raise stream_agg.segment_size.")));
	source->segments = grow_array(source, source->segments, source->nsegments,
								  &source->maxsegments, sizeof(Segment));
	segment = &source->segments[source->nsegments++];
	memset(segment, 0, sizeof(Segment));
	segment->relid = relid;
	segment->file = current_file(relid);
}

/* Writers may go to this segment. */
static void
reopen_segment(Segment *segment)
{
	segment->closed = false;
	segment->closed_before_pass = false;
	segment->swept = false;
	segment->done = false;
}

static void
load_segments(SaSource *source)
{
	ListCell   *lc;

	foreach(lc, sa_staged_segments(source->stream))
	{
		if (find_segment(source, lfirst_oid(lc)) == NULL)
			add_segment(source, lfirst_oid(lc));
	}
}

static void
load(SaSource *source)
{
	ListCell   *lc;

	foreach(lc, sa_staged_entries(source->stream, NULL))
	{
		SaStagedEntry *order = lfirst(lc);
		Entry	   *entry = add_entry(source, order->first_position, order->skipped);

		entry->order.records = order->records;
		for (int i = 0; i < order->nranges; i++)
		{
			add_entry_range(source, entry, order->ranges[i].first, order->ranges[i].last);
			add_range(source, order->ranges[i].first, order->ranges[i].last, source->nentries - 1);
		}
	}
	sort_ranges(source);
	load_segments(source);
	source->loaded = true;
}

/* Has anybody else changed what we know?  TRUNCATE has, or a restored or rewritten segment. */
static bool
is_stale(SaSource *source, const SaStagedStream *now)
{
	if (now->next_position != source->staged.next_position ||
		now->first_position != source->staged.first_position)
		return true;
	for (int i = 0; i < source->nsegments; i++)
	{
		Segment    *segment = &source->segments[i];

		if (OidIsValid(segment->relid) && segment->file != current_file(segment->relid))
			return true;
	}
	return false;
}

static void
synchronise(SaSource *source)
{
	SaStagedStream now;

	if (!sa_staged_get(source->stream, &now))
		sa_staged_ensure(source->stream, &now);
	if (source->loaded && is_stale(source, &now))
		forget(source);
	source->staged = now;
	if (!source->loaded)
		load(source);
	if (find_segment(source, now.writing) == NULL)
		load_segments(source);
	if (find_segment(source, now.writing) != NULL)
		reopen_segment(find_segment(source, now.writing));
}

/* ---------- calls ---------- */

static void
begin_call(SaSource *source)
{
	LockRelationOid(source->stream, AccessShareLock);
	source->snapshot = RegisterSnapshot(GetLatestSnapshot());
	for (int i = 0; i < source->nsegments; i++)
	{
		source->segments[i].rel = NULL;
		source->segments[i].reader = NULL;
	}
	MemoryContextReset(source->call_cxt);
	MemoryContextSwitchTo(source->call_cxt);
	synchronise(source);
}

static void
close_segment(Segment *segment)
{
	if (segment->rel != NULL)
		table_close(segment->rel, NoLock);
	segment->rel = NULL;
	segment->reader = NULL;
}

static void
end_call(SaSource *source, MemoryContext oldcxt)
{
	for (int i = 0; i < source->nsegments; i++)
		close_segment(&source->segments[i]);
	UnregisterSnapshot(source->snapshot);
	source->snapshot = NULL;
	MemoryContextSwitchTo(oldcxt);
	MemoryContextReset(source->call_cxt);
}

/* The relation of a segment, for the rest of the call; NULL when it is gone. */
static Relation
open_segment(Segment *segment)
{
	if (segment->rel == NULL && OidIsValid(segment->relid))
	{
		segment->rel = try_table_open(segment->relid, AccessShareLock);
		if (segment->rel == NULL)
			segment->relid = InvalidOid;
	}
	return segment->rel;
}

/* ---------- chunks and places ---------- */

/* The entry that a chunk belongs to, or -1. */
static int
entry_of_chunk(SaSource *source, int64 chunk)
{
	int			low = 0;
	int			high = source->nranges - 1;

	if (source->last_range < source->nranges)
	{
		Range	   *range = &source->ranges[source->last_range];

		if (chunk >= range->first && chunk <= range->last)
			return range->entry;
		if (chunk > source->ranges[high].last)
			return -1;
	}
	while (low <= high)
	{
		int			middle = low + (high - low) / 2;
		Range	   *range = &source->ranges[middle];

		if (chunk < range->first)
			high = middle - 1;
		else if (chunk > range->last)
			low = middle + 1;
		else
		{
			source->last_range = middle;
			return range->entry;
		}
	}
	return -1;
}

static void
note_place(SaSource *source, Entry *entry, int segment, BlockNumber block)
{
	Place	   *place;

	for (int i = entry->nplaces - 1; i >= 0; i--)
	{
		place = &entry->places[i];
		if (place->segment == segment)
		{
			place->first = Min(place->first, block);
			place->last = Max(place->last, block);
			return;
		}
	}
	entry->places = grow_array(source, entry->places, entry->nplaces, &entry->maxplaces, sizeof(Place));
	place = &entry->places[entry->nplaces++];
	place->segment = segment;
	place->first = place->last = block;
}

/* ---------- visiting pages ---------- */

typedef struct Visit
{
	SaSource   *source;
	int			segment;
	BlockNumber block;
	Rows	   *rows;			/* NULL: only note where ordered rows are */
	bool		unsettled;		/* there is something left to look at */
} Visit;

static HeapTuple
copy_row(Rows *rows, HeapTuple tuple)
{
	Size		size = MAXALIGN(HEAPTUPLESIZE + tuple->t_len);
	HeapTuple	copy;

	if (size > ROW_BLOCK / 8)
		copy = MemoryContextAlloc(rows->copy_cxt, size);
	else
	{
		if (size > rows->space_left)
		{
			rows->space = MemoryContextAlloc(rows->copy_cxt, ROW_BLOCK);
			rows->space_left = ROW_BLOCK;
		}
		copy = (HeapTuple) rows->space;
		rows->space += size;
		rows->space_left -= size;
	}
	*copy = *tuple;
	copy->t_data = (HeapTupleHeader) ((char *) copy + HEAPTUPLESIZE);
	memcpy(copy->t_data, tuple->t_data, tuple->t_len);
	return copy;
}

static void
collect_row(Visit *visit, HeapTuple tuple, int64 n)
{
	Rows	   *rows = visit->rows;
	Row		   *row;

	if (rows->nrows >= rows->maxrows)
	{
		rows->maxrows = Max(1024, rows->maxrows * 2);
		if (rows->rows == NULL)
			rows->rows = MemoryContextAllocHuge(visit->source->call_cxt, sizeof(Row) * (Size) rows->maxrows);
		else
			rows->rows = repalloc_huge(rows->rows, sizeof(Row) * (Size) rows->maxrows);
	}
	row = &rows->rows[rows->nrows++];
	row->n = n;
	row->block = visit->block;
	row->segment = (uint16) visit->segment;
	row->tuple = rows->copy_cxt != NULL ? copy_row(rows, tuple) : NULL;
	if (row->tuple != NULL)
		rows->bytes += tuple->t_len;
}

static void
visit_row(void *arg, HeapTuple tuple, int64 n, SaRowState state)
{
	Visit	   *visit = arg;
	int			entry;

	if (state == SA_ROW_DEAD)
		return;
	if (state == SA_ROW_PENDING)
	{
		visit->unsettled = true;
		return;
	}
	entry = entry_of_chunk(visit->source, SaStagedChunk(n));
	if (entry >= 0)
		note_place(visit->source, &visit->source->entries[entry], visit->segment, visit->block);
	else if (visit->rows != NULL)
		collect_row(visit, tuple, n);
	else
		visit->unsettled = true;
}

/* A page found settled counts as such unless rows collected from it turn out not to be taken. */
static void
visit_page(SaSource *source, int segment, BlockNumber block, Rows *rows)
{
	Segment    *seg = &source->segments[segment];
	Visit		visit = {source, segment, block, rows, false};
	XLogRecPtr	lsn;

	CHECK_FOR_INTERRUPTS();
	lsn = sa_staged_scan_page(seg->rel, block, source->snapshot, NULL, visit_row, &visit);
	seg->pages[block] = visit.unsettled ? 0 : (uint64) lsn + 1;
}

static bool
is_settled(Segment *segment, BlockNumber block)
{
	return segment->pages[block] != 0 &&
		segment->pages[block] == (uint64) sa_staged_page_lsn(segment->rel, block, NULL) + 1;
}

static void
make_room_for_pages(SaSource *source, Segment *segment, BlockNumber npages)
{
	Size		size = sizeof(uint64) * (Size) npages;

	if (npages <= segment->npages)
		return;
	if (segment->pages == NULL)
		segment->pages = MemoryContextAllocHuge(source->state_cxt, size);
	else
		segment->pages = repalloc_huge(segment->pages, size);
	memset(segment->pages + segment->npages, 0, size - sizeof(uint64) * (Size) segment->npages);
	segment->npages = npages;
}

/* Learn where the ordered rows of all segments are; after a start this reads them all, once. */
static void
survey(SaSource *source)
{
	for (int i = 0; i < source->nsegments; i++)
	{
		Segment    *segment = &source->segments[i];
		BlockNumber nblocks;

		if (segment->seen || open_segment(segment) == NULL)
			continue;
		nblocks = sa_staged_blocks(segment->rel);
		make_room_for_pages(source, segment, nblocks);
		for (BlockNumber block = 0; block < nblocks; block++)
			visit_page(source, i, block, NULL);
		segment->seen = true;
	}
}

/* ---------- passes ---------- */

/* Does no writer hold the segment, now that new ones go to another? */
static bool
is_left_by_writers(Oid relid)
{
	if (!ConditionalLockRelationOid(relid, ShareLock))
		return false;
	UnlockRelationOid(relid, ShareLock);
	return true;
}

/* Nothing can change in there any more; the array of pages has served. */
static void
settle_segment(Segment *segment)
{
	if (segment->done || !segment->swept)
		return;
	for (BlockNumber block = 0; block < segment->npages; block++)
	{
		if (segment->pages[block] == 0)
			return;
	}
	segment->done = true;
	segment->seen = true;
	if (segment->pages != NULL)
		pfree(segment->pages);
	segment->pages = NULL;
	segment->npages = 0;
}

/* Visit every segment that may hold something new, up to its end as of now. */
static void
start_pass(SaSource *source)
{
	load_segments(source);
	for (int i = 0; i < source->nsegments; i++)
	{
		Segment    *segment = &source->segments[i];

		settle_segment(segment);
		segment->next = segment->limit = 0;
		if (segment->done || !OidIsValid(segment->relid))
			continue;
		if (!segment->closed && segment->relid != source->staged.writing)
			segment->closed = is_left_by_writers(segment->relid);
		if (open_segment(segment) == NULL)
			continue;
		segment->closed_before_pass = segment->closed;
		segment->limit = sa_staged_blocks(segment->rel);
		make_room_for_pages(source, segment, segment->limit);
		if (segment->limit == 0)
			segment->seen = segment->swept = true;
	}
	source->in_pass = true;

	/* The closing of segments is only good for what a snapshot taken afterwards does not show. */
	UnregisterSnapshot(source->snapshot);
	source->snapshot = RegisterSnapshot(GetLatestSnapshot());
}

/* Go on with the pass until there are enough rows; true when it came to its end. */
static bool
collect(SaSource *source, Rows *rows, int max_rows, Size max_bytes)
{
	for (int i = 0; i < source->nsegments; i++)
	{
		Segment    *segment = &source->segments[i];

		if (segment->next >= segment->limit || open_segment(segment) == NULL)
			continue;
		for (; segment->next < segment->limit; segment->next++)
		{
			if (rows->nrows >= max_rows || rows->bytes >= max_bytes)
				return false;
			if (!is_settled(segment, segment->next))
				visit_page(source, i, segment->next, rows);
		}
		segment->seen = true;
		segment->swept = segment->closed_before_pass;
	}
	return true;
}

static int
compare_rows(const void *a, const void *b)
{
	int64		x = ((const Row *) a)->n;
	int64		y = ((const Row *) b)->n;

	return x < y ? -1 : x > y ? 1 : 0;
}

/* The number of rows from index on that are of the same chunk; *complete tells if all of it is there. */
static int
chunk_rows(const Rows *rows, int index, bool *complete)
{
	int64		chunk = SaStagedChunk(rows->rows[index].n);
	int			count = 0;

	*complete = true;
	for (; index + count < rows->nrows; count++)
	{
		int64		n = rows->rows[index + count].n;

		if (SaStagedChunk(n) != chunk)
			break;
		*complete &= SaStagedIndex(n) == count;
	}
	*complete &= SaStagedIsLast(rows->rows[index + count - 1].n);
	return count;
}

/* These rows are not taken now; they will be visited again, in this pass if it is to find them. */
static void
leave_rows(SaSource *source, const Row *rows, int count, bool revisit)
{
	for (int i = 0; i < count; i++)
	{
		Segment    *segment = &source->segments[rows[i].segment];

		segment->pages[rows[i].block] = 0;
		if (revisit)
			segment->next = Min(segment->next, rows[i].block);
	}
}

/*
 * Keeps, sorted by number, the rows of whole chunks, at most max_rows unless there would be few, and
 * leaves the others.  The rest of a chunk may be beyond the place where collecting stopped; at the
 * end of the pass it was not committed in time to be seen everywhere.
 */
static bool
take_whole_chunks(SaSource *source, Rows *rows, int max_rows, bool ended)
{
	int			taken = 0;
	bool		left = false;
	int			count;

	qsort(rows->rows, rows->nrows, sizeof(Row), compare_rows);
	for (int i = 0; i < rows->nrows; i += count)
	{
		bool		complete;

		count = chunk_rows(rows, i, &complete);
		if (complete && !left && (taken <= max_rows / 2 || taken + count <= max_rows))
		{
			memmove(rows->rows + taken, rows->rows + i, sizeof(Row) * count);
			taken += count;
		}
		else
		{
			leave_rows(source, rows->rows + i, count, complete || !ended);
			left |= complete;
		}
	}
	rows->nrows = taken;
	return ended && !left;
}

/*
 * Rows that can be put at the end of the order, none when there are none now.  When the pass stopped at
 * a bound with nothing but parts of chunks, the bound was too low.
 */
static void
find_new_rows(SaSource *source, Rows *rows, int max_rows)
{
	int			bound = max_rows + SA_CHUNK_ROWS;	/* to have the last chunk whole */
	Size		max_bytes = READ_BYTES;
	bool		ended;

	if (!source->in_pass)
		start_pass(source);
	for (;;)
	{
		ended = collect(source, rows, bound, max_bytes);
		if (rows->nrows > 0)
			source->changed = true;
		source->in_pass = !take_whole_chunks(source, rows, max_rows, ended);
		source->passed |= !source->in_pass;
		if (rows->nrows > 0 || !source->in_pass)
			break;
		bound = bound > INT_MAX / 2 ? INT_MAX : bound * 2;
		max_bytes *= 2;
		rows->bytes = 0;
	}
}

/* ---------- fixing the order ---------- */

static int
count_ranges(const Rows *rows)
{
	int			count = 1;

	for (int i = 1; i < rows->nrows; i++)
	{
		if (SaStagedChunk(rows->rows[i].n) > SaStagedChunk(rows->rows[i - 1].n) + 1)
			count++;
	}
	return count;
}

/* May these rows be added to the last entry?  It must not become unwieldy, and its numbers ascend. */
static bool
extends_last_entry(SaSource *source, const Rows *rows, bool skipped)
{
	SaStagedEntry *last;

	if (source->nentries == 0 || skipped)
		return false;
	last = &source->entries[source->nentries - 1].order;
	return !last->skipped &&
		last->records < ENTRY_RECORDS &&
		last->nranges + count_ranges(rows) <= ENTRY_RANGES &&
		last->first_position + last->records == source->staged.next_position &&
		last->ranges[last->nranges - 1].last < SaStagedChunk(rows->rows[0].n);
}

/* Notes the chunks of the rows, in the entry and among all ranges. */
static void
note_chunks(SaSource *source, Entry *entry, const Rows *rows)
{
	int			index = entry - source->entries;
	bool		ascending = source->nranges == 0 ||
		source->ranges[source->nranges - 1].last < SaStagedChunk(rows->rows[0].n);
	int64		previous = -1;

	for (int i = 0; i < rows->nrows; i++)
	{
		int64		chunk = SaStagedChunk(rows->rows[i].n);

		note_place(source, entry, rows->rows[i].segment, rows->rows[i].block);
		if (chunk == previous)
			continue;
		add_entry_range(source, entry, chunk, chunk);
		add_range(source, chunk, chunk, index);
		previous = chunk;
	}
	if (!ascending)
		sort_ranges(source);
}

/* Puts the rows, whole chunks sorted by number, at the end of the order. */
static void
extend_order(SaSource *source, const Rows *rows, bool skipped)
{
	bool		extends = extends_last_entry(source, rows, skipped);
	Entry	   *entry;

	source->changed = true;
	if (extends)
		entry = &source->entries[source->nentries - 1];
	else
		entry = add_entry(source, source->staged.next_position, skipped);
	note_chunks(source, entry, rows);
	entry->order.records += rows->nrows;
	source->staged.next_position += rows->nrows;

	if (extends)
		sa_staged_update_entry(source->stream, &entry->order);
	else
		sa_staged_insert_entry(source->stream, &entry->order);
	sa_staged_update(&source->staged);
}

int64
sa_staged_order_rest(SaSource *source, bool skipped)
{
	MemoryContext oldcxt = CurrentMemoryContext;
	int64		count = 0;

	begin_call(source);
	start_pass(source);
	do
	{
		Rows		rows = {0};

		find_new_rows(source, &rows, ENTRY_RECORDS);
		if (rows.nrows > 0)
			extend_order(source, &rows, skipped);
		count += rows.nrows;
		if (rows.rows != NULL)
			pfree(rows.rows);
	} while (source->in_pass);
	end_call(source, oldcxt);
	return count;
}

/* ---------- reading along the order ---------- */

/* Values stored out of line must outlive the segment. */
static void
fetch_external_values(SaBatch *batch, SaEvent *event)
{
	for (int i = 0; i < batch->desc->natts; i++)
	{
		if (TupleDescAttr(batch->desc, i)->attlen == -1 && !event->nulls[i] &&
			VARATT_IS_EXTERNAL(DatumGetPointer(event->values[i])))
			event->values[i] = PointerGetDatum(detoast_external_attr((struct varlena *) DatumGetPointer(event->values[i])));
	}
}

/* The next record as an event; the tuple lives in the batch's memory. */
static void
emit_row(SaSource *source, SaBatch *batch, SaBatchPartition *partition, int segment, HeapTuple tuple)
{
	Segment    *seg = &source->segments[segment];
	SaEvent    *event = sa_batch_add(batch);

	if (seg->reader == NULL)
	{
		MemoryContext oldcxt = MemoryContextSwitchTo(source->call_cxt);

		seg->reader = sa_staged_reader(batch->desc, seg->rel);
		MemoryContextSwitchTo(oldcxt);
	}
	sa_staged_read_row(seg->reader, tuple, event->values, event->nulls);
	if (HeapTupleHasExternal(tuple))
		fetch_external_values(batch, event);
	event->position = partition->next++;
	event->arrival = sa_staged_row_arrival(tuple);
	event->partition = partition - batch->partitions;
}

static void
emit_new_rows(SaSource *source, SaBatch *batch, SaBatchPartition *partition, Rows *rows, int count)
{
	MemoryContext oldcxt = MemoryContextSwitchTo(batch->cxt);

	for (int i = 0; i < count; i++)
		emit_row(source, batch, partition, rows->rows[i].segment, rows->rows[i].tuple);
	MemoryContextSwitchTo(oldcxt);
}

/* The entry that a position belongs to. */
static int
entry_of_position(SaSource *source, int64 position)
{
	int			low = 0;
	int			high = source->nentries - 1;

	while (low <= high)
	{
		int			middle = low + (high - low) / 2;
		SaStagedEntry *order = &source->entries[middle].order;

		if (position < order->first_position)
			high = middle - 1;
		else if (position >= order->first_position + order->records)
			low = middle + 1;
		else
			return middle;
	}
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("position " INT64_FORMAT " is not in the order of the staged stream", position)));
	return -1;					/* keep compiler quiet */
}

typedef struct EntryVisit
{
	SaSource   *source;
	int			entry;
	int			segment;
	int64		nrows;
	int64		maxrows;
	RowPlace   *rows;
} EntryVisit;

static void
visit_entry_row(void *arg, HeapTuple tuple, int64 n, SaRowState state)
{
	EntryVisit *visit = arg;
	RowPlace   *row;

	if (state != SA_ROW_VISIBLE || entry_of_chunk(visit->source, SaStagedChunk(n)) != visit->entry)
		return;
	if (visit->nrows >= visit->maxrows)
	{
		visit->nrows++;			/* too many, as will be told */
		return;
	}
	row = &visit->rows[visit->nrows++];
	row->n = n;
	row->block = ItemPointerGetBlockNumber(&tuple->t_self);
	row->offset = ItemPointerGetOffsetNumber(&tuple->t_self);
	row->segment = (uint16) visit->segment;
}

static int
compare_row_places(const void *a, const void *b)
{
	int64		x = ((const RowPlace *) a)->n;
	int64		y = ((const RowPlace *) b)->n;

	return x < y ? -1 : x > y ? 1 : 0;
}

/* Looks up where all the rows of an entry are. */
static void
fill_open_entry(SaSource *source, OpenEntry *open, int index)
{
	Entry	   *entry = &source->entries[index];
	EntryVisit	visit = {source, index, 0, 0, entry->order.records, NULL};

	open->cxt = AllocSetContextCreate(source->state_cxt, "stream_agg open entry", ALLOCSET_SMALL_SIZES);
	visit.rows = MemoryContextAllocHuge(open->cxt, sizeof(RowPlace) * (Size) entry->order.records);
	for (int i = 0; i < entry->nplaces; i++)
	{
		Place	   *place = &entry->places[i];
		Segment    *segment = &source->segments[place->segment];

		visit.segment = place->segment;
		if (open_segment(segment) == NULL)
			continue;
		for (BlockNumber block = place->first; block <= place->last; block++)
		{
			CHECK_FOR_INTERRUPTS();
			sa_staged_scan_page(segment->rel, block, source->snapshot, NULL, visit_entry_row, &visit);
		}
	}
	if (visit.nrows != entry->order.records)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("staged rows are missing"),
				 errdetail("The order has " INT64_FORMAT " records from position " INT64_FORMAT " on, but " INT64_FORMAT " were found.",
						   entry->order.records, entry->order.first_position, visit.nrows)));
	qsort(visit.rows, visit.nrows, sizeof(RowPlace), compare_row_places);
	open->rows = visit.rows;
	open->first_position = entry->order.first_position;
	open->records = entry->order.records;
}

static OpenEntry *
open_entry(SaSource *source, int index)
{
	SaStagedEntry *order = &source->entries[index].order;
	OpenEntry  *open = &source->open[0];

	for (int i = 0; i < OPEN_ENTRIES; i++)
	{
		OpenEntry  *other = &source->open[i];

		if (other->cxt != NULL && other->first_position == order->first_position)
		{
			open = other;
			break;
		}
		if (other->used < open->used)
			open = other;
	}
	if (open->cxt == NULL || open->first_position != order->first_position || open->records != order->records)
	{
		if (open->cxt != NULL)
			MemoryContextDelete(open->cxt);
		memset(open, 0, sizeof(OpenEntry));
		fill_open_entry(source, open, index);
	}
	open->used = ++source->uses;
	return open;
}

/* Copies the row from its page, which stays pinned in *buffer for the next one. */
static HeapTuple
fetch_row(SaSource *source, const RowPlace *place, Buffer *buffer, Rows *rows)
{
	Segment    *segment = &source->segments[place->segment];
	HeapTupleData tuple;
	HeapTuple	copy;
	Page		page;
	ItemId		item;

	if (open_segment(segment) == NULL)
		elog(ERROR, "segment of staged rows is gone");
	*buffer = ReleaseAndReadBuffer(*buffer, segment->rel, place->block);
	LockBuffer(*buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(*buffer);
	item = PageGetItemId(page, place->offset);
	if (place->offset > PageGetMaxOffsetNumber(page) || !ItemIdIsNormal(item))
		elog(ERROR, "staged row has vanished");
	tuple.t_data = (HeapTupleHeader) PageGetItem(page, item);
	tuple.t_len = ItemIdGetLength(item);
	tuple.t_tableOid = segment->relid;
	ItemPointerSet(&tuple.t_self, place->block, place->offset);
	if (sa_staged_row_number(&tuple) != place->n)
		elog(ERROR, "staged row has changed");
	copy = copy_row(rows, &tuple);
	LockBuffer(*buffer, BUFFER_LOCK_UNLOCK);
	rows->bytes += tuple.t_len;
	return copy;
}

/* Read on within one entry. */
static void
reread(SaSource *source, SaBatch *batch, SaBatchPartition *partition, int max_rows, Rows *rows)
{
	int			index = entry_of_position(source, partition->next);
	SaStagedEntry *order = &source->entries[index].order;
	int64		end = order->first_position + order->records;
	Buffer		buffer = InvalidBuffer;
	MemoryContext oldcxt;
	OpenEntry  *open;

	if (order->skipped)
	{
		partition->skipped += end - partition->next;
		partition->next = end;
		return;
	}
	survey(source);
	open = open_entry(source, index);
	oldcxt = MemoryContextSwitchTo(batch->cxt);
	while (partition->next < end && batch->nevents < max_rows && rows->bytes < READ_BYTES)
	{
		const RowPlace *place = &open->rows[partition->next - open->first_position];

		CHECK_FOR_INTERRUPTS();
		emit_row(source, batch, partition, place->segment, fetch_row(source, place, &buffer, rows));
	}
	if (BufferIsValid(buffer))
		ReleaseBuffer(buffer);
	MemoryContextSwitchTo(oldcxt);
}

/* Fix the order of rows that are new, and read them. */
static void
read_new(SaSource *source, SaBatch *batch, SaBatchPartition *partition, int max_rows, Rows *rows)
{
	find_new_rows(source, rows, max_rows);
	if (rows->nrows == 0)
		return;
	extend_order(source, rows, false);
	emit_new_rows(source, batch, partition, rows, Min(rows->nrows, max_rows));
}

/* The reader is at a position whose rows have been given back. */
static void
read_lost(SaSource *source, SaBatchPartition *partition)
{
	if (!source->options.skip_data_loss)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("staged rows from position " INT64_FORMAT " on are no longer kept", partition->next),
				 errdetail("The first position still kept is " INT64_FORMAT ".", source->staged.first_position),
				 errhint("Set the stream's option on_data_loss to 'skip' to go on from there.")));
	partition->skipped += source->staged.first_position - partition->next;
	partition->next = source->staged.first_position;
}

/* ---------- giving back ---------- */

/* Positions before this one lie at least partly in the segment. */
static int64
kept_until(SaSource *source, int segment)
{
	for (int i = source->nentries - 1; i >= 0; i--)
	{
		Entry	   *entry = &source->entries[i];

		for (int j = 0; j < entry->nplaces; j++)
		{
			if (entry->places[j].segment == segment)
				return entry->order.first_position + entry->order.records;
		}
	}
	return 0;
}

/*
 * May no snapshot of this database need the segment any more?  A snapshot that does not see what the
 * last view read of it must still find the rows.
 */
static bool
precedes_all_snapshots(Segment *segment)
{
	if (!FullTransactionIdIsValid(segment->passed))
		segment->passed = ReadNextFullTransactionId();
	return TransactionIdPrecedesOrEquals(XidFromFullTransactionId(segment->passed),
										 GetOldestNonRemovableTransactionId(segment->rel));
}

/* Nobody can write now: is there really nothing left to read? */
static bool
holds_unread_rows(SaSource *source, int segment)
{
	Segment    *seg = &source->segments[segment];
	BlockNumber nblocks = sa_staged_blocks(seg->rel);

	for (BlockNumber block = 0; block < nblocks; block++)
	{
		Visit		visit = {source, segment, block, NULL, false};

		CHECK_FOR_INTERRUPTS();
		sa_staged_scan_page(seg->rel, block, source->snapshot, NULL, visit_row, &visit);
		if (visit.unsettled)
			return true;
	}
	return false;
}

/* The order no longer has to know of chunks that are in no segment any more. */
static void
forget_entries(SaSource *source, int segment)
{
	int		   *renumbered = palloc(sizeof(int) * Max(source->nentries, 1));
	int			nentries = 0;
	int			nranges = 0;

	for (int i = 0; i < source->nentries; i++)
	{
		Entry	   *entry = &source->entries[i];
		int			nplaces = 0;

		for (int j = 0; j < entry->nplaces; j++)
		{
			if (entry->places[j].segment != segment)
				entry->places[nplaces++] = entry->places[j];
		}
		entry->nplaces = nplaces;
		renumbered[i] = -1;
		if (nplaces == 0 &&
			entry->order.first_position + entry->order.records <= source->staged.first_position)
		{
			sa_staged_delete_entry(source->stream, entry->order.first_position);
			continue;
		}
		renumbered[i] = nentries;
		source->entries[nentries++] = *entry;
	}
	for (int i = 0; i < source->nranges; i++)
	{
		Range		range = source->ranges[i];

		range.entry = renumbered[range.entry];
		if (range.entry >= 0)
			source->ranges[nranges++] = range;
	}
	source->nentries = nentries;
	source->nranges = nranges;
	source->last_range = 0;
	pfree(renumbered);
}

static int
count_spare_segments(SaSource *source)
{
	int			count = 0;

	for (int i = 0; i < source->nsegments; i++)
	{
		Segment    *segment = &source->segments[i];

		if (segment->relid != source->staged.writing && open_segment(segment) != NULL &&
			sa_staged_blocks(segment->rel) == 0)
			count++;
	}
	return count;
}

static bool
fits_stream(SaSource *source, Relation segment)
{
	Relation	stream = table_open(source->stream, NoLock);
	TupleDesc	desc = RelationGetDescr(stream);
	AttrNumber *map = palloc(sizeof(AttrNumber) * Max(desc->natts, 1));
	bool		fits = sa_staged_map(desc, RelationGetDescr(segment), map);

	table_close(stream, NoLock);
	pfree(map);
	return fits;
}

/* The segment's rows go; it is kept for reuse, or dropped when there are others or it is outdated. */
static void
give_back(SaSource *source, int segment)
{
	Segment    *seg = &source->segments[segment];
	int64		until = kept_until(source, segment);
	bool		keep;

	if (!ConditionalLockRelationOid(seg->relid, AccessExclusiveLock))
		return;
	if (holds_unread_rows(source, segment))
	{
		ereport(LOG,
				(errmsg("segment \"%s\" of a staged stream has rows that are not read yet",
						RelationGetRelationName(seg->rel))));
		reopen_segment(seg);
		return;
	}

	source->changed = true;
	keep = fits_stream(source, seg->rel) && count_spare_segments(source) < SPARE_SEGMENTS;
	if (keep)
		sa_staged_empty_segment(seg->rel);
	close_segment(seg);
	if (keep)
		seg->file = current_file(seg->relid);
	else
	{
		sa_staged_drop_segment(seg->relid);
		seg->relid = InvalidOid;
	}
	seg->next = seg->limit = 0;
	seg->passed = InvalidFullTransactionId;
	reopen_segment(seg);

	source->staged.first_position = Max(source->staged.first_position, until);
	forget_entries(source, segment);
	sa_staged_update(&source->staged);
}

static void
give_back_segments(SaSource *source, int64 position)
{
	survey(source);
	for (int i = 0; i < source->nsegments; i++)
	{
		Segment    *segment = &source->segments[i];

		CHECK_FOR_INTERRUPTS();
		settle_segment(segment);
		if (segment->relid == source->staged.writing || !segment->done || open_segment(segment) == NULL ||
			sa_staged_blocks(segment->rel) == 0)
			continue;
		if (kept_until(source, i) <= position && precedes_all_snapshots(segment))
			give_back(source, i);
	}
}

/* An empty segment to write to: a spare one, or a new one. */
static Oid
next_segment(SaSource *source)
{
	Relation	stream;
	Oid			segment;

	for (int i = 0; i < source->nsegments; i++)
	{
		Segment    *spare = &source->segments[i];

		if (spare->relid != source->staged.writing && open_segment(spare) != NULL &&
			sa_staged_blocks(spare->rel) == 0 && fits_stream(source, spare->rel))
			return spare->relid;
	}
	stream = table_open(source->stream, NoLock);
	segment = sa_staged_create_segment(&source->staged, RelationGetDescr(stream));
	table_close(stream, NoLock);
	return segment;
}

/* When the segment that is written to is large enough, send writers to another. */
static void
rotate(SaSource *source)
{
	Segment    *writing = find_segment(source, source->staged.writing);
	BlockNumber limit = (BlockNumber) (((int64) sa_staged_segment_size * 1024 + BLCKSZ - 1) / BLCKSZ);

	if (writing == NULL || open_segment(writing) == NULL || sa_staged_blocks(writing->rel) < limit)
		return;
	if (!ConditionalLockRelationOid(source->stream, ShareUpdateExclusiveLock))
		return;
	source->changed = true;
	source->staged.writing = next_segment(source);
	sa_staged_update(&source->staged);
	CacheInvalidateRelcacheByRelid(source->stream);
	load_segments(source);
	reopen_segment(find_segment(source, source->staged.writing));
}

/* ---------- the routine's functions ---------- */

SaSource *
sa_staged_open(const SaStreamOptions *options, MemoryContext cxt)
{
	SaSource   *source = MemoryContextAllocZero(cxt, sizeof(SaSource));
	SaStagedStream staged;

	source->options = *options;
	source->stream = options->relid;
	source->cxt = cxt;
	source->state_cxt = AllocSetContextCreate(cxt, "stream_agg staged order", ALLOCSET_DEFAULT_SIZES);
	source->call_cxt = AllocSetContextCreate(cxt, "stream_agg staged call", ALLOCSET_DEFAULT_SIZES);
	LockRelationOid(source->stream, AccessShareLock);
	sa_staged_ensure(source->stream, &staged);
	return source;
}

void
sa_staged_close(SaSource *source)
{
	MemoryContextDelete(source->state_cxt);
	MemoryContextDelete(source->call_cxt);
	pfree(source);
}

List *
sa_staged_start(SaSource *source, bool latest)
{
	MemoryContext oldcxt = CurrentMemoryContext;
	SaPosition *position = palloc(sizeof(SaPosition));

	position->topic = "";
	position->partition = 0;
	if (latest)
	{
		(void) sa_staged_order_rest(source, false);
		position->position = source->staged.next_position;
	}
	else
	{
		begin_call(source);
		position->position = source->staged.first_position;
		end_call(source, oldcxt);
	}
	return list_make1(position);
}

void
sa_staged_refresh(SaSource *source)
{
	MemoryContext oldcxt = CurrentMemoryContext;

	begin_call(source);
	start_pass(source);
	end_call(source, oldcxt);
}

void
sa_staged_read(SaSource *source, List *from, int max_rows, SaBatch *batch)
{
	MemoryContext oldcxt = CurrentMemoryContext;
	const SaPosition *position = linitial(from);
	Rows		rows = {.copy_cxt = batch->cxt};
	SaBatchPartition *partition;
	int			index;

	begin_call(source);
	index = sa_batch_partition(batch, "", 0, position->position);
	partition = &batch->partitions[index];
	if (partition->next > source->staged.next_position)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("position " INT64_FORMAT " is beyond the end of the staged stream", partition->next),
				 errdetail("The end is at position " INT64_FORMAT ".", source->staged.next_position)));
	if (partition->next < source->staged.first_position)
		read_lost(source, partition);
	while (partition->next < source->staged.next_position && batch->nevents < max_rows &&
		   rows.bytes < READ_BYTES)
		reread(source, batch, partition, max_rows, &rows);
	if (partition->next == source->staged.next_position && batch->nevents < max_rows &&
		rows.bytes < READ_BYTES)
		read_new(source, batch, partition, max_rows - batch->nevents, &rows);
	batch->at_end = source->passed && !source->in_pass && partition->next == source->staged.next_position;
	end_call(source, oldcxt);
}

void
sa_staged_end_batch(SaSource *source, bool committed)
{
	source->snapshot = NULL;
	for (int i = 0; i < source->nsegments; i++)
	{
		source->segments[i].rel = NULL;
		source->segments[i].reader = NULL;
	}
	if (source->changed && !committed)
		forget(source);
	source->changed = false;
}

void
sa_staged_release(SaSource *source, List *positions)
{
	MemoryContext oldcxt = CurrentMemoryContext;
	ListCell   *lc;
	int64		position = PG_INT64_MAX;

	begin_call(source);
	rotate(source);
	foreach(lc, positions)
		position = Min(position, ((SaPosition *) lfirst(lc))->position);
	if (positions != NIL)
		give_back_segments(source, position);
	end_call(source, oldcxt);
}

int64
sa_staged_end_position(SaSource *source, const char *topic, int32 partition)
{
	return source->staged.next_position;
}
