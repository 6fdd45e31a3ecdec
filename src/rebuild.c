/*
 * rebuild.c
 *		From where, and how, the groups of a view with unlogged state are read again.
 *
 * Invariant: every record that a window not yet forgotten holds, and that the state log does not, lies at or
 * behind the first step of its partition.  Reading on from there, with the running maximum as it was there and
 * with the floor as it was at every record, accepts the same (event, window) pairs as the first time: without
 * steps the floor never exceeds the watermark that a partition's own records make (DESIGN.md 6).
 *
 * Sessions that are forgotten may hold records on both sides of it, of which only those behind it are read again.  They make
 * pieces of these sessions, which end no later, so they are told by their ends as these were: no later record touches
 * a session once it is forgotten, so none has ever touched two of which one is forgotten and the other is not.  Nothing is
 * dropped before it ends behind the bound by which all records still to be read are judged: it may grow.
 *
 * Pure arithmetic on lists; steps commit with the positions.
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "commit.h"
#include "rebuild.h"
#include "watermark.h"

static bool
same_partition(const SaStep *a, const SaStep *b)
{
	return a->partition == b->partition && strcmp(a->topic, b->topic) == 0;
}

static SaStep *
make_step(const SaViewPosition *pos, TimestampTz floor)
{
	SaStep	   *step = palloc(sizeof(SaStep));

	step->topic = pstrdup(pos->topic);
	step->partition = pos->partition;
	step->position = pos->position;
	step->floor = floor;
	step->running_max = pos->running_max;
	return step;
}

List *
sa_rebuild_places(List *positions, TimestampTz floor)
{
	List	   *places = NIL;
	ListCell   *lc;

	foreach(lc, positions)
		places = lappend(places, make_step(lfirst(lc), floor));
	return places;
}

List *
sa_rebuild_copy(List *steps)
{
	List	   *copy = NIL;
	ListCell   *lc;

	foreach(lc, steps)
	{
		SaStep	   *step = palloc(sizeof(SaStep));

		*step = *(SaStep *) lfirst(lc);
		step->topic = pstrdup(step->topic);
		copy = lappend(copy, step);
	}
	return copy;
}

bool
sa_rebuild_same(List *a, List *b)
{
	ListCell   *la;
	ListCell   *lb;

	if (list_length(a) != list_length(b))
		return false;
	forboth(la, a, lb, b)
	{
		const SaStep *x = lfirst(la);
		const SaStep *y = lfirst(lb);

		if (!same_partition(x, y) || x->position != y->position || x->floor != y->floor ||
			x->running_max != y->running_max)
			return false;
	}
	return true;
}

TimestampTz
sa_rebuild_floor(List *steps, const char *topic, int32 partition, int64 position)
{
	TimestampTz floor = DT_NOBEGIN;
	ListCell   *lc;

	foreach(lc, steps)
	{
		const SaStep *step = lfirst(lc);

		if (step->partition == partition && step->position <= position && strcmp(step->topic, topic) == 0)
			floor = Max(floor, step->floor);
	}
	return floor;
}

static SaStep *
first_step(List *steps, const char *topic, int32 partition)
{
	ListCell   *lc;

	foreach(lc, steps)
	{
		SaStep	   *step = lfirst(lc);

		if (step->partition == partition && strcmp(step->topic, topic) == 0)
			return step;
	}
	return NULL;
}

int64
sa_rebuild_first(List *steps, const char *topic, int32 partition, int64 position)
{
	const SaStep *step = first_step(steps, topic, partition);

	return step ? Min(step->position, position) : position;
}

List *
sa_rebuild_begin_at(List *steps, List *places)
{
	List	   *result = NIL;
	ListCell   *lc;

	foreach(lc, places)
	{
		SaStep	   *first = palloc(sizeof(SaStep));

		*first = *(SaStep *) lfirst(lc);
		first->floor = Max(first->floor, sa_rebuild_floor(steps, first->topic, first->partition, first->position));
		result = lappend(result, first);
	}
	foreach(lc, steps)
	{
		SaStep	   *step = lfirst(lc);
		const SaStep *first = first_step(places, step->topic, step->partition);

		if (first == NULL || step->position > first->position)
			result = lappend(result, step);
	}
	list_sort(result, sa_catalog_compare_steps);
	return result;
}

/* One more step, in the place of one at the same position. */
static List *
add_step(List *steps, SaStep *step)
{
	List	   *result = list_make1(step);
	ListCell   *lc;

	foreach(lc, steps)
	{
		const SaStep *old = lfirst(lc);

		if (!same_partition(old, step) || old->position != step->position)
			result = lappend(result, lfirst(lc));
		else
			step->running_max = old->running_max;
	}
	list_sort(result, sa_catalog_compare_steps);
	return result;
}

List *
sa_rebuild_advance(List *steps, List *before, List *after, int64 delay)
{
	TimestampTz floor_before = sa_commit_watermark(before);
	TimestampTz floor = sa_commit_watermark(after);
	ListCell   *lc;

	foreach(lc, after)
	{
		const SaViewPosition *pos = lfirst(lc);

		if (first_step(steps, pos->topic, pos->partition) == NULL)
		{
			SaStep	   *first = make_step(pos, floor_before);

			first->position = pos->start;
			first->running_max = DT_NOBEGIN;
			steps = add_step(steps, first);
		}
		if (floor > sa_watermark_of(pos->running_max, delay) &&
			floor > sa_rebuild_floor(steps, pos->topic, pos->partition, pos->position))
			steps = add_step(steps, make_step(pos, floor));
	}
	return steps;
}

TimestampTz
sa_rebuild_bound(List *steps, List *places, int64 delay)
{
	TimestampTz bound = DT_NOEND;
	ListCell   *lc;

	foreach(lc, places)
	{
		const SaViewPosition *place = lfirst(lc);

		if (place->position < place->end)
			bound = Min(bound, sa_watermark_bound(place->running_max, delay,
												  sa_rebuild_floor(steps, place->topic, place->partition, place->position)));
	}
	return bound;
}

List *
sa_rebuild_begin(List *steps, List *positions)
{
	List	   *places = sa_commit_copy(positions);
	ListCell   *lc;

	foreach(lc, places)
	{
		SaViewPosition *pos = lfirst(lc);
		const SaStep *step = first_step(steps, pos->topic, pos->partition);

		pos->end = pos->position;
		if (step == NULL)
			continue;
		pos->position = Min(step->position, pos->position);
		pos->running_max = step->running_max;
	}
	return places;
}

int64
sa_rebuild_distance(List *places)
{
	int64		distance = 0;
	ListCell   *lc;

	foreach(lc, places)
		distance += ((SaViewPosition *) lfirst(lc))->end - ((SaViewPosition *) lfirst(lc))->position;
	return distance;
}
