/*
 * state_session.c
 *		Sessions: groups whose windows grow, and become one when they meet.
 *
 * All sessions of a view are groups of one window without end.  Their own starts and ends are two more keys, of which the
 * start is part of the group's hash, so that the many sessions that a key may have are in many buckets.  An index has a
 * node for each of them, by its key and start: a hash table by the hash of the keys, each entry of which is a tree (a
 * treap, whose priorities are the groups' hashes), mostly of one.  And a heap has the nodes by their ends.
 *
 * Invariant: sessions of one key neither overlap nor touch each other.  Those that an event makes meet become the
 * earliest of them, and the others are gone: their rows are deleted, and a log need not say so, since an entry there
 * takes the place of all older ones that it touches, and of those that have been forgotten.
 *
 * A session that is out of memory is its node alone, which has the places to read it from.  Whether its keys are those of
 * an event that it touches, only what is there can tell: it is read back to be compared.
 *
 * A session closes when the watermark is behind its end.  Where it then stays for the allowed lateness, late events may
 * make it grow, and open again; in append mode those that are closed, and no others, have their rows after every batch.
 *
 * Nodes of forgotten sessions are used again.  Those of sessions that are part of others stay where they are, for the heap may
 * have them; where many have gone, the others move together.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "state_key.h"
#include "state_session.h"
#include "watermark.h"

#define FIRST_ROOTS 64
#define FIRST_ENDS 64
#define FIRST_NODES 4096		/* bytes */
#define MIN_GONE 1000			/* nodes that are worth moving the others */
#define MAX_BIRTHS 64
#define FEW 16					/* sessions that are passed by rather than read back */

typedef struct SaSessionEnd
{
	int64		end;			/* it may be later by now */
	SaSessionNode *node;
} SaSessionEnd;

/* Sessions by their ends: a heap, the first is the earliest. */
typedef struct SaEnds
{
	SaSessionEnd *list;			/* NULL: to be made anew */
	int64		n;
	int64		max;
} SaEnds;

/* A list of sessions, in undo_cxt. */
typedef struct SaNodes
{
	SaSessionNode **list;
	int64		n;
	int64		max;
} SaNodes;

/* How many sessions were born in this batch, or later but before the next of these. */
typedef struct SaBirth
{
	uint32		batch;
	int64		count;
} SaBirth;

typedef struct SaSessions
{
	SaArena		nodes;			/* in a context of their own */
	SaSessionNode *free;		/* the next one is on the left */
	int64		gone;			/* nodes of no session, free or not */
	SaSessionNode **roots;		/* by hash of the keys */
	uint32		nroots;			/* a power of two */
	int64		count;
	SaBirth		births[MAX_BIRTHS]; /* by batch */
	int			nbirths;
	uint32		last_birth;		/* ever */
	SaEnds		all;
	SaEnds		awaited;		/* that are not closed; not asked for: none */
	SaNodes		ended;			/* those that this batch forgets */
	SaNodes		emitted;		/* by this batch, which has not changed them, and before it they had no rows */
} SaSessions;

/* --- the index --- */

/* What comes before it: by hash, then by start; and all is told apart. */
typedef struct Bound
{
	uint32		hash;
	int64		start;
	const SaSessionNode *node;	/* NULL: behind all that start then */
} Bound;

static inline uint32
priority(const SaSessionNode *node)
{
	return sa_session_hash(node->own_hash, node->start);
}

/* In the tree: nodes that start together, of keys that have one hash, must differ. */
static inline uint32
rank(const SaSessionNode *node)
{
	return hash_combine(priority(node), sa_hash_int64((int64) (uintptr_t) node));
}

static bool
is_before(const SaSessionNode *node, const Bound *bound)
{
	if (node->own_hash != bound->hash)
		return node->own_hash < bound->hash;
	if (node->start != bound->start)
		return node->start < bound->start;
	return bound->node == NULL || node < bound->node;
}

static Bound
bound_of(const SaSessionNode *node)
{
	return (Bound) {node->own_hash, node->start, node};
}

