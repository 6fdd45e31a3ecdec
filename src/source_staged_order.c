/*
 * source_staged_order.c
 *		The fixed order of a staged stream as its worker holds it.
 *
 * Invariant: a row's position is its ordinal in the stream's fixed order.  An entry of staged_order says
 * that the records of certain chunks, sorted by their stored numbers, are the ones from first_position
 * on; entries never change but for the last one, which may grow at its end as long as nothing of it has
 * been given up.  Every committed row of every segment is in the order, or will be found by the next
 * pass (source_staged_pass.c).  So commit order, numbers and page order need not agree, and a
 * transaction that stays open for long delays nobody but itself.
 *
 * Locks: AccessShareLock on the stream and the segments, to the end of the transaction; nothing that a
 * writer could wait for.  A stream has one worker; TRUNCATE holds AccessExclusiveLock on the stream.
 *
 * Crash: what was ordered is in the catalog or was not read.  All that is kept in memory is found again by
 * looking at the segments.
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/pg_class.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "compat.h"

#include "source_staged_pass.h"

#define ENTRY_RECORDS 100000	/* an entry with as many is not added to */
#define ENTRY_RANGES 64			/* nor one with as many ranges */

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
	source->open = NULL;
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

static SaEntry *
add_entry(SaSource *source, int64 first_position, bool skipped)
{
	SaEntry	   *entry;

	source->entries = grow_array(source, source->entries, source->nentries,
								 &source->maxentries, sizeof(SaEntry));
	entry = &source->entries[source->nentries++];
	memset(entry, 0, sizeof(SaEntry));
	entry->order.first_position = first_position;
	entry->order.skipped = skipped;
	return entry;
}

static void
add_entry_range(SaSource *source, SaEntry *entry, int64 first, int64 last)
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
	int64		x = ((const SaRange *) a)->first;
	int64		y = ((const SaRange *) b)->first;

	return x < y ? -1 : x > y ? 1 : 0;
}

static void
add_range(SaSource *source, int64 first, int64 last, int entry)
{
	SaRange	   *range;

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
								&source->maxranges, sizeof(SaRange));
	range = &source->ranges[source->nranges++];
	range->first = first;
	range->last = last;
	range->entry = entry;
}

/* After ranges were added at the end. */
static void
sort_ranges(SaSource *source)
{
	qsort(source->ranges, source->nranges, sizeof(SaRange), compare_ranges);
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

SaSegment *
sa_staged_find_segment(SaSource *source, Oid relid)
{
	for (int i = 0; i < source->nsegments; i++)
	{
		if (source->segments[i].relid == relid)
			return &source->segments[i];
	}
	return NULL;
}

/* Room for another segment: that of one that is gone, or a new one. */
static SaSegment *
free_segment(SaSource *source)
{
	SaSegment  *segment = sa_staged_find_segment(source, InvalidOid);

	if (segment != NULL)
		return segment;
	if (source->nsegments > PG_UINT16_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("too many segments in a staged stream"),
				 errhint("Raise stream_agg.segment_size.")));
	source->segments = grow_array(source, source->segments, source->nsegments,
								  &source->maxsegments, sizeof(SaSegment));
	return &source->segments[source->nsegments++];
}

static void
add_segment(SaSource *source, Oid relid)
{
	SaSegment  *segment = free_segment(source);

	memset(segment, 0, sizeof(SaSegment));
	segment->relid = relid;
	segment->file = current_file(relid);
}

/* The segment is gone, and no entry speaks of it. */
void
sa_staged_remove_segment(SaSource *source, SaSegment *segment)
{
	sa_staged_close_segment(segment);
	memset(segment, 0, sizeof(SaSegment));
	if (source->open != NULL)	/* which may know places in it */
		MemoryContextDelete(source->open_cxt);
	source->open = NULL;
}

/* Writers may go to this segment. */
void
sa_staged_reopen_segment(SaSegment *segment)
{
	segment->closed = false;
	segment->closed_before_pass = false;
	segment->swept = false;
	segment->done = false;
}

void
sa_staged_load_segments(SaSource *source)
{
	ListCell   *lc;

	foreach(lc, sa_staged_segments(source->stream))
	{
		if (sa_staged_find_segment(source, lfirst_oid(lc)) == NULL)
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
		SaEntry	   *entry = add_entry(source, order->first_position, order->skipped);

		entry->order.records = order->records;
		for (int i = 0; i < order->nranges; i++)
		{
			add_entry_range(source, entry, order->ranges[i].first, order->ranges[i].last);
			add_range(source, order->ranges[i].first, order->ranges[i].last, source->nentries - 1);
		}
	}
	sort_ranges(source);
	sa_staged_load_segments(source);
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
		SaSegment    *segment = &source->segments[i];

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
	if (sa_staged_find_segment(source, now.writing) == NULL)
		sa_staged_load_segments(source);
	if (sa_staged_find_segment(source, now.writing) != NULL)
		sa_staged_reopen_segment(sa_staged_find_segment(source, now.writing));
}

/* ---------- calls ---------- */

void
sa_staged_begin_call(SaSource *source)
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

void
sa_staged_close_segment(SaSegment *segment)
{
	if (segment->rel != NULL)
		table_close(segment->rel, NoLock);
	segment->rel = NULL;
	segment->reader = NULL;
}

void
sa_staged_end_call(SaSource *source, MemoryContext oldcxt)
{
	for (int i = 0; i < source->nsegments; i++)
		sa_staged_close_segment(&source->segments[i]);
	UnregisterSnapshot(source->snapshot);
	source->snapshot = NULL;
	MemoryContextSwitchTo(oldcxt);
	MemoryContextReset(source->call_cxt);
}

