/*
 * state.c
 *		The groups of one view.
 *
 * Invariant: a group is either in memory (hot) or in its window's index of those that are not (cold), never in both.
 * Between batches, the place of a group that is saved (result row, entry of a log) holds its newest state, so it may
 * leave memory at any time.  What a batch has done to windows (new, closed, compacted) takes effect in memory only
 * after the commit.
 *
 * A failed batch is undone by letting the groups that it touched go, to be read again from their places when next
 * needed; and where they are not saved, as unlogged state is not between batches, by copies taken when it touched
 * them.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "state_key.h"
#include "state_recover.h"
#include "state_row.h"
#include "state_session.h"
#include "watermark.h"
#include "window.h"

#define MAX_KEY_BYTES 2500		/* what fits an index entry, a third of a page */
#define MIN_LEAKED 1000			/* groups left behind by failed batches that are worth moving the others */
#define FIRST_WINDOW_SLOTS 64
#define FIRST_BUCKETS 16
#define FIRST_BLOCK 1024
#define LAST_BLOCK 65536
#define PIECE_BYTES (8 * 1024 * 1024)	/* of groups read to be emitted together */

static int	state_memory = 256 * 1024;	/* kB */

void
sa_state_init(void)
{
	DefineCustomIntVariable("stream_agg.state_memory",
							"Memory for the groups of one view; colder ones go to its tables.",
							NULL, &state_memory, 256 * 1024, 64, MAX_KILOBYTES,
							PGC_SIGHUP, GUC_UNIT_KB, NULL, NULL, NULL);
}

/* --- set-up --- */

static SaAgg *
create_agg(SaQuery *query, int i)
{
	return sa_agg_create(query->aggs[i].ref, query->aggs[i].columns, query->aggs[i].filter);
}

bool
sa_state_needs_log(SaQuery *query, SaOutputMode mode)
{
	if (query->transform)
		return false;
	if (mode == SA_APPEND || query->having != NULL)
		return true;
	for (int i = 0; i < query->naggs; i++)
		if (!sa_query_agg_in_result(query, create_agg(query, i), i, mode))
			return true;
	return false;
}

/* Forget everything in memory. */
void
sa_state_reset(SaState *state)
{
	MemoryContextReset(state->windows_cxt);
	state->hops = NULL;
	state->nslots = FIRST_WINDOW_SLOTS;
	state->windows = MemoryContextAllocZero(state->windows_cxt, sizeof(SaWindow *) * state->nslots);
	state->last = NULL;
	state->nwindows = 0;
	state->ntouched = 0;
	state->moves = NULL;
	state->nmoves = state->maxmoves = 0;
	state->index = NULL;
	ItemPointerSetInvalid(&state->mark);
	state->batch = state->last_logged = 0;
	state->recovered = false;
	state->rebuilding = false;
}

static void
refuse_query(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("the definition of the continuous view has changed its columns or states")));
}

void
sa_state_set_query(SaState *state, SaQuery *query)
{
	MemoryContext old = MemoryContextSwitchTo(query->cxt);
	SaCodec    *codecs = palloc0(sizeof(SaCodec) * (query->nkeys + 2));
	SaKeyInfo  *keys;
	SaAgg	  **aggs = palloc0(sizeof(SaAgg *) * (query->naggs + 1));
	bool	   *in_result = palloc0(sizeof(bool) * (query->naggs + 1));
	bool		same_shapes = true;

	if (state->has_panes && !sa_query_has_panes(query, state->mode))
		refuse_query();
	if (state->query && (query->nkeys != state->query->nkeys || query->naggs != state->naggs))
		refuse_query();
	for (int i = 0; i < query->nkeys; i++)
		sa_codec_init(&codecs[i], query->keys[i].type, query->cxt);
	for (int i = 0; i < 2; i++)
		sa_codec_init(&codecs[query->nkeys + i], INT8OID, query->cxt);
	for (int i = 0; i < query->naggs; i++)
	{
		aggs[i] = create_agg(query, i);
		in_result[i] = sa_query_agg_in_result(query, aggs[i], i, state->mode);
		if (state->query == NULL)
			continue;
		if (sa_agg_state_type(aggs[i]) != sa_agg_state_type(state->aggs[i]))
			refuse_query();		/* the states at hand would be taken for what they are not */
		same_shapes &= sa_agg_same_shape(aggs[i], state->aggs[i]);
	}
	keys = sa_state_key_create(query);
	MemoryContextSwitchTo(old);

	/* Errors have left everything as it was. */
	sa_state_drop_hops(state);
	state->query = query;
	state->has_panes = sa_query_has_panes(query, state->mode);
	state->sessions = query->sessions;
	state->nown = query->nkeys;
	state->nkeys = query->nkeys + (query->sessions ? 2 : 0);
	state->node_at = MAXALIGN(sizeof(SaGroup) + sizeof(SaTrans) * query->naggs + (sizeof(Datum) + sizeof(bool)) * state->nkeys);
	state->naggs = query->naggs;
	state->keys = keys;
	state->codecs = codecs;
	state->aggs = aggs;
	state->in_result = in_result;
	state->any_in_result = false;
	for (int i = 0; i < query->naggs; i++)
		state->any_in_result |= in_result[i];
	if (!same_shapes)
		sa_state_reset(state);		/* what is on disk is checked when it is read back */
}

