/*
 * state_session.c
 *		Sessions: groups whose windows grow, and become one when they meet.
 *
 * All sessions of a view are groups of one window without end.  Their own starts and ends are two more keys, of which the
 * start is part of the hash, so that the many sessions that a key may have are in many buckets.  An index has the sessions
 * of each key in the order of their starts: a hash table by the other keys, each entry of which is a tree (a treap, whose
 * priorities are the groups' hashes), mostly of one.
 *
 * Invariant: sessions of one key neither overlap nor touch each other.  Those that an event makes meet become the
 * earliest of them, and the others are gone: their rows are deleted, and a log need not say so, since an entry there
 * takes the place of all older ones that it touches, and of those that have ended before the floor.  Between batches, all
 * are in memory; but for what a failed batch has touched, which the next one begins by reading back.
 */
#include "postgres.h"

#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "state_key.h"
#include "state_session.h"
#include "watermark.h"

#define FIRST_ROOTS 64
#define FIRST_ENDS 1024

typedef struct SaSessionEnd
{
	int64		end;			/* it may be later by now */
	SaGroup    *group;
} SaSessionEnd;

struct SaSessions
{
	SaGroup   **roots;			/* by hash of the keys */
	uint32		nroots;			/* a power of two */
	int64		count;
	SaSessionEnd *ends;			/* a heap: the first is the earliest; NULL: to be made anew */
	int64		nends;
	int64		maxends;
};

/* --- the index --- */

/* What comes before it: by hash, then by start; and all is told apart. */
typedef struct Bound
{
	uint32		hash;
	int64		start;
	const SaGroup *group;		/* NULL: behind all that start then */
} Bound;

static inline SaSessionNode *
node_of(SaState *state, SaGroup *group)
{
	return (SaSessionNode *) ((char *) group + state->node_at);
}

static bool
is_before(SaState *state, SaGroup *group, const Bound *bound)
{
	uint32		hash = node_of(state, group)->own_hash;

	if (hash != bound->hash)
		return hash < bound->hash;
	if (sa_session_start(state, group) != bound->start)
		return sa_session_start(state, group) < bound->start;
	return bound->group == NULL || group < bound->group;
}

static Bound
bound_of(SaState *state, SaGroup *group)
{
	return (Bound) {node_of(state, group)->own_hash, sa_session_start(state, group), group};
}

static SaGroup **
root_of(SaSessions *index, uint32 hash)
{
	return &index->roots[hash & (index->nroots - 1)];
}

static void
insert(SaState *state, SaGroup **link, SaGroup *group)
{
	Bound		bound = bound_of(state, group);
	SaGroup   **less = &node_of(state, group)->left;
	SaGroup   **greater = &node_of(state, group)->right;
	SaGroup    *rest;

	while (*link && (*link)->hash >= group->hash)
		link = is_before(state, *link, &bound) ? &node_of(state, *link)->right : &node_of(state, *link)->left;
	rest = *link;
	*link = group;
	while (rest)
	{
		SaGroup  ***side = is_before(state, rest, &bound) ? &less : &greater;

		**side = rest;
		*side = side == &less ? &node_of(state, rest)->right : &node_of(state, rest)->left;
		rest = **side;
	}
	*less = *greater = NULL;
}

/* Put two trees, all of the first before all of the second, into the place of one. */
static void
join(SaState *state, SaGroup **link, SaGroup *less, SaGroup *greater)
{
	while (less && greater)
	{
		if (less->hash >= greater->hash)
		{
			*link = less;
			link = &node_of(state, less)->right;
			less = *link;
		}
		else
		{
			*link = greater;
			link = &node_of(state, greater)->left;
			greater = *link;
		}
	}
	*link = less ? less : greater;
}

