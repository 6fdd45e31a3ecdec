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
 *
 * A session closes when the watermark is behind its end.  Where it then stays for the allowed lateness, late events may
 * make it grow, and open again; in append mode those that are closed, and no others, have their rows after every batch.
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

/* Sessions by their ends: a heap, the first is the earliest. */
typedef struct SaEnds
{
	SaSessionEnd *list;			/* NULL: to be made anew */
	int64		n;
	int64		max;
} SaEnds;

struct SaSessions
{
	SaGroup   **roots;			/* by hash of the keys */
	uint32		nroots;			/* a power of two */
	int64		count;
	SaEnds		all;
	SaEnds		awaited;		/* that are not closed; not asked for: none */
	SaGroup   **emitted;		/* by this batch, which has not changed them; in undo_cxt */
	int64		nemitted;
	int64		maxemitted;
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

static void
forget_ends(SaEnds *ends)
{
	if (ends->list)
		pfree(ends->list);
	ends->list = NULL;
}

SaSessions *
sa_session_forget(SaSessions *index)
{
	if (index)
	{
		forget_ends(&index->all);
		forget_ends(&index->awaited);
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
sift_up(SaEnds *ends, int64 i)
{
	SaSessionEnd *list = ends->list;
	SaSessionEnd moved = list[i];

	for (; i > 0 && ENDS_BEFORE(&moved, &list[(i - 1) / 2]); i = (i - 1) / 2)
		list[i] = list[(i - 1) / 2];
	list[i] = moved;
}

static void
sift_down(SaEnds *ends, int64 i)
{
	SaSessionEnd *list = ends->list;
	SaSessionEnd moved = list[i];

	for (;;)
	{
		int64		child = 2 * i + 1;

		if (child + 1 < ends->n && ENDS_BEFORE(&list[child + 1], &list[child]))
			child++;
		if (child >= ends->n || !ENDS_BEFORE(&list[child], &moved))
			break;
		list[i] = list[child];
		i = child;
	}
	list[i] = moved;
}

static void
append_end(SaState *state, SaEnds *ends, SaGroup *group)
{
	if (ends->n == ends->max)
		ends->list = repalloc_huge(ends->list, sizeof(SaSessionEnd) * (ends->max *= 2));
	ends->list[ends->n++] = (SaSessionEnd) {.end = sa_session_end(state, group), .group = group};
}

static void
add_end(SaState *state, SaEnds *ends, SaGroup *group)
{
	if (ends->list == NULL)
		return;
	append_end(state, ends, group);
	sift_up(ends, ends->n - 1);
}

static void
append_window(SaState *state, SaWindow *window, void *ends)
{
	for (uint32 i = 0; i < window->nbuckets; i++)
		for (SaGroup *group = window->buckets[i]; group; group = group->next)
			append_end(state, ends, group);
}

/* Those that are not closed, as of the floor, or have been touched since. */
static void
append_awaited(SaState *state, SaWindow *window, void *floor)
{
	for (uint32 i = 0; i < window->nbuckets; i++)
		for (SaGroup *group = window->buckets[i]; group; group = group->next)
		{
			SaSessionNode *node = node_of(state, group);

			node->awaited = group->touched ||
				!sa_watermark_closes_session(sa_session_end(state, group), *(TimestampTz *) floor);
			if (node->awaited)
				append_end(state, &state->index->awaited, group);
		}
}

static void
make_ends(SaState *state, SaEnds *ends, void (*append) (SaState *state, SaWindow *window, void *arg), void *arg)
{
	ends->n = 0;
	ends->max = FIRST_ENDS;
	ends->list = MemoryContextAlloc(state->windows_cxt, sizeof(SaSessionEnd) * ends->max);
	sa_state_each_window(state, append, arg);
	for (int64 i = ends->n / 2 - 1; i >= 0; i--)
		sift_down(ends, i);
}

void
sa_session_forget_ends(SaState *state)
{
	if (state->index == NULL)
		return;
	forget_ends(&state->index->all);
	forget_ends(&state->index->awaited);
}

static void
remove_first_end(SaEnds *ends)
{
	ends->list[0] = ends->list[--ends->n];
	if (ends->n > 0)
		sift_down(ends, 0);
}

/* The session that ends first, NULL: there is none; what is no longer as it was on the way there is put right. */
static SaGroup *
first_of(SaState *state, SaEnds *ends)
{
	while (ends->n > 0)
	{
		SaSessionEnd *first = &ends->list[0];

		if (first->group->gone)
			remove_first_end(ends);
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

static SaGroup *
first_to_end(SaState *state)
{
	if (state->index == NULL)
		return NULL;
	if (state->index->all.list == NULL)
		make_ends(state, &state->index->all, append_window, &state->index->all);
	return first_of(state, &state->index->all);
}

/* Of those that are not closed, as of the floor. */
static SaGroup *
first_to_close(SaState *state, TimestampTz floor)
{
	if (state->index == NULL)
		return NULL;
	if (state->index->awaited.list == NULL)
		make_ends(state, &state->index->awaited, append_awaited, &floor);
	return first_of(state, &state->index->awaited);
}

/* It is to be looked at when the watermark is behind its end, though it may have been closed before. */
static void
await_close(SaState *state, SaGroup *group)
{
	SaSessionNode *node = node_of(state, group);

	if (state->index->awaited.list == NULL || node->awaited)
		return;
	node->awaited = true;
	add_end(state, &state->index->awaited, group);
}

TimestampTz
sa_session_first_end(SaState *state)
{
	SaGroup    *group = first_to_end(state);

	return group ? sa_session_end(state, group) : DT_NOBEGIN;
}

TimestampTz
sa_session_next_close(SaState *state, TimestampTz floor)
{
	SaGroup    *group = first_to_close(state, floor);

	return group ? sa_session_end(state, group) : DT_NOEND;
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
	if (group->touched)
		return;
	sa_state_touch(state, window, group, fresh, true);
	await_close(state, group);
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
		node_of(state, group)->awaited = false;
		touch(state, window, group, true);
		add_end(state, &state->index->all, group);
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

/* Sessions that are passed on together. */
typedef struct Sessions
{
	SaWindow   *window;
	SaTouched  *list;
	int64		n;
	int64		max;
} Sessions;

static Sessions
no_sessions(SaState *state)
{
	return (Sessions) {.window = sa_state_window(state, SA_NO_WINDOW_START, SA_NO_WINDOW_END),
		.list = palloc(sizeof(SaTouched) * FIRST_ENDS), .max = FIRST_ENDS};
}

static void
gather(Sessions *sessions, SaGroup *group)
{
	if (sessions->n == sessions->max)
		sessions->list = repalloc_huge(sessions->list, sizeof(SaTouched) * (sessions->max *= 2));
	sessions->list[sessions->n++] = (SaTouched) {.group = group, .window = sessions->window};
}

void
sa_state_close_sessions(SaState *state, TimestampTz watermark, SaGroupsCallback fn, void *arg)
{
	Sessions	closed = no_sessions(state);
	SaGroup    *group;

	while ((group = first_to_end(state)) != NULL && sa_watermark_closes_session(sa_session_end(state, group), watermark))
	{
		remove_first_end(&state->index->all);
		gather(&closed, group);
	}
	if (closed.n > 0 && fn)
		fn(closed.list, closed.n, arg);
	for (int64 i = 0; i < closed.n; i++)
	{
		touch(state, closed.window, closed.list[i].group, false);
		leave(state, closed.window, closed.list[i].group);
	}
	pfree(closed.list);
}

static void
note_emitted(SaState *state, SaGroup *group)
{
	SaSessions *index = state->index;

	if (index->nemitted == index->maxemitted)
	{
		int64		n = Max(1024, index->maxemitted * 2);

		if (index->emitted)
			index->emitted = repalloc_huge(index->emitted, sizeof(SaGroup *) * n);
		else
			index->emitted = MemoryContextAllocHuge(state->undo_cxt, sizeof(SaGroup *) * n);
		index->maxemitted = n;
	}
	index->emitted[index->nemitted++] = group;
}

void
sa_state_emit_closed(SaState *state, TimestampTz floor, TimestampTz watermark, SaGroupsCallback fn, void *arg)
{
	Sessions	closed = no_sessions(state);
	SaGroup    *group;

	while ((group = first_to_close(state, floor)) != NULL &&
		   sa_watermark_closes_session(sa_session_end(state, group), watermark))
	{
		remove_first_end(&state->index->awaited);
		node_of(state, group)->awaited = false;
		if (!group->touched)
			note_emitted(state, group);
		gather(&closed, group);
	}
	if (closed.n > 0)
		fn(closed.list, closed.n, arg);
	pfree(closed.list);
}

SaTouched *
sa_state_reopened(SaState *state, TimestampTz watermark, int *count)
{
	SaTouched  *reopened = MemoryContextAllocHuge(CurrentMemoryContext, sizeof(SaTouched) * ((Size) state->ntouched + 1));

	*count = 0;
	for (int i = 0; i < state->ntouched; i++)
	{
		SaGroup    *group = state->touched[i].group;

		if (ItemPointerIsValid(&group->result_tid) &&
			(group->gone || !sa_watermark_closes_session(sa_session_end(state, group), watermark)))
			reopened[(*count)++] = state->touched[i];
	}
	return reopened;
}

/* --- the end of a batch --- */

void
sa_session_commit(SaState *state)
{
	SaSessions *index = state->index;

	if (index == NULL)
		return;
	index->emitted = NULL;
	index->nemitted = index->maxemitted = 0;
}

void
sa_session_abort(SaState *state)
{
	SaSessions *index = state->index;

	for (int64 i = 0; index && i < index->nemitted; i++)
		ItemPointerSetInvalid(&index->emitted[i]->result_tid);
	sa_session_commit(state);
	sa_session_forget_ends(state);
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