bool
sa_state_keeps_shape(const SaState *state)
{
	for (int i = 0; i < state->naggs; i++)
		if (!sa_agg_keeps_shape(state->aggs[i]))
			return false;
	return true;
}

SaState *
sa_state_create(SaQuery *query, SaOutputMode mode, Oid result, Oid log, Oid spill, MemoryContext parent)
{
	MemoryContext cxt = AllocSetContextCreate(parent, "stream_agg state", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(cxt);
	SaState    *state = palloc0(sizeof(SaState));

	state->cxt = cxt;
	state->windows_cxt = AllocSetContextCreate(cxt, "stream_agg windows", ALLOCSET_DEFAULT_SIZES);
	state->undo_cxt = GenerationContextCreate(cxt, "stream_agg undo", ALLOCSET_DEFAULT_SIZES);
	state->mode = mode;
	state->keeps_rows = mode != SA_APPEND;
	state->result = result;
	state->logs[SA_LOG].relid = log;
	state->logs[SA_SPILL].relid = spill;
	state->needs_log = OidIsValid(log);
	state->run = sa_agg_run_create(cxt);
	sa_state_reset(state);
	sa_state_set_query(state, query);
	state->row_keys = palloc0(sizeof(Datum) * (state->nkeys + 1));
	state->row_nulls = palloc0(sizeof(bool) * (state->nkeys + 1));
	MemoryContextSwitchTo(old);
	return state;
}

void
sa_state_hold(SaState *state)
{
	state->held = true;
}

void
sa_state_keep_rows(SaState *state)
{
	state->keeps_rows = true;
}

/* --- windows --- */

static SaWindow **
window_slot(SaState *state, int64 end)
{
	return &state->windows[sa_hash_int64(end) & (state->nslots - 1)];
}

static SaWindow *
find_window(SaState *state, int64 start, int64 end)
{
	SaWindow   *window = state->last;

	if (window && window->end == end && window->start == start)
		return window;
	for (window = *window_slot(state, end); window; window = window->next)
		if (window->end == end && window->start == start)
			break;
	if (window)
		state->last = window;
	return window;
}

static void
grow_window_slots(SaState *state)
{
	SaWindow  **old = state->windows;
	uint32		nold = state->nslots;

	state->nslots *= 2;
	state->windows = MemoryContextAllocZero(state->windows_cxt, sizeof(SaWindow *) * state->nslots);
	for (uint32 i = 0; i < nold; i++)
	{
		SaWindow   *next;

		for (SaWindow *window = old[i]; window; window = next)
		{
			SaWindow  **slot = window_slot(state, window->end);

			next = window->next;
			window->next = *slot;
			*slot = window;
		}
	}
	pfree(old);
}

/* No groups in memory; what memory they had must be gone. */
void
sa_state_start_groups(SaWindow *window, uint32 nbuckets)
{
	window->nbuckets = nbuckets;
	window->buckets = MemoryContextAllocZero(window->hot, sizeof(SaGroup *) * window->nbuckets);
	window->ngroups = 0;
	window->leaked = 0;
	window->arena = (SaArena) {.cxt = window->hot, .size = FIRST_BLOCK};
}

static SaWindow *
create_window(SaState *state, int64 start, int64 end)
{
	MemoryContext cxt = AllocSetContextCreate(state->windows_cxt, "stream_agg window", ALLOCSET_SMALL_SIZES);
	SaWindow   *window = MemoryContextAllocZero(cxt, sizeof(SaWindow));
	SaWindow  **slot;

	if (state->nwindows >= state->nslots)
		grow_window_slots(state);
	slot = window_slot(state, end);
	window->cxt = cxt;
	window->hot = AllocSetContextCreate(cxt, "stream_agg groups", ALLOCSET_SMALL_SIZES);
	sa_state_start_groups(window, FIRST_BUCKETS);
	window->start = start;
	window->end = end;
	window->last_end = sa_state_last_end(state, start, end);
	window->fresh = true;
	window->birth = state->batch;
	window->next = *slot;
	*slot = window;
	state->nwindows++;
	state->last = window;
	return window;
}

int64
sa_state_last_end(const SaState *state, int64 start, int64 end)
{
	const SaQuery *query = state->query;

	return state->has_panes ?
		sa_window_hop_last(start, query->window_size, query->hop_slide, query->hop_origin) : end;
}

SaWindow *
sa_state_window(SaState *state, int64 start, int64 end)
{
	SaWindow   *window = find_window(state, start, end);

	return window ? window : create_window(state, start, end);
}

void
sa_state_drop_window(SaState *state, SaWindow *window)
{
	SaWindow  **link = window_slot(state, window->end);

	while (*link != window)
		link = &(*link)->next;
	*link = window->next;
	state->last = NULL;
	state->nwindows--;
	MemoryContextDelete(window->cxt);
}

/* Calls fn for every window; fn may drop the one it is called for. */
void
sa_state_each_window(SaState *state, void (*fn) (SaState *state, SaWindow *window, void *arg), void *arg)
{
	for (uint32 i = 0; i < state->nslots; i++)
	{
		SaWindow   *next;

		for (SaWindow *window = state->windows[i]; window; window = next)
		{
			next = window->next;
			fn(state, window, arg);
		}
	}
}

/* --- groups --- */

void *
sa_state_cut(SaArena *arena, Size size)
{
	char	   *result;

	if (arena->left < size)
	{
		Size		block = Max(arena->size, size);

		arena->free = MemoryContextAlloc(arena->cxt, block);
		arena->left = block;
		arena->size = Min(arena->size * 2, LAST_BLOCK);
	}
	result = arena->free;
	arena->free += size;
	arena->left -= size;
	return result;
}

SaGroup *
sa_state_make_group(SaState *state, SaArena *arena, Datum *keys, bool *nulls)
{
	Size		fixed = state->node_at + (state->sessions ? sizeof(SaSessionNode *) : 0);
	Size		most = fixed + sa_state_key_width(state, keys, nulls) + MAXIMUM_ALIGNOF * state->nkeys;
	SaGroup    *group = sa_state_cut(arena, most);
	char	   *end;

	memset(group, 0, sizeof(SaGroup));
	ItemPointerSetInvalid(&group->place.chunk);
	ItemPointerSetInvalid(&group->result_tid);
	end = sa_state_copy_keys(state, group, keys, nulls, (char *) group + fixed);
	arena->left += arena->free - end;
	arena->free = end;
	return group;
}

void
sa_state_start_states(SaState *state, MemoryContext cxt, SaGroup *group)
{
	sa_agg_run_in(state->run, cxt);
	for (int i = 0; i < state->naggs; i++)
		sa_agg_start(state->aggs[i], state->run, &sa_group_states(group)[i]);
}

static void
grow_buckets(SaWindow *window)
{
	uint32		n = window->nbuckets * 2;
	SaGroup   **buckets = MemoryContextAllocExtended(window->hot, sizeof(SaGroup *) * n,
													 MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);

	for (uint32 i = 0; i < window->nbuckets; i++)
	{
		SaGroup    *next;

		for (SaGroup *group = window->buckets[i]; group; group = next)
		{
			next = group->next;
			group->next = buckets[group->hash & (n - 1)];
			buckets[group->hash & (n - 1)] = group;
		}
	}
	pfree(window->buckets);
	window->buckets = buckets;
	window->nbuckets = n;
}

void
sa_state_add(SaWindow *window, SaGroup *group)
{
	SaGroup   **bucket;

	if (window->ngroups >= window->nbuckets)
		grow_buckets(window);
	bucket = &window->buckets[group->hash & (window->nbuckets - 1)];
	group->next = *bucket;
	*bucket = group;
	window->ngroups++;
}

void
sa_state_remove(SaWindow *window, SaGroup *group)
{
	SaGroup   **link = &window->buckets[group->hash & (window->nbuckets - 1)];

	while (*link != group)
		link = &(*link)->next;
	*link = group->next;
	window->ngroups--;
	window->leaked++;
}

/* Keys and states from the group's entry in a log. */
static SaGroup *
load_from_log(SaState *state, SaWindow *window, const SaColdEntry *entry, Datum *keys, bool *nulls)
{
	SaLogReader reader;
	TupleTableSlot *slot = sa_state_log_seek(state, &reader, entry->place);
	SaGroup    *group;

	sa_state_log_keys(state, &reader, keys, nulls);
	group = sa_state_make_group(state, &window->arena, keys, nulls);
	sa_state_start_states(state, window->hot, group);
	sa_state_log_states(state, &reader, window->hot, group);
	ExecDropSingleTupleTableSlot(slot);
	return group;
}

SaGroup *
sa_state_load(SaState *state, SaWindow *window, const SaColdEntry *entry)
{
	Datum	   *keys = palloc(sizeof(Datum) * (state->nkeys + 1));
	bool	   *nulls = palloc(sizeof(bool) * (state->nkeys + 1));
	SaGroup    *group = NULL;

	if (state->needs_log)
		group = load_from_log(state, window, entry, keys, nulls);
	if (group == NULL || (state->any_in_result && ItemPointerIsValid(&entry->row)))
		group = sa_state_load_row(state, window, entry, group, keys, nulls);
	group->hash = entry->hash;
	group->place = entry->place;
	group->result_tid = entry->row;
	group->row_unread = window->rows_unread && !ItemPointerIsValid(&entry->row);
	sa_state_add(window, group);
	pfree(keys);
	pfree(nulls);
	return group;
}

/* Bring the group found by this search back into memory. */
static SaGroup *
revive(SaState *state, SaWindow *window, SaColdSearch *search)
{
	SaGroup    *group = sa_state_load(state, window, &search->found);

	sa_cold_remove(search);
	return group;
}

static SaGroup *
find_cold(SaState *state, SaWindow *window, uint32 hash, const Datum *keys, const bool *nulls)
{
	SaColdSearch search;

	sa_cold_search(&search, window->cold, hash);
	while (sa_cold_next(&search))
	{
		SaGroup    *group = revive(state, window, &search);

		if (sa_state_equal_keys(state, group, keys, nulls))
			return group;
	}
	return NULL;
}

SaGroup *
sa_state_create_group(SaState *state, SaWindow *window, uint32 hash, Datum *keys, bool *nulls)
{
	SaGroup    *group = sa_state_make_group(state, &window->arena, keys, nulls);

	sa_state_start_states(state, window->hot, group);
	group->hash = hash;
	if (state->sessions)
		sa_session_add(state, group, hash);
	sa_state_add(window, group);
	return group;
}

SaGroup *
sa_state_look_up(SaState *state, SaWindow *window, uint32 hash, const Datum *keys, const bool *nulls)
{
	if (state->sessions)
		return sa_session_look_up(state, window, hash, keys, nulls);
	for (SaGroup *group = window->buckets[hash & (window->nbuckets - 1)]; group; group = group->next)
		if (group->hash == hash && sa_state_equal_keys(state, group, keys, nulls))
			return group;
	return window->cold ? find_cold(state, window, hash, keys, nulls) : NULL;
}

SaGroup *
sa_state_find(SaState *state, SaWindow *window, uint32 hash, Datum *keys, bool *nulls, bool *found)
{
	SaGroup    *group = sa_state_look_up(state, window, hash, keys, nulls);

	*found = group != NULL;
	if (group)
		return group;
	return sa_state_create_group(state, window, hash, keys, nulls);
}

/* Copies of all states of a group, until the end of the batch. */
static SaTrans *
save_states(SaState *state, SaWindow *window, SaGroup *group)
{
	SaTrans    *saved = MemoryContextAlloc(state->undo_cxt, sizeof(SaTrans) * (state->naggs + 1));

	sa_agg_run_in(state->run, window->hot);
	for (int i = 0; i < state->naggs; i++)
		sa_agg_save(state->aggs[i], state->run, &sa_group_states(group)[i], &saved[i], state->undo_cxt);
	return saved;
}

/* In new memory: what a transition function that failed has left of the old ones is nobody's business. */
static void
restore_states(SaState *state, SaWindow *window, SaGroup *group, const SaTrans *saved)
{
	sa_agg_run_in(state->run, window->hot);
	for (int i = 0; i < state->naggs; i++)
		sa_agg_restore(state->aggs[i], state->run, &sa_group_states(group)[i], &saved[i]);
}

static void
grow_touched(SaState *state)
{
	Size		n = Max(1024, (Size) state->maxtouched * 2);

	if (state->touched)
		state->touched = repalloc_huge(state->touched, n * sizeof(SaTouched));
	else
		state->touched = MemoryContextAllocHuge(state->cxt, n * sizeof(SaTouched));
	state->maxtouched = n;
}

/* An error on the way leaves the group as it was. */
void
sa_state_touch(SaState *state, SaWindow *window, SaGroup *group, bool fresh, bool changed)
{
	SaTouched	entry = {
		.group = group,
		.window = window,
		.fresh = fresh,
		.changed = changed,
		.unsaved = group->unsaved,
		.place = group->place,
		.result_tid = group->result_tid
	};

	if (changed && !fresh && state->sessions)
		entry.session = sa_session_save(state, group);
	if (changed && !fresh && group->unsaved)
		entry.undo = save_states(state, window, group);
	if (state->ntouched == state->maxtouched)
		grow_touched(state);
	state->touched[state->ntouched++] = entry;
	group->touched = true;
	window->dirty = true;
	if (!changed)
		return;
	group->unsaved = true;
	group->batch = (uint32) state->batch;
	window->last_batch = state->batch;
}

/* The column from below of a key: the event's own start and end, for sessions. */
static AttrNumber
row_column(const SaQuery *query, int i)
{
	if (i < query->nkeys)
		return query->keys[i].column;
	return i == query->nkeys ? query->start_column : query->end_column;
}

/* The keys of a row from below, into the scratch arrays. */
static void
take_row_keys(SaState *state, const Datum *row, const bool *nulls)
{
	for (int i = 0; i < state->nkeys; i++)
	{
		int			column = row_column(state->query, i) - 1;

		state->row_keys[i] = row[column];
		state->row_nulls[i] = nulls[column];
	}
}

/* A key that would not fit an index entry is the event's fault, found before anything is changed. */
static void
check_key_width(SaState *state)
{
	Size		size = sa_state_key_width(state, state->row_keys, state->row_nulls);

	if (size > MAX_KEY_BYTES)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("grouping key of %zu bytes is too wide for an index", size),
				 errdetail("The limit is %d bytes.", MAX_KEY_BYTES),
				 errhint("Group by a shorter expression, such as a hash of the column.")));
}

