/*
 * catalog.c
 *		The configuration tables of schema stream_agg.
 *
 * Invariant: a view's row in view_config and its rows in view_position change only in the transaction
 * that changes what they speak of.  Rows are found through primary keys; locks are RowExclusiveLock, kept
 * to the end of the transaction.
 *
 * The library may be of another version than the SQL objects, for as long as ALTER EXTENSION UPDATE or a
 * restart of the server is due.  Later versions only add columns, at the end, that may be NULL.  So older
 * objects serve; newer ones are read as far as we know them, as commands that have nothing to do with us pass
 * by here too, but not written.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/index.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "commands/sequence.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/timestamp.h"

#include "catalog.h"

enum
{
	Anum_view_id = 1,
	Anum_view_view,
	Anum_view_definition,
	Anum_view_state,
	Anum_view_stream,
	Anum_view_database,
	Anum_view_status,
	Anum_view_message,
	Anum_view_options,
	Anum_view_settings,
	Anum_view_spill,
	Anum_view_dedup,
	Anum_view_dedup_spill,
	Natts_view = Anum_view_dedup_spill,
	Natts_view_1_0 = Anum_view_spill - 1	/* columns of version 1.0 */
};

enum
{
	Anum_pos_view_id = 1,
	Anum_pos_topic,
	Anum_pos_partition,
	Anum_pos_position,
	Anum_pos_running_max,
	Anum_pos_watermark,
	Anum_pos_end,
	Anum_pos_counters,			/* the first of SA_NCOUNTERS */
	Anum_pos_start = Anum_pos_counters + SA_NCOUNTERS,
	Anum_pos_replayed,
	Anum_pos_corrections,
	Natts_pos = Anum_pos_corrections,
	Natts_pos_1_0 = Anum_pos_start - 1	/* columns of version 1.0 */
};

enum
{
	Anum_step_view_id = 1,
	Anum_step_topic,
	Anum_step_partition,
	Anum_step_position,
	Anum_step_floor,
	Anum_step_running_max,
	Natts_step = Anum_step_running_max
};

/* --- finding our tables --- */

/* What sa_catalog_relation has found; emptied by any invalidation that may concern it. */
typedef struct KnownRelation
{
	char		name[NAMEDATALEN];
	Oid			relid;
} KnownRelation;

static KnownRelation known[32];
static int	nknown = 0;
static bool version_known = false;	/* the SQL objects are not newer than the library */

static void
forget_known(Datum arg, Oid relid)
{
	for (int i = 0; i < nknown; i++)
		if (!OidIsValid(relid) || known[i].relid == relid)
		{
			nknown = 0;
			version_known = false;
			return;
		}
}

/* A relation of the extension's, or an index of one. */
static bool
is_extensions(Oid relid)
{
	if (get_rel_relkind(relid) == RELKIND_INDEX)
		relid = IndexGetRelation(relid, true);
	return getExtensionOfObject(RelationRelationId, relid) == get_extension_oid("stream_agg", true);
}

/*
 * OID of a relation of the extension, InvalidOid when there is none.  A relation that merely has the same
 * name, in a database without the extension, is somebody else's.
 */
Oid
sa_catalog_find(const char *name)
{
	static bool registered = false;
	Oid			nsp;
	Oid			relid;

	for (int i = 0; i < nknown; i++)
		if (strcmp(known[i].name, name) == 0)
			return known[i].relid;
	if (!registered)
		CacheRegisterRelcacheCallback(forget_known, (Datum) 0);
	registered = true;
	nsp = get_namespace_oid("stream_agg", true);
	relid = OidIsValid(nsp) ? get_relname_relid(name, nsp) : InvalidOid;
	if (!OidIsValid(relid) || !is_extensions(relid))
		return InvalidOid;
	if (nknown < lengthof(known))
	{
		strlcpy(known[nknown].name, name, NAMEDATALEN);
		known[nknown++].relid = relid;
	}
	return relid;
}

