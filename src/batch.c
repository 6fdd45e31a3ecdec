/*
 * batch.c
 *		A batch: the events that one turn reads, their verdicts and running maxima.
 *
 * Invariant: everything lives in batch->cxt, and an event's place in events[] is its ordinal.  Verdicts
 * and running maxima depend on the events of the partition and their order alone (DESIGN.md 2.2).
 *
 * No locks, nothing to recover: a batch is gone with its transaction.
 */
#include "postgres.h"

#include "access/tupdesc.h"
#include "catalog/pg_type.h"
#include "common/int.h"
#include "utils/date.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "compat.h"

#include "batch.h"

/* Values and null flags of events are allocated for this many events at once. */
#define EVENTS_PER_SLAB 64

SaBatch *
sa_batch_create(MemoryContext parent, Oid stream, TupleDesc desc)
{
	MemoryContext cxt = AllocSetContextCreate(parent, "stream_agg batch", ALLOCSET_DEFAULT_SIZES);
	MemoryContext oldcxt = MemoryContextSwitchTo(cxt);
	SaBatch    *batch = palloc0(sizeof(SaBatch));

	batch->cxt = cxt;
	batch->stream = stream;
	batch->desc = CreateTupleDescCopy(desc);
	batch->maxevents = EVENTS_PER_SLAB;
	batch->events = palloc(sizeof(SaEvent) * batch->maxevents);
	MemoryContextSwitchTo(oldcxt);
	return batch;
}

int
sa_batch_partition(SaBatch *batch, const char *topic, int32 partition, int64 first)
{
	int			index = batch->npartitions++;
	Size		size = sizeof(SaBatchPartition) * batch->npartitions;
	SaBatchPartition *place;

	if (batch->partitions == NULL)
		batch->partitions = MemoryContextAlloc(batch->cxt, size);
	else
		batch->partitions = repalloc(batch->partitions, size);

	place = &batch->partitions[index];
	place->topic = MemoryContextStrdup(batch->cxt, topic);
	place->partition = partition;
	place->first = first;
	place->next = first;
	place->skipped = 0;
	place->gone = false;
	place->loss = SA_LOSS_NONE;
	place->max_time = DT_NOBEGIN;
	place->quiet_since = DT_NOEND;
	place->quiet_until = DT_NOBEGIN;
	return index;
}

const SaBatchPartition *
sa_batch_find(const SaBatch *batch, const char *topic, int32 partition)
{
	for (int i = 0; i < batch->npartitions; i++)
		if (batch->partitions[i].partition == partition && strcmp(batch->partitions[i].topic, topic) == 0)
			return &batch->partitions[i];
	return NULL;
}

/* Room for the values and null flags of the event at this ordinal, which begins a slab. */
static void
begin_slab(SaBatch *batch, SaEvent *event)
{
	int			natts = batch->desc->natts;
	Size		nvalues = (Size) natts * EVENTS_PER_SLAB;

	event->values = MemoryContextAlloc(batch->cxt, nvalues * (sizeof(Datum) + sizeof(bool)));
	event->nulls = (bool *) (event->values + nvalues);
	memset(event->nulls, true, nvalues);
}

SaEvent *
sa_batch_add(SaBatch *batch)
{
	int			natts = batch->desc->natts;
	SaEvent    *event;

	if (batch->nevents >= batch->maxevents)
	{
		batch->maxevents *= 2;
		batch->events = repalloc_huge(batch->events, sizeof(SaEvent) * (Size) batch->maxevents);
	}

	event = &batch->events[batch->nevents];
	if (batch->nevents % EVENTS_PER_SLAB == 0)
		begin_slab(batch, event);
	else
	{
		event->values = event[-1].values + natts;
		event->nulls = event[-1].nulls + natts;
	}
	event->position = 0;
	event->arrival = DT_NOBEGIN;
	event->time = DT_NOBEGIN;
	event->max_before = DT_NOBEGIN;
	event->partition = 0;
	event->verdict = SA_EVENT_GOOD;
	batch->nevents++;
	return event;
}

void
sa_batch_refuse(SaBatch *batch, int ordinal, const char *message, struct varlena *key, struct varlena *payload)
{
	int			index = batch->nrefusals++;
	SaRefusal  *refusal;

	if (index == 0)
		batch->refusals = MemoryContextAlloc(batch->cxt, sizeof(SaRefusal));
	else if ((index & (index - 1)) == 0)	/* a power of two: full */
		batch->refusals = repalloc_huge(batch->refusals, sizeof(SaRefusal) * 2 * (Size) index);
	refusal = &batch->refusals[index];
	refusal->ordinal = ordinal;
	refusal->message = message;
	refusal->key = key;
	refusal->payload = payload;
}

const SaRefusal *
sa_batch_refusal(const SaBatch *batch, int ordinal)
{
	int			low = 0;
	int			high = batch->nrefusals - 1;

	while (low <= high)
	{
		int			middle = low + (high - low) / 2;

		if (batch->refusals[middle].ordinal == ordinal)
			return &batch->refusals[middle];
		if (batch->refusals[middle].ordinal < ordinal)
			low = middle + 1;
		else
			high = middle - 1;
	}
	return NULL;
}

/* ---------- verdicts and running maxima ---------- */

/* A date at midnight; infinite dates, and those out of a timestamp's range, stay or become infinite. */
static TimestampTz
date_to_time(DateADT date)
{
	int64		result;

	if (DATE_IS_NOBEGIN(date))
		return DT_NOBEGIN;
	if (DATE_IS_NOEND(date) || pg_mul_s64_overflow((int64) date, USECS_PER_DAY, &result) ||
		!IS_VALID_TIMESTAMP(result))
		return DT_NOEND;
	return result;
}

static TimestampTz
event_time(const SaEvent *event, const SaStreamOptions *options)
{
	Datum		value = event->values[options->time_attr - 1];

	if (options->time_type == DATEOID)
		return date_to_time(DatumGetDateADT(value));
	return DatumGetTimestampTz(value);
}

static bool
is_future(const SaEvent *event, const SaStreamOptions *options)
{
	int64		ahead;

	if (options->max_future == PG_INT64_MAX || TIMESTAMP_NOT_FINITE(event->arrival))
		return false;
	if (pg_sub_s64_overflow(event->time, event->arrival, &ahead))
		return event->time > event->arrival;
	return ahead > options->max_future;
}

/* The verdict on one event, its time, and the running maximum of its partition before and after it. */
static void
judge_event(SaBatch *batch, SaEvent *event, const SaStreamOptions *options)
{
	SaBatchPartition *partition = &batch->partitions[event->partition];

	event->max_before = partition->max_time;
	if (event->verdict != SA_EVENT_GOOD)
		return;					/* the source has judged it */
	if (options->time_attr == InvalidAttrNumber)
		return;

	event->verdict = SA_EVENT_NULL_TIME;
	if (event->nulls[options->time_attr - 1])
		return;
	event->time = event_time(event, options);
	if (TIMESTAMP_NOT_FINITE(event->time))
		return;

	if (is_future(event, options))
	{
		event->verdict = SA_EVENT_FUTURE;
		return;
	}
	event->verdict = SA_EVENT_GOOD;
	partition->max_time = Max(partition->max_time, event->time);
}

void
sa_batch_seal(SaBatch *batch, const SaStreamOptions *options)
{
	for (int i = 0; i < batch->nevents; i++)
		judge_event(batch, &batch->events[i], options);
}

int64
sa_batch_read(const SaBatch *batch)
{
	int64		rows = batch->nevents;

	for (int i = 0; i < batch->npartitions; i++)
		rows += batch->partitions[i].skipped;
	return rows;
}
