/*
 * source_staged_pass.c
 *		Passes: finding the rows that are not yet in the order.
 *
 * Invariant: a pass looks at every page that is not known to hold nothing but ordered or dead rows, and at
 * those whose LSN has moved since that was known.  A page that is full of rows that will never die is not
 * looked at again.  Only whole chunks are taken.
 *
 * A segment other than the writing one is closed once a ShareLock on it was to be had: no writer has
 * it locked, and later ones will look up the new one.  A closed segment that was swept since and has
 * no page left to look at is done: it is not visited again, until its rows are read anew or given back.
 *
 * Locks and crash: see source_staged_order.c.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "compat.h"

#include "source_staged_pass.h"

#define PASS_ROWS 100000		/* ordered at once when nobody reads them */
#define PASS_BYTES (64 * 1024 * 1024)	/* of rows found at once, about */
#define PAGE_FINAL PG_UINT64_MAX	/* nothing left to look at, and nothing will come to this page */
#define ROW_BLOCK 65536			/* rows are copied into blocks of this size */

/* ---------- visiting pages ---------- */

typedef struct Visit
{
	SaSource   *source;
	int			segment;
	BlockNumber block;
	SaRows	   *rows;			/* NULL: only note where ordered rows are */
	bool		unsettled;		/* there is something left to look at */
	bool		dead;			/* there are rows that VACUUM would remove */
} Visit;

HeapTuple
sa_staged_copy_row(SaRows *rows, HeapTuple tuple)
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
	SaRows	   *rows = visit->rows;
	SaRow		   *row;

	if (rows->nrows >= rows->maxrows)
	{
		rows->maxrows = Max(1024, rows->maxrows * 2);
		if (rows->rows == NULL)
			rows->rows = MemoryContextAllocHuge(visit->source->call_cxt, sizeof(SaRow) * (Size) rows->maxrows);
		else
			rows->rows = repalloc_huge(rows->rows, sizeof(SaRow) * (Size) rows->maxrows);
	}
	row = &rows->rows[rows->nrows++];
	row->n = n;
	row->block = visit->block;
	row->segment = (uint16) visit->segment;
	row->tuple = rows->copy_cxt != NULL ? sa_staged_copy_row(rows, tuple) : NULL;
	if (row->tuple != NULL)
		rows->bytes += tuple->t_len;
}

static void
visit_row(void *arg, HeapTuple tuple, int64 n, SaRowState state)
{
	Visit	   *visit = arg;
	int			entry;

	if (state == SA_ROW_DEAD)
	{
		visit->dead = true;
		return;
	}
	if (state == SA_ROW_PENDING)
	{
		visit->unsettled = true;
		return;
	}
	entry = sa_staged_entry_of_chunk(visit->source, SaStagedChunk(n));
	if (entry >= 0)
		sa_staged_note_place(visit->source, &visit->source->entries[entry], visit->segment, visit->block);
	else if (visit->rows != NULL)
		collect_row(visit, tuple, n);
	else
		visit->unsettled = true;
}

/* A page found settled counts as such unless rows collected from it turn out not to be taken. */
static void
visit_page(SaSource *source, int segment, BlockNumber block, SaRows *rows)
{
	SaSegment    *seg = &source->segments[segment];
	Visit		visit = {source, segment, block, rows, false};
	XLogRecPtr	lsn;
	bool		full;

	CHECK_FOR_INTERRUPTS();
	lsn = sa_staged_scan_page(seg->rel, block, source->snapshot, visit_row, &visit, &full);
	if (visit.unsettled)
		seg->pages[block] = 0;
	else if (full && !visit.dead)
		seg->pages[block] = PAGE_FINAL;
	else
		seg->pages[block] = (uint64) lsn + 1;
}

static bool
is_settled(SaSegment *segment, BlockNumber block)
{
	uint64		known = segment->pages[block];

	return known == PAGE_FINAL ||
		(known != 0 && known == (uint64) sa_staged_page_lsn(segment->rel, block) + 1);
}

static void
make_room_for_pages(SaSource *source, SaSegment *segment, BlockNumber npages)
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
void
sa_staged_survey(SaSource *source)
{
	for (int i = 0; i < source->nsegments; i++)
	{
		SaSegment    *segment = &source->segments[i];
		BlockNumber nblocks;

		if (segment->seen || sa_staged_open_segment(segment) == NULL)
			continue;
		nblocks = sa_staged_blocks(segment->rel);
		make_room_for_pages(source, segment, nblocks);
		for (BlockNumber block = 0; block < nblocks; block++)
			visit_page(source, i, block, NULL);
		segment->seen = true;
	}
}

/* ---------- passes ---------- */

/*
 * Does no writer hold the segment, now that new ones go to another?  All of them have been told of that
 * once whoever changed it has let go of the lock on the stream.
 */
static bool
is_left_by_writers(SaSource *source, Oid relid)
{
	if (!ConditionalLockRelationOid(source->stream, ShareUpdateExclusiveLock))
		return false;
	UnlockRelationOid(source->stream, ShareUpdateExclusiveLock);
	if (!ConditionalLockRelationOid(relid, ShareLock))
		return false;
	UnlockRelationOid(relid, ShareLock);
	return true;
}

