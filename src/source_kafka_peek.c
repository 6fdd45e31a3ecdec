/*
 * source_kafka_peek.c
 *		SELECT from a Kafka stream: its records from their start to the end as of now.
 *
 * Invariant: every record that is there when the query begins, and that can be decoded, is returned once;
 * those that are appended meanwhile are not.  What the query asks of partition, offset and timestamp narrows
 * what is read.  Records come as they are asked for, so LIMIT stops the reading.
 *
 * No locks beyond the query's; nothing is written.
 */
#include "postgres.h"

#include "access/stratnum.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/latch.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "compat.h"

#include "source_kafka.h"
#include "source_kafka_client.h"

#define LOOK_TIMEOUT_MS 10000
#define CHUNK_RECORDS 256

typedef struct PeekPlace
{
	const char *topic;
	int32		partition;
	int64		next;
	int64		end;
} PeekPlace;

struct SaPeek
{
	MemoryContext cxt;
	MemoryContextCallback at_end;
	MemoryContext chunk_cxt;	/* of the rows at hand */
	Oid			stream;
	TupleDesc	desc;
	SaStreamOptions *options;
	SaDecoder  *decoder;
	SaClient   *client;			/* NULL: closed */
	SaLook	   *look;			/* under way; NULL: none */
	int			nplaces;
	PeekPlace  *places;
	PeekPlace  *starts;			/* the places as they were, to begin again */

	int			nrows;			/* at hand */
	int			row;			/* the next one to return */
	SaRecord	records[CHUNK_RECORDS];
	SaDecoded	rows[CHUNK_RECORDS];
	int64		undecodable;
};

static void
close_client(void *arg)
{
	SaPeek	   *peek = arg;

	if (peek->look)
		sa_look_free(peek->look);
	if (peek->client)
		sa_client_close(peek->client);
	peek->client = NULL;
}

