/*
 * source_staged_catalog.c
 *		What the catalog says of staged streams: staged_stream, staged_order, staged_segment.
 *
 * Invariant: positions and order of a stream change by its one worker, or under AccessExclusiveLock on the
 * stream; the segment to write to, and the list of segments, under ShareUpdateExclusiveLock on it.
 *
 * Crash: transactional.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"

#include "compat.h"

#include "catalog.h"
#include "source_staged_catalog.h"

enum
{
	Anum_stream_stream = 1,
	Anum_stream_id,
	Anum_stream_chunks,
	Anum_stream_first_position,
	Anum_stream_next_position,
	Anum_stream_writing,
	Natts_stream = Anum_stream_writing
};

enum
{
	Anum_segment_segment = 1,
	Anum_segment_stream,
	Natts_segment = Anum_segment_stream
};

enum
{
	Anum_order_stream = 1,
	Anum_order_first_position,
	Anum_order_records,
	Anum_order_chunks,
	Anum_order_skipped,
	Natts_order = Anum_order_skipped
};

/* ---------- scanning the catalog ---------- */

typedef struct CatalogScan
{
	Relation	table;
	SysScanDesc scan;
} CatalogScan;

/* Opens a table of ours and looks for rows through an index, or, failing that, its primary key. */
static void
begin_scan(CatalogScan *scan, const char *table, const char *index, LOCKMODE lockmode,
		   Snapshot snapshot, int nkeys, ScanKey keys)
{
	Oid			indexid;

	scan->table = table_open(sa_catalog_relation(table), lockmode);
	if (index != NULL)
		indexid = sa_catalog_relation(index);
	else
	{
		list_free(RelationGetIndexList(scan->table));
		indexid = scan->table->rd_pkindex;
	}
	scan->scan = systable_beginscan(scan->table, indexid, true, snapshot, nkeys, keys);
}

static void
end_scan(CatalogScan *scan)
{
	systable_endscan(scan->scan);
	table_close(scan->table, NoLock);
}

static void
init_oid_key(ScanKey key, AttrNumber attnum, Oid value)
{
	ScanKeyInit(key, attnum, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(value));
}

static void
insert_row(const char *table, Datum *values, bool *nulls)
{
	Relation	rel = table_open(sa_catalog_relation(table), RowExclusiveLock);
	HeapTuple	tuple = heap_form_tuple(RelationGetDescr(rel), values, nulls);

	CatalogTupleInsert(rel, tuple);
	heap_freetuple(tuple);
	table_close(rel, NoLock);
	CommandCounterIncrement();
}

/* ---------- staged_stream ---------- */

static void
form_stream(const SaStagedStream *staged, Datum *values, bool *nulls)
{
	memset(nulls, false, sizeof(bool) * Natts_stream);
	values[Anum_stream_stream - 1] = ObjectIdGetDatum(staged->stream);
	values[Anum_stream_id - 1] = Int32GetDatum(staged->id);
	values[Anum_stream_chunks - 1] = ObjectIdGetDatum(staged->chunks);
	values[Anum_stream_first_position - 1] = Int64GetDatum(staged->first_position);
	values[Anum_stream_next_position - 1] = Int64GetDatum(staged->next_position);
	values[Anum_stream_writing - 1] = ObjectIdGetDatum(staged->writing);
	nulls[Anum_stream_writing - 1] = !OidIsValid(staged->writing);
}

static void
deform_stream(HeapTuple tuple, TupleDesc desc, SaStagedStream *staged)
{
	Datum		values[Natts_stream];
	bool		nulls[Natts_stream];

	heap_deform_tuple(tuple, desc, values, nulls);
	staged->stream = DatumGetObjectId(values[Anum_stream_stream - 1]);
	staged->id = DatumGetInt32(values[Anum_stream_id - 1]);
	staged->chunks = DatumGetObjectId(values[Anum_stream_chunks - 1]);
	staged->first_position = DatumGetInt64(values[Anum_stream_first_position - 1]);
	staged->next_position = DatumGetInt64(values[Anum_stream_next_position - 1]);
	staged->writing = nulls[Anum_stream_writing - 1] ? InvalidOid :
		DatumGetObjectId(values[Anum_stream_writing - 1]);
}

bool
sa_staged_get(Oid stream, SaStagedStream *staged)
{
	CatalogScan scan;
	ScanKeyData key;
	HeapTuple	tuple;

	init_oid_key(&key, Anum_stream_stream, stream);
	begin_scan(&scan, "staged_stream", NULL, AccessShareLock, NULL, 1, &key);
	tuple = systable_getnext(scan.scan);
	if (HeapTupleIsValid(tuple))
		deform_stream(tuple, RelationGetDescr(scan.table), staged);
	end_scan(&scan);
	return HeapTupleIsValid(tuple);
}

