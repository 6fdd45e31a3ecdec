/*
 * source_kafka.c
 *		The Kafka source: the worker's side, and the table of functions.
 *
 * A *cursor* reads all partitions of the stream from one position on, through a client of its own: its
 * read-ahead never waits for another's.  Views that stand at the same position share one.  What the brokers
 * have (topics, partitions, ends) is learnt by looks, in the background, through one more client.
 *
 * Invariant: a cursor hands out the records of a partition in order and without a gap from where it was
 * pointed to.  Where they are comes from the views' positions alone; the offsets that the brokers keep for a
 * group are written for monitoring, never read.
 *
 * No locks of the server's.  Crash: nothing is kept here; the next worker points its cursors to the views'
 * positions as committed.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "compat.h"

#include "clock.h"
#include "decode.h"
#include "owner.h"
#include "source.h"
#include "source_kafka.h"
#include "source_kafka_client.h"

#define CHUNK_RECORDS 1024		/* taken from the library and decoded at once */
#define FIRST_CHUNK_RECORDS 64	/* while nothing is known about their size */
#define FILL_TIME (100 * INT64CONST(1000))	/* under backlog, how long a batch may wait for more */
#define FILL_STEP_MS 5
#define LOOK_TIMEOUT_MS 10000
#define LOOK_RETRY USECS_PER_SEC
#define NUDGE_TIME (50 * INT64CONST(1000))	/* between nudges */
#define NUDGE_LENGTH 200000		/* records at hand below which more are asked for */
#define UNWANTED_TIME (5 * USECS_PER_SEC)	/* how long a cursor is kept that nobody reads from */
#define TROUBLE_TIME (10 * USECS_PER_SEC)	/* how long a partition's trouble counts after the last read */
#define COUNTED_RECORD 100		/* bytes that a record costs beside key and value */

/* A partition as a cursor reads it. */
typedef struct Place
{
	const char *topic;
	int32		partition;
	rd_kafka_topic_t *handle;	/* by which its records name the topic; NULL: none has come yet */
	int64		start;			/* where the cursor was pointed to */
	int64		next;			/* the next record to hand out */
	bool		discarded;		/* records from next on were thrown away: they are beyond a view's end */
	bool		at_end;			/* there was nothing behind next, when last heard */
	SaClock		quiet_since;	/* nothing has come since */
	SaClock		out_of_range;	/* when the brokers said that next is; 0: they did not */
	bool		troubled;		/* they said that it cannot be read */
	bool		gone;			/* the stream's options no longer name its topic */
	bool		added;			/* not among the positions that the cursor was pointed to, */
	int64		first;			/* so read from here on */
} Place;

typedef struct Cursor
{
	SaClient   *client;
	MemoryContext cxt;			/* of its places */
	int			nplaces;
	Place	   *places;
	Place	   *last;			/* whose record came last */
	double		record_size;	/* bytes, about; 0: not known */
	SaClock		used;
	SaClock		assigned;
	SaClock		nudged;
	bool		unwanted;		/* no view stands where it does */
} Cursor;

/* What the last look has shown. */
typedef struct Known
{
	const char *topic;
	int32		partition;
	int64		low;
	int64		high;
	int64		at_time[2];
	int64		end;			/* of the exact refresh in force */
} Known;

/* What a look is for, beside finding what is new. */
typedef struct Purpose
{
	SaClock		as_of;			/* for what the brokers have at this time or later */
	bool		resolve;		/* places for a new view */
	int64		times_ms[2];
} Purpose;

struct SaSource
{
	MemoryContext cxt;
	SaStreamOptions options;
	SaDecoder  *decoder;
	List	   *cursors;

	SaClient   *control;
	SaLook	   *look;			/* under way; NULL: none */
	SaClock		look_started;
	Purpose		look_purpose;
	Purpose		wanted;			/* of the next look */
	SaClock		next_look;

	MemoryContext known_cxt;
	int			nknown;
	Known	   *known;
	SaClock		known_as_of;	/* when that look was started; 0: there was none */
	bool		resolved;		/* it was for a new view, which has not been told yet */
	int64		resolved_ms[2];
	bool		ends_known;		/* known[].end holds */

	char		trouble[256];	/* '': none */
	TimestampTz trouble_since;
	SaClock		trouble_noted;
	List	   *told;			/* positions (SaPosition) that the group was told last */
};

/* ---------- trouble ---------- */

static void
note_trouble(SaSource *source, const char *text)
{
	SaClock		now = sa_clock_now();

	if (source->trouble[0] == '\0')
	{
		source->trouble_since = GetCurrentTimestamp();
		ereport(LOG, (errmsg("reading from Kafka has stopped: %s", text)));
		source->next_look = Min(source->next_look, now);
	}
	source->trouble_noted = now;
	strlcpy(source->trouble, text, pg_mbcliplen(text, strlen(text), sizeof(source->trouble) - 1) + 1);
}

static void
end_trouble(SaSource *source)
{
	ListCell   *lc;

	if (source->trouble[0] == '\0')
		return;
	source->trouble[0] = '\0';
	ereport(LOG, (errmsg("reading from Kafka goes on")));
	sa_client_forget_trouble(source->control);

	/* how long partitions have been quiet counts from now */
	foreach(lc, source->cursors)
	{
		Cursor	   *cursor = lfirst(lc);

		sa_client_forget_trouble(cursor->client);
		for (int i = 0; i < cursor->nplaces; i++)
			cursor->places[i].quiet_since = sa_clock_now();
	}
}