bool
sa_catalog_exists(void)
{
	return OidIsValid(sa_catalog_find("view_config"));
}

/* --- versions --- */

/* The version of the SQL objects; NULL: there are none. */
static char *
installed_version(void)
{
	Relation	rel = table_open(ExtensionRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	char	   *version = NULL;

	ScanKeyInit(&key, Anum_pg_extension_extname, BTEqualStrategyNumber, F_NAMEEQ, CStringGetDatum("stream_agg"));
	scan = systable_beginscan(rel, ExtensionNameIndexId, true, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		bool		isnull;
		Datum		value = heap_getattr(tuple, Anum_pg_extension_extversion, RelationGetDescr(rel), &isnull);

		version = TextDatumGetCString(value);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return version;
}

/* Like strcmp, number by number. */
static int
compare_versions(const char *a, const char *b)
{
	while (*a || *b)
	{
		char	   *end_a;
		char	   *end_b;
		long		x = strtol(a, &end_a, 10);
		long		y = strtol(b, &end_b, 10);

		if (x != y)
			return x < y ? -1 : 1;
		if (end_a == a && end_b == b)
			return strcmp(a, b);
		a = *end_a == '.' ? end_a + 1 : end_a;
		b = *end_b == '.' ? end_b + 1 : end_b;
	}
	return 0;
}

static void
refuse_newer(const char *version)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("extension \"stream_agg\" is of version %s here, and its library of version %s", version, SA_VERSION),
			 errhint("Install the library of version %s and restart the server.", version)));
}

static void
refuse_older(const char *version)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("extension \"stream_agg\" is of version %s here, and its library of version %s", version, SA_VERSION),
			 errhint("Run ALTER EXTENSION stream_agg UPDATE.")));
}

/* Is the library able to write the rows of this table?  Nullable columns may be missing, down to so many. */
static void
check_columns(Relation rel, int least, int most)
{
	if (RelationGetNumberOfAttributes(rel) < least)
		refuse_older(installed_version());
	if (RelationGetNumberOfAttributes(rel) > most)
		refuse_newer(installed_version());
}

/* Is the extension here, and not newer than the library? */
bool
sa_catalog_usable(void)
{
	return sa_catalog_exists() && compare_versions(installed_version(), SA_VERSION) <= 0;
}

Oid
sa_catalog_relation(const char *name)
{
	Oid			relid = sa_catalog_find(name);
	const char *version;

	if (OidIsValid(relid) && version_known)
		return relid;
	version = installed_version();
	if (version != NULL && compare_versions(version, SA_VERSION) > 0)
		refuse_newer(version);
	version_known = OidIsValid(relid);
	if (version_known)
		return relid;
	if (version != NULL && compare_versions(version, SA_VERSION) < 0)
		refuse_older(version);
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("extension \"stream_agg\" is not installed in this database"),
			 errhint("Use CREATE EXTENSION stream_agg.")));
}

int
sa_catalog_next_id(void)
{
	return (int) nextval_internal(sa_catalog_relation("object_id"), false);
}

SysScanDesc
sa_catalog_scan(Relation rel, const char *index, Oid oid)
{
	ScanKeyData key;

	ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(oid));
	return systable_beginscan(rel, sa_catalog_relation(index), true, NULL, 1, &key);
}

/* Indexes of topics are sorted by the database's collation, not by that of catalogs. */
void
sa_catalog_topic_key(ScanKey key, AttrNumber attr, const char *topic)
{
	ScanKeyInit(key, attr, BTEqualStrategyNumber, F_TEXTEQ, CStringGetTextDatum(topic));
	key->sk_collation = DEFAULT_COLLATION_OID;
}

void
sa_catalog_put(Relation rel, HeapTuple old, HeapTuple tuple)
{
	if (HeapTupleIsValid(old))
		CatalogTupleUpdate(rel, &old->t_self, tuple);
	else
		CatalogTupleInsert(rel, tuple);
}