uint32
sa_state_hash(SaState *state, const Datum *row, const bool *nulls)
{
	take_row_keys(state, row, nulls);
	check_key_width(state);
	return sa_state_hash_keys(state, state->row_keys, state->row_nulls);
}

void
sa_state_prefetch_bucket(const SaState *state, const SaWindow *window, uint32 hash)
{
	if (state->sessions)
		sa_session_prefetch_root(state, hash);
	else
		__builtin_prefetch(&window->buckets[hash & (window->nbuckets - 1)]);
}

/* Two lines of the cache hold most groups. */
void
sa_state_prefetch_group(const SaGroup *group)
{
	__builtin_prefetch(group);
	__builtin_prefetch((const char *) group + 64);
}

void
sa_state_prefetch_groups(const SaState *state, const SaWindow *window, uint32 hash)
{
	const SaGroup *group;

	if (state->sessions)
	{
		sa_session_prefetch_node(state, hash);
		return;
	}
	group = window->buckets[hash & (window->nbuckets - 1)];
	if (group)
		sa_state_prefetch_group(group);
}

SaGroup *
sa_state_group(SaState *state, SaWindow *window, uint32 hash, const Datum *row, const bool *nulls)
{
	SaGroup    *group;
	bool		found;

	take_row_keys(state, row, nulls);
	if (state->sessions)
		return sa_session_join(state, window, hash, state->row_keys, state->row_nulls);
	group = sa_state_find(state, window, hash, state->row_keys, state->row_nulls, &found);
	if (group->row_unread)
		sa_state_read_row(state, window, group);
	if (!group->touched)
		sa_state_touch(state, window, group, !found, true);
	return group;
}

