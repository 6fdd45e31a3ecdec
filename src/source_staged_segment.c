/*
 * source_staged_segment.c
 *		Segments of staged streams, and what the catalog says of them.
 *
 * Invariant: a stream's segments are ordinary heap tables in schema stream_agg, named
 * staged_<id>_<k>, owned by the extension's owner (so that nobody else can touch their rows, and DROP
 * OWNED and REASSIGN OWNED go by the stream alone) and dropped with the stream.  Their columns are called
 * after the attribute numbers of the stream's columns, so renames do not matter; a segment may lack
 * columns that came later, which read as NULL, and have ones that are gone.  Rows are only ever
 * inserted; a segment is emptied as a whole.
 *
 * Locks: creating takes ShareUpdateExclusiveLock on the stream, which serialises creators and nobody else.
 * Catalog rows of a stream change under that lock, by the stream's one worker, or under
 * AccessExclusiveLock on the stream.
 *
 * Crash: everything here is transactional.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/reloptions.h"
#include "access/table.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_type.h"
#include "catalog/toasting.h"
#include "commands/extension.h"
#include "commands/sequence.h"
#include "commands/tablecmds.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "parser/parse_node.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "compat.h"

#include "catalog.h"
#include "source_staged.h"

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
delete_rows(const char *table, const char *index, AttrNumber attnum, Oid value)
{
	CatalogScan scan;
	ScanKeyData key;
	HeapTuple	tuple;

	init_oid_key(&key, attnum, value);
	begin_scan(&scan, table, index, RowExclusiveLock, NULL, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan.scan)))
		CatalogTupleDelete(scan.table, &tuple->t_self);
	end_scan(&scan);
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

/* Everything but stream and id may have changed. */
void
sa_staged_update(const SaStagedStream *staged)
{
	CatalogScan scan;
	ScanKeyData key;
	HeapTuple	tuple;
	HeapTuple	newtuple;
	Datum		values[Natts_stream];
	bool		nulls[Natts_stream];

	init_oid_key(&key, Anum_stream_stream, staged->stream);
	begin_scan(&scan, "staged_stream", NULL, RowExclusiveLock, NULL, 1, &key);
	tuple = systable_getnext(scan.scan);
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "stream %u has no row in staged_stream", staged->stream);
	form_stream(staged, values, nulls);
	newtuple = heap_form_tuple(RelationGetDescr(scan.table), values, nulls);
	newtuple->t_self = tuple->t_self;
	CatalogTupleUpdate(scan.table, &newtuple->t_self, newtuple);
	heap_freetuple(newtuple);
	end_scan(&scan);
	CommandCounterIncrement();
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

static void
insert_segment(Oid segment, Oid stream)
{
	Datum		values[Natts_segment];
	bool		nulls[Natts_segment] = {false};

	values[Anum_segment_segment - 1] = ObjectIdGetDatum(segment);
	values[Anum_segment_stream - 1] = ObjectIdGetDatum(stream);
	insert_row("staged_segment", values, nulls);
}

/* ---------- dependencies ---------- */

/*
 * A segment is an internal part of its stream.  The sequence hangs on the stream's row type instead:
 * pg_dump takes a sequence that depends so on a table for that of an identity column.
 */
static void
attach_segment(Oid segment, Oid stream)
{
	ObjectAddress object;
	ObjectAddress owner;

	ObjectAddressSet(object, RelationRelationId, segment);
	ObjectAddressSet(owner, RelationRelationId, stream);
	recordDependencyOn(&object, &owner, DEPENDENCY_INTERNAL);
}

static void
attach_sequence(Oid sequence, Oid stream)
{
	ObjectAddress object;
	ObjectAddress owner;

	ObjectAddressSet(object, RelationRelationId, sequence);
	ObjectAddressSet(owner, TypeRelationId, get_rel_type_id(stream));
	recordDependencyOn(&object, &owner, DEPENDENCY_AUTO);
}

