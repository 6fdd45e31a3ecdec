/*
 * source_staged_peek.c
 *		SELECT from a staged stream.
 *
 * Invariant: a SELECT returns the staged rows that are visible in its snapshot and not given back,
 * each once: those in the order as its snapshot has it, in that order, then the others.  Rows that
 * TRUNCATE discarded are not shown.
 *
 * Locks: AccessShareLock on the segments.  Crash: nothing is written.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_type.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "storage/predicate.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/tuplesort.h"

#include "compat.h"

#include "source_staged.h"
#include "source_staged_segment.h"

/* The chunks that are in the order: of entry -1 when their rows are not to be shown. */
typedef struct PeekRange
{
	int64		first;
	int64		last;
	int			entry;
} PeekRange;

#define NOT_ORDERED (-2)
#define NOT_SHOWN (-1)

struct SaPeek
{
	MemoryContext cxt;
	MemoryContext page_cxt;		/* rows of one page, reset at the next */
	Oid			stream;
	TupleDesc	desc;			/* of the stream */
	Snapshot	snapshot;
	int			nranges;
	PeekRange  *ranges;
	int			last_range;
	bool		any_ordered;
	List	   *pending;		/* of SaPendingRows */

	int			nsegments;
	Relation   *segments;
	SaRowReader **readers;

	/* ordered rows */
	Tuplesortstate *sort;
	TupleTableSlot *sort_slot;
	bool		sort_done;

	/* the others */
	int			segment;
	BlockNumber block;
	BlockNumber nblocks;
	List	   *rows;			/* of the current page */
	int			row;
	int			pending_index;
	int			pending_row;
};

static int
compare_peek_ranges(const void *a, const void *b)
{
	int64		x = ((const PeekRange *) a)->first;
	int64		y = ((const PeekRange *) b)->first;

	return x < y ? -1 : x > y ? 1 : 0;
}

static void
load_peek_ranges(SaPeek *peek)
{
	List	   *entries = sa_staged_entries(peek->stream, peek->snapshot);
	int			max = list_length(peek->pending);
	int			index = 0;
	ListCell   *lc;

	foreach(lc, entries)
		max += ((SaStagedEntry *) lfirst(lc))->nranges;
	peek->ranges = MemoryContextAllocHuge(peek->cxt, sizeof(PeekRange) * (Size) Max(max, 1));
	foreach(lc, entries)
	{
		SaStagedEntry *entry = lfirst(lc);

		for (int i = 0; i < entry->nranges; i++)
		{
			PeekRange  *range = &peek->ranges[peek->nranges++];

			range->first = entry->ranges[i].first;
			range->last = entry->ranges[i].last;
			range->entry = entry->skipped ? NOT_SHOWN : index;
		}
		peek->any_ordered |= !entry->skipped;
		index++;
	}
	/* Rows we have copies of may come to the segments while we read. */
	foreach(lc, peek->pending)
	{
		PeekRange  *range = &peek->ranges[peek->nranges++];

		range->first = range->last = ((SaPendingRows *) lfirst(lc))->chunk;
		range->entry = NOT_SHOWN;
	}
	qsort(peek->ranges, peek->nranges, sizeof(PeekRange), compare_peek_ranges);
}

static int
entry_of(SaPeek *peek, int64 n)
{
	int64		chunk = SaStagedChunk(n);
	int			low = 0;
	int			high = peek->nranges - 1;

	if (peek->nranges > 0 && chunk >= peek->ranges[peek->last_range].first &&
		chunk <= peek->ranges[peek->last_range].last)
		return peek->ranges[peek->last_range].entry;
	while (low <= high)
	{
		int			middle = low + (high - low) / 2;
		PeekRange  *range = &peek->ranges[middle];

		if (chunk < range->first)
			high = middle - 1;
		else if (chunk > range->last)
			low = middle + 1;
		else
		{
			peek->last_range = middle;
			return range->entry;
		}
	}
	return NOT_ORDERED;
}

static void
open_segments(SaPeek *peek)
{
	List	   *segments = sa_staged_segments(peek->stream);
	ListCell   *lc;

	peek->segments = palloc(sizeof(Relation) * (list_length(segments) + 1));
	peek->readers = palloc(sizeof(SaRowReader *) * (list_length(segments) + 1));
	foreach(lc, segments)
	{
		Relation	rel = try_table_open(lfirst_oid(lc), AccessShareLock);

		if (rel == NULL)
			continue;
		PredicateLockRelation(rel, peek->snapshot);
		peek->segments[peek->nsegments] = rel;
		peek->readers[peek->nsegments++] = sa_staged_reader(peek->desc, rel);
	}
}