void
sa_state_advance(SaState *state, SaWindow *window, SaGroup *group, const Datum *row, const bool *nulls)
{
	SaTrans    *trans = sa_group_states(group);

	sa_agg_run_in(state->run, window->hot);
	for (int i = 0; i < state->naggs; i++)
		sa_agg_advance(state->aggs[i], state->run, &trans[i], row, nulls);
}

SaTouched *
sa_state_touched(SaState *state, int *count)
{
	*count = state->ntouched;
	return state->touched;
}

void
sa_state_key_values(SaState *state, const SaGroup *group, Datum *values, bool *nulls)
{
	memcpy(values, sa_group_keys(state, group), sizeof(Datum) * state->nkeys);
	memcpy(nulls, sa_group_nulls(state, group), sizeof(bool) * state->nkeys);
}

void
sa_state_values(SaState *state, SaWindow *window, SaGroup *group, Datum *values, bool *nulls)
{
	int			n = state->nkeys;

	sa_state_key_values(state, group, values, nulls);
	if (state->query->windowed && !state->sessions)
	{
		values[n] = TimestampTzGetDatum(window->start);
		nulls[n++] = false;
		values[n] = TimestampTzGetDatum(window->end);
		nulls[n++] = false;
	}
	sa_agg_run_in(state->run, window->hot);
	for (int i = 0; i < state->naggs; i++, n++)
		values[n] = sa_agg_final(state->aggs[i], state->run, &sa_group_states(group)[i], &nulls[n]);
}