static void
create_roots(SaState *state, SaSessions *index, uint32 n)
{
	index->nroots = n;
	index->roots = MemoryContextAllocExtended(state->windows_cxt, sizeof(SaGroup *) * n, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
}

static void
grow_roots(SaState *state, SaSessions *index)
{
	SaGroup   **old = index->roots;
	uint32		n = index->nroots;

	create_roots(state, index, n * 2);
	for (uint32 i = 0; i < n; i++)
		while (old[i])
		{
			SaGroup    *group = old[i];

			join(state, &old[i], node_of(state, group)->left, node_of(state, group)->right);
			insert(state, root_of(index, node_of(state, group)->own_hash), group);
		}
	pfree(old);
}

static void
create_index(SaState *state)
{
	SaSessions *index = MemoryContextAllocZero(state->windows_cxt, sizeof(SaSessions));

	create_roots(state, index, FIRST_ROOTS);
	state->index = index;
}

void
sa_session_add(SaState *state, SaGroup *group)
{
	if (state->index == NULL)
		create_index(state);
	if (state->index->count >= state->index->nroots)
		grow_roots(state, state->index);
	state->index->count++;
	node_of(state, group)->own_hash = sa_state_hash_own_keys(state, sa_group_keys(state, group), sa_group_nulls(state, group));
	insert(state, root_of(state->index, node_of(state, group)->own_hash), group);
}

void
sa_session_remove(SaState *state, SaGroup *group)
{
	Bound		bound = bound_of(state, group);
	SaGroup   **link = root_of(state->index, bound.hash);

	while (*link && *link != group)
		link = is_before(state, *link, &bound) ? &node_of(state, *link)->right : &node_of(state, *link)->left;
	if (*link == NULL)
		return;					/* it has failed to come in */
	join(state, link, node_of(state, group)->left, node_of(state, group)->right);
	state->index->count--;
}

SaSessions *
sa_session_forget(SaSessions *index)
{
	if (index && index->ends)
		pfree(index->ends);
	if (index)
	{
		pfree(index->roots);
		pfree(index);
	}
	return NULL;
}

/* The last one before the bound of those with the bound's hash. */
static SaGroup *
last_before(SaState *state, const Bound *bound)
{
	SaGroup    *found = NULL;
	SaGroup    *tree = state->index ? *root_of(state->index, bound->hash) : NULL;

	while (tree)
	{
		if (is_before(state, tree, bound))
		{
			found = tree;
			tree = node_of(state, tree)->right;
		}
		else
			tree = node_of(state, tree)->left;
	}
	return found && node_of(state, found)->own_hash == bound->hash ? found : NULL;
}

/* The last session of these keys before the bound, if it touches what begins at start; the bound comes to be there. */
static SaGroup *
last_touching(SaState *state, Bound *bound, int64 start, const Datum *keys, const bool *nulls)
{
	SaGroup    *group;

	while ((group = last_before(state, bound)) != NULL)
	{
		*bound = bound_of(state, group);
		if (sa_state_equal_own_keys(state, group, keys, nulls))
			return sa_session_end(state, group) < start ? NULL : group;
	}
	return NULL;
}

static SaGroup *
first_touching(SaState *state, Bound *bound, const Datum *keys, const bool *nulls)
{
	*bound = (Bound) {sa_state_hash_own_keys(state, keys, nulls), DatumGetInt64(keys[state->nown + 1]), NULL};
	return last_touching(state, bound, DatumGetInt64(keys[state->nown]), keys, nulls);
}

/* The next one before this group, if it touches the keys' start too. */
static SaGroup *
next_touching(SaState *state, SaGroup *group, Bound *bound, const Datum *keys, const bool *nulls)
{
	int64		start = DatumGetInt64(keys[state->nown]);

	if (start >= sa_session_start(state, group))
		return NULL;			/* for then it would touch the group */
	return last_touching(state, bound, start, keys, nulls);
}

/* --- by end --- */

#define ENDS_BEFORE(a, b) ((a)->end < (b)->end)

static void
sift_up(SaSessions *index, int64 i)
{
	SaSessionEnd *ends = index->ends;
	SaSessionEnd moved = ends[i];

	for (; i > 0 && ENDS_BEFORE(&moved, &ends[(i - 1) / 2]); i = (i - 1) / 2)
		ends[i] = ends[(i - 1) / 2];
	ends[i] = moved;
}

static void
sift_down(SaSessions *index, int64 i)
{
	SaSessionEnd *ends = index->ends;
	SaSessionEnd moved = ends[i];

	for (;;)
	{
		int64		child = 2 * i + 1;

		if (child + 1 < index->nends && ENDS_BEFORE(&ends[child + 1], &ends[child]))
			child++;
		if (child >= index->nends || !ENDS_BEFORE(&ends[child], &moved))
			break;
		ends[i] = ends[child];
		i = child;
	}
	ends[i] = moved;
}

static void
add_end(SaState *state, SaGroup *group)
{
	SaSessions *index = state->index;

	if (index->nends == index->maxends)
		index->ends = repalloc_huge(index->ends, sizeof(SaSessionEnd) * (index->maxends *= 2));
	index->ends[index->nends++] = (SaSessionEnd) {.end = sa_session_end(state, group), .group = group};
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
	SaSessions *index = state->index;

	index->nends = 0;
	index->maxends = FIRST_ENDS;
	index->ends = MemoryContextAlloc(state->windows_cxt, sizeof(SaSessionEnd) * index->maxends);
	sa_state_each_window(state, add_window_ends, NULL);
	for (int64 i = index->nends / 2 - 1; i >= 0; i--)
		sift_down(index, i);
}

void
sa_session_forget_ends(SaState *state)
{
	if (state->index == NULL || state->index->ends == NULL)
		return;
	pfree(state->index->ends);
	state->index->ends = NULL;
}

static void
remove_first_end(SaSessions *index)
{
	index->ends[0] = index->ends[--index->nends];
	if (index->nends > 0)
		sift_down(index, 0);
}

/* The session that ends first, NULL: there is none; what is no longer as it was on the way there is put right. */
static SaGroup *
first_to_end(SaState *state)
{
	SaSessions *index = state->index;

	if (index == NULL)
		return NULL;
	if (index->ends == NULL)
		make_ends(state);
	while (index->nends > 0)
	{
		SaSessionEnd *first = &index->ends[0];

		if (first->group->gone)
			remove_first_end(index);
		else if (first->end == sa_session_end(state, first->group))
			return first->group;
		else
		{
			first->end = sa_session_end(state, first->group);
			sift_down(index, 0);
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

/* Its hash is that of the new start. */
static void
set_bounds(SaState *state, SaWindow *window, SaGroup *group, uint32 hash, int64 start, int64 end)
{
	Datum	   *keys = sa_group_keys(state, group);

	keys[state->nown + 1] = Int64GetDatum(end);
	if (start == DatumGetInt64(keys[state->nown]))
		return;
	sa_state_remove(state, window, group);
	window->leaked--;
	keys[state->nown] = Int64GetDatum(start);
	group->hash = hash;
	sa_state_add(state, window, group);
}

static void
touch(SaState *state, SaWindow *window, SaGroup *group, bool fresh)
{
	if (!group->touched)
		sa_state_touch(state, window, group, fresh, true);
}

static void
leave(SaState *state, SaWindow *window, SaGroup *group)
{
	sa_state_remove(state, window, group);
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
	set_bounds(state, window, earlier, earlier->hash, sa_session_start(state, earlier), sa_session_end(state, later));
	leave(state, window, later);
}

SaGroup *
sa_session_join(SaState *state, SaWindow *window, uint32 hash, Datum *keys, bool *nulls)
{
	int64		start = DatumGetInt64(keys[state->nown]);
	int64		end = DatumGetInt64(keys[state->nown + 1]);
	Bound		bound;
	SaGroup    *group = first_touching(state, &bound, keys, nulls);
	SaGroup    *earlier;

	if (group == NULL)
	{
		group = sa_state_create_group(state, window, hash, keys, nulls);
		touch(state, window, group, true);
		if (state->index->ends == NULL)
			return group;
		add_end(state, group);
		sift_up(state->index, state->index->nends - 1);
		return group;
	}
	while ((earlier = next_touching(state, group, &bound, keys, nulls)) != NULL)
	{
		merge(state, window, earlier, group);
		group = earlier;
	}
	touch(state, window, group, false);
	set_bounds(state, window, group, start < sa_session_start(state, group) ? hash : group->hash,
			   Min(start, sa_session_start(state, group)), Max(end, sa_session_end(state, group)));
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
		remove_first_end(state->index);
		if (n == max)
			closed = repalloc_huge(closed, sizeof(SaTouched) * (max *= 2));
		closed[n++] = (SaTouched) {.group = group, .window = window};
	}
	if (n > 0 && fn)
		fn(closed, n, arg);
	for (int64 i = 0; i < n; i++)
	{
		touch(state, window, closed[i].group, false);
		leave(state, window, closed[i].group);
	}
	pfree(closed);
}

/* --- recovery --- */

SaGroup *
sa_session_recover(SaState *state, SaWindow *window, uint32 hash, Datum *keys, bool *nulls)
{
	Bound		bound;
	SaGroup    *group = first_touching(state, &bound, keys, nulls);
	SaGroup    *earlier;

	if (group == NULL)
		return sa_state_create_group(state, window, hash, keys, nulls);
	while ((earlier = next_touching(state, group, &bound, keys, nulls)) != NULL)
	{
		leave(state, window, group);
		group = earlier;
	}
	set_bounds(state, window, group, hash, DatumGetInt64(keys[state->nown]), DatumGetInt64(keys[state->nown + 1]));
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
				leave(state, window, group);
		}
	}
}