static bool
is_attached(Oid relid, Oid refclass, Oid refobject)
{
	Relation	depend = table_open(DependRelationId, AccessShareLock);
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		found = false;

	init_oid_key(&keys[0], Anum_pg_depend_classid, RelationRelationId);
	init_oid_key(&keys[1], Anum_pg_depend_objid, relid);
	scan = systable_beginscan(depend, DependDependerIndexId, true, NULL, 2, keys);
	while (!found && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_depend form = (Form_pg_depend) GETSTRUCT(tuple);

		found = form->refclassid == refclass && form->refobjid == refobject;
	}
	systable_endscan(scan);
	table_close(depend, AccessShareLock);
	return found;
}

/* After a restore the tables are there, but not what hangs them on the stream. */
static void
attach_all(const SaStagedStream *staged)
{
	ListCell   *lc;

	foreach(lc, sa_staged_segments(staged->stream))
	{
		if (!is_attached(lfirst_oid(lc), RelationRelationId, staged->stream))
			attach_segment(lfirst_oid(lc), staged->stream);
	}
	if (!is_attached(staged->chunks, TypeRelationId, get_rel_type_id(staged->stream)))
		attach_sequence(staged->chunks, staged->stream);
	CommandCounterIncrement();
}

/* ---------- creating, emptying, dropping ---------- */

/* Who owns the segments: the owner of our catalog. */
static Oid
segment_owner(void)
{
	Relation	catalog = table_open(sa_catalog_relation("staged_segment"), AccessShareLock);
	Oid			owner = catalog->rd_rel->relowner;

	table_close(catalog, NoLock);
	return owner;
}

static ColumnDef *
make_column(const char *name, Oid type, int32 typmod, Oid collation)
{
	return makeColumnDef(name, type, typmod, collation);
}

/* The definition of a segment; no automatic vacuum, since rows are never deleted one by one. */
static CreateStmt *
segment_statement(const char *name, TupleDesc desc)
{
	CreateStmt *stmt = makeNode(CreateStmt);
	DefElem    *toast;

	stmt->relation = makeRangeVar(pstrdup("stream_agg"), pstrdup(name), -1);
	stmt->oncommit = ONCOMMIT_NOOP;
	stmt->accessMethod = pstrdup("heap");
	stmt->options = list_make1(makeDefElem(pstrdup("autovacuum_enabled"), (Node *) makeString(pstrdup("false")), -1));
	toast = makeDefElem(pstrdup("autovacuum_enabled"), (Node *) makeString(pstrdup("false")), -1);
	toast->defnamespace = pstrdup("toast");
	stmt->options = lappend(stmt->options, toast);

	stmt->tableElts = list_make2(make_column("n", INT8OID, -1, InvalidOid),
								 make_column("arrival", TIMESTAMPTZOID, -1, InvalidOid));
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (!att->attisdropped)
			stmt->tableElts = lappend(stmt->tableElts,
									  make_column(psprintf("c%d", att->attnum),
												  att->atttypid, att->atttypmod, att->attcollation));
	}
	return stmt;
}

static Oid
create_table(CreateStmt *stmt, Oid owner)
{
	static char *namespaces[] = HEAP_RELOPT_NAMESPACES;
	ObjectAddress address = DefineRelation(stmt, RELKIND_RELATION, owner, NULL, NULL);
	Datum		toast_options;

	CommandCounterIncrement();
	toast_options = transformRelOptions((Datum) 0, stmt->options, "toast", namespaces, true, false);
	NewRelationCreateToastTable(address.objectId, toast_options);
	CommandCounterIncrement();
	return address.objectId;
}

static Oid
create_sequence(const char *name, Oid owner)
{
	CreateSeqStmt *stmt = makeNode(CreateSeqStmt);
	ObjectAddress address;

	stmt->sequence = makeRangeVar(pstrdup("stream_agg"), pstrdup(name), -1);
	stmt->ownerId = owner;
	address = DefineSequence(make_parsestate(NULL), stmt);
	CommandCounterIncrement();
	return address.objectId;
}