/* --- closing --- */

static int
compare_window_end(const ListCell *a, const ListCell *b)
{
	int64		x = ((SaWindow *) lfirst(a))->last_end;
	int64		y = ((SaWindow *) lfirst(b))->last_end;

	return x < y ? -1 : x > y;
}

List *
sa_state_closing(SaState *state, TimestampTz watermark)
{
	List	   *result = NIL;

	if (!state->query->windowed || state->sessions)
		return NIL;
	for (uint32 i = 0; i < state->nslots; i++)
		for (SaWindow *window = state->windows[i]; window; window = window->next)
			if (!window->forgotten && sa_watermark_closes(window->last_end, watermark))
				result = lappend(result, window);
	list_sort(result, compare_window_end);
	state->closing = Max(state->closed, watermark);
	return result;
}

TimestampTz
sa_state_window_end(const SaWindow *window)
{
	return window->end;
}

TimestampTz
sa_state_next_close(SaState *state, TimestampTz floor)
{
	TimestampTz next = DT_NOEND;

	if (state->sessions)
		return sa_session_next_close(state, floor);
	for (uint32 i = 0; i < state->nslots; i++)
		for (SaWindow *window = state->windows[i]; window; window = window->next)
			if (!window->forgotten && !sa_watermark_closes(window->end, floor))
				next = Min(next, window->end);
	return next;
}

SaTouched *
sa_state_corrected(SaState *state, TimestampTz floor, int *count)
{
	SaTouched  *corrected = MemoryContextAllocHuge(CurrentMemoryContext, sizeof(SaTouched) * ((Size) state->ntouched + 1));

	*count = 0;
	for (int i = 0; i < state->ntouched; i++)
		if (sa_watermark_closes(state->touched[i].window->end, floor))
			corrected[(*count)++] = state->touched[i];
	return corrected;
}

/* Groups that are read to be emitted: out of memory again as soon as they are. */
typedef struct Piece
{
	MemoryContext cxt;
	SaArena		arena;
	SaTouched  *groups;
	int			n;
	int			nhot;			/* the first so many are in memory */
	int			max;
	int64		total;
	bool		keep;			/* the rows are to be known */
	SaGroupsCallback fn;
	void	   *arg;
} Piece;

static void
begin_piece(Piece *piece)
{
	MemoryContextReset(piece->cxt);
	piece->arena = (SaArena) {.cxt = piece->cxt, .size = FIRST_BLOCK};
	piece->n = piece->nhot = 0;
	piece->max = 1024;
	piece->groups = MemoryContextAlloc(piece->cxt, sizeof(SaTouched) * piece->max);
}

static void
add_to_piece(Piece *piece, SaWindow *window, SaGroup *group)
{
	if (piece->n == piece->max)
		piece->groups = repalloc_huge(piece->groups, sizeof(SaTouched) * (piece->max *= 2));
	piece->groups[piece->n++] = (SaTouched) {.group = group, .window = window};
	piece->total++;
}

static void
set_cold_row(SaWindow *window, const SaGroup *group)
{
	SaColdSearch search;

	sa_cold_search(&search, window->cold, group->hash);
	while (sa_cold_next(&search))
		if (search.found.place.index == group->place.index &&
			ItemPointerEquals(&search.found.place.chunk, unconstify(ItemPointerData *, &group->place.chunk)))
			sa_cold_set_row(&search, &group->result_tid);
}

static void
emit_piece(SaWindow *window, Piece *piece)
{
	piece->fn(piece->groups, piece->n, piece->arg);
	for (int i = piece->nhot; piece->keep && i < piece->n; i++)
		set_cold_row(window, piece->groups[i].group);
}

