/*
 * commit.c
 *		Positions, running maxima, watermarks and counters of a view.
 *
 * Invariant: for every partition, read = the sum of the other outcomes, and exactly the records before
 * position are counted.  Positions and watermarks only move forward.
 */
#include "postgres.h"

#include "commit.h"
#include "watermark.h"

SaViewPosition *
sa_commit_find(List *positions, const char *topic, int32 partition)
{
	ListCell   *lc;

	foreach(lc, positions)
	{
		SaViewPosition *pos = lfirst(lc);

		if (pos->partition == partition && strcmp(pos->topic, topic) == 0)
			return pos;
	}
	return NULL;
}

static SaViewPosition *
copy_position(const SaViewPosition *pos)
{
	SaViewPosition *copy = palloc(sizeof(SaViewPosition));

	*copy = *pos;
	copy->topic = pstrdup(pos->topic);
	return copy;
}

List *
sa_commit_copy(List *positions)
{
	List	   *copy = NIL;
	ListCell   *lc;

	foreach(lc, positions)
		copy = lappend(copy, copy_position(lfirst(lc)));
	return copy;
}

/* The partition's place in the list, which a partition seen for the first time is added to. */
static SaViewPosition *
find_or_add(List **positions, const SaBatchPartition *partition)
{
	SaViewPosition *pos = sa_commit_find(*positions, partition->topic, partition->partition);

	if (pos)
		return pos;
	pos = palloc0(sizeof(SaViewPosition));
	pos->topic = pstrdup(partition->topic);
	pos->partition = partition->partition;
	pos->position = partition->first;
	pos->running_max = DT_NOBEGIN;
	pos->watermark = DT_NOBEGIN;
	*positions = lappend(*positions, pos);
	return pos;
}

static SaCounter
counter_of(const SaEvent *event, uint8 outcome)
{
	if (event->verdict == SA_EVENT_NULL_TIME)
		return SA_NULL_TIME;
	if (event->verdict == SA_EVENT_FUTURE)
		return SA_FUTURE;
	switch ((SaOutcome) outcome)
	{
		case SA_OUTCOME_FAILED:
			return SA_FAILED;
		case SA_OUTCOME_LATE:
			return SA_LATE;
		case SA_OUTCOME_ACCEPTED:
			return SA_ACCEPTED;
		default:
			return SA_FILTERED;
	}
}

static void
count_events(SaViewPosition *pos, const SaBatch *batch, int partition, const uint8 *outcomes)
{
	for (int i = 0; i < batch->nevents; i++)
		if (batch->events[i].partition == partition)
		{
			pos->counters[counter_of(&batch->events[i], outcomes[i])]++;
			pos->counters[SA_READ]++;
		}
}

List *
sa_commit_advance(List *before, const SaBatch *batch, const uint8 *outcomes, const int64 *late_windows, int64 delay)
{
	List	   *after = sa_commit_copy(before);

	for (int i = 0; i < batch->npartitions; i++)
	{
		SaBatchPartition *partition = &batch->partitions[i];
		SaViewPosition *pos = find_or_add(&after, partition);

		count_events(pos, batch, i, outcomes);
		pos->counters[SA_SKIPPED] += partition->skipped;
		pos->counters[SA_READ] += partition->skipped;
		pos->counters[SA_LATE_WINDOWS] += late_windows[i];
		pos->position = partition->next;
		pos->running_max = Max(pos->running_max, partition->max_time);
		if (delay != SA_NO_DELAY)
			pos->watermark = Max(pos->watermark, sa_watermark_of(pos->running_max, delay));
	}
	return after;
}

TimestampTz
sa_commit_watermark(List *positions)
{
	TimestampTz result = DT_NOEND;
	ListCell   *lc;

	foreach(lc, positions)
		result = Min(result, ((SaViewPosition *) lfirst(lc))->watermark);
	return positions == NIL ? DT_NOBEGIN : result;
}

void
sa_commit_save(int view_id, List *positions)
{
	ListCell   *lc;

	foreach(lc, positions)
		sa_catalog_save_position(view_id, lfirst(lc));
}

int64
sa_commit_counter(List *positions, SaCounter counter)
{
	int64		sum = 0;
	ListCell   *lc;

	foreach(lc, positions)
		sum += ((SaViewPosition *) lfirst(lc))->counters[counter];
	return sum;
}