/* The relation of a segment, for the rest of the call; NULL when it is gone. */
Relation
sa_staged_open_segment(SaSegment *segment)
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
int
sa_staged_entry_of_chunk(SaSource *source, int64 chunk)
{
	int			low = 0;
	int			high = source->nranges - 1;

	if (source->last_range < source->nranges)
	{
		SaRange	   *range = &source->ranges[source->last_range];

		if (chunk >= range->first && chunk <= range->last)
			return range->entry;
		if (chunk > source->ranges[high].last)
			return -1;
	}
	while (low <= high)
	{
		int			middle = low + (high - low) / 2;
		SaRange	   *range = &source->ranges[middle];

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

void
sa_staged_note_place(SaSource *source, SaEntry *entry, int segment, BlockNumber block)
{
	SaPlace	   *place;

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
	entry->places = grow_array(source, entry->places, entry->nplaces, &entry->maxplaces, sizeof(SaPlace));
	place = &entry->places[entry->nplaces++];
	place->segment = segment;
	place->first = place->last = block;
}

/* ---------- fixing the order ---------- */

static int
count_ranges(const SaRows *rows)
{
	int			count = 1;

	for (int i = 1; i < rows->nrows; i++)
	{
		if (SaStagedChunk(rows->rows[i].n) > SaStagedChunk(rows->rows[i - 1].n) + 1)
			count++;
	}
	return count;
}

/*
 * May these rows be added to the last entry?  It must not become unwieldy, and its numbers ascend,
 * and what was given up stays apart from what is to come.
 */
static bool
extends_last_entry(SaSource *source, const SaRows *rows, bool skipped)
{
	SaStagedEntry *last;

	if (source->nentries == 0 || skipped)
		return false;
	last = &source->entries[source->nentries - 1].order;
	return !last->skipped &&
		last->first_position >= source->staged.first_position &&
		last->records < ENTRY_RECORDS &&
		last->nranges + count_ranges(rows) <= ENTRY_RANGES &&
		last->first_position + last->records == source->staged.next_position &&
		last->ranges[last->nranges - 1].last < SaStagedChunk(rows->rows[0].n);
}

/* Notes the chunks of the rows, in the entry and among all ranges. */
static void
note_chunks(SaSource *source, SaEntry *entry, const SaRows *rows)
{
	int			index = entry - source->entries;
	bool		ascending = source->nranges == 0 ||
		source->ranges[source->nranges - 1].last < SaStagedChunk(rows->rows[0].n);
	int64		previous = -1;

	for (int i = 0; i < rows->nrows; i++)
	{
		int64		chunk = SaStagedChunk(rows->rows[i].n);

		sa_staged_note_place(source, entry, rows->rows[i].segment, rows->rows[i].block);
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
void
sa_staged_extend_order(SaSource *source, const SaRows *rows, bool skipped)
{
	bool		extends = extends_last_entry(source, rows, skipped);
	SaEntry	   *entry;

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
	sa_staged_save_positions(&source->staged);
}

/* ---------- giving back ---------- */

static void
free_entry(SaEntry *entry)
{
	if (entry->places != NULL)
		pfree(entry->places);
	if (entry->order.ranges != NULL)
		pfree(entry->order.ranges);
}

/* Takes a segment out of the places of entries; true if the entry is no longer needed. */
static bool
forget_place(SaEntry *entry, int segment, int64 first_position)
{
	int			nplaces = 0;

	for (int i = 0; i < entry->nplaces; i++)
	{
		if (entry->places[i].segment != segment)
			entry->places[nplaces++] = entry->places[i];
	}
	entry->nplaces = nplaces;
	return nplaces == 0 && entry->order.first_position + entry->order.records <= first_position;
}

static void
renumber_ranges(SaSource *source, const int *renumbered)
{
	int			nranges = 0;

	for (int i = 0; i < source->nranges; i++)
	{
		SaRange		range = source->ranges[i];

		range.entry = renumbered[range.entry];
		if (range.entry >= 0)
			source->ranges[nranges++] = range;
	}
	source->nranges = nranges;
	source->last_range = 0;
}

/* Are the places of all entries known?  After a start, they are found as the segments are visited. */
static bool
all_places_known(SaSource *source)
{
	for (int i = 0; i < source->nsegments; i++)
	{
		if (OidIsValid(source->segments[i].relid) && !source->segments[i].seen)
			return false;
	}
	return true;
}

/* The segment is empty.  The order no longer has to know of chunks that are in no segment any more. */
void
sa_staged_forget_places(SaSource *source, int segment)
{
	int		   *renumbered = palloc(sizeof(int) * Max(source->nentries, 1));
	bool		known = all_places_known(source);
	int			nentries = 0;

	for (int i = 0; i < source->nentries; i++)
	{
		SaEntry    *entry = &source->entries[i];

		if (forget_place(entry, segment, source->staged.first_position) && known)
		{
			sa_staged_delete_entry(source->stream, entry->order.first_position);
			free_entry(entry);
			renumbered[i] = -1;
			continue;
		}
		renumbered[i] = nentries;
		source->entries[nentries++] = *entry;
	}
	source->nentries = nentries;
	renumber_ranges(source, renumbered);
	pfree(renumbered);
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
	source->quiet_since = sa_clock_now();
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

int64
sa_staged_end_position(SaSource *source, const char *topic, int32 partition)
{
	return source->staged.next_position;
}