static void
read_to_piece(SaState *state, SaWindow *window, SaLogReader *reader, const SaColdEntry *entry, Piece *piece)
{
	SaGroup    *group = sa_state_make_group(state, &piece->arena, state->row_keys, state->row_nulls);

	group->hash = entry->hash;
	group->place = entry->place;
	group->result_tid = entry->row;
	sa_state_start_states(state, piece->cxt, group);
	sa_state_log_states(state, reader, piece->cxt, group);
	add_to_piece(piece, window, group);
}

static bool
is_full(const Piece *piece)
{
	return MemoryContextMemAllocated(piece->cxt, false) >= PIECE_BYTES;
}

static void
emit_entry(SaState *state, SaWindow *window, SaLogReader *reader, const SaColdEntry *entry, void *arg)
{
	Piece	   *piece = arg;

	read_to_piece(state, window, reader, entry, piece);
	if (!is_full(piece))
		return;
	emit_piece(window, piece);
	begin_piece(piece);
}

void
sa_state_emit(SaState *state, SaWindow *window, bool keep, SaGroupsCallback fn, void *arg)
{
	Piece		piece = {.fn = fn, .arg = arg, .keep = keep};

	piece.cxt = AllocSetContextCreate(CurrentMemoryContext, "stream_agg piece", ALLOCSET_DEFAULT_SIZES);
	window->emitted = keep;
	begin_piece(&piece);
	for (uint32 i = 0; i < window->nbuckets; i++)
		for (SaGroup *group = window->buckets[i]; group; group = group->next)
			add_to_piece(&piece, window, group);
	piece.nhot = piece.n;
	if (window->cold)
		sa_state_log_each_cold(state, window, emit_entry, &piece);
	if (piece.total != sa_state_window_size(state, window))
		sa_state_lost(state->logs[SA_LOG].relid);
	emit_piece(window, &piece);
	MemoryContextDelete(piece.cxt);
}

static int
compare_node_place(const void *a, const void *b)
{
	const SaSessionNode *x = *(SaSessionNode *const *) a;
	const SaSessionNode *y = *(SaSessionNode *const *) b;
	int			order = (x->place.index & SA_IN_SPILL) - (y->place.index & SA_IN_SPILL);

	if (order == 0)
		order = ItemPointerCompare(unconstify(ItemPointerData *, &x->place.chunk), unconstify(ItemPointerData *, &y->place.chunk));
	return order != 0 ? order : x->place.index - y->place.index;
}

/* From its place in the log. */
static void
read_session(SaState *state, SaWindow *window, const SaSessionNode *session, Piece *piece)
{
	SaColdEntry entry = sa_session_entry(session);
	SaLogReader reader;
	MemoryContext old = MemoryContextSwitchTo(piece->cxt);
	TupleTableSlot *slot = sa_state_log_seek(state, &reader, entry.place);

	sa_state_log_keys(state, &reader, state->row_keys, state->row_nulls);
	read_to_piece(state, window, &reader, &entry, piece);
	ExecDropSingleTupleTableSlot(slot);
	MemoryContextSwitchTo(old);
}

/* cold: the sessions of the groups that are not in memory. */
static void
emit_sessions(Piece *piece, SaSessionNode **cold)
{
	piece->fn(piece->groups, piece->n, piece->arg);
	for (int i = piece->nhot; piece->keep && i < piece->n; i++)
		cold[i - piece->nhot]->row = piece->groups[i].group->result_tid;
}

void
sa_state_emit_sessions(SaState *state, SaWindow *window, SaSessionNode **sessions, int64 n, bool keep,
					   SaGroupsCallback fn, void *arg)
{
	Piece		piece = {.fn = fn, .arg = arg, .keep = keep};
	SaSessionNode **cold = MemoryContextAllocHuge(CurrentMemoryContext, sizeof(SaSessionNode *) * (n + 1));
	int64		ncold = 0;
	int64		done = 0;

	piece.cxt = AllocSetContextCreate(CurrentMemoryContext, "stream_agg piece", ALLOCSET_DEFAULT_SIZES);
	begin_piece(&piece);
	for (int64 i = 0; i < n; i++)
	{
		if (sessions[i]->group)
			add_to_piece(&piece, window, sessions[i]->group);
		else
			cold[ncold++] = sessions[i];
	}
	piece.nhot = piece.n;
	qsort(cold, ncold, sizeof(SaSessionNode *), compare_node_place);
	for (int64 i = 0; i < ncold; i++)
	{
		CHECK_FOR_INTERRUPTS();
		read_session(state, window, cold[i], &piece);
		if (!is_full(&piece))
			continue;
		emit_sessions(&piece, cold + done);
		done = i + 1;
		begin_piece(&piece);
	}
	emit_sessions(&piece, cold + done);
	MemoryContextDelete(piece.cxt);
	pfree(cold);
}

void
sa_state_forget(SaState *state, SaWindow *window)
{
	window->forgotten = true;
}

/* --- the end of a batch --- */

void
sa_state_commit_window(SaState *state, SaWindow *window, void *arg)
{
	if (window->forgotten)
	{
		sa_state_drop_window(state, window);
		return;
	}
	window->fresh = false;
	window->emitted = false;
	window->dirty = false;
	window->spill = SPILL_NONE;
	sa_state_log_commit(window);
}