static bool
any_place_troubled(SaSource *source)
{
	ListCell   *lc;

	foreach(lc, source->cursors)
	{
		Cursor	   *cursor = lfirst(lc);

		/* where nobody reads, nobody could hear that it is over */
		for (int i = 0; i < cursor->nplaces && sa_clock_now() - cursor->used < TROUBLE_TIME; i++)
			if (cursor->places[i].troubled)
				return true;
	}
	return false;
}

static void
hear(SaSource *source, SaClient *client)
{
	char	   *text;

	if (sa_client_report(client, &text))
		note_trouble(source, text);
}

static const char *
kafka_trouble(SaSource *source, TimestampTz *since)
{
	*since = source->trouble_since;
	return source->trouble[0] == '\0' ? NULL : source->trouble;
}

/* ---------- what the brokers have ---------- */

static Known *
find_known(SaSource *source, const char *topic, int32 partition)
{
	for (int i = 0; i < source->nknown; i++)
		if (source->known[i].partition == partition && strcmp(source->known[i].topic, topic) == 0)
			return &source->known[i];
	return NULL;
}

static Place *
find_place(Cursor *cursor, const char *topic, int32 partition)
{
	for (int i = 0; i < cursor->nplaces; i++)
		if (cursor->places[i].partition == partition && strcmp(cursor->places[i].topic, topic) == 0)
			return &cursor->places[i];
	return NULL;
}

static void
start_look(SaSource *source)
{
	MemoryContext old;

	if (source->look != NULL)
		return;
	old = MemoryContextSwitchTo(source->cxt);
	source->look_started = sa_clock_now();
	source->look_purpose = source->wanted;
	memset(&source->wanted, 0, sizeof(Purpose));
	source->wanted.times_ms[0] = source->wanted.times_ms[1] = SA_LOOK_NO_TIME;
	source->look = sa_look_start(source->control, &source->options, source->look_purpose.times_ms, LOOK_TIMEOUT_MS);
	MemoryContextSwitchTo(old);
}

static void
take_result(SaSource *source)
{
	MemoryContext cxt = AllocSetContextCreate(source->cxt, "stream_agg Kafka partitions", ALLOCSET_SMALL_SIZES);
	int			count = sa_look_count(source->look);
	Known	   *known = MemoryContextAllocZero(cxt, sizeof(Known) * (count + 1));

	for (int i = 0; i < count; i++)
	{
		SaLookPartition found = sa_look_partition(source->look, i);
		Known	   *before;

		known[i].topic = MemoryContextStrdup(cxt, found.topic);
		known[i].partition = found.partition;
		known[i].low = found.low;
		known[i].high = found.high;
		before = find_known(source, found.topic, found.partition);
		known[i].end = before ? before->end : found.low;
		/* a new view may not have been told yet what a look before this one has found for it */
		for (int k = 0; k < lengthof(found.at_time); k++)
			known[i].at_time[k] = source->look_purpose.resolve ? found.at_time[k] :
				before ? before->at_time[k] : found.low;
	}
	if (source->known_cxt)
		MemoryContextDelete(source->known_cxt);
	source->known_cxt = cxt;
	source->known = known;
	source->nknown = count;
	source->known_as_of = source->look_started;
	/* A view begins when all of its topics are there: one that came later would be read from its beginning. */
	if (!source->look_purpose.resolve || sa_look_missing(source->look) != NULL)
		return;
	source->resolved = true;
	memcpy(source->resolved_ms, source->look_purpose.times_ms, sizeof(source->resolved_ms));
}

/* A look has failed: what it was for is still wanted. */
static void
want_again(SaSource *source)
{
	source->wanted.as_of = Max(source->wanted.as_of, source->look_purpose.as_of);
	if (source->look_purpose.resolve && !source->wanted.resolve)
	{
		source->wanted.resolve = true;
		memcpy(source->wanted.times_ms, source->look_purpose.times_ms, sizeof(source->wanted.times_ms));
	}
}

static void
finish_look(SaSource *source)
{
	const char *error = sa_look_error(source->look);
	const char *missing = sa_look_missing(source->look);
	SaClock		now = sa_clock_now();

	source->next_look = now + source->options.partition_discovery;
	if (error != NULL)
	{
		/* what the library has reported says more, and it does so only once for a while */
		if (source->trouble[0] == '\0')
			note_trouble(source, error);
		source->trouble_noted = now;
		want_again(source);
	}
	else if (sa_look_count(source->look) == 0)
	{
		note_trouble(source, missing ? missing : "no topic has a matching name");
		want_again(source);
	}
	else
	{
		take_result(source);
		if (missing != NULL)
			note_trouble(source, missing);
		else if (source->trouble_noted < source->look_started && !any_place_troubled(source))
			end_trouble(source);
	}
	if (source->trouble[0] != '\0')
		source->next_look = now + LOOK_RETRY;
	sa_look_free(source->look);
	source->look = NULL;
}

static bool
is_out_of_range(SaSource *source)
{
	ListCell   *lc;

	foreach(lc, source->cursors)
	{
		Cursor	   *cursor = lfirst(lc);

		for (int i = 0; i < cursor->nplaces; i++)
			if (cursor->places[i].out_of_range > source->known_as_of)
				return true;
	}
	return false;
}

