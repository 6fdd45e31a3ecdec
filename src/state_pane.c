/*
 * state_pane.c
 *		Hopping windows put together from panes, when they close.
 *
 * Invariant: an event is folded once, into the pane that it lies in, together with all others that lie in the same
 * hopping windows.  A pane counts for the hopping windows from the one with the pane's end on, up to the last one that
 * holds it.  Where an event is late for the first of them it goes to a pane of its own with the end of the first one
 * that it is not late for; so what a hopping window holds when it closes is what the rule of lateness gives for each
 * (event, window), wherever batches were cut.  A pane is forgotten with the last of its hopping windows; until then it
 * is kept, saved and recovered as any window.  (A whole hopping window is a pane, too: one that counts for itself alone.)
 *
 * Windows that close together share the work.  Time is cut into blocks of about a window's size: a window is what comes
 * in the block where it begins, put together from the back, with what comes in the next one, put together from the front.
 * The former is had for all windows that begin in the block by adding one pane at a time, and so is the latter; so a
 * pane's state is combined a few times, however many windows it is part of.  States are always combined in this way, also
 * for one window alone, and those that are late for some windows last; what a window holds, sums of floats included, does
 * not depend on which windows close together.
 *
 * What windows that close later can begin with is kept in memory until the end of the block: a few tables of the former,
 * and the latter.  It is made of panes that take no more events, since one of their windows has closed.  Nothing of the
 * state is changed by closing, so there is nothing to undo, but what was kept by a batch that fails is thrown away.
 */
#include "postgres.h"

#include "common/int.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "state_key.h"
#include "window.h"

#define FIRST_BUCKETS 1024
#define PREFETCH 8				/* buckets ahead */
#define SCRATCH_GROUPS 256		/* combined between resets of what that leaves behind */
#define MIN_BYTES (1024 * 1024)

typedef struct SaHops SaHops;

/* Hopping windows of one block that close together; the groups of theirs whose hashes are in a range. */
typedef struct Merge
{
	SaState    *state;
	SaGroupsCallback fn;
	void	   *arg;
	SaWindow  **panes;			/* those of the windows, and more behind them */
	int			n;
	SaHops	   *hops;			/* NULL: not of all hashes, and nothing is kept */
	MemoryContext tables;		/* parent of their memory */
	MemoryContext scratch;
	uint32		lo;
	uint32		hi;
	bool		limited;		/* to what memory should hold */
	bool		full;			/* it has come to be more */
	int64		met;			/* groups of the pane at hand, of all hashes */
} Merge;

/* What is kept of the block in which windows begin that are closing. */
struct SaHops
{
	MemoryContext cxt;
	int64		block;			/* its end */
	List	   *marks;			/* of tables: what comes in it from their start on */
	SaWindow   *prefix;			/* what comes behind it */
	int64		prefix_end;		/* until then */
};

/* Groups put together: a window that is none of the state's. */
static SaWindow *
create_table(MemoryContext parent)
{
	SaWindow   *table = MemoryContextAllocZero(parent, sizeof(SaWindow));

	table->hot = AllocSetContextCreate(parent, "stream_agg panes", ALLOCSET_SMALL_SIZES);
	sa_state_start_groups(table, FIRST_BUCKETS);
	return table;
}

void
sa_state_drop_hops(SaState *state)
{
	if (state->hops)
		MemoryContextDelete(state->hops->cxt);
	state->hops = NULL;
}

/* For all groups of windows that begin in the block that ends there. */
static SaHops *
find_hops(SaState *state, int64 block)
{
	MemoryContext cxt;

	if (state->hops && state->hops->block == block)
		return state->hops;
	sa_state_drop_hops(state);
	cxt = AllocSetContextCreate(state->windows_cxt, "stream_agg hops", ALLOCSET_DEFAULT_SIZES);
	state->hops = MemoryContextAllocZero(cxt, sizeof(SaHops));
	state->hops->cxt = cxt;
	state->hops->block = state->hops->prefix_end = block;
	state->hops->prefix = create_table(cxt);
	return state->hops;
}

static bool
takes(const Merge *merge, uint32 hash)
{
	return hash >= merge->lo && hash <= merge->hi;
}

/* What is there already comes behind. */
static void
put_before(SaAgg *agg, SaAggRun *run, SaTrans *into, const SaTrans *from)
{
	SaTrans		both;

	sa_agg_start(agg, run, &both);
	sa_agg_combine(agg, run, &both, from);
	sa_agg_combine(agg, run, &both, into);
	sa_agg_discard(agg, into);
	*into = both;
}