static void
end_batch(SaState *state)
{
	state->ntouched = 0;
	state->moves = NULL;
	state->nmoves = state->maxmoves = 0;
	state->finder = NULL;
	MemoryContextReset(state->undo_cxt);
	for (int i = 0; i < SA_NLOGS; i++)
		state->logs[i].chunks_deleted = 0;
}

void
sa_state_commit(SaState *state)
{
	for (int i = 0; i < state->ntouched; i++)
	{
		SaGroup    *group = state->touched[i].group;

		group->touched = false;
		group->unsaved &= state->unlogging;
	}
	state->unlogged = state->unlogging;
	if (!state->unlogged)
		state->last_logged = state->batch;
	state->closed = state->closing;
	for (int i = 0; i < SA_NLOGS; i++)
		state->logs[i].dead_chunks += state->logs[i].chunks_deleted;
	if (!state->rebuilding)
		ItemPointerSetInvalid(&state->mark);
	sa_session_commit(state);
	end_batch(state);
	sa_state_each_window(state, sa_state_commit_window, NULL);
}

/* Put hot groups for which `leaves` holds into the cold index; their memory stays behind.  Returns how many. */
static int64
put_out(SaState *state, SaWindow *window, bool (*leaves) (SaState *state, SaGroup *group))
{
	SaColdEntry *entries = MemoryContextAllocHuge(state->undo_cxt, sizeof(SaColdEntry) * (window->ngroups + 1));
	int64		n = 0;

	for (uint32 i = 0; i < window->nbuckets; i++)
	{
		SaGroup   **link = &window->buckets[i];

		while (*link)
		{
			SaGroup    *group = *link;

			if (!leaves(state, group))
			{
				link = &group->next;
				continue;
			}
			if (state->sessions)
				sa_session_let_go(state, group);
			else
				entries[n] = (SaColdEntry) {.hash = group->hash, .place = group->place, .row = group->result_tid};
			n++;
			*link = group->next;
		}
	}
	if (n > 0 && !state->sessions)
	{
		if (window->cold == NULL)
			window->cold = sa_cold_create(window->cxt, state->needs_log, state->keeps_rows);
		sa_cold_add(window->cold, entries, n);
	}
	pfree(entries);
	window->ngroups -= n;
	window->leaked += n;
	return n;
}

/* The hot groups into new memory, without what others have left in the old one. */
static void
move_groups(SaState *state, SaWindow *window)
{
	SaGroup   **buckets = window->buckets;
	uint32		nbuckets = window->nbuckets;
	MemoryContext old = window->hot;

	window->hot = AllocSetContextCreate(window->cxt, "stream_agg groups", ALLOCSET_SMALL_SIZES);
	sa_state_start_groups(window, FIRST_BUCKETS);
	for (uint32 i = 0; i < nbuckets; i++)
		for (SaGroup *group = buckets[i]; group; group = group->next)
		{
			SaGroup    *copy = sa_state_make_group(state, &window->arena, sa_group_keys(state, group),
												   sa_group_nulls(state, group));

			copy->hash = group->hash;
			copy->batch = group->batch;
			copy->place = group->place;
			copy->result_tid = group->result_tid;
			copy->row_unread = group->row_unread;
			copy->unsaved = group->unsaved;
			restore_states(state, window, copy, sa_group_states(group));
			if (state->sessions)
				sa_session_move(state, group, copy);
			sa_state_add(window, copy);
		}
	MemoryContextDelete(old);
}

/* The batch has changed it, and what it was is in its place. */
static bool
is_spoilt(SaState *state, SaGroup *group)
{
	return group->touched;
}

/* The batch has given the window's groups their rows. */
static void
take_rows_back(SaWindow *window)
{
	ItemPointerData none;
	SaColdSearch search;

	ItemPointerSetInvalid(&none);
	for (uint32 i = 0; i < window->nbuckets; i++)
		for (SaGroup *group = window->buckets[i]; group; group = group->next)
			group->result_tid = none;
	if (window->cold == NULL)
		return;
	sa_cold_walk(&search, window->cold);
	while (sa_cold_next_of_all(&search))
		sa_cold_set_row(&search, &none);
}

static void
abort_window(SaState *state, SaWindow *window, void *arg)
{
	window->forgotten = false;
	window->spill = SPILL_NONE;
	if (window->fresh)
	{
		sa_state_drop_window(state, window);
		return;
	}
	sa_state_log_abort(window);
	if (window->dirty)
		(void) put_out(state, window, is_spoilt);
	window->dirty = false;
	if (window->emitted)
		take_rows_back(window);
	window->emitted = false;
	if (window->leaked > Max(window->ngroups, MIN_LEAKED))
		move_groups(state, window);
}

static void
undo(SaState *state, SaTouched *entry)
{
	SaGroup    *group = entry->group;

	group->place = entry->place;
	group->result_tid = entry->result_tid;
	group->unsaved = entry->unsaved;
	group->touched = entry->changed && !entry->fresh && entry->undo == NULL;
	if (entry->session || (state->sessions && entry->fresh))
		sa_session_undo(state, entry);
	else if (entry->fresh)
		sa_state_remove(entry->window, group);
	if (entry->undo)
	{
		restore_states(state, entry->window, group, entry->undo);
		entry->window->leaked++;
	}
}