/* --- view_config --- */

static SaViewConfig *
read_view(HeapTuple tuple, TupleDesc desc)
{
	SaViewConfig *config = palloc0(sizeof(SaViewConfig));
	int			natts = Max(desc->natts, Natts_view);
	Datum	   *values = palloc0(sizeof(Datum) * natts);
	bool	   *nulls = palloc(sizeof(bool) * natts);

	memset(nulls, true, sizeof(bool) * natts);	/* columns that an older version has not */
	heap_deform_tuple(tuple, desc, values, nulls);
	config->id = DatumGetInt32(values[Anum_view_id - 1]);
	config->view = DatumGetObjectId(values[Anum_view_view - 1]);
	config->definition = DatumGetObjectId(values[Anum_view_definition - 1]);
	if (!nulls[Anum_view_state - 1])
		config->state = DatumGetObjectId(values[Anum_view_state - 1]);
	config->stream = DatumGetObjectId(values[Anum_view_stream - 1]);
	if (!nulls[Anum_view_database - 1])
		config->database = DatumGetObjectId(values[Anum_view_database - 1]);
	config->status = TextDatumGetCString(values[Anum_view_status - 1]);
	if (!nulls[Anum_view_message - 1])
		config->message = TextDatumGetCString(values[Anum_view_message - 1]);
	config->options = sa_option_untransform(values[Anum_view_options - 1]);
	config->settings = sa_option_untransform(values[Anum_view_settings - 1]);
	if (!nulls[Anum_view_spill - 1])
		config->spill = DatumGetObjectId(values[Anum_view_spill - 1]);
	if (!nulls[Anum_view_dedup - 1])
		config->dedup = DatumGetObjectId(values[Anum_view_dedup - 1]);
	if (!nulls[Anum_view_dedup_spill - 1])
		config->dedup_spill = DatumGetObjectId(values[Anum_view_dedup_spill - 1]);
	pfree(values);
	pfree(nulls);
	return config;
}

/*
 * Rows of view_config with this value in this column (0: all), as SaViewConfig.  There is no check of
 * versions: every DROP and ALTER TABLE of the database comes by here.
 */