/* Take in the look that is under way, and start one when it is time. */
static void
go_on_looking(SaSource *source)
{
	SaClock		now = sa_clock_now();
	bool		wanted;

	if (source->look != NULL && sa_look_done(source->look))
		finish_look(source);
	wanted = source->wanted.as_of > source->known_as_of || source->wanted.resolve || is_out_of_range(source);
	if (source->look == NULL && (source->next_look <= now || (wanted && source->trouble[0] == '\0')))
		start_look(source);
}

static bool
kafka_refresh(SaSource *source, SaClock as_of)
{
	if (as_of == 0)
		return true;
	if (source->known_as_of >= as_of)
	{
		source->ends_known = true;
		for (int i = 0; i < source->nknown; i++)
			source->known[i].end = source->known[i].high;
		return true;
	}
	if (source->look == NULL || source->look_started < as_of)
		source->wanted.as_of = Max(source->wanted.as_of, as_of);
	go_on_looking(source);
	return false;
}

static int64
kafka_end_position(SaSource *source, const char *topic, int32 partition)
{
	Known	   *known = find_known(source, topic, partition);
	int64		end = known ? known->high : 0;
	ListCell   *lc;

	foreach(lc, source->cursors)
	{
		Place	   *place = find_place(lfirst(lc), topic, partition);

		if (place != NULL)
			end = Max(end, place->next);
	}
	return end;
}

/* ---------- where a view begins and ends ---------- */

static int64
time_of(const SaBoundary *boundary)
{
	if (boundary->kind != SA_BOUNDARY_TIME)
		return SA_LOOK_NO_TIME;
	return Max(0, sa_kafka_to_ms(boundary->time));
}

static int64
place_of(const SaBoundary *boundary, const Known *known, int which, int64 otherwise)
{
	SaPosition *named;

	switch (boundary->kind)
	{
		case SA_BOUNDARY_LATEST:
			return known->high;
		case SA_BOUNDARY_TIME:
			return known->at_time[which];
		case SA_BOUNDARY_EXPLICIT:
			named = sa_source_find_position(boundary->positions, known->topic, known->partition);
			return named ? named->position : otherwise;
		default:
			return otherwise;
	}
}

/* Partitions that are named but not there: reading them will say so. */
static List *
add_unknown(SaSource *source, const SaBoundary *start, List *positions)
{
	ListCell   *lc;

	foreach(lc, start->kind == SA_BOUNDARY_EXPLICIT ? start->positions : NIL)
	{
		SaPosition *named = lfirst(lc);
		SaPosition *position;

		if (find_known(source, named->topic, named->partition) != NULL)
			continue;
		position = palloc(sizeof(SaPosition));
		*position = *named;
		position->end = PG_INT64_MAX;
		positions = lappend(positions, position);
	}
	return positions;
}

static bool
kafka_resolve(SaSource *source, const SaBoundary *start, const SaBoundary *end, List **positions)
{
	int64		times_ms[2] = {time_of(start), time_of(end)};

	if (!source->resolved || memcmp(source->resolved_ms, times_ms, sizeof(times_ms)) != 0)
	{
		source->wanted.resolve = true;
		memcpy(source->wanted.times_ms, times_ms, sizeof(times_ms));
		go_on_looking(source);
		return false;
	}
	source->resolved = false;
	*positions = NIL;
	for (int i = 0; i < source->nknown; i++)
	{
		Known	   *known = &source->known[i];
		SaPosition *position = palloc(sizeof(SaPosition));

		position->topic = pstrdup(known->topic);
		position->partition = known->partition;
		position->position = place_of(start, known, 0, known->low);
		position->end = place_of(end, known, 1, PG_INT64_MAX);
		*positions = lappend(*positions, position);
	}
	*positions = add_unknown(source, start, *positions);
	return *positions != NIL;
}

/* ---------- cursors ---------- */

static Cursor *
open_cursor(SaSource *source)
{
	MemoryContext old = MemoryContextSwitchTo(source->cxt);
	Cursor	   *cursor = palloc0(sizeof(Cursor));

	cursor->client = sa_client_open(&source->options, sa_option_secrets(source->options.relid));
	source->cursors = lappend(source->cursors, cursor);
	MemoryContextSwitchTo(old);
	return cursor;
}

static void
close_cursor(SaSource *source, Cursor *cursor)
{
	sa_client_close(cursor->client);
	source->cursors = list_delete_ptr(source->cursors, cursor);
	if (cursor->cxt)
		MemoryContextDelete(cursor->cxt);
	pfree(cursor);
}

/* Have the library read from where the places are. */
static void
assign(Cursor *cursor)
{
	rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(cursor->nplaces);
	rd_kafka_resp_err_t error;

	for (int i = 0; i < cursor->nplaces; i++)
	{
		Place	   *place = &cursor->places[i];

		if (!place->gone)
			rd_kafka_topic_partition_list_add(list, place->topic, place->partition)->offset = place->next;
		place->start = place->next;
		place->handle = NULL;
		place->at_end = place->discarded = false;
		place->out_of_range = 0;
	}
	cursor->last = NULL;
	cursor->assigned = sa_clock_now();
	error = rd_kafka_assign(sa_client_handle(cursor->client), list);
	rd_kafka_topic_partition_list_destroy(list);
	if (error != RD_KAFKA_RESP_ERR_NO_ERROR)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_ERROR),
				 errmsg("could not read from Kafka: %s", rd_kafka_err2str(error))));
}