static void
rewind_rest(SaPeek *peek)
{
	peek->segment = -1;
	peek->block = peek->nblocks = 0;
	peek->rows = NIL;
	peek->row = 0;
	peek->pending_index = 0;
	peek->pending_row = 0;
	MemoryContextReset(peek->page_cxt);
}

SaPeek *
sa_staged_peek_begin(Relation stream, Snapshot snapshot, List *restrictions)
{
	MemoryContext cxt = AllocSetContextCreate(CurrentMemoryContext, "stream_agg peek", ALLOCSET_DEFAULT_SIZES);
	MemoryContext oldcxt = MemoryContextSwitchTo(cxt);
	SaPeek	   *peek = palloc0(sizeof(SaPeek));

	peek->cxt = cxt;
	peek->page_cxt = AllocSetContextCreate(cxt, "stream_agg peeked page", ALLOCSET_DEFAULT_SIZES);
	peek->stream = RelationGetRelid(stream);
	peek->desc = CreateTupleDescCopy(RelationGetDescr(stream));
	peek->snapshot = snapshot;
	peek->pending = sa_staged_flush_pending(stream, snapshot);
	load_peek_ranges(peek);
	open_segments(peek);
	rewind_rest(peek);
	MemoryContextSwitchTo(oldcxt);
	return peek;
}

/* ---------- ordered rows: sorted by entry and number ---------- */

#define SORT_ENTRY 1
#define SORT_NUMBER 2
#define SORT_FIXED 2

static TupleDesc
sort_descriptor(TupleDesc stream)
{
	TupleDesc	desc = CreateTemplateTupleDesc(SORT_FIXED + stream->natts);

	TupleDescInitEntry(desc, SORT_ENTRY, "entry", INT8OID, -1, 0);
	TupleDescInitEntry(desc, SORT_NUMBER, "n", INT8OID, -1, 0);
	for (int i = 0; i < stream->natts; i++)
	{
		if (TupleDescAttr(stream, i)->attisdropped)
			TupleDescInitEntry(desc, SORT_FIXED + i + 1, "dropped", INT4OID, -1, 0);
		else
			TupleDescCopyEntry(desc, SORT_FIXED + i + 1, stream, i + 1);
	}
	return desc;
}

typedef struct CopyVisit
{
	SaPeek	   *peek;
	bool		ordered;		/* these, or the others */
} CopyVisit;

static void
copy_visited_row(void *arg, HeapTuple tuple, int64 n, SaRowState state)
{
	CopyVisit  *visit = arg;
	SaPeek	   *peek = visit->peek;
	int			entry;

	if (state != SA_ROW_VISIBLE)
		return;
	entry = entry_of(peek, n);
	if (visit->ordered ? entry >= 0 : entry == NOT_ORDERED)
		peek->rows = lappend(peek->rows, heap_copytuple(tuple));
}

/* The rows of a page, ordered or not, to peek->rows. */
static void
copy_page(SaPeek *peek, int segment, BlockNumber block, bool ordered)
{
	CopyVisit	visit = {peek, ordered};
	MemoryContext oldcxt;

	CHECK_FOR_INTERRUPTS();
	MemoryContextReset(peek->page_cxt);
	peek->rows = NIL;
	peek->row = 0;
	oldcxt = MemoryContextSwitchTo(peek->page_cxt);
	sa_staged_scan_page(peek->segments[segment], block, peek->snapshot, copy_visited_row, &visit, NULL);
	MemoryContextSwitchTo(oldcxt);
}

static void
sort_page(SaPeek *peek, int segment, TupleTableSlot *slot)
{
	ListCell   *lc;

	foreach(lc, peek->rows)
	{
		HeapTuple	tuple = lfirst(lc);
		int64		n = sa_staged_row_number(tuple);

		ExecClearTuple(slot);
		slot->tts_values[SORT_ENTRY - 1] = Int64GetDatum(entry_of(peek, n));
		slot->tts_values[SORT_NUMBER - 1] = Int64GetDatum(n);
		slot->tts_isnull[SORT_ENTRY - 1] = slot->tts_isnull[SORT_NUMBER - 1] = false;
		sa_staged_read_row(peek->readers[segment], tuple,
						   slot->tts_values + SORT_FIXED, slot->tts_isnull + SORT_FIXED);
		ExecStoreVirtualTuple(slot);
		tuplesort_puttupleslot(peek->sort, slot);
	}
}

