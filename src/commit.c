/*
 * commit.c
 *		Positions, running maxima, watermarks and counters of a view.
 *
 * Invariant: for every partition, read = the sum of the other outcomes, and exactly the records before
 * position are counted.  Positions and watermarks only move forward.
 */
#include "postgres.h"

#include "common/int.h"
#include "utils/timestamp.h"

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

/*
 * The partition's place in the list, which a partition seen for the first time is added to.  One that is
 * discovered late does not put the view's watermark back.
 */
static SaViewPosition *
find_or_add(List **positions, const SaBatchPartition *partition, TimestampTz floor)
{
	SaViewPosition *pos = sa_commit_find(*positions, partition->topic, partition->partition);

	if (pos)
		return pos;
	pos = palloc0(sizeof(SaViewPosition));
	pos->topic = pstrdup(partition->topic);
	pos->partition = partition->partition;
	pos->position = partition->first;
	pos->running_max = DT_NOBEGIN;
	pos->watermark = floor;
	pos->end = PG_INT64_MAX;
	pos->start = partition->first;
	*positions = lappend(*positions, pos);
	return pos;
}

static SaCounter
counter_of(const SaEvent *event, uint8 outcome)
{
	switch ((SaVerdict) event->verdict)
	{
		case SA_EVENT_TOMBSTONE:
			return SA_TOMBSTONE;
		case SA_EVENT_MALFORMED:
			return SA_MALFORMED;
		case SA_EVENT_NULL_TIME:
			return SA_NULL_TIME;
		case SA_EVENT_FUTURE:
			return SA_FUTURE;
		case SA_EVENT_GOOD:
			break;
	}
	switch ((SaOutcome) outcome)
	{
		case SA_OUTCOME_DUPLICATE:
			return SA_DUPLICATE;
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
advance_partition(SaViewPosition *pos, const SaBatchPartition *partition, const SaTimekeeping *time)
{
	pos->counters[SA_SKIPPED] += partition->skipped;
	pos->counters[SA_READ] += partition->skipped;
	pos->position = partition->next;
	pos->running_max = Max(pos->running_max, partition->max_time);
	if (time->delay != SA_NO_DELAY)
		pos->watermark = Max(pos->watermark, sa_watermark_of(pos->running_max, time->delay));
}

static bool
is_quiet(const SaBatchPartition *partition, const SaTimekeeping *time)
{
	return time->idle_timeout > 0 && partition->quiet_since != DT_NOEND && partition->quiet_until != DT_NOBEGIN;
}

/*
 * Quiet for so long, as the source has made sure of not longer than that ago: a partition that we merely hear
 * nothing of may be behind, and one that is behind is not idle.
 */
static bool
is_idle(const SaBatchPartition *partition, const SaTimekeeping *time)
{
	if (partition->gone)
		return true;
	return is_quiet(partition, time) &&
		partition->quiet_until - partition->quiet_since >= time->idle_timeout &&
		time->now - partition->quiet_until < 2 * time->idle_timeout;
}

/* Since when, and until when, nothing has come from any partition, as far as sources have made sure. */
static void
find_silence(const SaBatch *batch, SaClock *since, SaClock *until)
{
	*since = 0;
	*until = PG_INT64_MAX;
	for (int i = 0; i < batch->npartitions; i++)
	{
		if (batch->partitions[i].gone)
			continue;
		*since = Max(*since, batch->partitions[i].quiet_since);
		*until = Min(*until, batch->partitions[i].quiet_until);
	}
}

/*
 * All partitions are idle, and the greatest of their watermarks is this one: where event time is now, if it is to go on
 * with the clock.  That is for the sake of windows that are still open; until it comes to the end of one it goes on
 * minute by minute, so that not much of it is lost with the process, and little written.
 */
static TimestampTz
go_on(const SaBatch *batch, const SaTimekeeping *time, TimestampTz watermark)
{
	SaSilence  *silence = time->silence;
	SaClock		since;
	SaClock		until;
	int64		elapsed;

	find_silence(batch, &since, &until);
	if (silence == NULL || since == 0 || TIMESTAMP_IS_NOEND(time->oldest) || TIMESTAMP_IS_NOBEGIN(watermark))
		return watermark;
	if (silence->since != since)
	{
		silence->since = since;
		silence->from = watermark;
	}
	elapsed = until - since;
	if (silence->from + elapsed < time->oldest)
		elapsed -= elapsed % USECS_PER_MINUTE;
	return Max(watermark, Min(silence->from + elapsed, END_TIMESTAMP - 1));
}

/* When event time comes to the end of the oldest window; DT_NOEND: there is no such time. */
static SaClock
next_close(const SaBatch *batch, const SaTimekeeping *time)
{
	const SaSilence *silence = time->silence;
	SaClock		since;
	SaClock		until;
	SaClock		at;
	int64		left;

	find_silence(batch, &since, &until);
	if (silence == NULL || silence->since != since || TIMESTAMP_NOT_FINITE(time->oldest))
		return DT_NOEND;
	if (pg_sub_s64_overflow(time->oldest, silence->from, &left) || pg_add_s64_overflow(since, left, &at))
		return DT_NOEND;
	return at > time->now ? at : time->now + USECS_PER_SEC;
}

/* When the source is to make sure again. */
static SaClock
next_check(const SaBatchPartition *partition, const SaTimekeeping *time)
{
	SaClock		at = (is_idle(partition, time) ? partition->quiet_until : partition->quiet_since) + time->idle_timeout;

	return at > time->now ? at : time->now + USECS_PER_SEC;
}

/*
 * Idle partitions do not hold the others back: their watermarks follow the least one of the active
 * partitions, or the greatest one of all when all are idle, which may go on with the clock.
 */
static void
pass_idle(SaViewPosition **places, const SaBatch *batch, const SaTimekeeping *time)
{
	TimestampTz least = DT_NOEND;
	TimestampTz greatest = DT_NOBEGIN;
	bool		all_idle = true;
	TimestampTz follow;

	if (time->delay == SA_NO_DELAY)
		return;
	for (int i = 0; i < batch->npartitions; i++)
	{
		greatest = Max(greatest, places[i]->watermark);
		if (is_idle(&batch->partitions[i], time))
			continue;
		all_idle = false;
		least = Min(least, places[i]->watermark);
	}
	follow = all_idle ? go_on(batch, time, greatest) : least;
	for (int i = 0; i < batch->npartitions; i++)
		if (is_idle(&batch->partitions[i], time))
			places[i]->watermark = Max(places[i]->watermark, follow);
}

/* As an administrator has asked, in every partition. */
static void
advance_watermarks(List *places, const SaTimekeeping *time)
{
	ListCell   *lc;

	if (time->delay == SA_NO_DELAY)
		return;
	foreach(lc, places)
	{
		SaViewPosition *pos = lfirst(lc);

		pos->watermark = Max(pos->watermark, time->advance_to);
	}
}

/* The places after the batch without its events; places: those of the batch's partitions. */
static List *
advance_places(List *before, const SaBatch *batch, const SaTimekeeping *time, SaViewPosition ***places)
{
	List	   *after = sa_commit_copy(before);
	TimestampTz floor = sa_commit_watermark(before);

	*places = palloc(sizeof(SaViewPosition *) * (batch->npartitions + 1));
	for (int i = 0; i < batch->npartitions; i++)
	{
		(*places)[i] = find_or_add(&after, &batch->partitions[i], floor);
		advance_partition((*places)[i], &batch->partitions[i], time);
	}
	pass_idle(*places, batch, time);
	advance_watermarks(after, time);
	return after;
}

List *
sa_commit_advance(List *before, const SaBatch *batch, const uint8 *outcomes, const int64 *late_windows,
				  const int64 *corrections, const SaTimekeeping *time)
{
	SaViewPosition **places;
	List	   *after = advance_places(before, batch, time, &places);

	for (int i = 0; i < batch->nevents; i++)
	{
		SaViewPosition *pos = places[batch->events[i].partition];

		pos->counters[counter_of(&batch->events[i], outcomes[i])]++;
		pos->counters[SA_READ]++;
	}
	for (int i = 0; i < batch->npartitions; i++)
	{
		places[i]->counters[SA_LATE_WINDOWS] += late_windows[i];
		places[i]->corrections += corrections[i];
	}
	return after;
}

List *
sa_commit_replay(List *before, const SaBatch *batch, const uint8 *outcomes)
{
	List	   *after = sa_commit_copy(before);

	for (int i = 0; i < batch->nevents; i++)
	{
		const SaBatchPartition *partition = &batch->partitions[batch->events[i].partition];
		SaViewPosition *pos = sa_commit_find(after, partition->topic, partition->partition);

		if (outcomes[i] == SA_OUTCOME_ACCEPTED)
			(pos ? pos : (SaViewPosition *) linitial(after))->replayed++;
	}
	return after;
}

/* Does anything depend on whether a partition is idle? */
static bool
matters(const SaBatch *batch, const SaTimekeeping *time)
{
	return batch->npartitions > 1 || (time->silence != NULL && !TIMESTAMP_IS_NOEND(time->oldest));
}

bool
sa_commit_moves(List *positions, const SaBatch *batch, const SaTimekeeping *time, SaClock *next_idle)
{
	SaViewPosition **places;
	List	   *after = advance_places(positions, batch, time, &places);

	for (int i = 0; i < batch->npartitions; i++)
	{
		const SaBatchPartition *partition = &batch->partitions[i];

		if (partition->next != partition->first)
			return true;
		if (time->delay != SA_NO_DELAY && is_quiet(partition, time) && !partition->gone && matters(batch, time))
			*next_idle = Min(*next_idle, next_check(partition, time));
	}
	*next_idle = Min(*next_idle, next_close(batch, time));
	return list_length(after) != list_length(positions) ||
		sa_commit_watermark(after) != sa_commit_watermark(positions);
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

static bool
same_place(const SaViewPosition *a, const SaViewPosition *b)
{
	return a->position == b->position && a->running_max == b->running_max && a->watermark == b->watermark &&
		a->end == b->end && a->replayed == b->replayed && a->corrections == b->corrections &&
		memcmp(a->counters, b->counters, sizeof(a->counters)) == 0;
}

void
sa_commit_save(int view_id, List *before, List *positions)
{
	ListCell   *lc;

	foreach(lc, positions)
	{
		SaViewPosition *pos = lfirst(lc);
		SaViewPosition *old = sa_commit_find(before, pos->topic, pos->partition);

		if (old == NULL || !same_place(old, pos))
			sa_catalog_save_position(view_id, pos);
	}
}

bool
sa_commit_finished(List *positions)
{
	bool		bounded = false;
	ListCell   *lc;

	foreach(lc, positions)
	{
		SaViewPosition *pos = lfirst(lc);

		if (pos->end == PG_INT64_MAX)
			continue;
		if (pos->position < pos->end)
			return false;
		bounded = true;
	}
	return bounded;
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
