/*
 * replay.c
 *		Dead letters that are fed again into the view that they were refused from.
 *
 * Invariant: a letter belongs to one view (those of the stream itself are given to each of its views first), and is
 * deleted in the transaction that takes its event into the view's results; what is refused again stays as it was but
 * for the reason.  A request is a row that commits with its caller, and goes with the letter's turn.
 *
 * Locks: those of the catalog tables.  Crash: transactional.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "compat.h"
#include "deadletter.h"
#include "decode.h"
#include "replay.h"

enum
{
	Anum_replay_view = 1,
	Anum_replay_letter,
	Natts_replay = Anum_replay_letter
};

/* What reading letters takes. */
typedef struct Reader
{
	SaBatch    *batch;
	Relation	stream;
	Relation	letters;
	SaDecoder  *decoder;		/* NULL: the stream's records are not decoded */
	FmgrInfo	populate;		/* jsonb_populate_record */
} Reader;

/* ---------- requests ---------- */

static SysScanDesc
begin_requests(Relation rel, Oid view)
{
	return sa_catalog_scan(rel, "replay_pkey", view);
}

static bool
is_asked_for(Relation rel, Oid view, int64 id)
{
	ScanKeyData keys[2];
	SysScanDesc scan;
	bool		found;

	ScanKeyInit(&keys[0], Anum_replay_view, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(view));
	ScanKeyInit(&keys[1], Anum_replay_letter, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(id));
	scan = systable_beginscan(rel, sa_catalog_relation("replay_pkey"), true, NULL, 2, keys);
	found = HeapTupleIsValid(systable_getnext(scan));
	systable_endscan(scan);
	return found;
}

int64
sa_replay_ask(Oid view, List *ids)
{
	Relation	rel = table_open(sa_catalog_relation("replay"), RowExclusiveLock);
	bool		nulls[Natts_replay] = {0};
	int64		asked = 0;
	ListCell   *lc;

	foreach(lc, ids)
	{
		Datum		values[Natts_replay] = {ObjectIdGetDatum(view), Int64GetDatum(*(int64 *) lfirst(lc))};

		CHECK_FOR_INTERRUPTS();
		if (is_asked_for(rel, view, *(int64 *) lfirst(lc)))
			continue;
		CatalogTupleInsert(rel, heap_form_tuple(RelationGetDescr(rel), values, nulls));
		asked++;
	}
	table_close(rel, NoLock);
	CommandCounterIncrement();
	return asked;
}

bool
sa_replay_is_asked(Oid view)
{
	Relation	rel;
	SysScanDesc scan;
	bool		asked;

	if (!OidIsValid(sa_catalog_find("replay")))
		return false;			/* the SQL objects are of version 1.0 */
	rel = table_open(sa_catalog_relation("replay"), AccessShareLock);
	scan = begin_requests(rel, view);
	asked = HeapTupleIsValid(systable_getnext(scan));
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return asked;
}

/* Delete the requests of a view for letters up to this one. */
static void
delete_requests(Oid view, int64 last)
{
	Relation	rel = table_open(sa_catalog_relation("replay"), RowExclusiveLock);
	SysScanDesc scan = begin_requests(rel, view);
	HeapTuple	tuple;
	bool		isnull;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
		if (DatumGetInt64(heap_getattr(tuple, Anum_replay_letter, RelationGetDescr(rel), &isnull)) <= last)
			CatalogTupleDelete(rel, &tuple->t_self);
	systable_endscan(scan);
	table_close(rel, NoLock);
	CommandCounterIncrement();
}

void
sa_replay_forget(Oid view)
{
	if (OidIsValid(sa_catalog_find("replay")))
		delete_requests(view, PG_INT64_MAX);
}

/* ---------- from a letter to an event ---------- */

/* As if it had been called with NULL::stream. */
static void
prepare_populate(Reader *reader)
{
	Oid			type = get_rel_type_id(RelationGetRelid(reader->stream));
	List	   *args = list_make2(makeNullConst(type, -1, InvalidOid), makeNullConst(JSONBOID, -1, InvalidOid));

	fmgr_info(F_JSONB_POPULATE_RECORD, &reader->populate);
	fmgr_info_set_expr((Node *) makeFuncExpr(F_JSONB_POPULATE_RECORD, type, args, InvalidOid, InvalidOid,
											 COERCE_EXPLICIT_CALL), &reader->populate);
}

/* The columns by their names, from what the letter shows of the event. */
static void
read_json(Reader *reader, Datum json, SaEvent *event)
{
	LOCAL_FCINFO(fcinfo, 2);
	HeapTupleData tuple;
	Datum		row;

	InitFunctionCallInfoData(*fcinfo, &reader->populate, 2, InvalidOid, NULL, NULL);
	fcinfo->args[0].value = (Datum) 0;
	fcinfo->args[0].isnull = true;
	fcinfo->args[1].value = json;
	fcinfo->args[1].isnull = false;
	row = FunctionCallInvoke(fcinfo);
	tuple.t_data = DatumGetHeapTupleHeader(row);
	tuple.t_len = HeapTupleHeaderGetDatumLength(tuple.t_data);
	ItemPointerSetInvalid(&tuple.t_self);
	tuple.t_tableOid = InvalidOid;
	heap_deform_tuple(&tuple, RelationGetDescr(reader->stream), event->values, event->nulls);
}