static void
add_place(SaSource *source, Cursor *cursor, const char *topic, int32 partition, int64 next)
{
	Place	   *place = &cursor->places[cursor->nplaces++];

	memset(place, 0, sizeof(Place));
	place->topic = MemoryContextStrdup(cursor->cxt, topic);
	place->partition = partition;
	place->start = place->next = place->first = next;
	place->quiet_since = sa_clock_now();
	place->gone = find_known(source, topic, partition) == NULL && !sa_client_wants(&source->options, topic);
}

static bool
is_bounded(List *from)
{
	ListCell   *lc;

	foreach(lc, from)
		if (((SaPosition *) lfirst(lc))->end != PG_INT64_MAX)
			return true;
	return false;
}

/* Read from these positions, and from the beginning of partitions that are not among them. */
static void
point_cursor(SaSource *source, Cursor *cursor, List *from)
{
	ListCell   *lc;

	if (cursor->cxt)
		MemoryContextDelete(cursor->cxt);
	cursor->cxt = AllocSetContextCreate(source->cxt, "stream_agg Kafka cursor", ALLOCSET_SMALL_SIZES);
	cursor->places = MemoryContextAlloc(cursor->cxt, sizeof(Place) * (list_length(from) + source->nknown + 1));
	cursor->nplaces = 0;
	foreach(lc, from)
	{
		SaPosition *position = lfirst(lc);

		add_place(source, cursor, position->topic, position->partition, position->position);
	}
	for (int i = 0; i < source->nknown && !is_bounded(from); i++)
		if (find_place(cursor, source->known[i].topic, source->known[i].partition) == NULL)
		{
			add_place(source, cursor, source->known[i].topic, source->known[i].partition, source->known[i].low);
			cursor->places[cursor->nplaces - 1].added = true;
		}
	assign(cursor);
}

/* Does the cursor stand at these positions? */
static bool
stands_at(Cursor *cursor, List *from)
{
	int			found = 0;
	ListCell   *lc;

	foreach(lc, from)
	{
		SaPosition *position = lfirst(lc);
		Place	   *place = find_place(cursor, position->topic, position->partition);

		if (place == NULL || place->next != position->position ||
			(place->discarded && position->end != place->next))
			return false;
		found++;
	}
	if (found == cursor->nplaces)
		return true;
	/* the others are new to the view: nothing of them may have been handed out */
	for (int i = 0; i < cursor->nplaces; i++)
	{
		Place	   *place = &cursor->places[i];

		if (sa_source_find_position(from, place->topic, place->partition) == NULL &&
			(!place->added || place->next != place->first || is_bounded(from)))
			return false;
	}
	return true;
}

/* Are there partitions that the cursor does not read yet? */
static bool
lacks_partitions(SaSource *source, Cursor *cursor)
{
	for (int i = 0; i < source->nknown; i++)
		if (find_place(cursor, source->known[i].topic, source->known[i].partition) == NULL)
			return true;
	return false;
}

/* Does a look say that there is less than what the place has come to, since before that look? */
static bool
is_beyond_end(SaSource *source, const Place *place)
{
	Known	   *known = find_known(source, place->topic, place->partition);

	return known != NULL && place->next > known->high && place->quiet_since < source->known_as_of;
}

/*
 * With a newer look: the library may have given up on a partition that can be had again, or not have noticed
 * that a topic was made anew.
 */
static void
ask_again(SaSource *source, Cursor *cursor)
{
	if (cursor->assigned >= source->known_as_of)
		return;
	for (int i = 0; i < cursor->nplaces; i++)
		if (cursor->places[i].out_of_range != 0)
			return;				/* the brokers have answered, and that is judged next */
	for (int i = 0; i < cursor->nplaces; i++)
		if (cursor->places[i].troubled || is_beyond_end(source, &cursor->places[i]))
		{
			assign(cursor);
			return;
		}
}

static Cursor *
cursor_at(SaSource *source, List *from)
{
	Cursor	   *unwanted = NULL;
	Cursor	   *cursor;
	ListCell   *lc;

	foreach(lc, source->cursors)
	{
		cursor = lfirst(lc);
		if (stands_at(cursor, from))
		{
			if (!is_bounded(from) && lacks_partitions(source, cursor))
				point_cursor(source, cursor, from);
			ask_again(source, cursor);
			return cursor;
		}
		if (cursor->unwanted)
			unwanted = cursor;
	}
	cursor = unwanted ? unwanted : open_cursor(source);
	point_cursor(source, cursor, from);
	cursor->unwanted = false;
	return cursor;
}

/* One cursor is enough where views stand, and none elsewhere: the others are closed after a while. */
static void
close_unwanted(SaSource *source, List *readers)
{
	SaClock		now = sa_clock_now();
	List	   *cursors = list_copy(source->cursors);
	ListCell   *lc;
	ListCell   *lr;

	foreach(lc, cursors)
		((Cursor *) lfirst(lc))->unwanted = true;
	foreach(lr, readers)
	{
		foreach(lc, cursors)
			if (stands_at(lfirst(lc), lfirst(lr)))
				break;
		if (lc != NULL)
			((Cursor *) lfirst(lc))->unwanted = false;
	}
	foreach(lc, cursors)
	{
		Cursor	   *cursor = lfirst(lc);

		if (cursor->unwanted && now - cursor->used > UNWANTED_TIME)
			close_cursor(source, cursor);
	}
	list_free(cursors);
}

/* ---------- lost records ---------- */

/*
 * The brokers do not have what a place is to read next.  With a look that is newer than that: tell the
 * batch, and go on from what there is if that is wanted, though not beyond where reading ends: from there on
 * it is for whoever reads there.  True when the place has moved.
 */
