/*
 * source_staged_release.c
 *		Giving back: segments are left when large, given up when read, and emptied when nobody can need them.
 *
 * Invariant: everything from first_position on is there for every snapshot that sees that first_position.
 * So giving back takes two steps: first_position moves past a segment, and commits; and once that
 * transaction precedes every snapshot in the database (the horizon that VACUUM uses), the segment is
 * emptied.  A session or a dump that still sees an older first_position, or views' positions in
 * there, finds the rows.  first_position is always the beginning of an entry or the end of the order.
 *
 * Locks: ShareUpdateExclusiveLock on the stream, had without waiting, to send writers to another segment;
 * AccessExclusiveLock on a segment that no writer uses, had without waiting, to empty it.
 *
 * Crash: transactional.  The segment that writers use changes in a transaction of its own, before which no
 * segment counts as left by them.
 */
#include "postgres.h"

#include "access/table.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "utils/inval.h"
#include "utils/rel.h"

#include "compat.h"

#include "source_staged_pass.h"

#define SPARE_SEGMENTS 32		/* empty ones kept for reuse: pg_dump fails on a table that it sees and cannot lock */
#define LIMIT_SHARE 4			/* a segment is left at this part of staged_limit */

/* Positions before this one lie at least partly in the segment. */
static int64
kept_until(SaSource *source, int segment)
{
	for (int i = source->nentries - 1; i >= 0; i--)
	{
		SaEntry    *entry = &source->entries[i];

		for (int j = 0; j < entry->nplaces; j++)
		{
			if (entry->places[j].segment == segment)
				return entry->order.first_position + entry->order.records;
		}
	}
	return 0;
}

static bool
is_empty(SaSegment *segment)
{
	return sa_staged_open_segment(segment) == NULL || sa_staged_blocks(segment->rel) == 0;
}

/* Nobody writes to it, and all that it holds is in the order. */
static bool
is_settled(SaSource *source, SaSegment *segment)
{
	return segment->relid != source->staged.writing && segment->done && !is_empty(segment);
}

static void
settle_segments(SaSource *source)
{
	for (int i = 0; i < source->nsegments; i++)
		sa_staged_settle_segment(&source->segments[i]);
}

/* ---------- giving up ---------- */

static void
move_first_position(SaSource *source, int64 position)
{
	if (position <= source->staged.first_position)
		return;
	source->changed = true;
	source->staged.first_position = position;
	sa_staged_save_positions(&source->staged);
}

/* The segments that every view has read. */
static void
give_up_read(SaSource *source, int64 position)
{
	int64		until = 0;

	for (int i = 0; i < source->nsegments; i++)
	{
		if (is_settled(source, &source->segments[i]) && kept_until(source, i) <= position)
			until = Max(until, kept_until(source, i));
	}
	move_first_position(source, until);
}

static bool
is_over_limit(SaSource *source)
{
	int64		bytes = 0;

	for (int i = 0; i < source->nsegments; i++)
	{
		SaSegment  *segment = &source->segments[i];

		if (is_empty(segment) ||
			(is_settled(source, segment) && kept_until(source, i) <= source->staged.first_position))
			continue;
		bytes += sa_staged_bytes(segment->rel);
	}
	return bytes > source->options.staged_limit;
}

/* The end of the oldest segment not yet given up; 0 when there is none that could be. */
static int64
oldest_kept(SaSource *source)
{
	int64		oldest = PG_INT64_MAX;

	for (int i = 0; i < source->nsegments; i++)
	{
		int64		until;

		if (!is_settled(source, &source->segments[i]))
			continue;
		until = kept_until(source, i);
		if (until > source->staged.first_position)
			oldest = Min(oldest, until);
	}
	return oldest == PG_INT64_MAX ? 0 : oldest;
}

/*
 * What is over the limit is given up though views have not read it, the oldest first.  Rows that no view
 * has come to must get their place in the order before: what is lost is told by position.
 */
static void
enforce_limit(SaSource *source)
{
	bool		ordered = false;

	while (source->options.staged_limit > 0 && is_over_limit(source))
	{
		int64		oldest = oldest_kept(source);

		if (oldest > 0)
			move_first_position(source, oldest);
		else if (ordered)
			return;
		else
		{
			(void) sa_staged_order_all(source, false);
			settle_segments(source);
			ordered = true;
		}
	}
}

/* ---------- emptying ---------- */

