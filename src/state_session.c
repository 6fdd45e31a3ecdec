/*
 * state_session.c
 *		Sessions: groups whose windows grow, and become one when they meet.
 *
 * All sessions of a view are groups of one window without end.  Their own starts and ends are two more keys, which say
 * who they are but are no part of the hash; so the sessions of one key are in one bucket, where the latest comes first.
 *
 * Invariant: sessions of one key neither overlap nor touch each other.  Those that an event makes meet become the
 * earliest of them, and the others are gone: their rows are deleted, and a log needs not say so, since an entry there
 * takes the place of all older ones that it touches, and of those that have ended before the floor.  Between batches, all
 * are in memory.
 */
#include "postgres.h"

#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "state_key.h"
#include "state_session.h"
#include "watermark.h"

typedef struct SaSessionEnd
{
	int64		end;			/* it may be later by now */
	SaGroup    *group;
} SaSessionEnd;

/* A heap: the first is the earliest. */
struct SaSessionEnds
{
	SaSessionEnd *list;
	int64		n;
	int64		max;
};

static void
set_bounds(SaState *state, SaGroup *group, int64 start, int64 end)
{
	sa_group_keys(state, group)[state->nhashed] = Int64GetDatum(start);
	sa_group_keys(state, group)[state->nhashed + 1] = Int64GetDatum(end);
}

/* --- by key --- */

void
sa_session_link(SaState *state, SaGroup **bucket, SaGroup *group)
{
	SaGroup   **link = bucket;
	const Datum *keys = sa_group_keys(state, group);
	const bool *nulls = sa_group_nulls(state, group);

	while (*link && !((*link)->hash == group->hash && sa_session_start(state, *link) < sa_session_start(state, group) &&
					  sa_state_equal_hashed(state, *link, keys, nulls)))
		link = &(*link)->next;
	group->next = *link;
	*link = group;
}

/* From this group of a bucket on, the first session of the keys that touches what their last two begin and end. */
static SaGroup *
next_touching(SaState *state, SaGroup *group, uint32 hash, const Datum *keys, const bool *nulls)
{
	int64		start = DatumGetInt64(keys[state->nhashed]);
	int64		end = DatumGetInt64(keys[state->nhashed + 1]);

	for (; group; group = group->next)
	{
		if (group->hash != hash || sa_session_start(state, group) > end || !sa_state_equal_hashed(state, group, keys, nulls))
			continue;
		return sa_session_end(state, group) < start ? NULL : group;
	}
	return NULL;
}

static SaGroup *
first_touching(SaState *state, SaWindow *window, uint32 hash, const Datum *keys, const bool *nulls)
{
	return next_touching(state, window->buckets[hash & (window->nbuckets - 1)], hash, keys, nulls);
}

/* --- by end --- */

#define ENDS_BEFORE(a, b) ((a)->end < (b)->end)

static void
sift_up(SaSessionEnds *ends, int64 i)
{
	SaSessionEnd moved = ends->list[i];

	for (; i > 0 && ENDS_BEFORE(&moved, &ends->list[(i - 1) / 2]); i = (i - 1) / 2)
		ends->list[i] = ends->list[(i - 1) / 2];
	ends->list[i] = moved;
}

static void
sift_down(SaSessionEnds *ends, int64 i)
{
	SaSessionEnd moved = ends->list[i];

	for (;;)
	{
		int64		child = 2 * i + 1;

		if (child + 1 < ends->n && ENDS_BEFORE(&ends->list[child + 1], &ends->list[child]))
			child++;
		if (child >= ends->n || !ENDS_BEFORE(&ends->list[child], &moved))
			break;
		ends->list[i] = ends->list[child];
		i = child;
	}
	ends->list[i] = moved;
}

static void
add_end(SaState *state, SaGroup *group)
{
	SaSessionEnds *ends = state->ends;

	if (ends->n == ends->max)
		ends->list = repalloc_huge(ends->list, sizeof(SaSessionEnd) * (ends->max *= 2));
	ends->list[ends->n++] = (SaSessionEnd) {.end = sa_session_end(state, group), .group = group};
}

static void
add_window_ends(SaState *state, SaWindow *window, void *arg)
{
	for (uint32 i = 0; i < window->nbuckets; i++)
		for (SaGroup *group = window->buckets[i]; group; group = group->next)
			add_end(state, group);
}

static void
make_ends(SaState *state)
{
	SaSessionEnds *ends = MemoryContextAllocZero(state->windows_cxt, sizeof(SaSessionEnds));

	ends->max = 1024;
	ends->list = MemoryContextAlloc(state->windows_cxt, sizeof(SaSessionEnd) * ends->max);
	state->ends = ends;
	sa_state_each_window(state, add_window_ends, NULL);
	for (int64 i = ends->n / 2 - 1; i >= 0; i--)
		sift_down(ends, i);
}

void
sa_session_forget_ends(SaState *state)
{
	if (state->ends == NULL)
		return;
	pfree(state->ends->list);
	pfree(state->ends);
	state->ends = NULL;
}