static bool
judge_loss(SaSource *source, Place *place, int64 end, SaBatchPartition *partition)
{
	Known	   *known = find_known(source, place->topic, place->partition);
	int64		next;

	if (place->out_of_range == 0 || place->out_of_range > source->known_as_of || known == NULL)
		return false;
	place->out_of_range = 0;
	if (place->next >= end)
		return false;			/* nobody reads there */
	if (place->next >= known->low && place->next <= known->high)
		return true;			/* it is there: a broker was not up to date */
	partition->kept_first = known->low;
	partition->kept_next = known->high;
	partition->loss = source->options.skip_data_loss ? SA_LOSS_PASSED : SA_LOSS_STOP;
	if (!source->options.skip_data_loss)
	{
		place->out_of_range = sa_clock_now();	/* still, for whoever reads here next */
		return false;
	}
	next = Min(known->low, end);
	partition->skipped += Max(0, next - place->next);
	if (place->added && place->next == place->first)
		place->first = next;
	place->next = partition->kept_first = next;
	return true;
}

static void
judge_losses(SaSource *source, Cursor *cursor, const int64 *ends, SaBatch *batch)
{
	bool		moved = false;

	for (int i = 0; i < cursor->nplaces; i++)
		moved |= judge_loss(source, &cursor->places[i], ends[i], &batch->partitions[i]);
	if (moved)
		assign(cursor);
}

static bool
is_stopped(const SaBatch *batch)
{
	for (int i = 0; i < batch->npartitions; i++)
		if (batch->partitions[i].loss == SA_LOSS_STOP)
			return true;
	return batch->failure != NULL;
}

/* ---------- reading ---------- */

typedef struct Reading
{
	SaSource   *source;
	Cursor	   *cursor;
	SaBatch    *batch;
	const int64 *ends;			/* of the places */
	int64		bytes;
	MemoryContext chunk_cxt;
	int			nrecords;		/* of this chunk */
	SaRecord	records[CHUNK_RECORDS];
	SaDecoded	decoded[CHUNK_RECORDS];
	int			ordinals[CHUNK_RECORDS];
} Reading;

/* The place that a message is about; NULL: the library's own trouble. */
static Place *
place_of_message(Cursor *cursor, const rd_kafka_message_t *message)
{
	Place	   *place = cursor->last;

	if (message->rkt == NULL)
		return NULL;
	if (place != NULL && place->handle == message->rkt && place->partition == message->partition)
		return place;
	place = find_place(cursor, rd_kafka_topic_name(message->rkt), message->partition);
	if (place != NULL)
		place->handle = message->rkt;
	cursor->last = place;
	return place;
}

static void
take_message_error(Reading *reading, const rd_kafka_message_t *message)
{
	Place	   *place = place_of_message(reading->cursor, message);

	switch (message->err)
	{
		case RD_KAFKA_RESP_ERR__PARTITION_EOF:
			if (place == NULL || place->discarded)
				return;
			place->next = Max(place->next, message->offset);
			place->at_end = true;
			place->troubled = false;
			return;
		case RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET:
		case RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE:
			if (place != NULL)
				place->out_of_range = sa_clock_now();
			return;
		case RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED:
			return;
		default:
			if (place == NULL)
				note_trouble(reading->source, rd_kafka_message_errstr(message));
			else
			{
				place->troubled = true;
				note_trouble(reading->source, psprintf("topic \"%s\", partition %d: %s", place->topic,
													   place->partition, rd_kafka_err2str(message->err)));
			}
	}
}

static void
take_headers(const rd_kafka_message_t *message, SaRecord *record)
{
	rd_kafka_headers_t *headers;
	SaRecordHeader *copy;

	record->headers = NULL;
	record->nheaders = 0;
	if (rd_kafka_message_headers(message, &headers) != RD_KAFKA_RESP_ERR_NO_ERROR)
		return;
	record->nheaders = (int) rd_kafka_header_cnt(headers);
	copy = palloc(sizeof(SaRecordHeader) * (record->nheaders + 1));
	for (int i = 0; i < record->nheaders; i++)
	{
		const void *value;

		rd_kafka_header_get_all(headers, i, &copy[i].name, &value, &copy[i].size);
		copy[i].value = value;
	}
	record->headers = copy;
}

void
sa_kafka_describe(const rd_kafka_message_t *message, const char *topic, bool with_headers, SaRecord *record)
{
	rd_kafka_timestamp_type_t type;
	int64		ms = rd_kafka_message_timestamp(message, &type);

	record->topic = topic;
	record->partition = message->partition;
	record->position = message->offset;
	record->timestamp = type == RD_KAFKA_TIMESTAMP_NOT_AVAILABLE ? DT_NOBEGIN : sa_kafka_from_ms(ms);
	record->timestamp_type = type == RD_KAFKA_TIMESTAMP_CREATE_TIME ? "create" :
		type == RD_KAFKA_TIMESTAMP_LOG_APPEND_TIME ? "append" : NULL;
	record->key = message->key;
	record->key_size = message->key_len;
	record->value = message->payload;
	record->value_size = message->len;
	record->headers = NULL;
	record->nheaders = 0;
	if (with_headers)
		take_headers(message, record);
}

