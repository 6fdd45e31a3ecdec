/*
 * duplicate.c
 *		The places of duplicates among the records that a view with unlogged state would read again.
 *
 * Invariant: of every duplicate at or behind the first step of its partition (rebuild.h) the place is in view_duplicate.
 * Reading again does not tell which events they are: the key of one may have been seen first by an event before that
 * step, long forgotten now, or by one of another partition, which is not read again in the same turn.  With their places
 * all others are known to have been the first ones, whose keys are seen again (dedup.c).  That is cheaper, too, than to
 * have keys in a log: most events bring a new one, and few are duplicates.
 *
 * A row holds those of one batch and partition: the distance of each from the one before, from the first on, seven bits
 * to a byte.
 *
 * Locks: those of the table.  Crash: transactional, with the view's batch.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "catalog.h"
#include "duplicate.h"

enum
{
	Anum_duplicate_view_id = 1,
	Anum_duplicate_topic,
	Anum_duplicate_partition,
	Anum_duplicate_first,
	Anum_duplicate_last,
	Anum_duplicate_places,
	Natts_duplicate = Anum_duplicate_places
};

/* Those of one partition, on their way into a row or out of rows. */
typedef struct Places
{
	int64		first;
	int64		last;
	StringInfoData bytes;		/* behind a varlena header; data NULL: there are none */
} Places;

/* --- rows --- */

static void
append_place(Places *places, int64 position)
{
	uint64		distance;

	if (places->bytes.data == NULL)
	{
		initStringInfo(&places->bytes);
		appendStringInfoSpaces(&places->bytes, VARHDRSZ);
		places->first = places->last = position;
	}
	for (distance = position - places->last; distance >= 0x80; distance >>= 7)
		appendStringInfoCharMacro(&places->bytes, (char) (distance | 0x80));
	appendStringInfoCharMacro(&places->bytes, (char) distance);
	places->last = position;
}

static void
insert_row(Relation rel, int view_id, const SaBatchPartition *partition, const Places *places)
{
	Datum		values[Natts_duplicate];
	bool		nulls[Natts_duplicate] = {0};
	HeapTuple	tuple;

	SET_VARSIZE(places->bytes.data, places->bytes.len);
	values[Anum_duplicate_view_id - 1] = Int32GetDatum(view_id);
	values[Anum_duplicate_topic - 1] = CStringGetTextDatum(partition->topic);
	values[Anum_duplicate_partition - 1] = Int32GetDatum(partition->partition);
	values[Anum_duplicate_first - 1] = Int64GetDatum(places->first);
	values[Anum_duplicate_last - 1] = Int64GetDatum(places->last);
	values[Anum_duplicate_places - 1] = PointerGetDatum(places->bytes.data);
	tuple = heap_form_tuple(RelationGetDescr(rel), values, nulls);
	CatalogTupleInsert(rel, tuple);
	heap_freetuple(tuple);
}

/* Rows of a partition by their last places, which this strategy (btree's) and position are for. */
static SysScanDesc
begin_rows(Relation rel, Relation index, int view_id, const char *topic, int32 partition, StrategyNumber strategy,
		   int64 position)
{
	RegProcedure compare = strategy == BTLessStrategyNumber ? F_INT8LT : F_INT8GE;
	ScanKeyData keys[4];

	ScanKeyInit(&keys[0], Anum_duplicate_view_id, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(view_id));
	sa_catalog_topic_key(&keys[1], Anum_duplicate_topic, topic);
	ScanKeyInit(&keys[2], Anum_duplicate_partition, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(partition));
	ScanKeyInit(&keys[3], Anum_duplicate_last, strategy, compare, Int64GetDatum(position));
	return systable_beginscan_ordered(rel, index, NULL, lengthof(keys), keys);
}

/* --- saving and forgetting --- */

static void
delete_before(Relation rel, Relation index, int view_id, const char *topic, int32 partition, int64 position)
{
	SysScanDesc scan = begin_rows(rel, index, view_id, topic, partition, BTLessStrategyNumber, position);
	HeapTuple	tuple;

	while (HeapTupleIsValid(tuple = systable_getnext_ordered(scan, ForwardScanDirection)))
		CatalogTupleDelete(rel, &tuple->t_self);
	systable_endscan_ordered(scan);
}

