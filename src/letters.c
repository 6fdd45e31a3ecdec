/*
 * letters.c
 *		Who may have dead letters fed again, and into which views.
 *
 * Invariant: a letter of the stream itself is given, as one of their own, to the views that have read past its record,
 * and is then no more; the others come to the record yet.  So no view takes one twice.
 *
 * Locks: for letters of the stream, ShareRowExclusiveLock on the result tables of all its views, so that none of
 * them passes a record meanwhile.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "commands/sequence.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "admin.h"
#include "commit.h"
#include "compat.h"
#include "deadletter.h"
#include "replay.h"
#include "slot.h"

PG_FUNCTION_INFO_V1(sa_replay_dead_letters);

/* Which letters. */
typedef struct Filter
{
	Oid			view;			/* InvalidOid: those of the stream itself */
	int64	   *ids;			/* rising; NULL: all */
	int			nids;
} Filter;

/* A view that may get letters of the stream. */
typedef struct Receiver
{
	SaViewConfig *config;
	List	   *positions;
	List	   *ids;			/* of int64 *: letters that it has got */
} Receiver;

static int
compare_ids(const void *a, const void *b)
{
	int64		x = *(const int64 *) a;
	int64		y = *(const int64 *) b;

	return x < y ? -1 : x > y;
}

/* Of no array, none. */
static void
read_ids(Filter *filter, ArrayType *array)
{
	Datum	   *elements;
	bool	   *nulls;
	int			n = 0;

	if (array != NULL)
		deconstruct_array(array, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE, &elements, &nulls, &n);
	filter->ids = palloc(sizeof(int64) * (n + 1));
	for (int i = 0; i < n; i++)
		if (!nulls[i])
			filter->ids[filter->nids++] = DatumGetInt64(elements[i]);
	qsort(filter->ids, filter->nids, sizeof(int64), compare_ids);
}

/* Could another try have another outcome?  Tombstones have nothing in them. */
static bool
is_replayable(const char *reason)
{
	return strcmp(reason, SA_REASON_TOMBSTONE) != 0;
}

static bool
matches(const Filter *filter, TupleDesc desc, HeapTuple letter)
{
	bool		isnull;
	Oid			view = DatumGetObjectId(heap_getattr(letter, Anum_letter_view, desc, &isnull));
	int64		id;

	if ((isnull ? InvalidOid : view) != filter->view)
		return false;
	id = DatumGetInt64(heap_getattr(letter, Anum_letter_id, desc, &isnull));
	if (filter->ids && bsearch(&id, filter->ids, filter->nids, sizeof(int64), compare_ids) == NULL)
		return false;
	return is_replayable(TextDatumGetCString(heap_getattr(letter, Anum_letter_reason, desc, &isnull)));
}

/* Copies of the letters that the filter lets through, in no order. */
static List *
find_letters(Relation rel, Oid stream, const Filter *filter)
{
	List	   *letters = NIL;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_letter_stream, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(stream));
	scan = systable_beginscan(rel, InvalidOid, false, NULL, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		CHECK_FOR_INTERRUPTS();
		if (matches(filter, RelationGetDescr(rel), tuple))
			letters = lappend(letters, heap_copytuple(tuple));
	}
	systable_endscan(scan);
	return letters;
}

/* ---------- a view's own letters ---------- */

static int64 *
copy_id(Relation rel, HeapTuple letter)
{
	int64	   *id = palloc(sizeof(int64));
	bool		isnull;

	*id = DatumGetInt64(heap_getattr(letter, Anum_letter_id, RelationGetDescr(rel), &isnull));
	return id;
}

static int64
replay_of_view(Oid view, Filter *filter)
{
	SaViewConfig *config = sa_admin_lock_view(view, AccessShareLock, "stream_agg.replay_dead_letters()");
	Relation	rel = table_open(sa_catalog_relation("dead_letter"), AccessShareLock);
	List	   *ids = NIL;
	ListCell   *lc;

	filter->view = view;
	foreach(lc, find_letters(rel, config->stream, filter))
		ids = lappend(ids, copy_id(rel, lfirst(lc)));
	table_close(rel, NoLock);
	sa_slot_want_at_commit(config->stream);
	return sa_replay_ask(view, ids);
}