/* One more record of the batch; decoded with its chunk, unless it is a tombstone. */
static void
take_record(Reading *reading, const rd_kafka_message_t *message)
{
	Place	   *place = place_of_message(reading->cursor, message);
	SaRecord   *record = &reading->records[reading->nrecords];
	SaEvent    *event;
	int			index;

	if (place == NULL || place->discarded || message->offset < place->next)
		return;
	index = place - reading->cursor->places;
	place->troubled = false;
	if (message->offset >= reading->ends[index])
	{
		place->next = Max(place->next, reading->ends[index]);
		place->discarded = true;
		return;
	}
	sa_kafka_describe(message, place->topic, sa_decode_wants_headers(reading->source->decoder), record);
	event = sa_batch_add(reading->batch);
	event->position = message->offset;
	event->arrival = record->timestamp;
	event->partition = index;
	place->next = message->offset + 1;
	place->at_end = false;
	reading->bytes += record->key_size + record->value_size + COUNTED_RECORD;
	reading->ordinals[reading->nrecords++] = reading->batch->nevents - 1;
}

/* As bytea, which looks like text. */
static struct varlena *
copy_bytes(const char *bytes, size_t size)
{
	return bytes ? (struct varlena *) cstring_to_text_with_len(bytes, size) : NULL;
}

static void
refuse(Reading *reading, int i, SaVerdict verdict, const char *message, bool keep)
{
	SaBatch    *batch = reading->batch;
	SaRecord   *record = &reading->records[i];
	SaEvent    *event = &batch->events[reading->ordinals[i]];

	event->verdict = verdict;
	memset(event->nulls, true, batch->desc->natts);
	if (keep)
		sa_batch_refuse(batch, reading->ordinals[i], message, copy_bytes(record->key, record->key_size),
						copy_bytes(record->value, record->value_size));
}

static void
note_failure(Reading *reading, const SaRecord *record, const char *reason)
{
	if (reading->batch->failure == NULL)
		reading->batch->failure = psprintf("record at position " INT64_FORMAT " of topic \"%s\", partition %d, is malformed: %s",
										   record->position, record->topic, record->partition, reason);
}

static void
decode_chunk(Reading *reading)
{
	SaSource   *source = reading->source;
	SaBatch    *batch = reading->batch;
	MemoryContext old = MemoryContextSwitchTo(batch->cxt);

	for (int i = 0; i < reading->nrecords; i++)
	{
		SaEvent    *event = &batch->events[reading->ordinals[i]];

		reading->decoded[i].values = event->values;
		reading->decoded[i].nulls = event->nulls;
		reading->decoded[i].error = NULL;
	}
	sa_decode_records(source->decoder, reading->records, reading->nrecords, reading->decoded);
	for (int i = 0; i < reading->nrecords; i++)
	{
		if (reading->records[i].value == NULL)
			refuse(reading, i, SA_EVENT_TOMBSTONE, NULL, source->options.letter_tombstone);
		else if (reading->decoded[i].error == NULL)
			continue;
		else if (source->options.fail_malformed)
			note_failure(reading, &reading->records[i], reading->decoded[i].error);
		else
			refuse(reading, i, SA_EVENT_MALFORMED, reading->decoded[i].error, true);
	}
	MemoryContextSwitchTo(old);
}

/* How many records to ask for: as many as fit, going by the size of those before them. */
static int
records_to_ask(Reading *reading, const SaReadLimits *limits)
{
	int			count = Min(CHUNK_RECORDS, limits->max_rows - reading->batch->nevents);

	if (reading->cursor->record_size == 0)
		return Min(count, FIRST_CHUNK_RECORDS);
	return (int) Max(1, Min(count, (limits->max_bytes - reading->bytes) / reading->cursor->record_size));
}

static void
note_record_size(Cursor *cursor, int64 bytes, int records)
{
	double		size = (double) bytes / records;

	cursor->record_size = cursor->record_size == 0 ? size : Max(size, cursor->record_size * 0.9 + size * 0.1);
}