static Datum
get(Reader *reader, HeapTuple letter, int attr, bool *isnull)
{
	return heap_getattr(letter, attr, RelationGetDescr(reader->letters), isnull);
}

static struct varlena *
get_bytes(Reader *reader, HeapTuple letter, int attr)
{
	bool		isnull;
	Datum		value = get(reader, letter, attr, &isnull);

	return isnull ? NULL : (struct varlena *) DatumGetByteaPCopy(value);
}

/* The record is decoded as it is now; why it cannot be, or NULL. */
static const char *
read_payload(Reader *reader, HeapTuple letter, struct varlena *payload, SaEvent *event)
{
	const SaBatchPartition *partition = &reader->batch->partitions[event->partition];
	struct varlena *key = get_bytes(reader, letter, Anum_letter_key);
	SaDecoded	decoded = {event->values, event->nulls, NULL};
	SaRecord	record = {0};

	if (reader->decoder == NULL)
		return "the records of its stream are not decoded";
	record.topic = partition->topic;
	record.partition = partition->partition;
	record.position = event->position;
	record.timestamp = event->arrival;
	record.value = VARDATA_ANY(payload);
	record.value_size = VARSIZE_ANY_EXHDR(payload);
	if (key)
	{
		record.key = VARDATA_ANY(key);
		record.key_size = VARSIZE_ANY_EXHDR(key);
	}
	sa_decode_records(reader->decoder, &record, 1, &decoded);
	return decoded.error;
}

static const char *
read_values(Reader *reader, HeapTuple letter, SaEvent *event)
{
	struct varlena *payload = get_bytes(reader, letter, Anum_letter_payload);
	bool		isnull;
	Datum		json;

	if (payload)
		return read_payload(reader, letter, payload, event);
	json = get(reader, letter, Anum_letter_event, &isnull);
	if (isnull)
		return "the letter does not hold the event";
	read_json(reader, json, event);
	return NULL;
}