static void
combine(Merge *merge, SaWindow *table, uint32 hash, Datum *keys, bool *nulls, const SaTrans *from, bool before)
{
	SaState    *state = merge->state;
	bool		found;
	SaGroup    *group = sa_state_find(state, table, hash, keys, nulls, &found);
	SaTrans    *into = sa_group_states(group);

	sa_agg_run_in(state->run, table->hot);
	if (before && found)
		sa_state_respell_keys(state, group, keys, nulls, table->hot);
	for (int i = 0; i < state->naggs; i++)
	{
		if (before && found)
			put_before(state->aggs[i], state->run, &into[i], &from[i]);
		else
			sa_agg_combine(state->aggs[i], state->run, &into[i], &from[i]);
	}
}

/* Now and then. */
static void
check_room(Merge *merge)
{
	MemoryContextReset(merge->scratch);
	merge->full = merge->limited && MemoryContextMemAllocated(merge->tables, true) +
		(merge->hops ? MemoryContextMemAllocated(merge->hops->cxt, true) : 0) > Max(sa_state_limit(), MIN_BYTES);
}

static void
merge_hot(Merge *merge, SaWindow *table, SaWindow *from, bool before)
{
	MemoryContext old = MemoryContextSwitchTo(merge->scratch);

	for (uint32 i = 0; i < from->nbuckets && !merge->full; i++)
	{
		if (i + PREFETCH < from->nbuckets && from->buckets[i + PREFETCH])
			sa_state_prefetch_group(from->buckets[i + PREFETCH]);
		for (SaGroup *group = from->buckets[i]; group; group = group->next)
		{
			if (takes(merge, group->hash))
				combine(merge, table, group->hash, sa_group_keys(merge->state, group), sa_group_nulls(merge->state, group),
						sa_group_states(group), before);
			if (++merge->met % SCRATCH_GROUPS == 0)
				check_room(merge);
		}
	}
	MemoryContextSwitchTo(old);
}

typedef struct ColdMerge
{
	Merge	   *merge;
	SaWindow   *table;
	bool		before;
} ColdMerge;

/* In memory that goes with the chunk. */
static void
merge_entry(SaState *state, SaWindow *pane, SaLogReader *reader, const SaColdEntry *entry, void *arg)
{
	ColdMerge  *cold = arg;
	Merge	   *merge = cold->merge;
	SaArena		arena = {.cxt = CurrentMemoryContext};
	SaGroup    *group;

	merge->met++;
	if (merge->full || !takes(merge, entry->hash))
		return;
	group = sa_state_make_group(state, &arena, state->row_keys, state->row_nulls);
	sa_state_start_states(state, CurrentMemoryContext, group);
	sa_state_log_states(state, reader, CurrentMemoryContext, group);
	combine(merge, cold->table, entry->hash, sa_group_keys(state, group), sa_group_nulls(state, group),
			sa_group_states(group), cold->before);
	if (merge->met % SCRATCH_GROUPS == 0)
		check_room(merge);
}

static void
merge_pane(Merge *merge, SaWindow *table, SaWindow *pane, bool before)
{
	ColdMerge	cold = {.merge = merge, .table = table, .before = before};

	CHECK_FOR_INTERRUPTS();
	merge->met = 0;
	merge_hot(merge, table, pane, before);
	if (pane->cold && !merge->full)
		sa_state_log_each_cold(merge->state, pane, merge_entry, &cold);
	if (!merge->full && merge->met != sa_state_window_size(merge->state, pane))
		sa_state_lost(merge->state->logs[SA_LOG].relid);
}

/* Does the pane count for all windows that hold it? */
static bool
is_regular(const SaState *state, const SaWindow *pane)
{
	int64		slide = state->query->hop_slide;

	return pane->end - slide <= pane->start;
}

/* Those that do not, for this window. */
static void
merge_others(Merge *merge, SaWindow *table)
{
	for (int i = 0; i < merge->n && merge->panes[i]->start < table->end; i++)
	{
		SaWindow   *pane = merge->panes[i];

		if (!is_regular(merge->state, pane) && pane->end <= table->end && pane->last_end >= table->end)
			merge_pane(merge, table, pane, false);
	}
}

static void
emit(Merge *merge, SaWindow *table)
{
	SaTouched  *groups = MemoryContextAllocHuge(table->hot, sizeof(SaTouched) * (table->ngroups + 1));
	int			n = 0;

	for (uint32 i = 0; i < table->nbuckets; i++)
		for (SaGroup *group = table->buckets[i]; group; group = group->next)
			groups[n++] = (SaTouched) {.group = group, .window = table};
	if (n > 0)
		merge->fn(groups, n, merge->arg);
}

/* Where the block ends that a window begins in that begins at `start`; a window begins there, too. */
static int64
block_end(const SaQuery *query, int64 start)
{
	int64		block = query->window_size / query->hop_slide * query->hop_slide;
	int64		distance;
	int64		rest;

	if (pg_sub_s64_overflow(start, query->hop_origin % block, &distance))
		return start;
	rest = distance % block;
	return start + (rest > 0 ? block - rest : -rest);
}

