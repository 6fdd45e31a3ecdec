/*
 * lateness.c
 *		How far events are behind.
 *
 * Invariant: a view's sketch counts its late events, in the transaction that counts them in its position, so the
 * two are always the same number.  A stream's sketch is for advice: it says how far each event was behind the greatest
 * event time before it in its partition, counts a record once in the life of a worker, however many views read it, and
 * is saved now and then, so what a killed worker had counted since is missing from it.
 *
 * Locks: those of the catalog table.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "catalog/pg_type.h"
#include "utils/array.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "commit.h"
#include "compat.h"
#include "lateness.h"

enum
{
	Anum_lateness_relation = 1,
	Anum_lateness_classes,
	Anum_lateness_greatest,
	Natts_lateness = Anum_lateness_greatest
};

/* How far a partition has been counted. */
typedef struct Place
{
	const char *topic;
	int32		partition;
	int64		next;
	TimestampTz running_max;	/* over the records before; DT_NOBEGIN: none */
} Place;

struct SaLateness
{
	MemoryContext cxt;
	List	   *places;			/* of Place */
	SaSketch	unsaved;
	bool		dirty;
};

/* ---------- counting ---------- */

SaLateness *
sa_lateness_create(MemoryContext parent)
{
	MemoryContext cxt = AllocSetContextCreate(parent, "stream_agg lateness", ALLOCSET_SMALL_SIZES);
	SaLateness *lateness = MemoryContextAllocZero(cxt, sizeof(SaLateness));

	lateness->cxt = cxt;
	return lateness;
}

static Place *
find_place(const SaLateness *lateness, const char *topic, int32 partition)
{
	ListCell   *lc;

	foreach(lc, lateness->places)
	{
		Place	   *place = lfirst(lc);

		if (place->partition == partition && strcmp(place->topic, topic) == 0)
			return place;
	}
	return NULL;
}

static Place *
add_place(SaLateness *lateness, const char *topic, int32 partition, int64 next)
{
	MemoryContext old = MemoryContextSwitchTo(lateness->cxt);
	Place	   *place = palloc(sizeof(Place));

	place->topic = pstrdup(topic);
	place->partition = partition;
	place->next = next;
	place->running_max = DT_NOBEGIN;
	lateness->places = lappend(lateness->places, place);
	MemoryContextSwitchTo(old);
	return place;
}

void
sa_lateness_begin(SaLateness *lateness, List *positions)
{
	ListCell   *lc;

	foreach(lc, positions)
	{
		const SaViewPosition *pos = lfirst(lc);
		Place	   *place = find_place(lateness, pos->topic, pos->partition);

		if (place == NULL)
			place = add_place(lateness, pos->topic, pos->partition, pos->position);
		if (pos->position < place->next)
			continue;
		place->next = pos->position;
		place->running_max = Max(place->running_max, pos->running_max);
	}
}

/* The places of the batch's partitions, with running maxima as of the batch's beginning; NULL: nothing is new to us. */
static Place **
begin_count(SaLateness *lateness, const SaBatch *batch, List *positions)
{
	Place	  **places = palloc(sizeof(Place *) * (batch->npartitions + 1));
	bool		any = false;

	for (int i = 0; i < batch->npartitions; i++)
	{
		const SaBatchPartition *partition = &batch->partitions[i];
		const SaViewPosition *pos = sa_commit_find(positions, partition->topic, partition->partition);

		places[i] = find_place(lateness, partition->topic, partition->partition);
		if (places[i] == NULL)
			places[i] = add_place(lateness, partition->topic, partition->partition, partition->first);
		if (pos != NULL)
			places[i]->running_max = Max(places[i]->running_max, pos->running_max);
		any |= partition->next > places[i]->next;
	}
	return any ? places : NULL;
}

void
sa_lateness_count(SaLateness *lateness, const SaBatch *batch, List *positions)
{
	Place	  **places = begin_count(lateness, batch, positions);

	if (places == NULL)
		return;
	for (int i = 0; i < batch->nevents; i++)
	{
		const SaEvent *event = &batch->events[i];
		const Place *place = places[event->partition];
		TimestampTz before = Max(event->max_before, place->running_max);

		if (event->verdict != SA_EVENT_GOOD || event->position < place->next)
			continue;
		sa_sketch_add(&lateness->unsaved, before > event->time && !TIMESTAMP_IS_NOBEGIN(before) ?
					  (uint64) before - (uint64) event->time : 0);
	}
	for (int i = 0; i < batch->npartitions; i++)
	{
		places[i]->next = Max(places[i]->next, batch->partitions[i].next);
		places[i]->running_max = Max(places[i]->running_max, batch->partitions[i].max_time);
	}
	lateness->dirty = true;
}