/* What a letter holds may no longer fit the stream's columns: an error is that letter's own. */
static const char *
try_values(Reader *reader, HeapTuple letter, SaEvent *event)
{
	MemoryContext cxt = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	const char *volatile message = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(cxt);
	PG_TRY();
	{
		message = read_values(reader, letter, event);
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
		message = error->message;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(cxt);
	CurrentResourceOwner = owner;
	return message;
}

static int
partition_of(SaBatch *batch, const char *topic, int32 partition)
{
	for (int i = 0; i < batch->npartitions; i++)
		if (batch->partitions[i].partition == partition && strcmp(batch->partitions[i].topic, topic) == 0)
			return i;
	return sa_batch_partition(batch, topic, partition, 0);
}

static void
add_event(Reader *reader, HeapTuple letter)
{
	SaBatch    *batch = reader->batch;
	int			ordinal = batch->nevents;
	SaEvent    *event = sa_batch_add(batch);
	const char *topic;
	const char *message;
	bool		isnull;

	topic = TextDatumGetCString(get(reader, letter, Anum_letter_topic, &isnull));
	event->partition = partition_of(batch, topic, DatumGetInt32(get(reader, letter, Anum_letter_partition, &isnull)));
	event->position = DatumGetInt64(get(reader, letter, Anum_letter_position, &isnull));
	event->arrival = DatumGetTimestampTz(get(reader, letter, Anum_letter_arrival, &isnull));
	if (isnull)
		event->arrival = DT_NOBEGIN;
	message = try_values(reader, letter, event);
	if (message == NULL)
		return;
	event->verdict = SA_EVENT_MALFORMED;
	sa_batch_refuse(batch, ordinal, message, NULL, NULL);
}

static HeapTuple
find_letter(Relation letters, int64 id)
{
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_letter_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(id));
	scan = systable_beginscan(letters, sa_catalog_relation("dead_letter_pkey"), true, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
		tuple = heap_copytuple(tuple);
	systable_endscan(scan);
	return tuple;
}

/* The next letters asked for, by id, at most one more than so many. */
static int64 *
next_ids(Oid view, int limit, int *n)
{
	Relation	rel = table_open(sa_catalog_relation("replay"), AccessShareLock);
	Relation	index = index_open(sa_catalog_relation("replay_pkey"), AccessShareLock);
	int64	   *ids = palloc(sizeof(int64) * (limit + 1));
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		isnull;

	*n = 0;
	ScanKeyInit(&key, Anum_replay_view, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(view));
	scan = systable_beginscan_ordered(rel, index, NULL, 1, &key);
	while (*n <= limit && HeapTupleIsValid(tuple = systable_getnext_ordered(scan, ForwardScanDirection)))
		ids[(*n)++] = DatumGetInt64(heap_getattr(tuple, Anum_replay_letter, RelationGetDescr(rel), &isnull));
	systable_endscan_ordered(scan);
	index_close(index, NoLock);
	table_close(rel, NoLock);
	return ids;
}

static bool
is_seen(Reader *reader, HeapTuple letter)
{
	bool		isnull;
	bool		seen = DatumGetBool(get(reader, letter, Anum_letter_seen, &isnull));

	return seen && !isnull;
}

/* Is it still there, and the view's own? */
static bool
is_of_view(Reader *reader, HeapTuple letter, Oid view)
{
	bool		isnull = true;

	return HeapTupleIsValid(letter) && DatumGetObjectId(get(reader, letter, Anum_letter_view, &isnull)) == view && !isnull;
}

SaBatch *
sa_replay_read(Relation stream, const SaStreamOptions *options, Oid view, int limit, MemoryContext cxt, SaReplay *replay)
{
	Reader		reader = {.stream = stream};
	SaBatch    *batch = sa_batch_create(cxt, RelationGetRelid(stream), RelationGetDescr(stream));
	MemoryContext old = MemoryContextSwitchTo(batch->cxt);
	SaOwnerSwitch save;
	int64	   *ids;
	int			n;

	reader.batch = batch;
	reader.letters = table_open(sa_catalog_relation("dead_letter"), RowExclusiveLock);
	ids = next_ids(view, limit, &n);
	replay->more = n > limit;
	replay->ids = palloc(sizeof(int64) * (n + 1));
	replay->seen = palloc0(sizeof(bool) * (n + 1));
	prepare_populate(&reader);
	sa_decode_enter(&save, batch->stream);
	if (strcmp(options->source, "staged") != 0)
		reader.decoder = sa_decode_create(stream, options, batch->cxt);
	for (int i = 0; i < Min(n, limit); i++)
	{
		HeapTuple	letter = find_letter(reader.letters, ids[i]);

		CHECK_FOR_INTERRUPTS();
		if (!is_of_view(&reader, letter, view))
			continue;			/* newer ones have taken its place */
		replay->ids[batch->nevents] = ids[i];
		replay->seen[batch->nevents] = is_seen(&reader, letter);
		add_event(&reader, letter);
	}
	sa_owner_leave(&save);
	replay->ids[batch->nevents] = n == 0 ? 0 : ids[Min(n, limit) - 1];
	table_close(reader.letters, NoLock);
	MemoryContextSwitchTo(old);
	sa_batch_seal(batch, options);
	return batch;
}

/* ---------- afterwards ---------- */

bool
sa_replay_is_refused(const SaBatch *batch, int ordinal, SaReplayFate *fate)
{
	const SaRefusal *refusal = sa_batch_refusal(batch, ordinal);

	fate->message = refusal ? refusal->message : NULL;
	switch ((SaVerdict) batch->events[ordinal].verdict)
	{
		case SA_EVENT_GOOD:
			return false;
		case SA_EVENT_NULL_TIME:
			fate->reason = SA_REASON_NULL_TIME;
			return true;
		case SA_EVENT_FUTURE:
			fate->reason = SA_REASON_FUTURE;
			return true;
		default:
			fate->reason = SA_REASON_MALFORMED;
			return true;
	}
}

static void
change_letter(Relation letters, HeapTuple letter, const SaReplayFate *fate)
{
	int			columns[] = {Anum_letter_reason, Anum_letter_message, Anum_letter_seen};
	Datum		values[] = {CStringGetTextDatum(fate->reason), (Datum) 0, BoolGetDatum(fate->seen)};
	bool		nulls[] = {false, fate->message == NULL, !fate->seen};

	if (fate->message)
		values[1] = CStringGetTextDatum(fate->message);
	letter = heap_modify_tuple_by_cols(letter, RelationGetDescr(letters), lengthof(columns), columns, values, nulls);
	CatalogTupleUpdate(letters, &letter->t_self, letter);
}

void
sa_replay_finish(Oid view, const SaReplay *replay, const SaReplayFate *fates, int n)
{
	Relation	letters = table_open(sa_catalog_relation("dead_letter"), RowExclusiveLock);

	for (int i = 0; i < n; i++)
	{
		HeapTuple	letter = find_letter(letters, replay->ids[i]);

		if (!HeapTupleIsValid(letter))
			elog(ERROR, "dead letter " INT64_FORMAT " is gone", replay->ids[i]);
		if (fates[i].reason)
			change_letter(letters, letter, &fates[i]);
		else
			CatalogTupleDelete(letters, &letter->t_self);
	}
	table_close(letters, NoLock);
	CommandCounterIncrement();
	delete_requests(view, replay->ids[n]);
}