static List *
scan_views(AttrNumber attr, Oid value)
{
	Oid			relid = sa_catalog_find("view_config");
	Relation	rel;
	List	   *result = NIL;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	rel = table_open(OidIsValid(relid) ? relid : sa_catalog_relation("view_config"), AccessShareLock);
	if (attr != 0)
		ScanKeyInit(&key, attr, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(value));
	scan = systable_beginscan(rel, InvalidOid, false, NULL, attr != 0 ? 1 : 0, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
		result = lappend(result, read_view(tuple, RelationGetDescr(rel)));
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return result;
}

SaViewConfig *
sa_catalog_view(Oid view)
{
	List	   *views = scan_views(Anum_view_view, view);

	return views == NIL ? NULL : linitial(views);
}

static int
compare_id(const ListCell *a, const ListCell *b)
{
	return ((SaViewConfig *) lfirst(a))->id - ((SaViewConfig *) lfirst(b))->id;
}

List *
sa_catalog_views(Oid stream)
{
	List	   *views = scan_views(Anum_view_stream, stream);

	list_sort(views, compare_id);
	return views;
}

List *
sa_catalog_all_views(void)
{
	return sa_catalog_exists() ? scan_views(0, InvalidOid) : NIL;
}

List *
sa_catalog_running_streams(void)
{
	List	   *result = NIL;
	ListCell   *lc;

	foreach(lc, sa_catalog_all_views())
	{
		SaViewConfig *config = lfirst(lc);

		if (config->database == MyDatabaseId)
			result = list_append_unique_oid(result, config->stream);
	}
	return result;
}

/* How many columns hold all of it. */
static int
columns_for(const SaViewConfig *config)
{
	if (OidIsValid(config->dedup_spill))
		return Anum_view_dedup_spill;
	if (OidIsValid(config->dedup))
		return Anum_view_dedup;
	return OidIsValid(config->spill) ? Anum_view_spill : Natts_view_1_0;
}

void
sa_catalog_insert_view(const SaViewConfig *config)
{
	Relation	rel = table_open(sa_catalog_relation("view_config"), RowExclusiveLock);
	Datum		values[Natts_view];
	bool		nulls[Natts_view] = {0};
	HeapTuple	tuple;

	check_columns(rel, columns_for(config), Natts_view);
	values[Anum_view_id - 1] = Int32GetDatum(config->id);
	values[Anum_view_view - 1] = ObjectIdGetDatum(config->view);
	values[Anum_view_definition - 1] = ObjectIdGetDatum(config->definition);
	values[Anum_view_state - 1] = ObjectIdGetDatum(config->state);
	nulls[Anum_view_state - 1] = !OidIsValid(config->state);
	values[Anum_view_stream - 1] = ObjectIdGetDatum(config->stream);
	values[Anum_view_database - 1] = ObjectIdGetDatum(config->database);
	values[Anum_view_status - 1] = CStringGetTextDatum(config->status);
	nulls[Anum_view_message - 1] = true;
	values[Anum_view_options - 1] = sa_option_transform(config->options);
	values[Anum_view_settings - 1] = sa_option_transform(config->settings);
	values[Anum_view_spill - 1] = ObjectIdGetDatum(config->spill);
	nulls[Anum_view_spill - 1] = !OidIsValid(config->spill);
	values[Anum_view_dedup - 1] = ObjectIdGetDatum(config->dedup);
	nulls[Anum_view_dedup - 1] = !OidIsValid(config->dedup);
	values[Anum_view_dedup_spill - 1] = ObjectIdGetDatum(config->dedup_spill);
	nulls[Anum_view_dedup_spill - 1] = !OidIsValid(config->dedup_spill);
	tuple = heap_form_tuple(RelationGetDescr(rel), values, nulls);
	CatalogTupleInsert(rel, tuple);
	heap_freetuple(tuple);
	table_close(rel, NoLock);
	CommandCounterIncrement();
}

/* The row of a view, copied, or NULL. */
static HeapTuple
find_view_tuple(Relation rel, Oid view)
{
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_view_view, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(view));
	scan = systable_beginscan(rel, InvalidOid, false, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
		tuple = heap_copytuple(tuple);
	systable_endscan(scan);
	return tuple;
}

/* Also makes the view one of this database: that is what resume means after a restore. */
void
sa_catalog_set_status(Oid view, const char *status, const char *message)
{
	Relation	rel = table_open(sa_catalog_relation("view_config"), RowExclusiveLock);
	HeapTuple	tuple = find_view_tuple(rel, view);
	Datum		values[Natts_view];
	bool		nulls[Natts_view] = {0};
	bool		replace[Natts_view] = {0};

	check_columns(rel, Natts_view_1_0, Natts_view);
	if (HeapTupleIsValid(tuple))
	{
		values[Anum_view_status - 1] = CStringGetTextDatum(status);
		replace[Anum_view_status - 1] = true;
		if (message)
			values[Anum_view_message - 1] = CStringGetTextDatum(message);
		nulls[Anum_view_message - 1] = message == NULL;
		replace[Anum_view_message - 1] = true;
		values[Anum_view_database - 1] = ObjectIdGetDatum(MyDatabaseId);
		replace[Anum_view_database - 1] = true;
		tuple = heap_modify_tuple(tuple, RelationGetDescr(rel), values, nulls, replace);
		CatalogTupleUpdate(rel, &tuple->t_self, tuple);
	}
	table_close(rel, NoLock);
	CommandCounterIncrement();
}

/* --- view_position --- */

static SysScanDesc
begin_positions(Relation rel, int view_id, const char *topic, int32 partition, ScanKey keys)
{
	int			nkeys = 1;

	ScanKeyInit(&keys[0], Anum_pos_view_id, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(view_id));
	if (topic)
	{
		sa_catalog_topic_key(&keys[1], Anum_pos_topic, topic);
		ScanKeyInit(&keys[2], Anum_pos_partition, BTEqualStrategyNumber, F_INT4EQ,
					Int32GetDatum(partition));
		nkeys = 3;
	}
	return systable_beginscan(rel, sa_catalog_relation("view_position_pkey"), true, NULL, nkeys, keys);
}

static TimestampTz
nullable_time(Datum value, bool isnull)
{
	return isnull ? DT_NOBEGIN : DatumGetInt64(value);
}

static void
put_nullable_time(Datum *values, bool *nulls, int attr, TimestampTz time)
{
	values[attr - 1] = Int64GetDatum(time);
	nulls[attr - 1] = TIMESTAMP_IS_NOBEGIN(time);
}

List *
sa_catalog_positions(int view_id)
{
	Relation	rel = table_open(sa_catalog_relation("view_position"), AccessShareLock);
	List	   *result = NIL;
	ScanKeyData keys[3];
	SysScanDesc scan;
	HeapTuple	tuple;

	check_columns(rel, Natts_pos_1_0, Natts_pos);
	scan = begin_positions(rel, view_id, NULL, 0, keys);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		SaViewPosition *pos = palloc0(sizeof(SaViewPosition));
		Datum		values[Natts_pos];
		bool		nulls[Natts_pos];

		memset(nulls, true, sizeof(nulls));
		heap_deform_tuple(tuple, RelationGetDescr(rel), values, nulls);
		pos->topic = TextDatumGetCString(values[Anum_pos_topic - 1]);
		pos->partition = DatumGetInt32(values[Anum_pos_partition - 1]);
		pos->position = DatumGetInt64(values[Anum_pos_position - 1]);
		pos->running_max = nullable_time(values[Anum_pos_running_max - 1], nulls[Anum_pos_running_max - 1]);
		pos->watermark = nullable_time(values[Anum_pos_watermark - 1], nulls[Anum_pos_watermark - 1]);
		pos->end = nulls[Anum_pos_end - 1] ? PG_INT64_MAX : DatumGetInt64(values[Anum_pos_end - 1]);
		pos->start = nulls[Anum_pos_start - 1] ? -1 : DatumGetInt64(values[Anum_pos_start - 1]);
		pos->replayed = nulls[Anum_pos_replayed - 1] ? 0 : DatumGetInt64(values[Anum_pos_replayed - 1]);
		for (int i = 0; i < SA_NCOUNTERS; i++)
			pos->counters[i] = DatumGetInt64(values[Anum_pos_counters - 1 + i]);
		if (!nulls[Anum_pos_corrections - 1])
			pos->corrections = DatumGetInt64(values[Anum_pos_corrections - 1]);
		result = lappend(result, pos);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return result;
}

void
sa_catalog_save_position(int view_id, const SaViewPosition *pos)
{
	Relation	rel = table_open(sa_catalog_relation("view_position"), RowExclusiveLock);
	ScanKeyData keys[3];
	SysScanDesc scan = begin_positions(rel, view_id, pos->topic, pos->partition, keys);
	HeapTuple	old = systable_getnext(scan);
	HeapTuple	tuple;
	Datum		values[Natts_pos];
	bool		nulls[Natts_pos] = {0};

	check_columns(rel, Natts_pos_1_0, Natts_pos);
	values[Anum_pos_view_id - 1] = Int32GetDatum(view_id);
	values[Anum_pos_topic - 1] = CStringGetTextDatum(pos->topic);
	values[Anum_pos_partition - 1] = Int32GetDatum(pos->partition);
	values[Anum_pos_position - 1] = Int64GetDatum(pos->position);
	put_nullable_time(values, nulls, Anum_pos_running_max, pos->running_max);
	put_nullable_time(values, nulls, Anum_pos_watermark, pos->watermark);
	values[Anum_pos_end - 1] = Int64GetDatum(pos->end);
	nulls[Anum_pos_end - 1] = pos->end == PG_INT64_MAX;
	values[Anum_pos_start - 1] = Int64GetDatum(pos->start);
	nulls[Anum_pos_start - 1] = pos->start < 0;
	values[Anum_pos_replayed - 1] = Int64GetDatum(pos->replayed);
	for (int i = 0; i < SA_NCOUNTERS; i++)
		values[Anum_pos_counters - 1 + i] = Int64GetDatum(pos->counters[i]);
	values[Anum_pos_corrections - 1] = Int64GetDatum(pos->corrections);
	tuple = heap_form_tuple(RelationGetDescr(rel), values, nulls);
	sa_catalog_put(rel, old, tuple);
	heap_freetuple(tuple);
	systable_endscan(scan);
	table_close(rel, NoLock);
}

void
sa_catalog_delete_positions(int view_id)
{
	Relation	rel = table_open(sa_catalog_relation("view_position"), RowExclusiveLock);
	ScanKeyData keys[3];
	SysScanDesc scan = begin_positions(rel, view_id, NULL, 0, keys);
	HeapTuple	tuple;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
		CatalogTupleDelete(rel, &tuple->t_self);
	systable_endscan(scan);
	table_close(rel, NoLock);
	if (sa_catalog_steps(view_id) != NIL)
		sa_catalog_replace_steps(view_id, NIL);
}

/* --- view_rebuild --- */

static SysScanDesc
begin_steps(Relation rel, int view_id)
{
	ScanKeyData key;

	ScanKeyInit(&key, Anum_step_view_id, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(view_id));
	return systable_beginscan(rel, InvalidOid, false, NULL, 1, &key);
}

int
sa_catalog_compare_steps(const ListCell *a, const ListCell *b)
{
	const SaStep *x = lfirst(a);
	const SaStep *y = lfirst(b);
	int			result = strcmp(x->topic, y->topic);

	if (result != 0)
		return result;
	if (x->partition != y->partition)
		return x->partition < y->partition ? -1 : 1;
	return x->position < y->position ? -1 : x->position > y->position;
}

List *
sa_catalog_steps(int view_id)
{
	Relation	rel;
	SysScanDesc scan;
	List	   *result = NIL;
	HeapTuple	tuple;

	if (!OidIsValid(sa_catalog_find("view_rebuild")))
		return NIL;				/* the SQL objects are of version 1.0 */
	rel = table_open(sa_catalog_relation("view_rebuild"), AccessShareLock);
	scan = begin_steps(rel, view_id);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		SaStep	   *step = palloc(sizeof(SaStep));
		Datum		values[Natts_step];
		bool		nulls[Natts_step];

		heap_deform_tuple(tuple, RelationGetDescr(rel), values, nulls);
		step->topic = TextDatumGetCString(values[Anum_step_topic - 1]);
		step->partition = DatumGetInt32(values[Anum_step_partition - 1]);
		step->position = DatumGetInt64(values[Anum_step_position - 1]);
		step->floor = nullable_time(values[Anum_step_floor - 1], nulls[Anum_step_floor - 1]);
		step->running_max = nullable_time(values[Anum_step_running_max - 1], nulls[Anum_step_running_max - 1]);
		result = lappend(result, step);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	list_sort(result, sa_catalog_compare_steps);
	return result;
}

static void
insert_step(Relation rel, int view_id, const SaStep *step)
{
	Datum		values[Natts_step];
	bool		nulls[Natts_step] = {0};
	HeapTuple	tuple;

	values[Anum_step_view_id - 1] = Int32GetDatum(view_id);
	values[Anum_step_topic - 1] = CStringGetTextDatum(step->topic);
	values[Anum_step_partition - 1] = Int32GetDatum(step->partition);
	values[Anum_step_position - 1] = Int64GetDatum(step->position);
	put_nullable_time(values, nulls, Anum_step_floor, step->floor);
	put_nullable_time(values, nulls, Anum_step_running_max, step->running_max);
	tuple = heap_form_tuple(RelationGetDescr(rel), values, nulls);
	CatalogTupleInsert(rel, tuple);
	heap_freetuple(tuple);
}

/* Places of duplicates (duplicate.c), which nothing is read again for any more. */
static void
delete_duplicates(int view_id)
{
	Relation	rel = table_open(sa_catalog_relation("view_duplicate"), RowExclusiveLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(view_id));
	scan = systable_beginscan(rel, sa_catalog_relation("view_duplicate_pkey"), true, NULL, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
		CatalogTupleDelete(rel, &tuple->t_self);
	systable_endscan(scan);
	table_close(rel, NoLock);
}

void
sa_catalog_replace_steps(int view_id, List *steps)
{
	Relation	rel = table_open(sa_catalog_relation("view_rebuild"), RowExclusiveLock);
	SysScanDesc scan = begin_steps(rel, view_id);
	HeapTuple	tuple;
	ListCell   *lc;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
		CatalogTupleDelete(rel, &tuple->t_self);
	systable_endscan(scan);
	if (steps == NIL)
		delete_duplicates(view_id);
	CommandCounterIncrement();
	foreach(lc, steps)
		insert_step(rel, view_id, lfirst(lc));
	table_close(rel, NoLock);
	CommandCounterIncrement();
}

/* --- changing and deleting views --- */

static void
move_positions(int from, int to)
{
	List	   *steps = sa_catalog_steps(from);
	ListCell   *lc;

	foreach(lc, sa_catalog_positions(from))
		sa_catalog_save_position(to, lfirst(lc));
	sa_catalog_delete_positions(from);
	if (steps != NIL)
		sa_catalog_replace_steps(to, steps);
}

void
sa_catalog_change_view(const SaViewConfig *config)
{
	Relation	rel = table_open(sa_catalog_relation("view_config"), RowExclusiveLock);
	HeapTuple	tuple = find_view_tuple(rel, config->view);
	Datum		values[Natts_view];
	bool		nulls[Natts_view] = {0};
	bool		replace[Natts_view] = {0};
	int			old_id;

	check_columns(rel, columns_for(config), Natts_view);
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "no configuration of continuous view %u", config->view);
	old_id = read_view(tuple, RelationGetDescr(rel))->id;
	values[Anum_view_id - 1] = Int32GetDatum(config->id);
	values[Anum_view_definition - 1] = ObjectIdGetDatum(config->definition);
	values[Anum_view_state - 1] = ObjectIdGetDatum(config->state);
	nulls[Anum_view_state - 1] = !OidIsValid(config->state);
	values[Anum_view_options - 1] = sa_option_transform(config->options);
	values[Anum_view_spill - 1] = ObjectIdGetDatum(config->spill);
	nulls[Anum_view_spill - 1] = !OidIsValid(config->spill);
	values[Anum_view_dedup_spill - 1] = ObjectIdGetDatum(config->dedup_spill);
	nulls[Anum_view_dedup_spill - 1] = !OidIsValid(config->dedup_spill);
	replace[Anum_view_id - 1] = replace[Anum_view_definition - 1] = replace[Anum_view_state - 1] =
		replace[Anum_view_options - 1] = replace[Anum_view_spill - 1] = replace[Anum_view_dedup_spill - 1] = true;
	tuple = heap_modify_tuple(tuple, RelationGetDescr(rel), values, nulls, replace);
	CatalogTupleUpdate(rel, &tuple->t_self, tuple);
	table_close(rel, NoLock);
	CommandCounterIncrement();
	if (config->id != old_id)
		move_positions(old_id, config->id);
	CommandCounterIncrement();
}

void
sa_catalog_delete_view(Oid view)
{
	Relation	rel = table_open(sa_catalog_relation("view_config"), RowExclusiveLock);
	HeapTuple	tuple = find_view_tuple(rel, view);

	if (HeapTupleIsValid(tuple))
	{
		sa_catalog_delete_positions(read_view(tuple, RelationGetDescr(rel))->id);
		CatalogTupleDelete(rel, &tuple->t_self);
	}
	table_close(rel, NoLock);
	CommandCounterIncrement();
}

/* --- streams --- */

/* Delete the rows of a table of ours that have this stream in this column. */
static void
delete_of_stream(const char *table, const char *column, Oid stream)
{
	Relation	rel = table_open(sa_catalog_relation(table), RowExclusiveLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, get_attnum(RelationGetRelid(rel), column), BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(stream));
	scan = systable_beginscan(rel, InvalidOid, false, NULL, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
		CatalogTupleDelete(rel, &tuple->t_self);
	systable_endscan(scan);
	table_close(rel, NoLock);
}

void
sa_catalog_forget_stream(Oid stream)
{
	static const char *const tables[] = {
		"staged_order", "staged_segment", "staged_stream", "dead_letter", "data_loss", "stream_counter"
	};

	for (int i = 0; i < lengthof(tables); i++)
		delete_of_stream(tables[i], "stream", stream);
	CommandCounterIncrement();
}

void
sa_catalog_count_dropped(Oid stream, int64 letters)
{
	Relation	rel = table_open(sa_catalog_relation("stream_counter"), RowExclusiveLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	old;
	HeapTuple	tuple;
	Datum		values[2] = {ObjectIdGetDatum(stream), Int64GetDatum(letters)};
	bool		nulls[2] = {false, false};
	bool		isnull;

	ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(stream));
	scan = systable_beginscan(rel, InvalidOid, false, NULL, 1, &key);
	old = systable_getnext(scan);
	if (HeapTupleIsValid(old))
		values[1] = Int64GetDatum(letters + DatumGetInt64(heap_getattr(old, 2, RelationGetDescr(rel), &isnull)));
	tuple = heap_form_tuple(RelationGetDescr(rel), values, nulls);
	sa_catalog_put(rel, old, tuple);
	systable_endscan(scan);
	table_close(rel, NoLock);
	CommandCounterIncrement();
}

void
sa_catalog_note_loss(Oid stream, const SaPosition *first, int64 next)
{
	Relation	rel = table_open(sa_catalog_relation("data_loss"), RowExclusiveLock);
	Datum		values[6] = {
		ObjectIdGetDatum(stream), CStringGetTextDatum(first->topic), Int32GetDatum(first->partition),
		Int64GetDatum(first->position), Int64GetDatum(next), TimestampTzGetDatum(GetCurrentTimestamp())
	};
	bool		nulls[6] = {false};
	Oid			equal[] = {F_OIDEQ, F_TEXTEQ, F_INT4EQ, F_INT8EQ, F_INT8EQ};
	ScanKeyData keys[5];
	SysScanDesc scan;

	for (int i = 0; i < lengthof(keys); i++)
		ScanKeyInit(&keys[i], i + 1, BTEqualStrategyNumber, equal[i], values[i]);
	sa_catalog_topic_key(&keys[1], 2, first->topic);
	scan = systable_beginscan(rel, sa_catalog_relation("data_loss_pkey"), true, NULL, lengthof(keys), keys);
	if (!HeapTupleIsValid(systable_getnext(scan)))
		CatalogTupleInsert(rel, heap_form_tuple(RelationGetDescr(rel), values, nulls));
	systable_endscan(scan);
	table_close(rel, NoLock);
	CommandCounterIncrement();
}