bool
sa_lateness_is_dirty(const SaLateness *lateness)
{
	return lateness->dirty;
}

void
sa_lateness_save(SaLateness *lateness, Oid stream)
{
	if (sa_sketch_total(&lateness->unsaved) > 0)
		sa_lateness_add(stream, &lateness->unsaved);
	memset(&lateness->unsaved, 0, sizeof(SaSketch));
	lateness->dirty = false;
}

/* ---------- what is saved ---------- */

static SysScanDesc
begin_scan(Relation rel, Oid relid)
{
	return sa_catalog_scan(rel, "lateness_pkey", relid);
}

/* The classes of a row; a table that we did not write may hold anything. */
static void
read_row(Relation rel, HeapTuple tuple, SaSketch *sketch)
{
	Datum		values[Natts_lateness];
	bool		nulls[Natts_lateness];
	Datum	   *counts;
	bool	   *null_counts;
	int			n;

	heap_deform_tuple(tuple, RelationGetDescr(rel), values, nulls);
	deconstruct_array(DatumGetArrayTypeP(values[Anum_lateness_classes - 1]), INT8OID, sizeof(int64), FLOAT8PASSBYVAL,
					  TYPALIGN_DOUBLE, &counts, &null_counts, &n);
	for (int i = 0; i < Min(n, SA_SKETCH_CLASSES); i++)
		sketch->counts[i] = null_counts[i] ? 0 : DatumGetInt64(counts[i]);
	sketch->greatest = DatumGetInt64(values[Anum_lateness_greatest - 1]);
}

/* As far as there is something. */
static ArrayType *
make_array(const SaSketch *sketch)
{
	Datum		counts[SA_SKETCH_CLASSES];
	int			n = 0;

	for (int i = 0; i < SA_SKETCH_CLASSES; i++)
	{
		counts[i] = Int64GetDatum(sketch->counts[i]);
		if (sketch->counts[i] != 0)
			n = i + 1;
	}
	return construct_array(counts, n, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE);
}

void
sa_lateness_read(Oid relid, SaSketch *sketch)
{
	Relation	rel = table_open(sa_catalog_relation("lateness"), AccessShareLock);
	SysScanDesc scan = begin_scan(rel, relid);
	HeapTuple	tuple = systable_getnext(scan);

	memset(sketch, 0, sizeof(SaSketch));
	if (HeapTupleIsValid(tuple))
		read_row(rel, tuple, sketch);
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
}

void
sa_lateness_add(Oid relid, const SaSketch *more)
{
	SaSketch	sketch = {0};
	Relation	rel;
	SysScanDesc scan;
	HeapTuple	old;
	HeapTuple	tuple;
	Datum		values[Natts_lateness];
	bool		nulls[Natts_lateness] = {0};

	if (!OidIsValid(sa_catalog_find("lateness")))
		return;					/* the SQL objects are of version 1.0 */
	rel = table_open(sa_catalog_relation("lateness"), RowExclusiveLock);
	scan = begin_scan(rel, relid);
	old = systable_getnext(scan);
	if (HeapTupleIsValid(old))
		read_row(rel, old, &sketch);
	sa_sketch_merge(&sketch, more);
	values[Anum_lateness_relation - 1] = ObjectIdGetDatum(relid);
	values[Anum_lateness_classes - 1] = PointerGetDatum(make_array(&sketch));
	values[Anum_lateness_greatest - 1] = Int64GetDatum((int64) Min(sketch.greatest, (uint64) PG_INT64_MAX));
	tuple = heap_form_tuple(RelationGetDescr(rel), values, nulls);
	sa_catalog_put(rel, old, tuple);
	systable_endscan(scan);
	table_close(rel, NoLock);
	CommandCounterIncrement();
}

void
sa_lateness_forget(Oid relid)
{
	Relation	rel;
	SysScanDesc scan;
	HeapTuple	tuple;

	if (!OidIsValid(sa_catalog_find("lateness")))
		return;
	rel = table_open(sa_catalog_relation("lateness"), RowExclusiveLock);
	scan = begin_scan(rel, relid);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
		CatalogTupleDelete(rel, &tuple->t_self);
	systable_endscan(scan);
	table_close(rel, NoLock);
	CommandCounterIncrement();
}
