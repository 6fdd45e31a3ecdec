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
 * Panes are combined in the order of event time.  Nothing here is changed by it, so there is nothing to undo.
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

/* The groups of one hopping window whose hashes are in a range. */
typedef struct Merge
{
	SaState    *state;
	SaWindow	window;			/* none of the state's */
	MemoryContext scratch;
	uint32		lo;
	uint32		hi;
	bool		full;			/* too many: in parts */
	int64		met;			/* groups of the pane at hand, of all hashes */
} Merge;

static bool
takes(const Merge *merge, uint32 hash)
{
	return hash >= merge->lo && hash <= merge->hi;
}

static void
combine(Merge *merge, uint32 hash, Datum *keys, bool *nulls, const SaTrans *from)
{
	SaState    *state = merge->state;
	bool		found;
	SaGroup    *group = sa_state_find(state, &merge->window, hash, keys, nulls, &found);
	SaTrans    *into = sa_group_states(group);

	sa_agg_run_in(state->run, merge->window.hot);
	for (int i = 0; i < state->naggs; i++)
		sa_agg_combine(state->aggs[i], state->run, &into[i], &from[i]);
}

/* Where more than memory should hold is to come together, it is done in parts, until each is of one hash only. */
static void
check_room(Merge *merge)
{
	MemoryContextReset(merge->scratch);
	merge->full = merge->lo < merge->hi &&
		MemoryContextMemAllocated(merge->window.hot, true) > Max(sa_state_limit(), MIN_BYTES);
}

static void
merge_hot(Merge *merge, SaWindow *pane)
{
	MemoryContext old = MemoryContextSwitchTo(merge->scratch);

	for (uint32 i = 0; i < pane->nbuckets && !merge->full; i++)
	{
		if (i + PREFETCH < pane->nbuckets && pane->buckets[i + PREFETCH])
			sa_state_prefetch_group(pane->buckets[i + PREFETCH]);
		for (SaGroup *group = pane->buckets[i]; group; group = group->next)
		{
			if (takes(merge, group->hash))
				combine(merge, group->hash, sa_group_keys(merge->state, group), sa_group_nulls(merge->state, group),
						sa_group_states(group));
			if (++merge->met % SCRATCH_GROUPS == 0)
				check_room(merge);
		}
	}
	MemoryContextSwitchTo(old);
}

/* In memory that goes with the chunk. */
static void
merge_entry(SaState *state, SaWindow *pane, SaLogReader *reader, const SaColdEntry *entry, void *arg)
{
	Merge	   *merge = arg;
	SaArena		arena = {.cxt = CurrentMemoryContext};
	SaGroup    *group;

	merge->met++;
	if (merge->full || !takes(merge, entry->hash))
		return;
	group = sa_state_make_group(state, &arena, state->row_keys, state->row_nulls);
	sa_state_start_states(state, CurrentMemoryContext, group);
	sa_state_log_states(state, reader, CurrentMemoryContext, group);
	combine(merge, entry->hash, sa_group_keys(state, group), sa_group_nulls(state, group), sa_group_states(group));
	if (merge->met % SCRATCH_GROUPS == 0)
		check_room(merge);
}

static bool
counts_for(const SaWindow *pane, int64 end)
{
	return pane->end <= end && pane->last_end >= end;
}

/* All panes that count for the window; false when it has come to be too much. */
static bool
merge_panes(Merge *merge, SaWindow **panes, int n)
{
	for (int i = 0; i < n && !merge->full; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (!counts_for(panes[i], merge->window.end))
			continue;
		merge->met = 0;
		merge_hot(merge, panes[i]);
		if (panes[i]->cold && !merge->full)
			sa_state_log_each_cold(merge->state, panes[i], merge_entry, merge);
		if (!merge->full && merge->met != sa_state_window_size(panes[i]))
			sa_state_lost(merge->state->logs[SA_LOG].relid);
	}
	return !merge->full;
}

static void
emit(Merge *merge, SaGroupsCallback fn, void *arg)
{
	SaWindow   *window = &merge->window;
	SaTouched  *groups = MemoryContextAllocHuge(window->hot, sizeof(SaTouched) * (window->ngroups + 1));
	int			n = 0;

	for (uint32 i = 0; i < window->nbuckets; i++)
		for (SaGroup *group = window->buckets[i]; group; group = group->next)
			groups[n++] = (SaTouched) {.group = group, .window = window};
	if (n > 0)
		fn(groups, n, arg);
}

/* The groups with these hashes, in two halves where they are too many. */
static void
emit_range(Merge *merge, SaWindow **panes, int n, uint32 lo, uint32 hi, SaGroupsCallback fn, void *arg)
{
	uint32		middle = lo + (hi - lo) / 2;

	MemoryContextReset(merge->window.hot);
	sa_state_start_groups(&merge->window, FIRST_BUCKETS);
	merge->lo = lo;
	merge->hi = hi;
	merge->full = false;
	if (merge_panes(merge, panes, n))
	{
		emit(merge, fn, arg);
		return;
	}
	emit_range(merge, panes, n, lo, middle, fn, arg);
	emit_range(merge, panes, n, middle + 1, hi, fn, arg);
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
			if (!window->forgotten)
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

void
sa_state_emit_hops(SaState *state, TimestampTz watermark, SaGroupsCallback fn, void *arg)
{
	const SaQuery *query = state->query;
	Merge		merge = {.state = state};
	int			n;
	SaWindow  **panes = list_panes(state, &n);
	int			lo = 0;			/* panes[lo .. hi) may count for the window */
	int			hi = 0;
	int64		end = n > 0 ? next_end(state, panes[0]) : DT_NOEND;

	merge.window.hot = AllocSetContextCreate(CurrentMemoryContext, "stream_agg window", ALLOCSET_DEFAULT_SIZES);
	merge.scratch = AllocSetContextCreate(CurrentMemoryContext, "stream_agg combining", ALLOCSET_DEFAULT_SIZES);
	while (lo < n && end <= watermark)
	{
		while (hi < n && panes[hi]->start < end)
			hi++;
		while (lo < hi && panes[lo]->last_end < end)
			lo++;
		if (lo == hi)
		{
			if (hi < n)
				end = next_end(state, panes[hi]);
			continue;
		}
		merge.window.start = end - query->window_size;
		merge.window.end = end;
		emit_range(&merge, panes + lo, hi - lo, 0, PG_UINT32_MAX, fn, arg);
		if (pg_add_s64_overflow(end, query->hop_slide, &end))
			break;
	}
	MemoryContextDelete(merge.window.hot);
	MemoryContextDelete(merge.scratch);
	pfree(panes);
}