void
sa_duplicate_save(int view_id, const SaBatch *batch, const bool *duplicates)
{
	Places	   *places = palloc0(sizeof(Places) * (batch->npartitions + 1));
	Relation	rel = table_open(sa_catalog_relation("view_duplicate"), RowExclusiveLock);

	for (int i = 0; i < batch->nevents; i++)
		if (duplicates[i])
			append_place(&places[batch->events[i].partition], batch->events[i].position);
	for (int i = 0; i < batch->npartitions; i++)
		if (places[i].bytes.data)
			insert_row(rel, view_id, &batch->partitions[i], &places[i]);
	table_close(rel, NoLock);
	CommandCounterIncrement();
}

void
sa_duplicate_forget(int view_id, List *steps)
{
	Relation	rel = table_open(sa_catalog_relation("view_duplicate"), RowExclusiveLock);
	Relation	index = index_open(sa_catalog_relation("view_duplicate_pkey"), AccessShareLock);
	const SaStep *before = NULL;
	ListCell   *lc;

	foreach(lc, steps)
	{
		const SaStep *step = lfirst(lc);

		if (before == NULL || before->partition != step->partition || strcmp(before->topic, step->topic) != 0)
			delete_before(rel, index, view_id, step->topic, step->partition, step->position);
		before = step;
	}
	index_close(index, NoLock);
	table_close(rel, NoLock);
	CommandCounterIncrement();
}

/* --- reading --- */

/* The next event of the partition, from this ordinal on, that is at this position or behind it. */
static int
find_event(const SaBatch *batch, int partition, int ordinal, int64 position)
{
	while (ordinal < batch->nevents &&
		   (batch->events[ordinal].partition != partition || batch->events[ordinal].position < position))
		ordinal++;
	return ordinal;
}

/* Mark the events of the row's places, from this ordinal on; returns where to go on. */
static int
mark_places(const SaBatch *batch, int partition, int ordinal, int64 position, bytea *places, bool *duplicates)
{
	const unsigned char *next = (const unsigned char *) VARDATA_ANY(places);
	const unsigned char *end = next + VARSIZE_ANY_EXHDR(places);

	while (next < end && position < batch->partitions[partition].next)
	{
		uint64		distance = 0;

		for (int shift = 0; next < end; shift += 7)
		{
			distance |= (uint64) (*next & 0x7f) << shift;
			if ((*next++ & 0x80) == 0)
				break;
		}
		position += distance;
		ordinal = find_event(batch, partition, ordinal, position);
		if (ordinal < batch->nevents && batch->events[ordinal].position == position)
			duplicates[ordinal] = true;
	}
	return ordinal;
}

static void
read_partition(Relation rel, Relation index, int view_id, const SaBatch *batch, int i, bool *duplicates)
{
	const SaBatchPartition *partition = &batch->partitions[i];
	SysScanDesc scan = begin_rows(rel, index, view_id, partition->topic, partition->partition, BTGreaterEqualStrategyNumber,
								  partition->first);
	HeapTuple	tuple;
	int			ordinal = 0;

	while (HeapTupleIsValid(tuple = systable_getnext_ordered(scan, ForwardScanDirection)))
	{
		bool		isnull;
		int64		first = DatumGetInt64(heap_getattr(tuple, Anum_duplicate_first, RelationGetDescr(rel), &isnull));
		Datum		places = heap_getattr(tuple, Anum_duplicate_places, RelationGetDescr(rel), &isnull);

		CHECK_FOR_INTERRUPTS();
		if (first >= partition->next)
			break;
		ordinal = mark_places(batch, i, ordinal, first, DatumGetByteaPP(places), duplicates);
	}
	systable_endscan_ordered(scan);
}

bool *
sa_duplicate_read(int view_id, SaBatch *batch)
{
	MemoryContext old = MemoryContextSwitchTo(batch->cxt);
	bool	   *duplicates = MemoryContextAllocExtended(batch->cxt, batch->nevents + 1, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	Relation	rel = table_open(sa_catalog_relation("view_duplicate"), AccessShareLock);
	Relation	index = index_open(sa_catalog_relation("view_duplicate_pkey"), AccessShareLock);

	for (int i = 0; i < batch->npartitions; i++)
		read_partition(rel, index, view_id, batch, i, duplicates);
	index_close(index, NoLock);
	table_close(rel, NoLock);
	MemoryContextSwitchTo(old);
	return duplicates;
}