/* Until the library has something for us. */
static void
wait_for_library(void)
{
	(void) WaitLatchOrSocket(MyLatch, WL_LATCH_SET | WL_SOCKET_READABLE | WL_EXIT_ON_PM_DEATH,
							 sa_client_wake_fd(), -1, PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	sa_client_woken();
}

static void
fail(SaPeek *peek, const char *reason)
{
	ereport(ERROR,
			(errcode(ERRCODE_FDW_UNABLE_TO_ESTABLISH_CONNECTION),
			 errmsg("could not read stream \"%s\" from Kafka", get_rel_name(peek->stream)),
			 errdetail_internal("%s", reason)));
}

/* A look at the stream's topics, until it is over.  trouble: what was told before; NULL: nothing is read yet. */
static void
look_around(SaPeek *peek, const int64 *times_ms, char *trouble)
{
	bool		reading = trouble != NULL;
	const char *error;
	char	   *told;

	peek->look = sa_look_start(peek->client, peek->options, times_ms, LOOK_TIMEOUT_MS);
	while (!sa_look_done(peek->look))
	{
		wait_for_library();
		if (!reading)
			sa_client_serve(peek->client);
	}
	if (sa_client_report(peek->client, &told))
		trouble = told;
	error = sa_look_error(peek->look);
	if (error)
		fail(peek, trouble ? trouble : error);
	if (sa_look_missing(peek->look))
		fail(peek, sa_look_missing(peek->look));
}

static void
end_look(SaPeek *peek)
{
	sa_look_free(peek->look);
	peek->look = NULL;
}

/* ---------- what to read ---------- */

static SaColumnOrigin
origin_of(Relation stream, AttrNumber attnum)
{
	SaColumnOptions column;

	sa_option_column(stream, attnum, &column);
	return column.origin;
}

/* The least timestamp asked for, in Kafka's milliseconds. */
static int64
first_time(Relation stream, List *restrictions)
{
	int64		result = SA_LOOK_NO_TIME;
	ListCell   *lc;

	foreach(lc, restrictions)
	{
		SaRestriction *restriction = lfirst(lc);

		if (origin_of(stream, restriction->attnum) == SA_FROM_TIMESTAMP &&
			restriction->strategy >= BTEqualStrategyNumber && !TIMESTAMP_NOT_FINITE(restriction->value))
			result = Max(result, Max(0, sa_kafka_to_ms(restriction->value)));
	}
	return result;
}

/* The numbers that a restriction allows, [low, high). */
static void
narrow(const SaRestriction *restriction, int64 *low, int64 *high)
{
	int64		value = restriction->value;

	if (restriction->strategy == BTEqualStrategyNumber || restriction->strategy == BTGreaterEqualStrategyNumber)
		*low = Max(*low, value);
	if (restriction->strategy == BTGreaterStrategyNumber)
		*low = Max(*low, value == PG_INT64_MAX ? value : value + 1);
	if (restriction->strategy == BTLessStrategyNumber)
		*high = Min(*high, value);
	if (restriction->strategy == BTEqualStrategyNumber || restriction->strategy == BTLessEqualStrategyNumber)
		*high = Min(*high, value == PG_INT64_MAX ? value : value + 1);
}

static void
add_place(SaPeek *peek, Relation stream, List *restrictions, const SaLookPartition *found, bool from_time)
{
	PeekPlace  *place = &peek->places[peek->nplaces];
	int64		low = PG_INT64_MIN;
	int64		high = PG_INT64_MAX;
	ListCell   *lc;

	place->next = from_time ? Max(found->low, found->at_time[0]) : found->low;
	place->end = found->high;
	foreach(lc, restrictions)
	{
		SaRestriction *restriction = lfirst(lc);
		SaColumnOrigin origin = origin_of(stream, restriction->attnum);

		if (origin == SA_FROM_PARTITION)
			narrow(restriction, &low, &high);
		else if (origin == SA_FROM_OFFSET)
			narrow(restriction, &place->next, &place->end);
	}
	if (found->partition < low || found->partition >= high || place->next >= place->end)
		return;
	place->topic = pstrdup(found->topic);
	place->partition = found->partition;
	peek->nplaces++;
}

static void
find_places(SaPeek *peek, Relation stream, List *restrictions)
{
	int64		times_ms[2] = {first_time(stream, restrictions), SA_LOOK_NO_TIME};
	SaLook	   *look;

	look_around(peek, times_ms, NULL);
	look = peek->look;
	peek->places = palloc(sizeof(PeekPlace) * (sa_look_count(look) + 1));
	for (int i = 0; i < sa_look_count(look); i++)
	{
		SaLookPartition found = sa_look_partition(look, i);

		add_place(peek, stream, restrictions, &found, times_ms[0] != SA_LOOK_NO_TIME);
	}
	end_look(peek);
	peek->starts = palloc(sizeof(PeekPlace) * (peek->nplaces + 1));
	memcpy(peek->starts, peek->places, sizeof(PeekPlace) * peek->nplaces);
}

static void
assign(SaPeek *peek)
{
	rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(peek->nplaces + 1);
	rd_kafka_resp_err_t error;

	for (int i = 0; i < peek->nplaces; i++)
		rd_kafka_topic_partition_list_add(list, peek->places[i].topic, peek->places[i].partition)->offset =
			peek->places[i].next;
	error = rd_kafka_assign(sa_client_handle(peek->client), list);
	rd_kafka_topic_partition_list_destroy(list);
	if (error != RD_KAFKA_RESP_ERR_NO_ERROR)
		fail(peek, rd_kafka_err2str(error));
}

SaPeek *
sa_kafka_peek_begin(Relation stream, Snapshot snapshot, List *restrictions)
{
	MemoryContext cxt = AllocSetContextCreate(CurrentMemoryContext, "stream_agg Kafka peek", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(cxt);
	SaPeek	   *peek = palloc0(sizeof(SaPeek));

	peek->cxt = cxt;
	peek->chunk_cxt = AllocSetContextCreate(cxt, "stream_agg Kafka peek rows", ALLOCSET_DEFAULT_SIZES);
	peek->stream = RelationGetRelid(stream);
	peek->desc = CreateTupleDescCopy(RelationGetDescr(stream));
	peek->options = sa_option_stream(stream);
	peek->decoder = sa_decode_create(stream, peek->options, cxt);
	peek->client = sa_client_open(peek->options, sa_option_secrets(peek->stream));
	peek->at_end.func = close_client;
	peek->at_end.arg = peek;
	MemoryContextRegisterResetCallback(cxt, &peek->at_end);
	for (int i = 0; i < CHUNK_RECORDS; i++)
	{
		peek->rows[i].values = palloc(sizeof(Datum) * (peek->desc->natts + 1));
		peek->rows[i].nulls = palloc(sizeof(bool) * (peek->desc->natts + 1));
	}
	find_places(peek, stream, restrictions);
	assign(peek);
	MemoryContextSwitchTo(old);
	return peek;
}

/* ---------- reading ---------- */

static PeekPlace *
find_place(SaPeek *peek, const rd_kafka_message_t *message)
{
	const char *topic = message->rkt ? rd_kafka_topic_name(message->rkt) : NULL;

	for (int i = 0; topic != NULL && i < peek->nplaces; i++)
		if (peek->places[i].partition == message->partition && strcmp(peek->places[i].topic, topic) == 0)
			return &peek->places[i];
	return NULL;
}

static void
take_error(SaPeek *peek, PeekPlace *place, const rd_kafka_message_t *message)
{
	if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF)
	{
		if (place)
			place->next = Max(place->next, message->offset);
	}
	else if (message->err != RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED)
		fail(peek, place ? psprintf("topic \"%s\", partition %d: %s", place->topic, place->partition,
									rd_kafka_err2str(message->err)) : rd_kafka_message_errstr(message));
}

static void
take_message(SaPeek *peek, const rd_kafka_message_t *message)
{
	PeekPlace  *place = find_place(peek, message);

	if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR)
	{
		take_error(peek, place, message);
		return;
	}
	if (place == NULL || message->offset < place->next || message->offset >= place->end)
	{
		if (place)
			place->next = Max(place->next, Min(message->offset, place->end));
		return;
	}
	place->next = message->offset + 1;
	if (message->payload != NULL)
		sa_kafka_describe(message, place->topic, sa_decode_wants_headers(peek->decoder), &peek->records[peek->nrows++]);
}