void
sa_state_abort(SaState *state)
{
	sa_state_drop_hops(state);
	if (!state->recovered && !state->rebuilding)
	{
		sa_state_reset(state);
		end_batch(state);
		return;
	}
	sa_state_log_undo_moves(state);
	sa_session_abort(state);
	for (int i = 0; i < state->ntouched; i++)
		undo(state, &state->touched[i]);
	end_batch(state);
	sa_state_each_window(state, abort_window, NULL);
}

/* --- memory --- */

int64
sa_state_limit(void)
{
	return state_memory * INT64CONST(1024);
}

int64
sa_state_excess(SaState *state)
{
	int64		limit = sa_state_limit();
	int64		bytes = state->held ? 0 : MemoryContextMemAllocated(state->windows_cxt, true);

	return bytes <= limit ? 0 : bytes - limit * 3 / 4;
}

static bool
is_saved(SaState *state, SaGroup *group)
{
	return !group->unsaved && !group->touched;
}

static bool
is_old(SaState *state, SaGroup *group)
{
	return is_saved(state, group) && group->batch != (uint32) state->batch;
}

int64
sa_state_window_size(const SaState *state, const SaWindow *window)
{
	return state->sessions ? sa_session_count(state) : window->ngroups + (window->cold ? sa_cold_count(window->cold) : 0);
}

int64
sa_state_hot_bytes(const SaWindow *window)
{
	return MemoryContextMemAllocated(window->hot, true);
}

/* Returns the bytes freed. */
static int64
cool_down(SaState *state, SaWindow *window, bool (*leaves) (SaState *state, SaGroup *group))
{
	int64		before = MemoryContextMemAllocated(window->cxt, true);

	if (put_out(state, window, leaves) == 0)
		return 0;
	if (window->ngroups > 0)
		move_groups(state, window);
	else
	{
		MemoryContextReset(window->hot);
		sa_state_start_groups(window, FIRST_BUCKETS);
	}
	return before - (int64) MemoryContextMemAllocated(window->cxt, true);
}

static int
compare_last_batch(const void *a, const void *b)
{
	uint64		x = (*(SaWindow *const *) a)->last_batch;
	uint64		y = (*(SaWindow *const *) b)->last_batch;

	return x < y ? -1 : x > y;
}

SaWindow **
sa_state_hot_windows(SaState *state, int *count)
{
	SaWindow  **windows = palloc(sizeof(SaWindow *) * (state->nwindows + 1));
	int			n = 0;

	for (uint32 i = 0; i < state->nslots; i++)
		for (SaWindow *window = state->windows[i]; window; window = window->next)
			if (window->ngroups > 0 && !window->forgotten)
				windows[n++] = window;
	qsort(windows, n, sizeof(SaWindow *), compare_last_batch);
	*count = n;
	return windows;
}

/* Sessions that are gone have left their memory in a window that stays. */
static void
leave_gone_behind(SaState *state, SaWindow *window, void *arg)
{
	if (window->leaked > Max(window->ngroups, MIN_LEAKED))
		move_groups(state, window);
}

/* First groups that the last batch has not touched go, the coldest windows first, then any. */
void
sa_state_make_room(SaState *state)
{
	int64		excess = sa_state_excess(state);
	SaWindow  **windows;
	int			n;

	Assert(state->ntouched == 0);
	if (state->sessions)
	{
		sa_state_each_window(state, leave_gone_behind, NULL);
		sa_session_compact(state);
		excess = sa_state_excess(state);
	}
	if (excess == 0)
		return;
	sa_state_drop_hops(state);
	excess = sa_state_excess(state);
	windows = sa_state_hot_windows(state, &n);
	for (int i = 0; i < n && excess > 0; i++)
		excess -= cool_down(state, windows[i], is_old);
	for (int i = 0; i < n && excess > 0; i++)
		excess -= cool_down(state, windows[i], is_saved);
	pfree(windows);
}

/* The next end that is to come, of this window or of those that a pane is part of. */
static void
note_end(const SaState *state, const SaWindow *window, SaStateSize *size)
{
	int64		end = state->has_panes ? sa_window_hop_after(window->end, state->query->hop_slide, state->closed) : window->end;

	if (end != SA_NO_WINDOW_END && (TIMESTAMP_IS_NOBEGIN(size->oldest) || end < size->oldest))
		size->oldest = end;
}

void
sa_state_size(SaState *state, SaStateSize *size)
{
	memset(size, 0, sizeof(*size));
	size->oldest = DT_NOBEGIN;
	size->batch = state->batch;
	size->first_birth = PG_UINT64_MAX;
	for (uint32 i = 0; i < state->nslots; i++)
		for (SaWindow *window = state->windows[i]; window; window = window->next)
		{
			int64		groups;

			if (window->forgotten)
				continue;
			groups = sa_state_window_size(state, window);
			size->groups += groups;
			size->windows += state->sessions ? groups : 1;
			size->largest = Max(size->largest, state->sessions ? Min(groups, 1) : groups);
			note_end(state, window, size);
			size->first_birth = Min(size->first_birth, window->birth);
			size->last_birth = Max(size->last_birth, window->birth);
		}
	if (state->sessions)
	{
		size->oldest = sa_session_first_end(state);
		sa_session_births(state, &size->first_birth, &size->last_birth);
	}
	size->bytes = MemoryContextMemAllocated(state->windows_cxt, true);
}