/* Take what is at hand, waiting so long for the first of it; false when nothing more is. */
static bool
read_chunk(Reading *reading, const SaReadLimits *limits, int timeout_ms)
{
	rd_kafka_message_t *messages[CHUNK_RECORDS];
	int			asked = records_to_ask(reading, limits);
	int64		bytes = reading->bytes;
	ssize_t		n = rd_kafka_consume_batch_queue(sa_client_queue(reading->cursor->client), timeout_ms, messages, asked);
	MemoryContext old = MemoryContextSwitchTo(reading->chunk_cxt);

	reading->nrecords = 0;
	PG_TRY();
	{
		for (ssize_t i = 0; i < n; i++)
		{
			if (messages[i]->err != RD_KAFKA_RESP_ERR_NO_ERROR)
				take_message_error(reading, messages[i]);
			else
				take_record(reading, messages[i]);
		}
		if (reading->nrecords > 0)
			decode_chunk(reading);
	}
	PG_FINALLY();
	{
		for (ssize_t i = 0; i < n; i++)
			rd_kafka_message_destroy(messages[i]);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(old);
	MemoryContextReset(reading->chunk_cxt);
	if (reading->nrecords > 0)
		note_record_size(reading->cursor, reading->bytes - bytes, reading->nrecords);
	return n >= asked;
}

/* Is more known to come soon? */
static bool
has_backlog(SaSource *source, Cursor *cursor)
{
	if (source->trouble[0] != '\0')
		return false;
	for (int i = 0; i < cursor->nplaces; i++)
	{
		Place	   *place = &cursor->places[i];
		int64		low;
		int64		high;

		if (!place->at_end && !place->discarded && !place->gone && place->out_of_range == 0 &&
			rd_kafka_get_watermark_offsets(sa_client_handle(cursor->client), place->topic, place->partition,
										   &low, &high) == RD_KAFKA_RESP_ERR_NO_ERROR &&
			high > place->next)
			return true;
	}
	return false;
}

/* Keep records coming while there is a backlog. */
static void
nudge(SaSource *source, Cursor *cursor)
{
	SaClock		now = sa_clock_now();
	rd_kafka_topic_partition_list_t *list;

	if (!sa_client_must_nudge() || now - cursor->nudged < NUDGE_TIME ||
		rd_kafka_queue_length(sa_client_queue(cursor->client)) > NUDGE_LENGTH || !has_backlog(source, cursor))
		return;
	cursor->nudged = now;
	list = rd_kafka_topic_partition_list_new(cursor->nplaces);
	for (int i = 0; i < cursor->nplaces; i++)
		if (!cursor->places[i].gone && !cursor->places[i].troubled)
			rd_kafka_topic_partition_list_add(list, cursor->places[i].topic, cursor->places[i].partition);
	sa_client_nudge(cursor->client, list);
}

/* Has reading come to its end in every place? */
static bool
is_over(const Reading *reading)
{
	for (int i = 0; i < reading->cursor->nplaces; i++)
		if (reading->cursor->places[i].next < reading->ends[i] && !reading->cursor->places[i].gone)
			return false;
	return true;
}

/* Fill the batch; under backlog it waits a little to become a large one. */
static void
fill_batch(Reading *reading, const SaReadLimits *limits)
{
	SaBatch    *batch = reading->batch;
	SaClock		deadline = sa_clock_now() + FILL_TIME;
	int			timeout_ms = 0;

	while (batch->nevents < limits->max_rows && reading->bytes < limits->max_bytes && batch->failure == NULL &&
		   !is_over(reading))
	{
		CHECK_FOR_INTERRUPTS();
		nudge(reading->source, reading->cursor);
		batch->drained = !read_chunk(reading, limits, timeout_ms);
		timeout_ms = 0;
		if (!batch->drained && (reading->nrecords > 0 || sa_clock_now() < deadline))
			continue;
		if (sa_clock_now() >= deadline || !has_backlog(reading->source, reading->cursor))
			return;
		timeout_ms = FILL_STEP_MS;
	}
	batch->drained = is_over(reading);
}

static void
begin_partitions(Cursor *cursor, SaBatch *batch)
{
	for (int i = 0; i < cursor->nplaces; i++)
		(void) sa_batch_partition(batch, cursor->places[i].topic, cursor->places[i].partition, cursor->places[i].next);
}

/* As of the last look there was nothing more, unless that was before the last record came. */
static SaClock
quiet_until(SaSource *source, const Place *place)
{
	Known	   *known = find_known(source, place->topic, place->partition);

	if (known == NULL || known->high > place->next)
		return place->quiet_since;
	return Max(source->known_as_of, place->quiet_since);
}

static void
end_partitions(SaSource *source, Cursor *cursor, SaBatch *batch)
{
	SaClock		now = sa_clock_now();

	for (int i = 0; i < cursor->nplaces; i++)
	{
		Place	   *place = &cursor->places[i];
		SaBatchPartition *partition = &batch->partitions[i];

		if (partition->next != place->next && partition->loss == SA_LOSS_NONE)
			place->quiet_since = now;
		if (partition->loss != SA_LOSS_STOP)
			partition->next = place->next;
		partition->gone = place->gone;
		if (place->at_end && source->trouble[0] == '\0')
		{
			partition->quiet_since = place->quiet_since;
			partition->quiet_until = quiet_until(source, place);
		}
	}
}

/* Has the place come to the end noted by the last exact refresh? */
static bool
is_read(SaSource *source, const Place *place)
{
	Known	   *known = find_known(source, place->topic, place->partition);

	if (place->discarded)
		return true;
	if (known == NULL)
		return source->options.topics == NIL;	/* no longer there; else it is missed */
	if (place->next <= known->end)
		return place->next == known->end;
	/* beyond it, and not because it has read on: only the brokers can tell whether that is so */
	return place->at_end || place->next > place->start;
}

/* Has everything as of the last refresh been read? */
static bool
is_at_end(SaSource *source, Cursor *cursor)
{
	if (!source->ends_known)
		return false;
	for (int i = 0; i < cursor->nplaces; i++)
	{
		Place	   *place = &cursor->places[i];

		if (!place->gone && !is_read(source, place))
			return false;
	}
	return true;
}

/* Where reading ends, for every place of the cursor. */
static int64 *
ends_of(Cursor *cursor, List *from)
{
	int64	   *ends = palloc(sizeof(int64) * (cursor->nplaces + 1));
	ListCell   *lc;

	for (int i = 0; i < cursor->nplaces; i++)
		ends[i] = PG_INT64_MAX;
	foreach(lc, from)
	{
		SaPosition *position = lfirst(lc);
		Place	   *place = find_place(cursor, position->topic, position->partition);

		ends[place - cursor->places] = position->end;
	}
	return ends;
}

static void
kafka_read(SaSource *source, List *from, const SaReadLimits *limits, SaBatch *batch)
{
	Cursor	   *cursor = cursor_at(source, from);
	Reading    *reading = palloc(sizeof(Reading));
	SaOwnerSwitch save;

	cursor->used = sa_clock_now();
	begin_partitions(cursor, batch);
	reading->ends = ends_of(cursor, from);
	judge_losses(source, cursor, reading->ends, batch);
	reading->source = source;
	reading->cursor = cursor;
	reading->batch = batch;
	reading->bytes = 0;
	reading->chunk_cxt = AllocSetContextCreate(batch->cxt, "stream_agg Kafka chunk", ALLOCSET_DEFAULT_SIZES);
	if (!is_stopped(batch))
	{
		sa_decode_enter(&save, source->options.relid);
		fill_batch(reading, limits);
		sa_owner_leave(&save);
	}
	MemoryContextDelete(reading->chunk_cxt);
	hear(source, cursor->client);
	end_partitions(source, cursor, batch);
	batch->at_end = is_at_end(source, cursor);
	pfree(reading);
}

static void
kafka_end_batch(SaSource *source, bool committed)
{
	/* nothing is kept in a transaction */
}

/* ---------- housekeeping ---------- */

static SaClock
kafka_attend(SaSource *source, List *readers, bool *news)
{
	*news = sa_client_woken();
	sa_client_serve(source->control);
	hear(source, source->control);
	go_on_looking(source);
	close_unwanted(source, readers);
	return source->look ? DT_NOEND : source->next_look;
}

static int
kafka_wake_fd(SaSource *source)
{
	return sa_client_wake_fd();
}

static bool
was_told(SaSource *source, const SaPosition *position)
{
	SaPosition *told = sa_source_find_position(source->told, position->topic, position->partition);

	return told != NULL && told->position == position->position;
}

static void
remember_told(SaSource *source, List *positions)
{
	MemoryContext old = MemoryContextSwitchTo(source->cxt);
	ListCell   *lc;

	foreach(lc, source->told)
		pfree(unconstify(char *, ((SaPosition *) lfirst(lc))->topic));
	list_free_deep(source->told);
	source->told = NIL;
	foreach(lc, positions)
	{
		SaPosition *copy = palloc(sizeof(SaPosition));

		*copy = *(SaPosition *) lfirst(lc);
		copy->topic = pstrdup(copy->topic);
		source->told = lappend(source->told, copy);
	}
	MemoryContextSwitchTo(old);
}

/*
 * Tell the group how far every view has come, once that is on disk.  For monitoring only: whether it
 * succeeds does not matter.
 */
static void
kafka_release(SaSource *source, List *positions)
{
	rd_kafka_topic_partition_list_t *list;
	ListCell   *lc;

	if (source->options.group_id == NULL || positions == NIL)
		return;
	list = rd_kafka_topic_partition_list_new(list_length(positions));
	foreach(lc, positions)
	{
		SaPosition *position = lfirst(lc);

		if (!was_told(source, position))
			rd_kafka_topic_partition_list_add(list, position->topic, position->partition)->offset = position->position;
	}
	if (list->cnt > 0)
	{
		XLogFlush(XactLastCommitEnd);
		(void) rd_kafka_commit(sa_client_handle(source->control), list, 1);
		remember_told(source, positions);
	}
	rd_kafka_topic_partition_list_destroy(list);
}

/* ---------- opening and closing ---------- */

static SaSource *
kafka_open(const SaStreamOptions *options, MemoryContext cxt)
{
	SaSource   *source = MemoryContextAllocZero(cxt, sizeof(SaSource));
	MemoryContext old = MemoryContextSwitchTo(cxt);
	Relation	stream = table_open(options->relid, NoLock);

	source->cxt = cxt;
	source->options = *options;
	source->wanted.times_ms[0] = source->wanted.times_ms[1] = SA_LOOK_NO_TIME;
	source->decoder = sa_decode_create(stream, options, cxt);
	source->control = sa_client_open(options, sa_option_secrets(options->relid));
	table_close(stream, NoLock);
	MemoryContextSwitchTo(old);
	return source;
}

static void
kafka_close(SaSource *source)
{
	while (source->cursors != NIL)
		close_cursor(source, linitial(source->cursors));
	if (source->look)
		sa_look_free(source->look);
	sa_client_close(source->control);
	sa_decode_free(source->decoder);
}

/* What CREATE FOREIGN TABLE says must make sense; whether the brokers are there is another matter. */
static void
kafka_prepare(Oid stream)
{
	Relation	rel;
	SaStreamOptions *options;

	/* A dump is being loaded, which gives options to columns by commands of their own. */
	if (!check_function_bodies || IsBinaryUpgrade)
		return;
	rel = table_open(stream, NoLock);
	options = sa_option_stream(rel);

	sa_client_check(options, NIL);
	sa_decode_free(sa_decode_create(rel, options, CurrentMemoryContext));
	table_close(rel, NoLock);
}

const SaSourceRoutine sa_source_kafka = {
	.type = "kafka",
	.named_places = true,
	.serial = true,
	.open = kafka_open,
	.close = kafka_close,
	.resolve = kafka_resolve,
	.refresh = kafka_refresh,
	.read = kafka_read,
	.end_batch = kafka_end_batch,
	.release = kafka_release,
	.attend = kafka_attend,
	.wake_fd = kafka_wake_fd,
	.trouble = kafka_trouble,
	.end_position = kafka_end_position,
	.prepare = kafka_prepare,
	.peek_begin = sa_kafka_peek_begin,
	.peek_next = sa_kafka_peek_next,
	.peek_rewind = sa_kafka_peek_rewind,
	.peek_end = sa_kafka_peek_end,
};
