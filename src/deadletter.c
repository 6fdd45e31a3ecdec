/*
 * deadletter.c
 *		Dead letters of streams and views.
 *
 * Invariant: a dead letter commits with the position that passes its record.  A stream has at most
 * stream_agg.dead_letter_limit of them; older ones go first and are counted in stream_counter.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/lsyscache.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

#include "catalog.h"
#include "deadletter.h"

struct SaDeadLetter
{
	Oid			view;
	const char *reason;
	const char *message;
	const char *topic;
	int32		partition;
	int64		position;
	TimestampTz time;
	TimestampTz arrival;
	Datum		event;			/* jsonb; 0: none */
	const SaRefusal *refusal;	/* instead of an event */
	bool		seen;			/* its key */
};

static int	dead_letter_limit = 100000;

/* Letters kept per stream, as far as this process knows: not less, but those of dropped views may be gone. */
typedef struct LetterCount
{
	Oid			stream;
	int64		count;
} LetterCount;

static HTAB *counts = NULL;

void
sa_deadletter_init(void)
{
	DefineCustomIntVariable("stream_agg.dead_letter_limit",
							"Number of dead letters kept for each stream; the oldest go first.",
							NULL, &dead_letter_limit, 100000, 0, INT_MAX,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
}

/*
 * The event as a jsonb object, of the columns that the current user may read; in CurrentMemoryContext.
 */
static Datum
json_of(SaBatch *batch, SaEvent *event)
{
	TupleDesc	desc = lookup_rowtype_tupdesc_copy(get_rel_type_id(batch->stream), -1);
	bool	   *nulls = palloc(sizeof(bool) * desc->natts);
	bool		all = pg_class_aclcheck(batch->stream, GetUserId(), ACL_SELECT) == ACLCHECK_OK;
	HeapTuple	tuple;
	Datum		json;

	for (int i = 0; i < desc->natts; i++)
		nulls[i] = event->nulls[i] || (!all && pg_attribute_aclcheck(batch->stream, i + 1, GetUserId(),
																	 ACL_SELECT) != ACLCHECK_OK);
	tuple = heap_form_tuple(desc, event->values, nulls);
	json = DirectFunctionCall1(row_to_json, heap_copy_tuple_as_datum(tuple, desc));
	return DirectFunctionCall1(jsonb_in, CStringGetDatum(TextDatumGetCString(json)));
}

/*
 * The event, or NULL and why there is none: a value that JSON cannot hold, or a cast that raises, must
 * not stop the stream.
 */
static void
make_event(SaDeadLetter *letter, SaBatch *batch, SaEvent *event)
{
	MemoryContext cxt = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(cxt);
	PG_TRY();
	{
		letter->event = json_of(batch, event);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(cxt);
		error = CopyErrorData();
		if (ERRCODE_TO_CATEGORY(error->sqlerrcode) == ERRCODE_OPERATOR_INTERVENTION)
			PG_RE_THROW();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		letter->message = letter->message ? psprintf("%s (not shown: %s)", letter->message, error->message) :
			psprintf("not shown: %s", error->message);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(cxt);
	CurrentResourceOwner = owner;
}

SaDeadLetter *
sa_deadletter_make(SaBatch *batch, int ordinal, Oid view, const char *reason, const char *message)
{
	SaEvent    *event = &batch->events[ordinal];
	SaDeadLetter *letter = palloc0(sizeof(SaDeadLetter));

	letter->view = view;
	letter->reason = reason;
	letter->message = message;
	letter->topic = batch->partitions[event->partition].topic;
	letter->partition = batch->partitions[event->partition].partition;
	letter->position = event->position;
	letter->time = event->time;
	letter->arrival = event->arrival;
	letter->refusal = sa_batch_refusal(batch, ordinal);
	if (letter->refusal == NULL)
		make_event(letter, batch, event);
	else if (message == NULL)
		letter->message = letter->refusal->message;
	return letter;
}

void
sa_deadletter_set_seen(SaDeadLetter *letter)
{
	letter->seen = true;
}

static TimestampTz
arrival_of(HeapTuple tuple, TupleDesc desc)
{
	bool		isnull;
	Datum		value = heap_getattr(tuple, Anum_letter_arrival, desc, &isnull);

	return isnull ? DT_NOBEGIN : DatumGetTimestampTz(value);
}

/*
 * A letter of the stream itself that another view's turn has left already.  Another arrival: another record,
 * whose topic has been made anew.
 */
static bool
is_there(Relation rel, Oid stream, SaDeadLetter *letter)
{
	ScanKeyData keys[4];
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		found = false;

	ScanKeyInit(&keys[0], Anum_letter_stream, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(stream));
	sa_catalog_topic_key(&keys[1], Anum_letter_topic, letter->topic);
	ScanKeyInit(&keys[2], Anum_letter_partition, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(letter->partition));
	ScanKeyInit(&keys[3], Anum_letter_position, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(letter->position));
	scan = systable_beginscan(rel, sa_catalog_relation("dead_letter_place"), true, NULL, lengthof(keys), keys);
	while (!found && HeapTupleIsValid(tuple = systable_getnext(scan)))
		found = heap_attisnull(tuple, Anum_letter_view, RelationGetDescr(rel)) &&
			arrival_of(tuple, RelationGetDescr(rel)) == letter->arrival;
	systable_endscan(scan);
	return found;
}

static void
set_time(Datum *values, bool *nulls, int attr, TimestampTz time)
{
	values[attr - 1] = TimestampTzGetDatum(time);
	nulls[attr - 1] = TIMESTAMP_NOT_FINITE(time);
}

static void
set_bytes(Datum *values, bool *nulls, int attr, struct varlena *bytes)
{
	values[attr - 1] = PointerGetDatum(bytes);
	nulls[attr - 1] = bytes == NULL;
}

static void
insert_letter(Relation rel, CatalogIndexState indexes, Oid ids, Oid stream, SaDeadLetter *letter, TimestampTz now)
{
	Datum		values[Natts_letter] = {0};
	bool		nulls[Natts_letter] = {0};
	HeapTuple	tuple;

	values[Anum_letter_id - 1] = Int64GetDatum(nextval_internal(ids, false));
	values[Anum_letter_stream - 1] = ObjectIdGetDatum(stream);
	values[Anum_letter_view - 1] = ObjectIdGetDatum(letter->view);
	nulls[Anum_letter_view - 1] = !OidIsValid(letter->view);
	values[Anum_letter_reason - 1] = CStringGetTextDatum(letter->reason);
	values[Anum_letter_topic - 1] = CStringGetTextDatum(letter->topic);
	values[Anum_letter_partition - 1] = Int32GetDatum(letter->partition);
	values[Anum_letter_position - 1] = Int64GetDatum(letter->position);
	set_time(values, nulls, Anum_letter_event_time, letter->time);
	set_time(values, nulls, Anum_letter_arrival, letter->arrival);
	set_time(values, nulls, Anum_letter_recorded_at, now);
	if (letter->message)
		values[Anum_letter_message - 1] = CStringGetTextDatum(letter->message);
	nulls[Anum_letter_message - 1] = letter->message == NULL;
	values[Anum_letter_event - 1] = letter->event;
	nulls[Anum_letter_event - 1] = letter->event == (Datum) 0;
	set_bytes(values, nulls, Anum_letter_key, letter->refusal ? letter->refusal->key : NULL);
	set_bytes(values, nulls, Anum_letter_payload, letter->refusal ? letter->refusal->payload : NULL);
	values[Anum_letter_seen - 1] = BoolGetDatum(letter->seen);
	nulls[Anum_letter_seen - 1] = !letter->seen;
	tuple = heap_form_tuple(RelationGetDescr(rel), values, nulls);
	CatalogTupleInsertWithInfo(rel, tuple, indexes);
	heap_freetuple(tuple);
}

/* Insert the letters that are not there yet; how many. */
static int64
insert_letters(Oid stream, List *letters)
{
	Relation	rel = table_open(sa_catalog_relation("dead_letter"), RowExclusiveLock);
	CatalogIndexState indexes = CatalogOpenIndexes(rel);
	Oid			ids = sa_catalog_relation("dead_letter_id_seq");
	TimestampTz now = GetCurrentTimestamp();
	int64		inserted = 0;
	ListCell   *lc;

	foreach(lc, letters)
	{
		SaDeadLetter *letter = lfirst(lc);

		if (!OidIsValid(letter->view) && is_there(rel, stream, letter))
			continue;
		insert_letter(rel, indexes, ids, stream, letter, now);
		inserted++;
	}
	CatalogCloseIndexes(indexes);
	table_close(rel, NoLock);
	CommandCounterIncrement();
	return inserted;
}

static SysScanDesc
begin_letters(Relation rel, Oid stream, ScanKey key)
{
	ScanKeyInit(key, Anum_letter_stream, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(stream));
	return systable_beginscan(rel, InvalidOid, false, NULL, 1, key);
}

static int64
count_letters(Oid stream)
{
	Relation	rel = table_open(sa_catalog_relation("dead_letter"), AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan = begin_letters(rel, stream, &key);
	int64		count = 0;

	while (HeapTupleIsValid(systable_getnext(scan)))
		count++;
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return count;
}

/* How many letters the stream has; counted once in this process. */
static LetterCount *
letter_count(Oid stream)
{
	LetterCount *entry;
	int64		count;

	if (counts == NULL)
	{
		HASHCTL		ctl = {.keysize = sizeof(Oid), .entrysize = sizeof(LetterCount)};

		counts = hash_create("stream_agg dead letters", 16, &ctl, HASH_ELEM | HASH_BLOBS);
	}
	entry = hash_search(counts, &stream, HASH_FIND, NULL);
	if (entry)
		return entry;
	count = count_letters(stream);
	entry = hash_search(counts, &stream, HASH_ENTER, NULL);
	entry->count = count;
	return entry;
}

/* Delete the oldest letters of the stream, by id; how many were there to delete. */
static int64
delete_oldest(Oid stream, int64 excess)
{
	Relation	rel = table_open(sa_catalog_relation("dead_letter"), RowExclusiveLock);
	Relation	index = index_open(sa_catalog_relation("dead_letter_stream"), AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	int64		deleted = 0;

	ScanKeyInit(&key, Anum_letter_stream, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(stream));
	scan = systable_beginscan_ordered(rel, index, NULL, 1, &key);
	while (deleted < excess && HeapTupleIsValid(tuple = systable_getnext_ordered(scan, ForwardScanDirection)))
	{
		CatalogTupleDelete(rel, &tuple->t_self);
		deleted++;
	}
	systable_endscan_ordered(scan);
	index_close(index, NoLock);
	table_close(rel, NoLock);
	CommandCounterIncrement();
	return deleted;
}

void
sa_deadletter_delete(Oid stream, Oid view)
{
	Relation	rel = table_open(sa_catalog_relation("dead_letter"), RowExclusiveLock);
	ScanKeyData key;
	SysScanDesc scan = begin_letters(rel, stream, &key);
	HeapTuple	tuple;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		bool		isnull;
		Oid			letter_view = DatumGetObjectId(heap_getattr(tuple, Anum_letter_view, RelationGetDescr(rel), &isnull));

		CHECK_FOR_INTERRUPTS();
		if (!isnull && letter_view == view)
			CatalogTupleDelete(rel, &tuple->t_self);
	}
	systable_endscan(scan);
	table_close(rel, NoLock);
	CommandCounterIncrement();
}

/* Is this the letter of an event of this view's own? */
static bool
is_of_view(HeapTuple tuple, TupleDesc desc, Oid view)
{
	bool		isnull;
	Oid			letter_view = DatumGetObjectId(heap_getattr(tuple, Anum_letter_view, desc, &isnull));

	return !isnull && letter_view == view;
}

/* Of a record, by its place and, since a topic may have been made anew, by its arrival. */
typedef struct Refused
{
	int64		position;
	TimestampTz arrival;
} Refused;

/* The events that the view has refused in one partition of the batch, as a list of Refused *, by position. */
static List *
refused_events(Relation rel, SaBatch *batch, const SaBatchPartition *partition, Oid view)
{
	List	   *result = NIL;
	Relation	index = index_open(sa_catalog_relation("dead_letter_place"), AccessShareLock);
	ScanKeyData keys[5];
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&keys[0], Anum_letter_stream, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(batch->stream));
	sa_catalog_topic_key(&keys[1], Anum_letter_topic, partition->topic);
	ScanKeyInit(&keys[2], Anum_letter_partition, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(partition->partition));
	ScanKeyInit(&keys[3], Anum_letter_position, BTGreaterEqualStrategyNumber, F_INT8GE, Int64GetDatum(partition->first));
	ScanKeyInit(&keys[4], Anum_letter_position, BTLessStrategyNumber, F_INT8LT, Int64GetDatum(partition->next));
	scan = systable_beginscan_ordered(rel, index, NULL, lengthof(keys), keys);
	while (HeapTupleIsValid(tuple = systable_getnext_ordered(scan, ForwardScanDirection)))
	{
		Refused    *refused;
		bool		isnull;

		CHECK_FOR_INTERRUPTS();
		if (!is_of_view(tuple, RelationGetDescr(rel), view))
			continue;
		refused = palloc(sizeof(Refused));
		refused->position = DatumGetInt64(heap_getattr(tuple, Anum_letter_position, RelationGetDescr(rel), &isnull));
		refused->arrival = arrival_of(tuple, RelationGetDescr(rel));
		result = lappend(result, refused);
	}
	systable_endscan_ordered(scan);
	index_close(index, NoLock);
	return result;
}

bool *
sa_deadletter_refused(SaBatch *batch, Oid view)
{
	Relation	rel = table_open(sa_catalog_relation("dead_letter"), AccessShareLock);
	MemoryContext old = MemoryContextSwitchTo(batch->cxt);
	bool	   *refused = NULL;

	for (int i = 0; i < batch->npartitions; i++)
	{
		List	   *events = refused_events(rel, batch, &batch->partitions[i], view);
		int			j = 0;
		ListCell   *lc;

		if (events != NIL && refused == NULL)
			refused = MemoryContextAllocExtended(batch->cxt, batch->nevents, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
		foreach(lc, events)
		{
			const Refused *event = lfirst(lc);

			while (j < batch->nevents && (batch->events[j].partition != i || batch->events[j].position < event->position))
				j++;
			if (j < batch->nevents && batch->events[j].position == event->position && batch->events[j].arrival == event->arrival)
				refused[j] = true;
		}
	}
	table_close(rel, NoLock);
	MemoryContextSwitchTo(old);
	return refused;
}

void
sa_deadletter_recount(Oid stream)
{
	if (counts)
		(void) hash_search(counts, &stream, HASH_REMOVE, NULL);
}

void
sa_deadletter_write(Oid stream, List *letters)
{
	LetterCount *entry;

	if (letters == NIL)
		return;
	entry = letter_count(stream);
	entry->count += insert_letters(stream, letters);

	/* A few more than needed at once, so that not every batch deletes. */
	if (entry->count > dead_letter_limit)
		entry->count = count_letters(stream);
	if (entry->count > dead_letter_limit)
	{
		int64		excess = entry->count - dead_letter_limit + dead_letter_limit / 100;

		sa_catalog_count_dropped(stream, delete_oldest(stream, excess));
		entry->count -= excess;
	}
}