List *
sa_staged_streams(void)
{
	List	   *streams = NIL;
	CatalogScan scan;
	HeapTuple	tuple;

	begin_scan(&scan, "staged_stream", NULL, AccessShareLock, NULL, 0, NULL);
	while (HeapTupleIsValid(tuple = systable_getnext(scan.scan)))
	{
		SaStagedStream staged;

		deform_stream(tuple, RelationGetDescr(scan.table), &staged);
		streams = lappend_oid(streams, staged.stream);
	}
	end_scan(&scan);
	return streams;
}

void
sa_staged_insert(const SaStagedStream *staged)
{
	Datum		values[Natts_stream];
	bool		nulls[Natts_stream];

	form_stream(staged, values, nulls);
	insert_row("staged_stream", values, nulls);
}

/* Changes some columns and leaves the others as they are. */
static void
save_stream(const SaStagedStream *staged, const int *columns, int ncolumns)
{
	CatalogScan scan;
	ScanKeyData key;
	HeapTuple	tuple;
	Datum		values[Natts_stream];
	bool		nulls[Natts_stream];
	bool		replace[Natts_stream] = {false};

	init_oid_key(&key, Anum_stream_stream, staged->stream);
	begin_scan(&scan, "staged_stream", NULL, RowExclusiveLock, NULL, 1, &key);
	tuple = systable_getnext(scan.scan);
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "stream %u has no row in staged_stream", staged->stream);
	form_stream(staged, values, nulls);
	for (int i = 0; i < ncolumns; i++)
		replace[columns[i] - 1] = true;
	tuple = heap_modify_tuple(tuple, RelationGetDescr(scan.table), values, nulls, replace);
	CatalogTupleUpdate(scan.table, &tuple->t_self, tuple);
	heap_freetuple(tuple);
	end_scan(&scan);
	CommandCounterIncrement();
}

void
sa_staged_save_positions(const SaStagedStream *staged)
{
	static const int columns[] = {Anum_stream_first_position, Anum_stream_next_position};

	save_stream(staged, columns, lengthof(columns));
}

void
sa_staged_save_writing(const SaStagedStream *staged)
{
	static const int columns[] = {Anum_stream_writing};

	save_stream(staged, columns, lengthof(columns));
}

/* ---------- staged_order ---------- */

static Datum
form_ranges(const SaStagedEntry *entry)
{
	int			nelems = entry->nranges * 2;
	Datum	   *elems = palloc(sizeof(Datum) * Max(nelems, 1));
	ArrayType  *array;

	for (int i = 0; i < entry->nranges; i++)
	{
		elems[i * 2] = Int64GetDatum(entry->ranges[i].first);
		elems[i * 2 + 1] = Int64GetDatum(entry->ranges[i].last);
	}
	array = construct_array(elems, nelems, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE);
	pfree(elems);
	return PointerGetDatum(array);
}

static void
deform_ranges(Datum datum, SaStagedEntry *entry)
{
	ArrayType  *array = DatumGetArrayTypePCopy(datum);
	int			nelems = ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));

	if (ARR_ELEMTYPE(array) != INT8OID || ARR_HASNULL(array) || nelems % 2 != 0)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("chunks of position " INT64_FORMAT " in staged_order are no pairs of numbers",
						entry->first_position)));
	entry->nranges = nelems / 2;
	entry->ranges = palloc(sizeof(SaChunkRange) * Max(entry->nranges, 1));
	memcpy(entry->ranges, ARR_DATA_PTR(array), sizeof(SaChunkRange) * entry->nranges);
	pfree(array);
}

static void
form_entry(Oid stream, const SaStagedEntry *entry, Datum *values, bool *nulls)
{
	memset(nulls, false, sizeof(bool) * Natts_order);
	values[Anum_order_stream - 1] = ObjectIdGetDatum(stream);
	values[Anum_order_first_position - 1] = Int64GetDatum(entry->first_position);
	values[Anum_order_records - 1] = Int64GetDatum(entry->records);
	values[Anum_order_chunks - 1] = form_ranges(entry);
	values[Anum_order_skipped - 1] = BoolGetDatum(entry->skipped);
}

static SaStagedEntry *
deform_entry(HeapTuple tuple, TupleDesc desc)
{
	SaStagedEntry *entry = palloc(sizeof(SaStagedEntry));
	Datum		values[Natts_order];
	bool		nulls[Natts_order];

	heap_deform_tuple(tuple, desc, values, nulls);
	entry->first_position = DatumGetInt64(values[Anum_order_first_position - 1]);
	entry->records = DatumGetInt64(values[Anum_order_records - 1]);
	entry->skipped = DatumGetBool(values[Anum_order_skipped - 1]);
	deform_ranges(values[Anum_order_chunks - 1], entry);
	return entry;
}