static void
decode_rows(SaPeek *peek)
{
	SaOwnerSwitch save;

	sa_decode_enter(&save, peek->stream);
	sa_decode_records(peek->decoder, peek->records, peek->nrows, peek->rows);
	sa_owner_leave(&save);
}

/* Some broker has told trouble: go on if the topics can be had all the same.  False when none has. */
static bool
outlive_trouble(SaPeek *peek)
{
	static const int64 no_times[2] = {SA_LOOK_NO_TIME, SA_LOOK_NO_TIME};
	MemoryContext old = MemoryContextSwitchTo(peek->chunk_cxt);
	char	   *trouble;
	bool		result = sa_client_report(peek->client, &trouble);

	if (result)
	{
		look_around(peek, no_times, trouble);
		end_look(peek);
	}
	MemoryContextSwitchTo(old);
	return result;
}

/* The rows of what is at hand. */
static void
read_chunk(SaPeek *peek)
{
	rd_kafka_message_t *messages[CHUNK_RECORDS];
	ssize_t		n = rd_kafka_consume_batch_queue(sa_client_queue(peek->client), 0, messages, CHUNK_RECORDS);
	MemoryContext old;

	MemoryContextReset(peek->chunk_cxt);
	old = MemoryContextSwitchTo(peek->chunk_cxt);
	peek->nrows = peek->row = 0;
	PG_TRY();
	{
		for (ssize_t i = 0; i < n; i++)
			take_message(peek, messages[i]);
		if (peek->nrows > 0)
			decode_rows(peek);
	}
	PG_FINALLY();
	{
		for (ssize_t i = 0; i < n; i++)
			rd_kafka_message_destroy(messages[i]);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(old);
	if (n == 0 && !outlive_trouble(peek))
		wait_for_library();
}

static bool
is_over(SaPeek *peek)
{
	for (int i = 0; i < peek->nplaces; i++)
		if (peek->places[i].next < peek->places[i].end)
			return false;
	return true;
}

static void
end_reading(SaPeek *peek)
{
	if (peek->undecodable > 0)
		ereport(NOTICE,
				(errmsg_plural("%lld record could not be decoded and is left out",
							   "%lld records could not be decoded and are left out",
							   (unsigned long) peek->undecodable, (long long) peek->undecodable)));
	peek->undecodable = 0;
}

/* The values are good until the next call. */
bool
sa_kafka_peek_next(SaPeek *peek, TupleTableSlot *slot)
{
	ExecClearTuple(slot);
	for (;;)
	{
		while (peek->row < peek->nrows)
		{
			SaDecoded  *decoded = &peek->rows[peek->row++];

			if (decoded->error != NULL)
			{
				peek->undecodable++;
				continue;
			}
			memcpy(slot->tts_values, decoded->values, sizeof(Datum) * peek->desc->natts);
			memcpy(slot->tts_isnull, decoded->nulls, sizeof(bool) * peek->desc->natts);
			ExecStoreVirtualTuple(slot);
			return true;
		}
		if (is_over(peek))
		{
			end_reading(peek);
			return false;
		}
		CHECK_FOR_INTERRUPTS();
		read_chunk(peek);
	}
}

void
sa_kafka_peek_rewind(SaPeek *peek)
{
	memcpy(peek->places, peek->starts, sizeof(PeekPlace) * peek->nplaces);
	peek->nrows = peek->row = 0;
	peek->undecodable = 0;
	assign(peek);
}

void
sa_kafka_peek_end(SaPeek *peek)
{
	MemoryContextDelete(peek->cxt);
}