/*
 * Makes a segment (desc given) or the sequence, as the extension's owner, and never as a member of an
 * extension whose script happens to run.
 */
static Oid
create_relation(const char *name, TupleDesc desc)
{
	Oid			owner = segment_owner();
	bool		save_creating = creating_extension;
	Oid			save_userid;
	int			save_sec_context;
	Oid			relid;

	GetUserIdAndSecContext(&save_userid, &save_sec_context);
	SetUserIdAndSecContext(owner, save_sec_context | SECURITY_LOCAL_USERID_CHANGE);
	creating_extension = false;
	PG_TRY();
	{
		if (desc != NULL)
			relid = create_table(segment_statement(name, desc), owner);
		else
			relid = create_sequence(name, owner);
	}
	PG_FINALLY();
	{
		creating_extension = save_creating;
	}
	PG_END_TRY();
	SetUserIdAndSecContext(save_userid, save_sec_context);
	return relid;
}

/* The caller holds a lock on the stream that keeps other creators out. */
Oid
sa_staged_create_segment(const SaStagedStream *staged, TupleDesc desc)
{
	Oid			namespace = get_namespace_oid("stream_agg", false);
	char	   *name;
	Oid			segment;

	for (int k = 1;; k++)
	{
		name = psprintf("staged_%d_%d", staged->id, k);
		if (!OidIsValid(get_relname_relid(name, namespace)))
			break;
		pfree(name);
	}
	segment = create_relation(name, desc);
	attach_segment(segment, staged->stream);
	insert_segment(segment, staged->stream);
	return segment;
}

/* An id whose names are free; a restored schema may have taken some that our sequence knows nothing of. */
static int
choose_id(void)
{
	Oid			namespace = get_namespace_oid("stream_agg", false);

	for (;;)
	{
		int			id = sa_catalog_next_id();

		CHECK_FOR_INTERRUPTS();
		if (!OidIsValid(get_relname_relid(psprintf("staged_%d_chunk", id), namespace)) &&
			!OidIsValid(get_relname_relid(psprintf("staged_%d_1", id), namespace)))
			return id;
	}
}

static void
create_stream(Relation stream, SaStagedStream *staged)
{
	Datum		values[Natts_stream];
	bool		nulls[Natts_stream];

	staged->stream = RelationGetRelid(stream);
	staged->id = choose_id();
	staged->first_position = 0;
	staged->next_position = 0;
	staged->chunks = create_relation(psprintf("staged_%d_chunk", staged->id), NULL);
	attach_sequence(staged->chunks, staged->stream);
	staged->writing = sa_staged_create_segment(staged, RelationGetDescr(stream));

	form_stream(staged, values, nulls);
	insert_row("staged_stream", values, nulls);
}

/* Can rows of the stream be written to the segment? */
static bool
segment_fits(Oid segment, TupleDesc desc)
{
	Relation	rel = OidIsValid(segment) ? try_table_open(segment, AccessShareLock) : NULL;
	AttrNumber *map;
	bool		fits;

	if (rel == NULL)
		return false;
	map = palloc(sizeof(AttrNumber) * Max(desc->natts, 1));
	fits = sa_staged_map(desc, RelationGetDescr(rel), map);
	pfree(map);
	table_close(rel, AccessShareLock);
	return fits;
}

/*
 * See that the stream has a sequence and a segment that its rows fit into.  Nearly always there is
 * nothing to do and no lock is taken.
 */
void
sa_staged_ensure(Oid stream, SaStagedStream *staged)
{
	Relation	rel = table_open(stream, AccessShareLock);
	TupleDesc	desc = RelationGetDescr(rel);
	bool		exists = sa_staged_get(stream, staged);

	if (!exists || !segment_fits(staged->writing, desc) ||
		!is_attached(staged->writing, RelationRelationId, stream))
	{
		LockRelationOid(stream, ShareUpdateExclusiveLock);
		if (!sa_staged_get(stream, staged))
			create_stream(rel, staged);
		else
		{
			attach_all(staged);
			if (!segment_fits(staged->writing, desc))
			{
				staged->writing = sa_staged_create_segment(staged, desc);
				sa_staged_update(staged);
			}
		}
		CacheInvalidateRelcacheByRelid(stream);
	}
	table_close(rel, AccessShareLock);
}

