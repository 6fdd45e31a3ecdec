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
#include "executor/spi.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/lsyscache.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/rel.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

#include "catalog.h"
#include "deadletter.h"

enum
{
	Anum_letter_id = 1,
	Anum_letter_stream,
	Anum_letter_view,
	Anum_letter_reason,
	Anum_letter_topic,
	Anum_letter_partition,
	Anum_letter_position,
	Anum_letter_event_time,
	Anum_letter_arrival,
	Anum_letter_recorded_at,
	Anum_letter_message,
	Anum_letter_payload,
	Natts_letter = Anum_letter_payload
};

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
	Datum		payload;
};

static int	dead_letter_limit = 100000;

/* Letters kept per stream, as far as this process knows. */
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

/* The event as a jsonb object. */
static Datum
payload_of(SaBatch *batch, SaEvent *event)
{
	TupleDesc	desc = lookup_rowtype_tupdesc_copy(get_rel_type_id(batch->stream), -1);
	HeapTuple	tuple = heap_form_tuple(desc, event->values, event->nulls);
	Datum		json = DirectFunctionCall1(row_to_json, heap_copy_tuple_as_datum(tuple, desc));

	return DirectFunctionCall1(jsonb_in, CStringGetDatum(TextDatumGetCString(json)));
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
	letter->payload = payload_of(batch, event);
	return letter;
}

/* A letter of the stream itself that another view's turn has left already. */
static bool
is_there(Relation rel, Oid stream, SaDeadLetter *letter)
{
	ScanKeyData keys[4];
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		found = false;

	ScanKeyInit(&keys[0], Anum_letter_stream, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(stream));
	ScanKeyInit(&keys[1], Anum_letter_topic, BTEqualStrategyNumber, F_TEXTEQ, CStringGetTextDatum(letter->topic));
	ScanKeyInit(&keys[2], Anum_letter_partition, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(letter->partition));
	ScanKeyInit(&keys[3], Anum_letter_position, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(letter->position));
	scan = systable_beginscan(rel, sa_catalog_relation("dead_letter_place"), true, NULL, lengthof(keys), keys);
	while (!found && HeapTupleIsValid(tuple = systable_getnext(scan)))
		found = heap_attisnull(tuple, Anum_letter_view, RelationGetDescr(rel));
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
	values[Anum_letter_payload - 1] = letter->payload;
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

static void
run(const char *sql, int nargs, Oid *types, Datum *values, int expected)
{
	if (SPI_execute_with_args(sql, nargs, types, values, NULL, false, 0) != expected)
		elog(ERROR, "SPI failed: %s", sql);
}

/* How many letters the stream has; counted once in this process. */
static LetterCount *
letter_count(Oid stream)
{
	LetterCount *entry;
	bool		found;
	bool		isnull;

	if (counts == NULL)
	{
		HASHCTL		ctl = {.keysize = sizeof(Oid), .entrysize = sizeof(LetterCount)};

		counts = hash_create("stream_agg dead letters", 16, &ctl, HASH_ELEM | HASH_BLOBS);
	}
	entry = hash_search(counts, &stream, HASH_ENTER, &found);
	if (!found)
	{
		Oid			type = OIDOID;
		Datum		value = ObjectIdGetDatum(stream);

		entry->count = 0;
		run("SELECT count(*) FROM stream_agg.dead_letter WHERE stream = $1", 1, &type, &value, SPI_OK_SELECT);
		entry->count = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	}
	return entry;
}

static void
drop_oldest(Oid stream, int64 excess)
{
	Oid			types[] = {OIDOID, INT8OID};
	Datum		values[] = {ObjectIdGetDatum(stream), Int64GetDatum(excess)};

	run("DELETE FROM stream_agg.dead_letter WHERE id IN"
		" (SELECT id FROM stream_agg.dead_letter WHERE stream = $1 ORDER BY id LIMIT $2)",
		2, types, values, SPI_OK_DELETE);
	run("INSERT INTO stream_agg.stream_counter AS c (stream, dead_letters_dropped) VALUES ($1, $2)"
		" ON CONFLICT (stream) DO UPDATE SET dead_letters_dropped = c.dead_letters_dropped + excluded.dead_letters_dropped",
		2, types, values, SPI_OK_INSERT);
}

void
sa_deadletter_write(Oid stream, List *letters)
{
	LetterCount *entry;

	if (letters == NIL)
		return;
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	entry = letter_count(stream);
	entry->count += insert_letters(stream, letters);

	/* A few more than needed at once, so that not every batch deletes. */
	if (entry->count > dead_letter_limit)
	{
		int64		excess = entry->count - dead_letter_limit + dead_letter_limit / 100;

		drop_oldest(stream, excess);
		entry->count -= excess;
	}
	SPI_finish();
}