/* ---------- those of the stream ---------- */

static List *
lock_receivers(Oid stream)
{
	List	   *receivers = NIL;
	ListCell   *lc;

	foreach(lc, sa_catalog_views(stream))
	{
		Receiver   *receiver = palloc0(sizeof(Receiver));
		Oid			view = ((SaViewConfig *) lfirst(lc))->view;

		LockRelationOid(view, ShareRowExclusiveLock);
		receiver->config = sa_catalog_view(view);
		if (receiver->config == NULL)
			continue;			/* dropped while we waited */
		receiver->positions = sa_catalog_positions(receiver->config->id);
		receivers = lappend(receivers, receiver);
	}
	return receivers;
}

/* Has the view counted the record? */
static bool
has_passed(const Receiver *receiver, Relation rel, HeapTuple letter)
{
	TupleDesc	desc = RelationGetDescr(rel);
	bool		isnull;
	const char *topic = TextDatumGetCString(heap_getattr(letter, Anum_letter_topic, desc, &isnull));
	int32		partition = DatumGetInt32(heap_getattr(letter, Anum_letter_partition, desc, &isnull));
	int64		position = DatumGetInt64(heap_getattr(letter, Anum_letter_position, desc, &isnull));
	const SaViewPosition *pos = sa_commit_find(receiver->positions, topic, partition);

	return pos != NULL && position < pos->position && position >= pos->start;
}

static void
give_letter(Receiver *receiver, Relation rel, HeapTuple letter)
{
	int64	   *id = palloc(sizeof(int64));
	int			columns[] = {Anum_letter_id, Anum_letter_view};
	Datum		values[2];
	bool		nulls[2] = {0};

	*id = nextval_internal(sa_catalog_relation("dead_letter_id_seq"), false);
	values[0] = Int64GetDatum(*id);
	values[1] = ObjectIdGetDatum(receiver->config->view);
	CatalogTupleInsert(rel, heap_modify_tuple_by_cols(letter, RelationGetDescr(rel), 2, columns, values, nulls));
	receiver->ids = lappend(receiver->ids, id);
}

/* Give the letter to whom it concerns; true when there is anybody. */
static bool
distribute(List *receivers, Relation rel, HeapTuple letter)
{
	bool		any = false;
	ListCell   *lc;

	foreach(lc, receivers)
	{
		Receiver   *receiver = lfirst(lc);

		if (!has_passed(receiver, rel, letter))
			continue;
		give_letter(receiver, rel, letter);
		any = true;
	}
	return any;
}

static int64
replay_of_stream(Oid stream, Filter *filter)
{
	Relation	rel;
	List	   *receivers;
	int64		asked = 0;
	ListCell   *lc;

	PreventCommandDuringRecovery("stream_agg.replay_dead_letters()");
	sa_admin_check_stream(stream);
	receivers = lock_receivers(stream);
	rel = table_open(sa_catalog_relation("dead_letter"), RowExclusiveLock);
	foreach(lc, find_letters(rel, stream, filter))
	{
		HeapTuple	letter = lfirst(lc);

		if (distribute(receivers, rel, letter))
			CatalogTupleDelete(rel, &letter->t_self);
	}
	table_close(rel, NoLock);
	CommandCounterIncrement();
	foreach(lc, receivers)
		asked += sa_replay_ask(((Receiver *) lfirst(lc))->config->view, ((Receiver *) lfirst(lc))->ids);
	sa_slot_want_at_commit(stream);
	return asked;
}

/* replay_dead_letters(stream or view [, letters]): how many are to be taken; those are that are not asked for already. */
Datum
sa_replay_dead_letters(PG_FUNCTION_ARGS)
{
	Filter		filter = {0};
	Oid			relid;

	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	relid = PG_GETARG_OID(0);
	if (PG_NARGS() > 1)
		read_ids(&filter, PG_ARGISNULL(1) ? NULL : PG_GETARG_ARRAYTYPE_P(1));
	sa_slot_require();
	if (sa_option_is_stream(relid))
		PG_RETURN_INT64(replay_of_stream(relid, &filter));
	PG_RETURN_INT64(replay_of_view(relid, &filter));
}