/* The caller holds AccessExclusiveLock on the segment. */
void
sa_staged_empty_segment(Relation segment)
{
	CheckTableNotInUse(segment, "TRUNCATE");
	sa_truncate_relation(segment);
	CommandCounterIncrement();
}

/* Likewise. */
void
sa_staged_drop_segment(Oid segment)
{
	ObjectAddress object;

	delete_rows("staged_segment", NULL, Anum_segment_segment, segment);
	deleteDependencyRecordsFor(RelationRelationId, segment, false);
	CommandCounterIncrement();
	ObjectAddressSet(object, RelationRelationId, segment);
	performDeletion(&object, DROP_RESTRICT, PERFORM_DELETION_INTERNAL);
	CommandCounterIncrement();
}

void
sa_staged_forget(Oid stream)
{
	delete_rows("staged_order", NULL, Anum_order_stream, stream);
	delete_rows("staged_segment", "staged_segment_stream", Anum_segment_stream, stream);
	delete_rows("staged_stream", NULL, Anum_stream_stream, stream);
}

/* ---------- columns ---------- */

/* The attribute number of the stream's column that a segment's column holds; 0 when it holds none. */
static int
stream_column(Form_pg_attribute att)
{
	if (att->attisdropped || att->attnum <= SA_SEGMENT_FIXED || NameStr(att->attname)[0] != 'c')
		return 0;
	return atoi(NameStr(att->attname) + 1);
}

bool
sa_staged_map(TupleDesc stream, TupleDesc segment, AttrNumber *map)
{
	bool		complete = true;

	memset(map, 0, sizeof(AttrNumber) * stream->natts);
	for (int i = 0; i < segment->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(segment, i);
		int			column = stream_column(att);

		if (column > 0 && column <= stream->natts &&
			TupleDescAttr(stream, column - 1)->atttypid == att->atttypid)
			map[column - 1] = att->attnum;
	}
	for (int i = 0; i < stream->natts; i++)
		complete &= TupleDescAttr(stream, i)->attisdropped || map[i] != 0;
	return complete;
}

/* A column whose type was changed has rows that can no longer be read as what they are. */
static void
check_types(TupleDesc stream, Relation segment)
{
	TupleDesc	desc = RelationGetDescr(segment);

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		int			column = stream_column(att);
		Form_pg_attribute other;

		if (column <= 0 || column > stream->natts)
			continue;
		other = TupleDescAttr(stream, column - 1);
		if (!other->attisdropped && other->atttypid != att->atttypid)
			ereport(ERROR,
					(errcode(ERRCODE_DATATYPE_MISMATCH),
					 errmsg("column \"%s\" has staged rows of type %s", NameStr(other->attname),
							format_type_be(att->atttypid)),
					 errhint("Change its type back, or drop it and add a new one.")));
	}
}

SaRowReader *
sa_staged_reader(TupleDesc stream, Relation segment)
{
	SaRowReader *reader = palloc(sizeof(SaRowReader));

	reader->segment = CreateTupleDescCopy(RelationGetDescr(segment));
	reader->natts = stream->natts;
	reader->map = palloc(sizeof(AttrNumber) * Max(stream->natts, 1));
	reader->scratch = palloc(sizeof(Datum) * reader->segment->natts);
	reader->scratch_nulls = palloc(sizeof(bool) * reader->segment->natts);
	if (!sa_staged_map(stream, reader->segment, reader->map))
		check_types(stream, segment);
	return reader;
}