static void
remove_first(SaSessionEnds *ends)
{
	ends->list[0] = ends->list[--ends->n];
	if (ends->n > 0)
		sift_down(ends, 0);
}

/* The session that ends first, NULL: there is none; what is no longer as it was on the way there is put right. */
static SaGroup *
first_to_end(SaState *state)
{
	SaSessionEnds *ends;

	if (state->ends == NULL)
		make_ends(state);
	ends = state->ends;
	while (ends->n > 0)
	{
		SaSessionEnd *first = &ends->list[0];

		if (first->group->gone)
			remove_first(ends);
		else if (first->end == sa_session_end(state, first->group))
			return first->group;
		else
		{
			first->end = sa_session_end(state, first->group);
			sift_down(ends, 0);
		}
	}
	return NULL;
}

TimestampTz
sa_session_first_end(SaState *state)
{
	SaGroup    *group = first_to_end(state);

	return group ? sa_session_end(state, group) : DT_NOBEGIN;
}

/* --- meeting --- */

static void
touch(SaState *state, SaWindow *window, SaGroup *group, bool fresh)
{
	if (!group->touched)
		sa_state_touch(state, window, group, fresh, true);
}

static void
leave(SaWindow *window, SaGroup *group)
{
	sa_state_remove(window, group);
	group->gone = true;
}

/* Two sessions become the earlier one. */
static void
merge(SaState *state, SaWindow *window, SaGroup *earlier, SaGroup *later)
{
	touch(state, window, earlier, false);
	touch(state, window, later, false);
	sa_agg_run_in(state->run, window->hot);
	for (int i = 0; i < state->naggs; i++)
		sa_agg_combine(state->aggs[i], state->run, &sa_group_states(earlier)[i], &sa_group_states(later)[i]);
	set_bounds(state, earlier, sa_session_start(state, earlier), sa_session_end(state, later));
	leave(window, later);
}

SaGroup *
sa_session_join(SaState *state, SaWindow *window, uint32 hash, Datum *keys, bool *nulls)
{
	SaGroup    *group = first_touching(state, window, hash, keys, nulls);
	SaGroup    *earlier;

	if (group == NULL)
	{
		group = sa_state_create_group(state, window, hash, keys, nulls);
		touch(state, window, group, true);
		if (state->ends == NULL)
			return group;
		add_end(state, group);
		sift_up(state->ends, state->ends->n - 1);
		return group;
	}
	while ((earlier = next_touching(state, group->next, hash, keys, nulls)) != NULL)
	{
		merge(state, window, earlier, group);
		group = earlier;
	}
	touch(state, window, group, false);
	set_bounds(state, group, Min(sa_session_start(state, group), DatumGetInt64(keys[state->nhashed])),
			   Max(sa_session_end(state, group), DatumGetInt64(keys[state->nhashed + 1])));
	return group;
}

/* --- closing --- */

void
sa_state_close_sessions(SaState *state, TimestampTz watermark, SaGroupsCallback fn, void *arg)
{
	int64		n = 0;
	int64		max = 1024;
	SaTouched  *closed = palloc(sizeof(SaTouched) * max);
	SaGroup    *group;
	SaWindow   *window = sa_state_window(state, SA_NO_WINDOW_START, SA_NO_WINDOW_END);

	while ((group = first_to_end(state)) != NULL && sa_watermark_closes_session(sa_session_end(state, group), watermark))
	{
		remove_first(state->ends);
		if (n == max)
			closed = repalloc_huge(closed, sizeof(SaTouched) * (max *= 2));
		closed[n++] = (SaTouched) {.group = group, .window = window};
	}
	if (n > 0 && fn)
		fn(closed, n, arg);
	for (int64 i = 0; i < n; i++)
	{
		touch(state, window, closed[i].group, false);
		leave(window, closed[i].group);
	}
	pfree(closed);
}

/* --- recovery --- */

SaGroup *
sa_session_recover(SaState *state, SaWindow *window, uint32 hash, Datum *keys, bool *nulls)
{
	SaGroup    *group = first_touching(state, window, hash, keys, nulls);
	SaGroup    *earlier;

	if (group == NULL)
		return sa_state_create_group(state, window, hash, keys, nulls);
	while ((earlier = next_touching(state, group->next, hash, keys, nulls)) != NULL)
	{
		leave(window, group);
		group = earlier;
	}
	set_bounds(state, group, DatumGetInt64(keys[state->nhashed]), DatumGetInt64(keys[state->nhashed + 1]));
	return group;
}

void
sa_session_drop_closed(SaState *state, SaWindow *window, void *floor)
{
	for (uint32 i = 0; i < window->nbuckets; i++)
	{
		SaGroup    *next;

		for (SaGroup *group = window->buckets[i]; group; group = next)
		{
			next = group->next;
			if (sa_watermark_closes_session(sa_session_end(state, group), *(TimestampTz *) floor))
				leave(window, group);
		}
	}
}
