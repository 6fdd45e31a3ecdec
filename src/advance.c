/*
 * advance.c
 *		What administrators have asked of watermarks.
 *
 * Invariant: a request is a row that commits with the transaction that asks, and is marked as taken by the
 * transaction that moves the watermark; so it happens once, whatever is killed in between.  Of those taken the
 * last ones are kept, for people to look at: a watermark that was moved explains why events were late.
 *
 * Locks: those of the catalog tables.  Crash: transactional.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "advance.h"
#include "catalog.h"

#define KEPT 100				/* per view, beside those still to be taken */

enum
{
	Anum_advance_view = 1,
	Anum_advance_watermark,
	Anum_advance_asked_by,
	Anum_advance_asked_at,
	Anum_advance_taken_at,
	Anum_advance_before,
	Natts_advance = Anum_advance_before
};

static SysScanDesc
begin_requests(Relation rel, Oid view)
{
	return sa_catalog_scan(rel, "watermark_advance_view", view);
}

static bool
is_taken(Relation rel, HeapTuple tuple)
{
	return !heap_attisnull(tuple, Anum_advance_taken_at, RelationGetDescr(rel));
}

static TimestampTz
time_of(Relation rel, HeapTuple tuple, int attr)
{
	bool		isnull;

	return DatumGetTimestampTz(heap_getattr(tuple, attr, RelationGetDescr(rel), &isnull));
}

/* Room for one more: of those that are taken, or asked for no more than this one does, the oldest goes. */
static void
make_room(Relation rel, Oid view, TimestampTz watermark)
{
	SysScanDesc scan = begin_requests(rel, view);
	HeapTuple	tuple;
	HeapTuple	oldest = NULL;
	int			done = 0;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		if (!is_taken(rel, tuple) && time_of(rel, tuple, Anum_advance_watermark) > watermark)
			continue;
		done++;
		if (oldest == NULL || time_of(rel, tuple, Anum_advance_asked_at) < time_of(rel, oldest, Anum_advance_asked_at))
			oldest = heap_copytuple(tuple);
	}
	systable_endscan(scan);
	if (done >= KEPT)
		CatalogTupleDelete(rel, &oldest->t_self);
}

void
sa_advance_ask(Oid view, TimestampTz watermark)
{
	Relation	rel = table_open(sa_catalog_relation("watermark_advance"), RowExclusiveLock);
	Datum		values[Natts_advance] = {0};
	bool		nulls[Natts_advance] = {0};

	make_room(rel, view, watermark);
	values[Anum_advance_view - 1] = ObjectIdGetDatum(view);
	values[Anum_advance_watermark - 1] = TimestampTzGetDatum(watermark);
	values[Anum_advance_asked_by - 1] = CStringGetTextDatum(GetUserNameFromId(GetUserId(), false));
	values[Anum_advance_asked_at - 1] = TimestampTzGetDatum(GetCurrentTimestamp());
	nulls[Anum_advance_taken_at - 1] = nulls[Anum_advance_before - 1] = true;
	CatalogTupleInsert(rel, heap_form_tuple(RelationGetDescr(rel), values, nulls));
	table_close(rel, NoLock);
	CommandCounterIncrement();
}

TimestampTz
sa_advance_asked(Oid view)
{
	TimestampTz asked = DT_NOBEGIN;
	Relation	rel;
	SysScanDesc scan;
	HeapTuple	tuple;

	if (!OidIsValid(sa_catalog_find("watermark_advance")))
		return DT_NOBEGIN;		/* the SQL objects are of version 1.0 */
	rel = table_open(sa_catalog_relation("watermark_advance"), AccessShareLock);
	scan = begin_requests(rel, view);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
		if (!is_taken(rel, tuple))
			asked = Max(asked, time_of(rel, tuple, Anum_advance_watermark));
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return asked;
}

static void
mark_taken(Relation rel, HeapTuple tuple, TimestampTz before)
{
	Datum		values[Natts_advance] = {0};
	bool		nulls[Natts_advance] = {0};
	bool		replace[Natts_advance] = {0};

	values[Anum_advance_taken_at - 1] = TimestampTzGetDatum(GetCurrentTimestamp());
	values[Anum_advance_before - 1] = TimestampTzGetDatum(before);
	nulls[Anum_advance_before - 1] = TIMESTAMP_IS_NOBEGIN(before);
	replace[Anum_advance_taken_at - 1] = replace[Anum_advance_before - 1] = true;
	tuple = heap_modify_tuple(tuple, RelationGetDescr(rel), values, nulls, replace);
	CatalogTupleUpdate(rel, &tuple->t_self, tuple);
}

void
sa_advance_note_taken(Oid view, TimestampTz watermark, TimestampTz before)
{
	Relation	rel = table_open(sa_catalog_relation("watermark_advance"), RowExclusiveLock);
	SysScanDesc scan = begin_requests(rel, view);
	HeapTuple	tuple;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
		if (!is_taken(rel, tuple) && time_of(rel, tuple, Anum_advance_watermark) <= watermark)
			mark_taken(rel, tuple, before);
	systable_endscan(scan);
	table_close(rel, NoLock);
	CommandCounterIncrement();
}

void
sa_advance_forget(Oid view, bool all)
{
	Relation	rel;
	SysScanDesc scan;
	HeapTuple	tuple;

	if (!OidIsValid(sa_catalog_find("watermark_advance")))
		return;
	rel = table_open(sa_catalog_relation("watermark_advance"), RowExclusiveLock);
	scan = begin_requests(rel, view);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
		if (all || !is_taken(rel, tuple))
			CatalogTupleDelete(rel, &tuple->t_self);
	systable_endscan(scan);
	table_close(rel, NoLock);
	CommandCounterIncrement();
}