/* May no snapshot of this database need the segment any more? */
static bool
precedes_all_snapshots(SaSegment *segment)
{
	if (!FullTransactionIdIsValid(segment->passed))
		segment->passed = ReadNextFullTransactionId();
	return TransactionIdPrecedesOrEquals(XidFromFullTransactionId(segment->passed),
										 GetOldestNonRemovableTransactionId(segment->rel));
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

/* An empty segment that can be written to, not counting the first few. */
static SaSegment *
find_spare_segment(SaSource *source, int but)
{
	for (int i = 0; i < source->nsegments; i++)
	{
		SaSegment  *spare = &source->segments[i];

		if (spare->relid != source->staged.writing && OidIsValid(spare->relid) && is_empty(spare) &&
			OidIsValid(spare->relid) && fits_stream(source, spare->rel) && but-- == 0)
			return spare;
	}
	return NULL;
}

/* The segment is kept for reuse, or dropped when there are others or it is outdated. */
static void
empty_segment(SaSource *source, SaSegment *segment)
{
	Oid			relid = segment->relid;
	bool		keep = fits_stream(source, segment->rel) && find_spare_segment(source, SPARE_SEGMENTS - 1) == NULL;

	if (keep)
		sa_staged_empty_segment(segment->rel);
	sa_staged_remove_segment(source, segment);
	if (keep)
		sa_staged_load_segments(source);
	else
		sa_staged_drop_segment(relid);
}

/*
 * Nobody else has the segment, for now.  That it is settled was found without that certainty, so
 * it is looked at once more.
 */
static void
give_back(SaSource *source, int index)
{
	SaSegment  *segment = &source->segments[index];

	if (!ConditionalLockRelationOid(segment->relid, AccessExclusiveLock))
		return;
	if (sa_staged_has_unread(source, index))
	{
		ereport(LOG,
				(errmsg("segment \"%s\" of a staged stream has rows that are not read yet",
						RelationGetRelationName(segment->rel))));
		sa_staged_reopen_segment(segment);
		return;
	}
	source->changed = true;
	sa_staged_forget_places(source, index);
	empty_segment(source, segment);
}

/* The segments that were given up; first_position is as committed. */
static void
give_back_segments(SaSource *source)
{
	for (int i = 0; i < source->nsegments; i++)
	{
		SaSegment  *segment = &source->segments[i];

		CHECK_FOR_INTERRUPTS();
		if (is_settled(source, segment) && kept_until(source, i) <= source->staged.first_position &&
			precedes_all_snapshots(segment))
			give_back(source, i);
	}
}

/* ---------- leaving ---------- */

/* An empty segment to write to: a spare one, or a new one. */
static Oid
next_segment(SaSource *source)
{
	SaSegment  *spare = find_spare_segment(source, 0);
	Relation	stream;
	Oid			segment;

	if (spare != NULL)
		return spare->relid;
	stream = table_open(source->stream, NoLock);
	segment = sa_staged_create_segment(&source->staged, RelationGetDescr(stream));
	table_close(stream, NoLock);
	return segment;
}

/* With a limit, segments are small enough for it. */
static int64
segment_size(SaSource *source)
{
	int64		size = (int64) sa_staged_segment_size * 1024;

	if (source->options.staged_limit > 0)
		size = Min(size, source->options.staged_limit / LIMIT_SHARE);
	return size;
}

/*
 * When the segment that is written to is large enough, send writers to another.  They remember the
 * old one until they hear of its invalidation.
 */
static void
leave_segment(SaSource *source)
{
	SaSegment  *writing = sa_staged_find_segment(source, source->staged.writing);

	if (writing == NULL || is_empty(writing) || sa_staged_bytes(writing->rel) < segment_size(source))
		return;
	if (!ConditionalLockRelationOid(source->stream, ShareUpdateExclusiveLock))
		return;
	source->changed = true;
	CacheInvalidateRelcacheByRelid(writing->relid);
	source->staged.writing = next_segment(source);
	sa_staged_save_writing(&source->staged);
	sa_staged_load_segments(source);
	sa_staged_reopen_segment(sa_staged_find_segment(source, source->staged.writing));
}

void
sa_staged_release(SaSource *source, List *positions)
{
	MemoryContext oldcxt = CurrentMemoryContext;
	ListCell   *lc;
	int64		position = PG_INT64_MAX;

	sa_staged_begin_call(source);
	foreach(lc, positions)
		position = Min(position, ((SaPosition *) lfirst(lc))->position);
	if (positions != NIL)
	{
		settle_segments(source);
		give_back_segments(source);
		give_up_read(source, position);
		enforce_limit(source);
	}
	leave_segment(source);		/* last: until that is committed, writers may come to the old one */
	sa_staged_end_call(source, oldcxt);
}