/* Nothing can change in there any more; the array of pages has served. */
void
sa_staged_settle_segment(SaSegment *segment)
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
void
sa_staged_start_pass(SaSource *source)
{
	sa_staged_load_segments(source);
	for (int i = 0; i < source->nsegments; i++)
	{
		SaSegment    *segment = &source->segments[i];

		sa_staged_settle_segment(segment);
		segment->next = segment->limit = 0;
		if (segment->done || !OidIsValid(segment->relid))
			continue;
		if (!segment->closed && segment->relid != source->staged.writing)
			segment->closed = is_left_by_writers(source, segment->relid);
		if (sa_staged_open_segment(segment) == NULL)
			continue;
		segment->closed_before_pass = segment->closed;
		segment->limit = sa_staged_blocks(segment->rel);
		make_room_for_pages(source, segment, segment->limit);
		if (segment->limit == 0)
			segment->seen = segment->swept = true;
	}
	source->in_pass = source->passed = true;
	source->pass_began = sa_clock_now();

	/* The closing of segments is only good for what a snapshot taken afterwards does not show. */
	UnregisterSnapshot(source->snapshot);
	source->snapshot = RegisterSnapshot(GetLatestSnapshot());
}

/* Go on with the pass until there are enough rows; true when it came to its end. */
static bool
collect(SaSource *source, SaRows *rows, int max_rows, Size max_bytes)
{
	for (int i = 0; i < source->nsegments; i++)
	{
		SaSegment    *segment = &source->segments[i];

		if (segment->next >= segment->limit || sa_staged_open_segment(segment) == NULL)
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
	int64		x = ((const SaRow *) a)->n;
	int64		y = ((const SaRow *) b)->n;

	return x < y ? -1 : x > y ? 1 : 0;
}

/* The number of rows from index on that are of the same chunk; *complete tells if all of it is there. */
static int
chunk_rows(const SaRows *rows, int index, bool *complete)
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
leave_rows(SaSource *source, const SaRow *rows, int count, bool revisit)
{
	for (int i = 0; i < count; i++)
	{
		SaSegment    *segment = &source->segments[rows[i].segment];

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
take_whole_chunks(SaSource *source, SaRows *rows, int max_rows, bool ended)
{
	int			taken = 0;
	bool		left = false;
	int			count;

	qsort(rows->rows, rows->nrows, sizeof(SaRow), compare_rows);
	for (int i = 0; i < rows->nrows; i += count)
	{
		bool		complete;

		count = chunk_rows(rows, i, &complete);
		if (complete && !left && (taken <= max_rows / 2 || taken + count <= max_rows))
		{
			memmove(rows->rows + taken, rows->rows + i, sizeof(SaRow) * count);
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
void
sa_staged_find_rows(SaSource *source, SaRows *rows, int max_rows)
{
	int			bound = max_rows + SA_CHUNK_ROWS;	/* to have the last chunk whole */
	Size		max_bytes = PASS_BYTES;
	bool		ended;

	if (!source->in_pass)
		sa_staged_start_pass(source);
	for (;;)
	{
		ended = collect(source, rows, bound, max_bytes);
		if (rows->nrows > 0)
			source->changed = true;
		source->in_pass = !take_whole_chunks(source, rows, max_rows, ended);
		if (rows->nrows > 0 || !source->in_pass)
			break;
		bound = bound > INT_MAX / 2 ? INT_MAX : bound * 2;
		max_bytes *= 2;
		rows->bytes = 0;
	}
}

/* ---------- ordering all there is ---------- */

int64
sa_staged_order_all(SaSource *source, bool skipped)
{
	int64		count = 0;

	sa_staged_start_pass(source);
	do
	{
		SaRows		rows = {0};

		sa_staged_find_rows(source, &rows, PASS_ROWS);
		if (rows.nrows > 0)
			sa_staged_extend_order(source, &rows, skipped);
		count += rows.nrows;
		if (rows.rows != NULL)
			pfree(rows.rows);
	} while (source->in_pass);
	return count;
}

int64
sa_staged_order_rest(SaSource *source, bool skipped)
{
	MemoryContext oldcxt = CurrentMemoryContext;
	int64		count;

	sa_staged_begin_call(source);
	count = sa_staged_order_all(source, skipped);
	sa_staged_end_call(source, oldcxt);
	return count;
}

/* Nobody can write now: is there really nothing left to read? */
bool
sa_staged_has_unread(SaSource *source, int segment)
{
	SaSegment    *seg = &source->segments[segment];
	BlockNumber nblocks = sa_staged_blocks(seg->rel);

	for (BlockNumber block = 0; block < nblocks; block++)
	{
		Visit		visit = {source, segment, block, NULL, false};

		CHECK_FOR_INTERRUPTS();
		sa_staged_scan_page(seg->rel, block, source->snapshot, visit_row, &visit, NULL);
		if (visit.unsettled)
			return true;
	}
	return false;
}
