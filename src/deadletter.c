/*
 * deadletter.c
 *		Dead letters of streams and views.
 *
 * Invariant: a dead letter commits with the position that passes its record.  A stream has at most
 * stream_agg.dead_letter_limit of them; older ones go first and are counted in stream_counter.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/lsyscache.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

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

static void
run(const char *sql, int nargs, Oid *types, Datum *values, const char *nulls, int expected)
{
	if (SPI_execute_with_args(sql, nargs, types, values, nulls, false, 0) != expected)
		elog(ERROR, "SPI failed: %s", sql);
}

static SPIPlanPtr
prepare_insert(void)
{
	static SPIPlanPtr plan = NULL;
	Oid			types[] = {OIDOID, OIDOID, TEXTOID, TEXTOID, INT4OID, INT8OID, TIMESTAMPTZOID, TIMESTAMPTZOID,
	TEXTOID, JSONBOID};

	if (plan)
		return plan;
	plan = SPI_prepare("INSERT INTO stream_agg.dead_letter (stream, view, reason, topic, partition, position, event_time, arrival, message, payload)"
					   " SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10"
					   " WHERE $2 IS NOT NULL OR NOT EXISTS (SELECT FROM stream_agg.dead_letter d"
					   " WHERE d.stream = $1 AND d.topic = $4 AND d.partition = $5 AND d.position = $6 AND d.view IS NULL)",
					   lengthof(types), types);
	if (plan == NULL)
		elog(ERROR, "SPI_prepare failed: %s", SPI_result_code_string(SPI_result));
	SPI_keepplan(plan);
	return plan;
}

static void
insert_letter(Oid stream, SaDeadLetter *letter)
{
	Datum		values[10];
	char		nulls[] = "          ";

	values[0] = ObjectIdGetDatum(stream);
	values[1] = ObjectIdGetDatum(letter->view);
	nulls[1] = OidIsValid(letter->view) ? ' ' : 'n';
	values[2] = CStringGetTextDatum(letter->reason);
	values[3] = CStringGetTextDatum(letter->topic);
	values[4] = Int32GetDatum(letter->partition);
	values[5] = Int64GetDatum(letter->position);
	values[6] = TimestampTzGetDatum(letter->time);
	nulls[6] = TIMESTAMP_NOT_FINITE(letter->time) ? 'n' : ' ';
	values[7] = TimestampTzGetDatum(letter->arrival);
	nulls[7] = TIMESTAMP_NOT_FINITE(letter->arrival) ? 'n' : ' ';
	values[8] = letter->message ? CStringGetTextDatum(letter->message) : (Datum) 0;
	nulls[8] = letter->message ? ' ' : 'n';
	values[9] = letter->payload;
	if (SPI_execute_plan(prepare_insert(), values, nulls, false, 0) != SPI_OK_INSERT)
		elog(ERROR, "could not insert dead letter");
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
		run("SELECT count(*) FROM stream_agg.dead_letter WHERE stream = $1", 1, &type, &value, NULL, SPI_OK_SELECT);
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
		2, types, values, NULL, SPI_OK_DELETE);
	run("INSERT INTO stream_agg.stream_counter AS c (stream, dead_letters_dropped) VALUES ($1, $2)"
		" ON CONFLICT (stream) DO UPDATE SET dead_letters_dropped = c.dead_letters_dropped + excluded.dead_letters_dropped",
		2, types, values, NULL, SPI_OK_INSERT);
}

void
sa_deadletter_write(Oid stream, List *letters)
{
	LetterCount *entry;
	ListCell   *lc;

	if (letters == NIL)
		return;
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	entry = letter_count(stream);
	foreach(lc, letters)
	{
		insert_letter(stream, lfirst(lc));
		entry->count += SPI_processed;
	}

	/* A few more than needed at once, so that not every batch deletes. */
	if (entry->count > dead_letter_limit)
	{
		int64		excess = entry->count - dead_letter_limit + dead_letter_limit / 100;

		drop_oldest(stream, excess);
		entry->count -= excess;
	}
	SPI_finish();
}