static int
first_from(const Merge *merge, int64 start)
{
	int			i = 0;

	while (i < merge->n && merge->panes[i]->start < start)
		i++;
	return i;
}

/* The one to begin with for a window that starts there. */
static SaWindow *
find_mark(const SaHops *hops, int64 start)
{
	SaWindow   *found = NULL;
	ListCell   *lc;

	foreach(lc, hops->marks)
	{
		SaWindow   *mark = lfirst(lc);

		if (mark->start >= start && (found == NULL || mark->start < found->start))
			found = mark;
	}
	return found;
}

/* Windows from one mark to the next: as many as there are marks. */
static int64
mark_distance(const SaQuery *query)
{
	int64		windows = query->window_size / query->hop_slide;
	int64		every = 1;

	while (every * every < windows)
		every++;
	return every * query->hop_slide;
}

/* Keep marks down to where the last pane that is in the table begins, or the window does. */
static void
keep_marks(Merge *merge, SaWindow *table, int64 *mark, int64 down_to)
{
	for (; *mark > down_to && !merge->full; *mark -= mark_distance(merge->state->query))
	{
		SaWindow   *copy = create_table(merge->hops->cxt);
		MemoryContext old = MemoryContextSwitchTo(merge->hops->cxt);

		copy->start = *mark;
		merge->hops->marks = lappend(merge->hops->marks, copy);
		MemoryContextSwitchTo(old);
		merge_hot(merge, copy, table, false);
	}
}

/* What the last one of the windows holds of the block in which it begins; the next pane to come before that. */
static SaWindow *
merge_last(Merge *merge, int64 start, int *i)
{
	SaWindow   *table = create_table(merge->tables);
	SaWindow   *mark = merge->hops ? find_mark(merge->hops, start) : NULL;
	bool		keep = merge->hops && merge->hops->marks == NIL && start < merge->hops->block;
	int64		next = keep ? merge->hops->block - mark_distance(merge->state->query) : 0;

	if (mark)
	{
		merge_hot(merge, table, mark, false);
		*i = first_from(merge, mark->start) - 1;
	}
	for (; *i >= 0 && merge->panes[*i]->start >= start && !merge->full; (*i)--)
	{
		if (!is_regular(merge->state, merge->panes[*i]))
			continue;
		if (keep)
			keep_marks(merge, table, &next, merge->panes[*i]->start);
		merge_pane(merge, table, merge->panes[*i], true);
	}
	if (keep)
		keep_marks(merge, table, &next, start);
	return table;
}

/* What each of these windows holds of the block in which they begin, which ends where pane `last` begins. */
static SaWindow **
merge_backward(Merge *merge, int64 start, int nwindows, int last)
{
	SaWindow  **tables = MemoryContextAlloc(merge->tables, sizeof(SaWindow *) * nwindows);
	int64		slide = merge->state->query->hop_slide;
	int			i = last - 1;

	tables[nwindows - 1] = merge_last(merge, start + (nwindows - 1) * slide, &i);
	for (int w = nwindows - 2; w >= 0 && !merge->full; w--)
	{
		SaWindow   *later = tables[w + 1];

		tables[w] = create_table(merge->tables);
		for (; i >= 0 && merge->panes[i]->start >= start + w * slide && !merge->full; i--)
		{
			if (!is_regular(merge->state, merge->panes[i]))
				continue;
			merge_pane(merge, tables[w], merge->panes[i], true);
			if (later)
				merge_hot(merge, tables[w], later, false);
			later = NULL;
		}
		if (later)
			merge_hot(merge, tables[w], later, false);
	}
	return tables;
}

/* False when it has come to be more than memory should hold, and nothing is emitted. */
static bool
emit_windows(Merge *merge, int64 end, int nwindows)
{
	const SaQuery *query = merge->state->query;
	int64		start = end - query->window_size;
	int64		block = block_end(query, start);
	SaWindow  **tables;
	SaWindow   *prefix;
	int			i;

	merge->limited = nwindows > 1 || merge->lo < merge->hi;
	tables = merge_backward(merge, start, nwindows, first_from(merge, block));
	prefix = merge->hops ? merge->hops->prefix : create_table(merge->tables);
	i = first_from(merge, merge->hops ? merge->hops->prefix_end : block);
	for (int w = 0; w < nwindows && !merge->full; w++)
	{
		SaWindow   *table = tables[w];

		table->start = start + w * query->hop_slide;
		table->end = end + w * query->hop_slide;
		for (; i < merge->n && merge->panes[i]->start < table->end; i++)
			if (is_regular(merge->state, merge->panes[i]))
				merge_pane(merge, prefix, merge->panes[i], false);
		if (w == 0 && merge->full)
			break;
		merge->limited = false;
		merge_hot(merge, table, prefix, false);
		merge_others(merge, table);
		emit(merge, table);
		MemoryContextDelete(table->hot);
		if (merge->hops)
			merge->hops->prefix_end = table->end;
	}
	return !merge->full;
}