static void
sort_ordered(SaPeek *peek)
{
	AttrNumber	attnums[] = {SORT_ENTRY, SORT_NUMBER};
	Oid			operators[] = {Int8LessOperator, Int8LessOperator};
	Oid			collations[] = {InvalidOid, InvalidOid};
	bool		nulls_first[] = {false, false};
	TupleDesc	desc;
	TupleTableSlot *slot;
	MemoryContext oldcxt = MemoryContextSwitchTo(peek->cxt);

	desc = sort_descriptor(peek->desc);
	slot = MakeSingleTupleTableSlot(desc, &TTSOpsVirtual);
	peek->sort_slot = MakeSingleTupleTableSlot(desc, &TTSOpsMinimalTuple);
	peek->sort = tuplesort_begin_heap(desc, lengthof(attnums), attnums, operators, collations,
									  nulls_first, work_mem, NULL, TUPLESORT_RANDOMACCESS);
	for (int i = 0; i < peek->nsegments; i++)
	{
		BlockNumber nblocks = sa_staged_blocks(peek->segments[i]);

		for (BlockNumber block = 0; block < nblocks; block++)
		{
			copy_page(peek, i, block, true);
			sort_page(peek, i, slot);
		}
	}
	tuplesort_performsort(peek->sort);
	ExecDropSingleTupleTableSlot(slot);
	MemoryContextSwitchTo(oldcxt);
	rewind_rest(peek);
}

static bool
next_ordered(SaPeek *peek, TupleTableSlot *slot)
{
	if (!peek->any_ordered || peek->sort_done)
		return false;
	if (peek->sort == NULL)
		sort_ordered(peek);
	if (!tuplesort_gettupleslot(peek->sort, true, false, peek->sort_slot, NULL))
	{
		peek->sort_done = true;
		return false;
	}
	slot_getallattrs(peek->sort_slot);
	memcpy(slot->tts_values, peek->sort_slot->tts_values + SORT_FIXED, sizeof(Datum) * peek->desc->natts);
	memcpy(slot->tts_isnull, peek->sort_slot->tts_isnull + SORT_FIXED, sizeof(bool) * peek->desc->natts);
	return true;
}

/* ---------- the others: page by page, then what is still buffered ---------- */

static bool
next_unordered(SaPeek *peek, TupleTableSlot *slot)
{
	while (peek->row >= list_length(peek->rows))
	{
		while (peek->block >= peek->nblocks)
		{
			if (peek->segment + 1 >= peek->nsegments)
				return false;
			peek->segment++;
			peek->block = 0;
			peek->nblocks = sa_staged_blocks(peek->segments[peek->segment]);
		}
		copy_page(peek, peek->segment, peek->block++, false);
	}
	sa_staged_read_row(peek->readers[peek->segment], list_nth(peek->rows, peek->row++),
					   slot->tts_values, slot->tts_isnull);
	return true;
}

static bool
next_pending(SaPeek *peek, TupleTableSlot *slot)
{
	SaPendingRows *pending;
	HeapTuple	tuple;

	for (;; peek->pending_index++, peek->pending_row = 0)
	{
		if (peek->pending_index >= list_length(peek->pending))
			return false;
		pending = list_nth(peek->pending, peek->pending_index);
		if (peek->pending_row < list_length(pending->tuples))
			break;
	}
	tuple = list_nth(pending->tuples, peek->pending_row++);
	for (int i = 0; i < peek->desc->natts; i++)
	{
		slot->tts_isnull[i] = true;
		slot->tts_values[i] = (Datum) 0;
		if (pending->map[i] != 0)
			slot->tts_values[i] = heap_getattr(tuple, pending->map[i], pending->desc, &slot->tts_isnull[i]);
	}
	return true;
}

/* The values are good until the next call. */
bool
sa_staged_peek_next(SaPeek *peek, TupleTableSlot *slot)
{
	ExecClearTuple(slot);
	if (!next_ordered(peek, slot) && !next_unordered(peek, slot) && !next_pending(peek, slot))
		return false;
	ExecStoreVirtualTuple(slot);
	return true;
}

void
sa_staged_peek_rewind(SaPeek *peek)
{
	if (peek->sort != NULL)
		tuplesort_rescan(peek->sort);
	peek->sort_done = false;
	rewind_rest(peek);
}

void
sa_staged_peek_end(SaPeek *peek)
{
	if (peek->sort != NULL)
		tuplesort_end(peek->sort);
	if (peek->sort_slot != NULL)
		ExecDropSingleTupleTableSlot(peek->sort_slot);
	for (int i = 0; i < peek->nsegments; i++)
		table_close(peek->segments[i], NoLock);
	MemoryContextDelete(peek->cxt);
}