void
sa_staged_read_row(SaRowReader *reader, HeapTuple tuple, Datum *values, bool *nulls)
{
	heap_deform_tuple(tuple, reader->segment, reader->scratch, reader->scratch_nulls);
	for (int i = 0; i < reader->natts; i++)
	{
		AttrNumber	attnum = reader->map[i];

		nulls[i] = attnum == 0 || reader->scratch_nulls[attnum - 1];
		values[i] = nulls[i] ? (Datum) 0 : reader->scratch[attnum - 1];
	}
}

/*
 * Number and arrival are the first two columns, never NULL and eight bytes each, so they stand right at
 * the beginning of the data.
 */
int64
sa_staged_row_number(HeapTuple tuple)
{
	int64		n;

	memcpy(&n, (char *) tuple->t_data + tuple->t_data->t_hoff, sizeof(n));
	return n;
}

TimestampTz
sa_staged_row_arrival(HeapTuple tuple)
{
	TimestampTz arrival;

	memcpy(&arrival, (char *) tuple->t_data + tuple->t_data->t_hoff + sizeof(int64), sizeof(arrival));
	return arrival;
}

/* ---------- pages ---------- */

BlockNumber
sa_staged_blocks(Relation segment)
{
	return RelationGetNumberOfBlocks(segment);
}

/*
 * Why a row is not visible.  As in heapam's own checks, a transaction in progress is asked for before
 * one that committed.
 */
static SaRowState
invisible_state(HeapTupleHeader header)
{
	TransactionId xmin = HeapTupleHeaderGetRawXmin(header);

	if (HeapTupleHeaderXminInvalid(header))
		return SA_ROW_DEAD;
	if (HeapTupleHeaderXminCommitted(header) ||
		TransactionIdIsCurrentTransactionId(xmin) ||
		TransactionIdIsInProgress(xmin) ||
		TransactionIdDidCommit(xmin))
		return SA_ROW_PENDING;
	return SA_ROW_DEAD;
}

/* Visits every row of a page, seen or not; returns the page's LSN as of then. */
XLogRecPtr
sa_staged_scan_page(Relation segment, BlockNumber block, Snapshot snapshot,
					BufferAccessStrategy strategy, SaRowVisitor visit, void *arg)
{
	Buffer		buffer = ReadBufferExtended(segment, MAIN_FORKNUM, block, RBM_NORMAL, strategy);
	Page		page;
	XLogRecPtr	lsn;
	OffsetNumber last;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(buffer);
	lsn = PageGetLSN(page);
	last = PageIsNew(page) ? InvalidOffsetNumber : PageGetMaxOffsetNumber(page);
	for (OffsetNumber offset = FirstOffsetNumber; offset <= last; offset = OffsetNumberNext(offset))
	{
		ItemId		item = PageGetItemId(page, offset);
		HeapTupleData tuple;
		bool		visible;

		if (!ItemIdIsNormal(item))
			continue;
		tuple.t_data = (HeapTupleHeader) PageGetItem(page, item);
		tuple.t_len = ItemIdGetLength(item);
		tuple.t_tableOid = RelationGetRelid(segment);
		ItemPointerSet(&tuple.t_self, block, offset);
		visible = HeapTupleSatisfiesVisibility(&tuple, snapshot, buffer);
		HeapCheckForSerializableConflictOut(visible, segment, &tuple, buffer, snapshot);
		visit(arg, &tuple, sa_staged_row_number(&tuple),
			  visible ? SA_ROW_VISIBLE : invisible_state(tuple.t_data));
	}
	UnlockReleaseBuffer(buffer);
	return lsn;
}

/* The page's LSN alone, read without locking the page. */
XLogRecPtr
sa_staged_page_lsn(Relation segment, BlockNumber block, BufferAccessStrategy strategy)
{
	Buffer		buffer = ReadBufferExtended(segment, MAIN_FORKNUM, block, RBM_NORMAL, strategy);
	XLogRecPtr	lsn = BufferGetLSNAtomic(buffer);

	ReleaseBuffer(buffer);
	return lsn;
}