static SaSessionNode **
root_of(SaSessions *index, uint32 hash)
{
	return &index->roots[hash & (index->nroots - 1)];
}

static void
insert(SaSessions *index, SaSessionNode *node)
{
	SaSessionNode **link = root_of(index, node->own_hash);
	SaSessionNode **less = &node->left;
	SaSessionNode **greater = &node->right;
	SaSessionNode *rest;
	Bound		bound = bound_of(node);

	while (*link && rank(*link) >= rank(node))
		link = is_before(*link, &bound) ? &(*link)->right : &(*link)->left;
	rest = *link;
	*link = node;
	while (rest)
	{
		SaSessionNode ***side = is_before(rest, &bound) ? &less : &greater;

		**side = rest;
		*side = side == &less ? &rest->right : &rest->left;
		rest = **side;
	}
	*less = *greater = NULL;
}

/* Put two trees, all of the first before all of the second, into the place of one. */
static void
join(SaSessionNode **link, SaSessionNode *less, SaSessionNode *greater)
{
	while (less && greater)
	{
		if (rank(less) >= rank(greater))
		{
			*link = less;
			link = &less->right;
			less = *link;
		}
		else
		{
			*link = greater;
			link = &greater->left;
			greater = *link;
		}
	}
	*link = less ? less : greater;
}

static void
take_out(SaSessions *index, SaSessionNode *node)
{
	SaSessionNode **link = root_of(index, node->own_hash);
	Bound		bound = bound_of(node);

	while (*link != node)
		link = is_before(*link, &bound) ? &(*link)->right : &(*link)->left;
	join(link, node->left, node->right);
}