/* Too many for memory are taken apart, into windows first, then by hash, until it is one window and one hash. */
static void
emit_run(Merge *merge, int64 end, int nwindows, uint32 lo, uint32 hi)
{
	const SaQuery *query = merge->state->query;
	int			half = nwindows / 2;
	uint32		middle = lo + (hi - lo) / 2;
	bool		done;

	merge->lo = lo;
	merge->hi = hi;
	merge->full = false;
	merge->hops = lo == 0 && hi == PG_UINT32_MAX ?
		find_hops(merge->state, block_end(query, end - query->window_size)) : NULL;
	done = emit_windows(merge, end, nwindows);
	MemoryContextReset(merge->tables);
	if (done)
		return;
	sa_state_drop_hops(merge->state);
	if (nwindows > 1)
	{
		emit_run(merge, end, half, lo, hi);
		emit_run(merge, end + half * query->hop_slide, nwindows - half, lo, hi);
		return;
	}
	emit_run(merge, end, 1, lo, middle);
	emit_run(merge, end, 1, middle + 1, hi);
}

static int
compare_pane(const void *a, const void *b)
{
	const SaWindow *x = *(SaWindow *const *) a;
	const SaWindow *y = *(SaWindow *const *) b;

	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	return x->end < y->end ? -1 : x->end > y->end;
}

static SaWindow **
list_panes(SaState *state, int *count)
{
	SaWindow  **panes = MemoryContextAllocHuge(CurrentMemoryContext, sizeof(SaWindow *) * (state->nwindows + 1));
	int			n = 0;

	for (uint32 i = 0; i < state->nslots; i++)
		for (SaWindow *window = state->windows[i]; window; window = window->next)
			panes[n++] = window;
	qsort(panes, n, sizeof(SaWindow *), compare_pane);
	*count = n;
	return panes;
}

/* The end of the first hopping window still to close that may hold this pane, or one that begins later. */
static int64
next_end(const SaState *state, const SaWindow *pane)
{
	const SaQuery *query = state->query;
	SaPane		whole;

	sa_window_pane(pane->start, query->window_size, query->hop_slide, query->hop_origin, &whole);
	return sa_window_hop_after(whole.first_end, query->hop_slide, state->closed);
}

/* Does a window close at all? */
static bool
any_closes(const SaState *state, TimestampTz watermark)
{
	const SaWindow *first = NULL;

	for (uint32 i = 0; i < state->nslots; i++)
		for (const SaWindow *window = state->windows[i]; window; window = window->next)
			if (first == NULL || window->start < first->start)
				first = window;
	return first != NULL && next_end(state, first) <= watermark;
}

/* How many windows close from this one on that begin in the same block. */
static int
count_run(const SaQuery *query, int64 end, TimestampTz watermark)
{
	int64		start = end - query->window_size;
	int64		in_block = (block_end(query, start) - start) / query->hop_slide;

	return Min(in_block, (watermark - end) / query->hop_slide) + 1;
}

void
sa_state_emit_hops(SaState *state, TimestampTz watermark, SaGroupsCallback fn, void *arg)
{
	const SaQuery *query = state->query;
	Merge		merge = {.state = state, .fn = fn, .arg = arg};
	int			n;
	SaWindow  **panes;
	int			i = 0;
	int64		end;

	if (!any_closes(state, watermark))
		return;
	panes = list_panes(state, &n);
	end = next_end(state, panes[0]);
	merge.tables = AllocSetContextCreate(CurrentMemoryContext, "stream_agg windows", ALLOCSET_DEFAULT_SIZES);
	merge.scratch = AllocSetContextCreate(CurrentMemoryContext, "stream_agg combining", ALLOCSET_DEFAULT_SIZES);
	while (i < n && end <= watermark)
	{
		int			nwindows = count_run(query, end, watermark);

		merge.panes = panes + i;
		merge.n = n - i;
		emit_run(&merge, end, nwindows, 0, PG_UINT32_MAX);
		if (pg_add_s64_overflow(end, nwindows * query->hop_slide, &end))
			break;
		while (i < n && panes[i]->last_end < end)
			i++;
		if (i < n)
			end = Max(end, next_end(state, panes[i]));
	}
	MemoryContextDelete(merge.tables);
	MemoryContextDelete(merge.scratch);
	pfree(panes);
}