static int
compare_entries(const ListCell *a, const ListCell *b)
{
	int64		x = ((SaStagedEntry *) lfirst(a))->first_position;
	int64		y = ((SaStagedEntry *) lfirst(b))->first_position;

	return x < y ? -1 : x > y ? 1 : 0;
}

/* A snapshot must be active or registered: the arrays may be long enough to be out of line. */
List *
sa_staged_entries(Oid stream, Snapshot snapshot)
{
	List	   *entries = NIL;
	CatalogScan scan;
	ScanKeyData key;
	HeapTuple	tuple;

	init_oid_key(&key, Anum_order_stream, stream);
	begin_scan(&scan, "staged_order", NULL, AccessShareLock, snapshot, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan.scan)))
	{
		CHECK_FOR_INTERRUPTS();
		entries = lappend(entries, deform_entry(tuple, RelationGetDescr(scan.table)));
	}
	end_scan(&scan);
	list_sort(entries, compare_entries);
	return entries;
}

void
sa_staged_insert_entry(Oid stream, const SaStagedEntry *entry)
{
	Datum		values[Natts_order];
	bool		nulls[Natts_order];

	form_entry(stream, entry, values, nulls);
	insert_row("staged_order", values, nulls);
}

/* The row of one entry, locked against nobody: the caller is the only one who changes it. */
static HeapTuple
find_entry(CatalogScan *scan, Oid stream, int64 first_position)
{
	ScanKeyData keys[2];
	HeapTuple	tuple;

	init_oid_key(&keys[0], Anum_order_stream, stream);
	ScanKeyInit(&keys[1], Anum_order_first_position, BTEqualStrategyNumber, F_INT8EQ,
				Int64GetDatum(first_position));
	begin_scan(scan, "staged_order", NULL, RowExclusiveLock, NULL, 2, keys);
	tuple = systable_getnext(scan->scan);
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "staged_order has no entry at position " INT64_FORMAT " of stream %u",
			 first_position, stream);
	return tuple;
}

void
sa_staged_update_entry(Oid stream, const SaStagedEntry *entry)
{
	CatalogScan scan;
	HeapTuple	tuple = find_entry(&scan, stream, entry->first_position);
	HeapTuple	newtuple;
	Datum		values[Natts_order];
	bool		nulls[Natts_order];

	form_entry(stream, entry, values, nulls);
	newtuple = heap_form_tuple(RelationGetDescr(scan.table), values, nulls);
	newtuple->t_self = tuple->t_self;
	CatalogTupleUpdate(scan.table, &newtuple->t_self, newtuple);
	heap_freetuple(newtuple);
	pfree(DatumGetPointer(values[Anum_order_chunks - 1]));
	end_scan(&scan);
	CommandCounterIncrement();
}

void
sa_staged_delete_entry(Oid stream, int64 first_position)
{
	CatalogScan scan;
	HeapTuple	tuple = find_entry(&scan, stream, first_position);

	CatalogTupleDelete(scan.table, &tuple->t_self);
	end_scan(&scan);
	CommandCounterIncrement();
}

/* ---------- staged_segment ---------- */

List *
sa_staged_segments(Oid stream)
{
	List	   *segments = NIL;
	CatalogScan scan;
	ScanKeyData key;
	HeapTuple	tuple;

	init_oid_key(&key, Anum_segment_stream, stream);
	begin_scan(&scan, "staged_segment", "staged_segment_stream", AccessShareLock, NULL, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan.scan)))
	{
		bool		isnull;
		Datum		segment = heap_getattr(tuple, Anum_segment_segment, RelationGetDescr(scan.table), &isnull);

		segments = lappend_oid(segments, DatumGetObjectId(segment));
	}
	end_scan(&scan);
	list_sort(segments, list_oid_cmp);
	return segments;
}

void
sa_staged_insert_segment(Oid segment, Oid stream)
{
	Datum		values[Natts_segment];
	bool		nulls[Natts_segment] = {false};

	values[Anum_segment_segment - 1] = ObjectIdGetDatum(segment);
	values[Anum_segment_stream - 1] = ObjectIdGetDatum(stream);
	insert_row("staged_segment", values, nulls);
}

void
sa_staged_delete_segment(Oid segment)
{
	CatalogScan scan;
	ScanKeyData key;
	HeapTuple	tuple;

	init_oid_key(&key, Anum_segment_segment, segment);
	begin_scan(&scan, "staged_segment", NULL, RowExclusiveLock, NULL, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan.scan)))
		CatalogTupleDelete(scan.table, &tuple->t_self);
	end_scan(&scan);
}