static void
create_roots(SaState *state, SaSessions *index, uint32 n)
{
	index->roots = MemoryContextAllocExtended(state->windows_cxt, sizeof(SaSessionNode *) * n, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	index->nroots = n;
}

static SaArena
start_nodes(SaState *state)
{
	return (SaArena) {
		.cxt = AllocSetContextCreate(state->windows_cxt, "stream_agg sessions", ALLOCSET_SMALL_SIZES), .size = FIRST_NODES
	};
}

/* Put all nodes into so many roots; into new memory, if they move, without those that are gone. */
static void
resettle(SaState *state, SaSessions *index, uint32 nroots, bool move)
{
	SaSessionNode **old = index->roots;
	uint32		n = index->nroots;

	create_roots(state, index, nroots);
	for (uint32 i = 0; i < n; i++)
		while (old[i])
		{
			SaSessionNode *node = old[i];

			join(&old[i], node->left, node->right);
			if (move)
				node = memcpy(sa_state_cut(&index->nodes, sizeof(SaSessionNode)), node, sizeof(SaSessionNode));
			if (node->group)
				*sa_session_node(state, node->group) = node;
			insert(index, node);
		}
	pfree(old);
}

static void
create_index(SaState *state)
{
	SaSessions *index = MemoryContextAllocZero(state->windows_cxt, sizeof(SaSessions));

	create_roots(state, index, FIRST_ROOTS);
	index->nodes = start_nodes(state);
	state->index = index;
}

/* --- births --- */

/* Where births in this batch are counted; -1: before all. */
static int
find_birth(const SaBirth *births, int n, uint32 batch)
{
	int			i = n - 1;

	while (i >= 0 && births[i].batch > batch)
		i--;
	return i;
}

/* Two that are close are counted as one: births may be said to be earlier than they were, never later. */
static void
thin_births(SaSessions *index)
{
	SaBirth    *births = index->births;
	int			n = 0;
	int			closest = 1;

	for (int i = 0; i < index->nbirths; i++)
		if (births[i].count > 0)
			births[n++] = births[i];
	index->nbirths = n;
	if (n < MAX_BIRTHS)
		return;
	for (int i = 2; i + 1 < n; i++)
		if (births[i + 1].batch - births[i - 1].batch < births[closest + 1].batch - births[closest - 1].batch)
			closest = i;
	births[closest - 1].count += births[closest].count;
	memmove(&births[closest], &births[closest + 1], sizeof(SaBirth) * (n - closest - 1));
	index->nbirths--;
}

static void
count_birth(SaSessions *index, uint32 batch, int count)
{
	int			i;

	if (index->nbirths == 0 || batch > index->last_birth)
	{
		if (index->nbirths == MAX_BIRTHS)
			thin_births(index);
		index->births[index->nbirths++] = (SaBirth) {.batch = batch};
		index->last_birth = Max(index->last_birth, batch);
	}
	i = find_birth(index->births, index->nbirths, batch);
	if (i < 0)
		index->births[i = 0].batch = batch;
	index->births[i].count += count;
}

static void
set_birth(SaSessions *index, SaSessionNode *node, uint32 batch)
{
	count_birth(index, node->birth, -1);
	node->birth = batch;
	count_birth(index, batch, 1);
}

void
sa_session_births(const SaState *state, uint64 *first, uint64 *last)
{
	const SaSessions *index = state->index;
	SaBirth		births[MAX_BIRTHS];

	*first = PG_UINT64_MAX;
	*last = 0;
	if (index == NULL)
		return;
	memcpy(births, index->births, sizeof(births));
	for (int64 i = 0; i < index->ended.n; i++)
		births[find_birth(births, index->nbirths, index->ended.list[i]->birth)].count--;
	for (int i = 0; i < index->nbirths; i++)
		if (births[i].count > 0)
		{
			*first = Min(*first, births[i].batch);
			*last = births[i].batch;
		}
}

/* --- nodes --- */

static SaSessionNode *
make_node(SaSessions *index)
{
	SaSessionNode *node = index->free;

	if (node == NULL)
		node = sa_state_cut(&index->nodes, sizeof(SaSessionNode));
	else
	{
		index->free = node->left;
		index->gone--;
	}
	return memset(node, 0, sizeof(SaSessionNode));
}

void
sa_session_add(SaState *state, SaGroup *group, uint32 hash)
{
	SaSessionNode *node;

	if (state->index == NULL)
		create_index(state);
	if (state->index->count >= state->index->nroots)
		resettle(state, state->index, state->index->nroots * 2, false);
	node = make_node(state->index);
	node->start = sa_session_start(state, group);
	node->end = sa_session_end(state, group);
	node->own_hash = hash;
	node->birth = (uint32) state->batch;
	node->group = group;
	*sa_session_node(state, group) = node;
	group->hash = priority(node);
	insert(state->index, node);
	count_birth(state->index, node->birth, 1);
	state->index->count++;
}

int64
sa_session_count(const SaState *state)
{
	return state->index ? state->index->count : 0;
}

void
sa_session_prefetch_root(const SaState *state, uint32 hash)
{
	if (state->index)
		__builtin_prefetch(root_of(state->index, hash));
}

void
sa_session_prefetch_node(const SaState *state, uint32 hash)
{
	if (state->index)
		__builtin_prefetch(*root_of(state->index, hash));
}

/* It is no session any more. */
static void
drop_node(SaSessions *index, SaSessionNode *node)
{
	take_out(index, node);
	count_birth(index, node->birth, -1);
	node->gone = true;
	index->count--;
	index->gone++;
}

void
sa_session_compact(SaState *state)
{
	SaSessions *index = state->index;
	MemoryContext old;

	if (index == NULL || index->gone <= Max(index->count, MIN_GONE))
		return;
	sa_session_forget_ends(state);
	old = index->nodes.cxt;
	index->nodes = start_nodes(state);
	index->free = NULL;
	index->gone = 0;
	resettle(state, index, index->nroots, true);
	MemoryContextDelete(old);
}

/* --- in memory and out of it --- */

void
sa_session_move(SaState *state, SaGroup *from, SaGroup *to)
{
	SaSessionNode *node = *sa_session_node(state, from);

	node->group = to;
	*sa_session_node(state, to) = node;
}

void
sa_session_let_go(SaState *state, SaGroup *group)
{
	SaSessionNode *node = *sa_session_node(state, group);

	node->group = NULL;
	node->place = group->place;
	node->row = group->result_tid;
}

static void
take_row_back(SaSessionNode *node)
{
	ItemPointerSetInvalid(node->group ? &node->group->result_tid : &node->row);
}

SaColdEntry
sa_session_entry(const SaSessionNode *node)
{
	return (SaColdEntry) {.hash = priority(node), .place = node->place, .row = node->row};
}

static SaGroup *
group_of(SaState *state, SaWindow *window, SaSessionNode *node)
{
	if (node->group == NULL)
	{
		SaColdEntry entry = sa_session_entry(node);

		node->group = sa_state_load(state, window, &entry);
		*sa_session_node(state, node->group) = node;
	}
	return node->group;
}

/* --- looking for sessions --- */

/* The last one before the bound of those with the bound's hash. */
static SaSessionNode *
last_before(const SaState *state, const Bound *bound)
{
	SaSessionNode *found = NULL;
	SaSessionNode *tree = state->index ? *root_of(state->index, bound->hash) : NULL;

	while (tree)
	{
		if (is_before(tree, bound))
		{
			found = tree;
			tree = tree->right;
		}
		else
			tree = tree->left;
	}
	return found && found->own_hash == bound->hash ? found : NULL;
}

/*
 * The last session of these keys before the bound, if it touches what begins at start; the bound comes to be there.  It is
 * the last one of these keys that says that none does, but a few that are out of memory are not asked.
 */
static SaSessionNode *
last_touching(SaState *state, SaWindow *window, Bound *bound, int64 start, const Datum *keys, const bool *nulls)
{
	SaSessionNode *node;
	int			passed = 0;

	while ((node = last_before(state, bound)) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		*bound = bound_of(node);
		if (node->group == NULL && node->end < start && passed++ < FEW)
			continue;
		if (sa_state_equal_own_keys(state, group_of(state, window, node), keys, nulls))
			return node->end < start ? NULL : node;
	}
	return NULL;
}

static SaSessionNode *
first_touching(SaState *state, SaWindow *window, Bound *bound, uint32 hash, const Datum *keys, const bool *nulls)
{
	*bound = (Bound) {hash, DatumGetInt64(keys[state->nown + 1]), NULL};
	return last_touching(state, window, bound, DatumGetInt64(keys[state->nown]), keys, nulls);
}

/* The next one before this session, if it touches the keys' start too. */
static SaSessionNode *
next_touching(SaState *state, SaWindow *window, SaSessionNode *node, Bound *bound, const Datum *keys, const bool *nulls)
{
	int64		start = DatumGetInt64(keys[state->nown]);

	if (start >= node->start)
		return NULL;			/* for then it would touch the session */
	return last_touching(state, window, bound, start, keys, nulls);
}

/* Those that start as the keys say, one after another. */
static SaSessionNode *
next_at_start(const SaState *state, Bound *bound, int64 start)
{
	SaSessionNode *node = last_before(state, bound);

	if (node == NULL || node->start != start)
		return NULL;
	*bound = bound_of(node);
	return node;
}

SaGroup *
sa_session_look_up(SaState *state, SaWindow *window, uint32 hash, const Datum *keys, const bool *nulls)
{
	int64		start = DatumGetInt64(keys[state->nown]);
	Bound		bound = {hash, start, NULL};
	SaSessionNode *node;

	while ((node = next_at_start(state, &bound, start)) != NULL)
		if (node->end == DatumGetInt64(keys[state->nown + 1]) &&
			sa_state_equal_own_keys(state, group_of(state, window, node), keys, nulls))
			return node->group;
	return NULL;
}

SaSessionNode *
sa_session_at(const SaState *state, uint32 hash, int64 start, SaPlace place)
{
	Bound		bound = {hash, start, NULL};
	SaSessionNode *node;

	while ((node = next_at_start(state, &bound, start)) != NULL)
		if (!node->gone && !(node->group && node->group->unsaved) &&
			sa_same_place(node->group ? node->group->place : node->place, place))
			return node;
	return NULL;
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
append_end(SaEnds *ends, SaSessionNode *node)
{
	if (ends->n == ends->max)
		ends->list = repalloc_huge(ends->list, sizeof(SaSessionEnd) * (ends->max *= 2));
	ends->list[ends->n++] = (SaSessionEnd) {.end = node->end, .node = node};
}

static void
add_end(SaEnds *ends, SaSessionNode *node)
{
	if (ends->list == NULL)
		return;
	append_end(ends, node);
	sift_up(ends, ends->n - 1);
}

static void
append_any(SaSessions *index, SaSessionNode *node, TimestampTz floor)
{
	append_end(&index->all, node);
}

/* If it is not closed, as of the floor, or has been touched since. */
static void
append_awaited(SaSessions *index, SaSessionNode *node, TimestampTz floor)
{
	node->awaited = (node->group && node->group->touched) || !sa_watermark_closes_session(node->end, floor);
	if (node->awaited)
		append_end(&index->awaited, node);
}

typedef void (*AppendEnd) (SaSessions *index, SaSessionNode *node, TimestampTz floor);

static void
append_tree(SaSessions *index, SaSessionNode *tree, AppendEnd append, TimestampTz floor)
{
	if (tree == NULL)
		return;
	append_tree(index, tree->left, append, floor);
	if (!tree->gone)
		append(index, tree, floor);
	append_tree(index, tree->right, append, floor);
}

static void
make_ends(SaState *state, SaEnds *ends, AppendEnd append, TimestampTz floor)
{
	SaSessions *index = state->index;

	if (ends->list)
		return;
	ends->n = 0;
	ends->max = FIRST_ENDS;
	ends->list = MemoryContextAlloc(state->windows_cxt, sizeof(SaSessionEnd) * ends->max);
	for (uint32 i = 0; i < index->nroots; i++)
		append_tree(index, index->roots[i], append, floor);
	for (int64 i = ends->n / 2 - 1; i >= 0; i--)
		sift_down(ends, i);
}

static void
forget_ends(SaEnds *ends)
{
	if (ends->list)
		pfree(ends->list);
	ends->list = NULL;
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
static SaSessionNode *
first_of(SaEnds *ends)
{
	while (ends->n > 0)
	{
		SaSessionEnd *first = &ends->list[0];

		if (first->node->gone)
			remove_first_end(ends);
		else if (first->end == first->node->end)
			return first->node;
		else
		{
			first->end = first->node->end;
			sift_down(ends, 0);
		}
	}
	return NULL;
}

static SaSessionNode *
first_to_end(SaState *state)
{
	if (state->index == NULL)
		return NULL;
	make_ends(state, &state->index->all, append_any, DT_NOBEGIN);
	return first_of(&state->index->all);
}

/* Of those that are not closed, as of the floor. */
static SaSessionNode *
first_to_close(SaState *state, TimestampTz floor)
{
	if (state->index == NULL)
		return NULL;
	make_ends(state, &state->index->awaited, append_awaited, floor);
	return first_of(&state->index->awaited);
}

/* It is to be looked at when the watermark is behind its end, though it may have been closed before. */
static void
await_close(SaSessions *index, SaSessionNode *node)
{
	if (index->awaited.list == NULL || node->awaited)
		return;
	node->awaited = true;
	add_end(&index->awaited, node);
}

TimestampTz
sa_session_first_end(SaState *state)
{
	SaSessionNode *node = first_to_end(state);

	return node ? node->end : DT_NOBEGIN;
}

TimestampTz
sa_session_next_close(SaState *state, TimestampTz floor)
{
	SaSessionNode *node = first_to_close(state, floor);

	return node ? node->end : DT_NOEND;
}

/* --- meeting --- */

/* What the group and its node say of its times; the node is in no tree. */
static void
put_bounds(SaState *state, SaGroup *group, int64 start, int64 end)
{
	SaSessionNode *node = *sa_session_node(state, group);
	Datum	   *keys = sa_group_keys(state, group);

	keys[state->nown] = Int64GetDatum(start);
	keys[state->nown + 1] = Int64GetDatum(end);
	node->start = start;
	node->end = end;
	group->hash = priority(node);
}

static void
set_bounds(SaState *state, SaWindow *window, SaSessionNode *node, int64 start, int64 end)
{
	SaGroup    *group = node->group;

	if (start == node->start)
	{
		node->end = end;
		sa_group_keys(state, group)[state->nown + 1] = Int64GetDatum(end);
		return;
	}
	take_out(state->index, node);
	sa_state_remove(window, group);
	window->leaked--;
	put_bounds(state, group, start, end);
	sa_state_add(window, group);
	insert(state->index, node);
}

static void
touch(SaState *state, SaWindow *window, SaGroup *group, bool fresh)
{
	if (group->touched)
		return;
	sa_state_touch(state, window, group, fresh, true);
	await_close(state->index, *sa_session_node(state, group));
}

static void
leave(SaState *state, SaWindow *window, SaSessionNode *node)
{
	drop_node(state->index, node);
	if (node->group == NULL)
		return;
	sa_state_remove(window, node->group);
	node->group->gone = true;
}

/* Two sessions become the earlier one. */
static void
merge(SaState *state, SaWindow *window, SaSessionNode *earlier, SaSessionNode *later)
{
	sa_agg_run_in(state->run, window->hot);
	for (int i = 0; i < state->naggs; i++)
		sa_agg_combine(state->aggs[i], state->run, &sa_group_states(earlier->group)[i], &sa_group_states(later->group)[i]);
	set_bounds(state, window, earlier, earlier->start, later->end);
	leave(state, window, later);
	set_birth(state->index, earlier, Min(earlier->birth, later->birth));
}

static SaGroup *
begin_session(SaState *state, SaWindow *window, uint32 hash, Datum *keys, bool *nulls)
{
	SaGroup    *group = sa_state_create_group(state, window, hash, keys, nulls);

	touch(state, window, group, true);
	add_end(&state->index->all, *sa_session_node(state, group));
	return group;
}

SaGroup *
sa_session_join(SaState *state, SaWindow *window, uint32 hash, Datum *keys, bool *nulls)
{
	Bound		bound;
	SaSessionNode *node = first_touching(state, window, &bound, hash, keys, nulls);
	SaSessionNode *earlier;

	if (node == NULL)
		return begin_session(state, window, hash, keys, nulls);
	while ((earlier = next_touching(state, window, node, &bound, keys, nulls)) != NULL)
	{
		touch(state, window, earlier->group, false);
		touch(state, window, node->group, false);
		merge(state, window, earlier, node);
		node = earlier;
	}
	touch(state, window, node->group, false);
	set_bounds(state, window, node, Min(DatumGetInt64(keys[state->nown]), node->start),
			   Max(DatumGetInt64(keys[state->nown + 1]), node->end));
	return node->group;
}

/* --- closing --- */

static void
note_node(SaState *state, SaNodes *nodes, SaSessionNode *node)
{
	if (nodes->n == nodes->max)
	{
		nodes->max = Max(1024, nodes->max * 2);
		if (nodes->list)
			nodes->list = repalloc_huge(nodes->list, sizeof(SaSessionNode *) * nodes->max);
		else
			nodes->list = MemoryContextAllocHuge(state->undo_cxt, sizeof(SaSessionNode *) * nodes->max);
	}
	nodes->list[nodes->n++] = node;
}

static void
mark_gone(SaSessionNode *node, bool gone)
{
	node->gone = gone;
	if (node->group)
		node->group->gone = gone;
}

static SaWindow *
window_of_all(SaState *state)
{
	return sa_state_window(state, SA_NO_WINDOW_START, SA_NO_WINDOW_END);
}

void
sa_state_close_sessions(SaState *state, TimestampTz watermark, SaGroupsCallback fn, void *arg)
{
	SaSessionNode *node;

	while ((node = first_to_end(state)) != NULL && sa_watermark_closes_session(node->end, watermark))
	{
		CHECK_FOR_INTERRUPTS();
		note_node(state, &state->index->ended, node);
		remove_first_end(&state->index->all);
		mark_gone(node, true);
	}
	if (fn && state->index)
		sa_state_emit_sessions(state, window_of_all(state), state->index->ended.list, state->index->ended.n, false, fn, arg);
}

void
sa_state_emit_closed(SaState *state, TimestampTz floor, TimestampTz watermark, SaGroupsCallback fn, void *arg)
{
	SaNodes		closed = {NULL};
	SaSessionNode *node;

	while ((node = first_to_close(state, floor)) != NULL && sa_watermark_closes_session(node->end, watermark))
	{
		CHECK_FOR_INTERRUPTS();
		remove_first_end(&state->index->awaited);
		node->awaited = false;
		if (!node->group || !node->group->touched)
			note_node(state, &state->index->emitted, node);
		note_node(state, &closed, node);
	}
	sa_state_emit_sessions(state, window_of_all(state), closed.list, closed.n, true, fn, arg);
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

static void
end_batch(SaSessions *index)
{
	index->ended = index->emitted = (SaNodes) {NULL};
}

void
sa_session_commit(SaState *state)
{
	SaSessions *index = state->index;

	if (index == NULL)
		return;
	for (int64 i = 0; i < index->ended.n; i++)
	{
		SaSessionNode *node = index->ended.list[i];

		leave(state, window_of_all(state), node);
		node->left = index->free;
		index->free = node;
	}
	end_batch(index);
}

void
sa_session_abort(SaState *state)
{
	SaSessions *index = state->index;

	if (index == NULL)
		return;
	sa_session_forget_ends(state);
	for (int64 i = 0; i < index->ended.n; i++)
		mark_gone(index->ended.list[i], false);
	for (int64 i = 0; i < index->emitted.n; i++)
		take_row_back(index->emitted.list[i]);
	end_batch(index);
}

SaSessionNode *
sa_session_save(SaState *state, const SaGroup *group)
{
	SaSessionNode *copy = MemoryContextAlloc(state->undo_cxt, sizeof(SaSessionNode));

	*copy = **sa_session_node(state, group);
	return copy;
}

void
sa_session_undo(SaState *state, const SaTouched *entry)
{
	SaGroup    *group = entry->group;
	SaSessionNode *node = *sa_session_node(state, group);

	if (!node->gone)
		leave(state, entry->window, node);
	if (entry->fresh)
		return;
	put_bounds(state, group, entry->session->start, entry->session->end);
	mark_gone(node, false);
	node->birth = entry->session->birth;
	insert(state->index, node);
	count_birth(state->index, node->birth, 1);
	state->index->count++;
	state->index->gone--;
	sa_state_add(entry->window, group);
	entry->window->leaked--;
}

/* --- recovery --- */

SaGroup *
sa_session_recover(SaState *state, SaWindow *window, uint32 hash, Datum *keys, bool *nulls, bool combine)
{
	Bound		bound;
	SaSessionNode *node = first_touching(state, window, &bound, hash, keys, nulls);
	SaSessionNode *earlier;

	if (node == NULL)
	{
		SaGroup    *group = sa_state_create_group(state, window, hash, keys, nulls);

		if (combine)
			set_birth(state->index, *sa_session_node(state, group), 0);
		return group;
	}
	while ((earlier = next_touching(state, window, node, &bound, keys, nulls)) != NULL)
	{
		if (combine)
			merge(state, window, earlier, node);
		else
			leave(state, window, node);
		node = earlier;
	}
	if (combine && (node->start != DatumGetInt64(keys[state->nown]) || node->end != DatumGetInt64(keys[state->nown + 1])))
		set_birth(state->index, node, 0);	/* records of it are gone: the next time, too, its row must say what it is */
	set_bounds(state, window, node, DatumGetInt64(keys[state->nown]), DatumGetInt64(keys[state->nown + 1]));
	return node->group;
}

static bool
has_rows(const SaSessionNode *tree)
{
	return tree == NULL || ((tree->group || ItemPointerIsValid(&tree->row)) && has_rows(tree->left) && has_rows(tree->right));
}

bool
sa_session_have_rows(const SaState *state)
{
	for (uint32 i = 0; state->index && i < state->index->nroots; i++)
		if (!has_rows(state->index->roots[i]))
			return false;
	return true;
}
