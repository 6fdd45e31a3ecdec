/*
 * pipeline.c
 *		A view's part of a batch: query, fold, close, write, position.
 *
 * Invariant: a view's part stands or falls as one subtransaction, so its neighbours never notice; what it
 * changed in memory is kept at commit and undone otherwise (state.c).
 *
 * Everything of the user's runs as the view's owner in a security-restricted operation; positions and
 * dead letters are written as the worker.  Locks, in this order: the stream, the result table, the tables
 * of the query, the state log, the tables of schema stream_agg.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "common/int.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/datetime.h"
#include "utils/datum.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "advance.h"
#include "batch_scan.h"
#include "clock.h"
#include "commit.h"
#include "deadletter.h"
#include "duplicate.h"
#include "fault.h"
#include "lateness.h"
#include "owner.h"
#include "pipeline.h"
#include "rebuild.h"
#include "replay.h"
#include "state_recover.h"
#include "watermark.h"
#include "window.h"

#define MAX_MESSAGE 1000			/* bytes of an error kept with the view */
#define MAX_CUTS 64				/* kept of where windows were born */
#define BLOCK_ROWS 64			/* folded together, so that their groups can be fetched ahead */
#define MAX_KEPT 2				/* states of a view that its results do not hold */

/* How far a run goes. */
typedef enum RunKind
{
	RUN_QUERY,					/* evaluate the query's expressions only */
	RUN_FOLD,					/* and fold */
	RUN_REBUILD,				/* what was folded and lost before */
	RUN_RESTORE,				/* have back unlogged state that has been saved */
	RUN_SAVE,					/* save it */
	RUN_ALL						/* and write */
} RunKind;

/* A view's part of one batch. */
typedef struct Part
{
	SaView	   *view;
	SaBatch    *batch;
	MemoryContext row_cxt;		/* reset after every block of rows */
	RunKind		goal;			/* RUN_REBUILD or one behind it */
	RunKind		kind;			/* of the attempt at hand */
	List	   *places;			/* of SaViewPosition: where the batch begins */
	const SaReplay *replay;		/* the batch is of dead letters; NULL: of records */
	SaReplayFate *fates;		/* per event */
	SaTimekeeping time;
	bool	   *exclude;		/* events that fail by themselves; NULL: none */
	char	  **messages;		/* why, per event */
	bool	   *duplicates;		/* likewise; NULL: not judged yet, or not at all */
	bool	   *seen;			/* likewise: it is the first event that has its key */
	bool	   *hidden;			/* from the query: duplicates, and those that fail; NULL: not both */
	uint8	   *outcomes;
	int64	   *late_windows;	/* per partition of the batch */
	int64	   *corrections;	/* likewise */
	HTAB	   *late_pairs;		/* (event, window) whose window had closed; NULL: none yet */
	int64		(*late_for)[2];	/* per event: the last window that it is late for, empty: none; NULL: no event is */
	SaSketch   *lateness;		/* of late events, behind the watermark; NULL: there are none */
	TimestampTz *base_max;		/* per partition of the batch: the view's running maximum before it */
	SaPane		pane;			/* of the last row; empty: none yet */
	int			nrows;			/* of the block */
	int			ordinals[BLOCK_ROWS];
	Datum	   *values;			/* BLOCK_ROWS rows from below */
	bool	   *nulls;
	bool		writing;		/* an error now is none of the query's */
	bool		stopped;		/* paused or gone */
	bool		outdated;		/* a command has changed the view: its configuration must be read first */
	bool		to_log;			/* state is not to be unlogged after it */
	ErrorData  *error;
} Part;

typedef struct LatePair
{
	int64		end;
	int64		ordinal;
} LatePair;

/* Is the view's state to be unlogged?  Where the results hold all of it, that says nothing. */
static bool
is_unlogged(const SaView *view)
{
	return view->options.unlogged && (OidIsValid(view->config->state) || OidIsValid(view->config->dedup));
}

/* What of the view's state its results do not hold, groups and keys: all of it is unlogged, or none.  How many. */
static int
kept_states(const SaView *view, SaState **states)
{
	int			n = 0;

	if (view->state && OidIsValid(view->config->state))
		states[n++] = view->state;
	if (view->dedup)
		states[n++] = sa_dedup_state(view->dedup);
	return n;
}

/* --- opening and closing --- */

void
sa_pipeline_configure(SaView *view, SaViewConfig *config, const SaStreamOptions *stream)
{
	MemoryContext old;

	if (view->config_cxt == NULL)
		view->config_cxt = AllocSetContextCreate(view->cxt, "stream_agg view options", ALLOCSET_SMALL_SIZES);
	MemoryContextReset(view->config_cxt);
	old = MemoryContextSwitchTo(view->config_cxt);
	view->config = palloc(sizeof(SaViewConfig));
	*view->config = *config;
	view->config->status = pstrdup(config->status);
	view->config->options = copyObject(config->options);
	view->config->settings = copyObject(config->settings);
	sa_option_view(view->config->options, &view->options);
	view->delay = view->options.watermark != SA_NO_DELAY ? view->options.watermark : stream->watermark;
	view->fresh |= is_unlogged(view) != (view->steps != NIL);
	if (view->options.trigger > 0)
		view->next_due = Min(view->next_due, sa_clock_now() + view->options.trigger);
	view->idle_timeout = view->options.idle_timeout >= 0 ? view->options.idle_timeout : stream->idle_timeout;
	MemoryContextSwitchTo(old);
}

static void
adopt_positions(SaView *view, List *positions)
{
	MemoryContext old_cxt = view->positions_cxt;
	MemoryContext old;

	view->positions_cxt = AllocSetContextCreate(view->cxt, "stream_agg positions", ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(view->positions_cxt);
	view->positions = sa_commit_copy(positions);
	view->floor = sa_commit_watermark(view->positions);
	MemoryContextSwitchTo(old);
	if (old_cxt)
		MemoryContextDelete(old_cxt);
}

static void
adopt_steps(SaView *view, List *steps)
{
	MemoryContext old_cxt = view->steps_cxt;
	MemoryContext old;

	view->steps_cxt = AllocSetContextCreate(view->cxt, "stream_agg steps", ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(view->steps_cxt);
	view->steps = sa_rebuild_copy(steps);
	MemoryContextSwitchTo(old);
	if (old_cxt)
		MemoryContextDelete(old_cxt);
}

SaView *
sa_pipeline_open(SaViewConfig *config, const SaStreamOptions *stream, MemoryContext parent)
{
	MemoryContext cxt = AllocSetContextCreate(parent, "stream_agg view", ALLOCSET_DEFAULT_SIZES);
	SaView	   *view = MemoryContextAllocZero(cxt, sizeof(SaView));

	view->cxt = cxt;
	adopt_positions(view, sa_catalog_positions(config->id));
	adopt_steps(view, sa_catalog_steps(config->id));
	sa_pipeline_configure(view, config, stream);
	view->fresh |= sa_commit_counter(view->positions, SA_READ) == 0;
	view->next_idle = DT_NOEND;
	view->advance_to = DT_NOBEGIN;
	return view;
}

bool
sa_pipeline_note_requests(SaView *view)
{
	TimestampTz before = view->advance_to;

	view->replays = sa_replay_is_asked(view->config->view);
	view->advance_to = sa_advance_asked(view->config->view);
	return view->advance_to > before;
}

/* What was split and planned for the owner as he was; the state stays. */
static void
unload_view(SaView *view)
{
	if (view->result)
		sa_result_free(view->result);
	if (view->query)
		sa_query_free(view->query);
	view->result = NULL;
	view->query = NULL;
}

void
sa_pipeline_close(SaView *view)
{
	unload_view(view);
	MemoryContextDelete(view->cxt);
}

/*
 * Split the query and prepare state and result; as the owner, anew when there is another one or his rights may
 * have changed.  When he has not all it takes, everything stays as it was.
 */
static void
load_view(SaView *view)
{
	SaQuery    *query;
	SaResult   *result;

	if (view->result && view->owner == GetUserId() && !view->query->outdated &&
		(view->state == NULL || sa_state_keeps_shape(view->state)))
		return;
	query = sa_query_load(view->config->definition, view->config->view, GetUserId());
	query->combines &= view->options.allowed_lateness == 0;
	result = sa_result_create(query, view->config->view, query->cxt);
	if (view->state)
		sa_state_set_query(view->state, query);
	else if (!query->transform)
		view->state = sa_state_create(query, view->options.output_mode, view->config->view, view->config->state,
									  view->config->spill, view->cxt);
	if (view->state && view->options.allowed_lateness > 0)
		sa_state_keep_rows(view->state);
	if (view->options.dedup_key != NIL && view->dedup == NULL)
		view->dedup = sa_dedup_create(query, view->options.dedup_key, &view->options, view->delay, view->config->view,
									  view->config->dedup, view->config->dedup_spill, view->cxt);
	MemoryContextSetParent(query->cxt, view->cxt);
	unload_view(view);
	view->query = query;
	view->result = result;
	view->owner = GetUserId();
}

/* --- one row from the query --- */

/* Count an (event, window) pair whose window had closed once, however many joined rows repeat it. */
static void
note_late_pair(Part *part, int ordinal, int64 end, int64 *counts)
{
	LatePair	pair = {.end = end, .ordinal = ordinal};
	bool		found;

	if (part->late_pairs == NULL)
	{
		HASHCTL		ctl = {.keysize = sizeof(LatePair), .entrysize = sizeof(LatePair), .hcxt = part->batch->cxt};

		part->late_pairs = hash_create("stream_agg late windows", 128, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	hash_search(part->late_pairs, &pair, HASH_ENTER, &found);
	if (!found)
		counts[part->batch->events[ordinal].partition]++;
}

/* For the dead letter that may come of it.  To sessions there is no window yet. */
static void
keep_late_window(Part *part, int ordinal, int64 start, int64 end)
{
	int64	   *kept;

	if (part->view->options.drop_late || part->view->query->sessions)
		return;
	if (part->late_for == NULL)
		part->late_for = MemoryContextAllocZero(part->batch->cxt, sizeof(*part->late_for) * part->batch->nevents);
	kept = part->late_for[ordinal];
	if (kept[0] < kept[1] && kept[1] > end)
		return;
	kept[0] = start;
	kept[1] = end;
}

static void
note_late_window(Part *part, int ordinal, int64 start, int64 end)
{
	if (part->outcomes[ordinal] == SA_OUTCOME_FILTERED)
		part->outcomes[ordinal] = SA_OUTCOME_LATE;
	note_late_pair(part, ordinal, end, part->late_windows);
	keep_late_window(part, ordinal, start, end);
}

/*
 * The watermark by which an event is judged.  DESIGN.md 6.  A view whose delay has been taken away keeps the
 * floor: what was closed by it stays closed.  Dead letters have no place among the records any more: the floor counts.
 */
static TimestampTz
bound_of(Part *part, SaEvent *event)
{
	const SaView *view = part->view;
	const SaBatchPartition *place = &part->batch->partitions[event->partition];
	TimestampTz max_before = Max(event->max_before, part->base_max[event->partition]);
	TimestampTz floor = part->goal == RUN_ALL ? view->floor :
		sa_rebuild_floor(view->steps, place->topic, place->partition, event->position);

	if (view->delay == SA_NO_DELAY || part->replay)
		return floor;
	return sa_watermark_bound(max_before, view->delay, floor);
}

/* In complete mode windows never do, and nothing is late. */
static bool
windows_close(const SaView *view)
{
	return view->options.output_mode != SA_COMPLETE;
}

/* Would an event be late for this window by this bound?  For a session, that is the event's own. */
static bool
is_late_by(const SaView *view, int64 start, int64 end, int64 allowed_lateness, TimestampTz bound)
{
	return view->query->sessions ? sa_watermark_is_late_for_session(start, allowed_lateness, bound) :
		sa_watermark_is_late(end, allowed_lateness, bound);
}

/* Is it?  One that is accepted only because that is allowed is a correction. */
static bool
is_late(Part *part, int ordinal, int64 start, int64 end)
{
	const SaView *view = part->view;
	int64		allowed = view->options.allowed_lateness;
	TimestampTz bound = bound_of(part, &part->batch->events[ordinal]);

	if (!windows_close(view))
		return false;
	if (is_late_by(view, start, end, allowed, bound))
		return true;
	if (allowed > 0 && is_late_by(view, start, end, 0, bound))
		note_late_pair(part, ordinal, end, part->corrections);
	return false;
}

/* Windows that end by here are forgotten, as of this watermark. */
static TimestampTz
horizon_of(const SaView *view, TimestampTz watermark)
{
	return sa_watermark_horizon(watermark, view->options.allowed_lateness);
}

/* The same for that of groups and that of keys, as of the last commit. */
static TimestampTz
horizon_of_state(const SaView *view, const SaState *state)
{
	return state == view->state ? horizon_of(view, view->floor) : view->floor;
}

/* While rebuilding: a window that was there and no longer is.  What becomes of a session, its first event does not say. */
static bool
is_forgotten(const SaView *view, int64 start, int64 end)
{
	return !view->query->sessions &&
		sa_watermark_closes(sa_state_last_end(view->state, start, end), horizon_of(view, view->floor));
}

/* The window of a row, or NULL when it belongs to none or is late for it. */
static SaWindow *
window_of_row(Part *part, int ordinal, const Datum *row, const bool *nulls)
{
	SaQuery    *query = part->view->query;
	int64		start = SA_NO_WINDOW_START;
	int64		end = SA_NO_WINDOW_END;

	if (query->windowed)
	{
		if (nulls[query->start_column - 1] || nulls[query->end_column - 1])
			return NULL;
		start = DatumGetInt64(row[query->start_column - 1]);
		end = DatumGetInt64(row[query->end_column - 1]);
		if (is_late(part, ordinal, start, end))
		{
			note_late_window(part, ordinal, start, end);
			return NULL;
		}
		if (part->goal == RUN_REBUILD && is_forgotten(part->view, start, end))
			return NULL;
	}
	part->outcomes[ordinal] = SA_OUTCOME_ACCEPTED;
	if (part->kind == RUN_QUERY)
	{
		(void) sa_state_hash(part->view->state, row, nulls);	/* a key may be refused */
		return NULL;
	}
	if (query->sessions)
		return sa_state_window(part->view->state, SA_NO_WINDOW_START, SA_NO_WINDOW_END);
	return sa_state_window(part->view->state, start, end);
}

/* Fold the rows gathered so far; their groups' memory is asked for well before it is needed. */
static void
fold_block(Part *part)
{
	SaState    *state = part->view->state;
	int			ncolumns = part->view->query->ncolumns;
	SaWindow   *windows[BLOCK_ROWS];
	uint32		hashes[BLOCK_ROWS];
	MemoryContext old = MemoryContextSwitchTo(part->row_cxt);

	for (int i = 0; i < part->nrows; i++)
	{
		Datum	   *row = part->values + i * ncolumns;
		bool	   *nulls = part->nulls + i * ncolumns;

		windows[i] = window_of_row(part, part->ordinals[i], row, nulls);
		if (windows[i] == NULL)
			continue;
		hashes[i] = sa_state_hash(state, row, nulls);
		sa_state_prefetch_bucket(state, windows[i], hashes[i]);
	}
	for (int i = 0; i < part->nrows; i++)
		if (windows[i])
			sa_state_prefetch_groups(state, windows[i], hashes[i]);
	for (int i = 0; i < part->nrows; i++)
	{
		Datum	   *row = part->values + i * ncolumns;
		bool	   *nulls = part->nulls + i * ncolumns;

		if (windows[i] == NULL)
			continue;
		SA_FAULT("fold", part->view->config->view);
		sa_state_advance(state, windows[i], sa_state_group(state, windows[i], hashes[i], row, nulls), row, nulls);
	}
	part->nrows = 0;
	MemoryContextSwitchTo(old);
	MemoryContextReset(part->row_cxt);
	CHECK_FOR_INTERRUPTS();
}

/* One more row for the block, which is folded when full; what would be gone with the next row is copied. */
static void
gather_row(Part *part, int ordinal, TupleTableSlot *slot, const int64 *window)
{
	SaQuery    *query = part->view->query;
	Datum	   *row;
	bool	   *nulls;

	if (part->nrows == BLOCK_ROWS)
		fold_block(part);
	row = part->values + part->nrows * query->ncolumns;
	nulls = part->nulls + part->nrows * query->ncolumns;
	memcpy(row, slot->tts_values, sizeof(Datum) * query->ncolumns);
	memcpy(nulls, slot->tts_isnull, sizeof(bool) * query->ncolumns);
	for (int i = 0; i < query->ncolumns; i++)
		if (query->fleeting[i] && !nulls[i])
			row[i] = datumCopy(row[i], false, query->lengths[i]);
	if (window)
	{
		row[query->start_column - 1] = TimestampTzGetDatum(window[0]);
		row[query->end_column - 1] = TimestampTzGetDatum(window[1]);
	}
	part->ordinals[part->nrows++] = ordinal;
}

/* A row for each hopping window of the event. */
static void
gather_hops(Part *part, int ordinal, TupleTableSlot *slot)
{
	SaQuery    *query = part->view->query;
	int64		time = DatumGetInt64(slot->tts_values[query->start_column - 1]);
	int64		window[2];

	if (slot->tts_isnull[query->start_column - 1])
		return;
	for (int k = 0; k < query->hop_count; k++)
		if (sa_window_hop(time, query->window_size, query->hop_slide, query->hop_origin, k, &window[0]))
		{
			window[1] = sa_window_end_of(window[0], query->window_size);
			gather_row(part, ordinal, slot, window);
		}
}

/* The same for windows of other kinds. */
static void
gather_windows(Part *part, int ordinal, TupleTableSlot *slot)
{
	SaQuery    *query = part->view->query;
	SaWindowSet *set = query->window_set;

	if (slot->tts_isnull[query->start_column - 1])
		return;
	sa_window_set_find(set, DatumGetInt64(slot->tts_values[query->start_column - 1]));
	for (int i = 0; i < set->nwindows; i++)
		gather_row(part, ordinal, slot, set->windows[i]);
}

/* One row for all hopping windows of the event that it is not late for: for its pane, from the first of them on. */
static void
gather_pane(Part *part, int ordinal, TupleTableSlot *slot)
{
	SaQuery    *query = part->view->query;
	int64		time = DatumGetInt64(slot->tts_values[query->start_column - 1]);
	int64		window[2];

	if (slot->tts_isnull[query->start_column - 1])
		return;
	if (time < part->pane.start || time >= part->pane.stop)
		sa_window_pane(time, query->window_size, query->hop_slide, query->hop_origin, &part->pane);
	window[0] = part->pane.start;
	for (window[1] = part->pane.first_end; is_late(part, ordinal, window[0], window[1]); window[1] += query->hop_slide)
	{
		note_late_window(part, ordinal, window[1] - query->window_size, window[1]);
		if (window[1] == part->pane.last_end)
			return;
	}
	gather_row(part, ordinal, slot, window);
}

/* Without windows, where the keys of events behind the watermark may have been forgotten. */
static bool
is_behind(Part *part, int ordinal)
{
	SaEvent    *event = &part->batch->events[ordinal];

	if (part->view->dedup == NULL || part->view->query->windowed || !sa_dedup_is_late(event, bound_of(part, event)))
		return false;
	part->outcomes[ordinal] = SA_OUTCOME_LATE;
	return true;
}

static void
take_row(TupleTableSlot *row, void *arg)
{
	Part	   *part = arg;
	int			ordinal = sa_batch_tid_to_ordinal((ItemPointer) DatumGetPointer(row->tts_values[SA_CTID_COLUMN - 1]));
	MemoryContext old = MemoryContextSwitchTo(part->row_cxt);

	SA_FAULT("query", part->view->config->view);
	if (is_behind(part, ordinal))
		;						/* late */
	else if (sa_query_has_panes(part->view->query, part->view->options.output_mode))
		gather_pane(part, ordinal, row);
	else if (part->view->query->hop_count > 0)
		gather_hops(part, ordinal, row);
	else if (part->view->query->window_set)
		gather_windows(part, ordinal, row);
	else if (!part->view->query->transform)
		gather_row(part, ordinal, row, NULL);
	else
	{
		part->outcomes[ordinal] = SA_OUTCOME_ACCEPTED;
		if (part->kind == RUN_ALL)
		{
			part->writing = true;
			sa_result_append(part->view->result, row);
			part->writing = false;
		}
	}
	MemoryContextSwitchTo(old);
}

/* --- the stages --- */

/* Has a command changed what we hold of the view? */
static bool
is_current(const SaView *view, const SaViewConfig *config)
{
	return config->id == view->config->id && equal(config->options, view->config->options);
}

static void
lock_at_once(const SaView *view)
{
	if (!ConditionalLockRelationOid(view->config->view, RowExclusiveLock))
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("another transaction holds a lock on its result table")));
}

/*
 * Only the first view of a batch waits: for others, this transaction holds locks of views already, and whoever
 * holds this one may want those next.  They leave the batch to the rest and try again.
 */
static void
lock_result(Part *part)
{
	if (part->batch->taken)
		lock_at_once(part->view);
	else
		LockRelationOid(part->view->config->view, RowExclusiveLock);
	part->batch->taken = true;
}

/* One that has come to its end reads no more, but an administrator may have its windows closed, and letters taken. */
static bool
takes_part(const Part *part, const SaViewConfig *config)
{
	if (part->goal == RUN_SAVE)
		return true;
	if (strcmp(config->status, SA_STATUS_FINISHED) == 0)
		return part->goal != RUN_ALL || part->replay || (part->batch->nevents == 0 && !TIMESTAMP_IS_NOBEGIN(part->time.advance_to));
	return strcmp(config->status, SA_STATUS_RUNNING) == 0;
}

/* Lock the result table and see that the view still runs as it is; a paused or dropped one takes no part. */
static bool
check_running(Part *part)
{
	SaView	   *view = part->view;
	SaViewConfig *config;

	lock_result(part);
	if (SearchSysCacheExists1(RELOID, ObjectIdGetDatum(view->config->view)))
	{
		config = sa_catalog_view(view->config->view);
		part->outdated = config && !is_current(view, config);
		if (config && !part->outdated && takes_part(part, config))
			return true;
	}
	part->stopped = !part->outdated;
	return false;
}

static void
prepare_run(Part *part)
{
	SaBatch    *batch = part->batch;
	int			ncolumns = part->view->query->ncolumns;

	if (part->values)
		return;
	part->values = MemoryContextAlloc(batch->cxt, sizeof(Datum) * BLOCK_ROWS * ncolumns);
	part->nulls = MemoryContextAlloc(batch->cxt, sizeof(bool) * BLOCK_ROWS * ncolumns);
	part->base_max = MemoryContextAlloc(batch->cxt, sizeof(TimestampTz) * (batch->npartitions + 1));
	for (int i = 0; i < batch->npartitions; i++)
	{
		SaBatchPartition *place = &batch->partitions[i];
		SaViewPosition *pos = sa_commit_find(part->places, place->topic, place->partition);

		part->base_max[i] = pos ? pos->running_max : DT_NOBEGIN;
	}
}

/*
 * Read again, it is one if it was one then.  A letter of which the key was seen, before its event failed, is no duplicate of
 * itself.
 */
static bool
judge_duplicate(Part *part, int ordinal, bool was_duplicate)
{
	SaEvent    *event = &part->batch->events[ordinal];
	bool	   *seen = &part->seen[ordinal];

	*seen = part->replay && part->replay->seen[ordinal];
	if (event->verdict != SA_EVENT_GOOD || *seen)
		return false;
	if (part->goal != RUN_REBUILD)
		return sa_dedup_judge(part->view->dedup, event, bound_of(part, event), seen);
	if (!was_duplicate)
		sa_dedup_see_again(part->view->dedup, event, bound_of(part, event));
	return was_duplicate;
}

/* Which events are duplicates: the same whatever is run of the batch, but only all of it keeps the keys of the others. */
static void
judge_duplicates(Part *part)
{
	SaBatch    *batch = part->batch;
	bool	   *duplicates = part->duplicates;
	MemoryContext old;

	if (part->view->dedup == NULL || (duplicates != NULL && part->kind != part->goal))
		return;
	if (duplicates == NULL)
		duplicates = MemoryContextAllocHuge(batch->cxt, sizeof(bool) * batch->nevents);
	if (part->seen == NULL)
		part->seen = MemoryContextAllocHuge(batch->cxt, sizeof(bool) * batch->nevents);
	old = MemoryContextSwitchTo(part->row_cxt);
	for (int i = 0; i < batch->nevents; i++)
	{
		duplicates[i] = judge_duplicate(part, i, part->duplicates && part->duplicates[i]);
		if (i % BLOCK_ROWS == 0)
		{
			CHECK_FOR_INTERRUPTS();
			MemoryContextReset(part->row_cxt);
		}
	}
	MemoryContextSwitchTo(old);
	part->duplicates = duplicates;
}

/* The events that the query is not to see: duplicates, and those that fail by themselves. */
static const bool *
hidden_events(Part *part)
{
	if (part->duplicates == NULL || part->exclude == NULL)
		return part->duplicates ? part->duplicates : part->exclude;
	if (part->hidden == NULL)
		part->hidden = MemoryContextAllocHuge(part->batch->cxt, sizeof(bool) * part->batch->nevents);
	for (int i = 0; i < part->batch->nevents; i++)
		part->hidden[i] = part->duplicates[i] || part->exclude[i];
	return part->hidden;
}

static void
start_outcomes(Part *part)
{
	memset(part->outcomes, SA_OUTCOME_FILTERED, part->batch->nevents);
	for (int i = 0; part->duplicates && i < part->batch->nevents; i++)
		if (part->duplicates[i])
			part->outcomes[i] = SA_OUTCOME_DUPLICATE;
}

static void
run_query(Part *part, int lo, int hi)
{
	SaBatchScan scan = {.batch = part->batch, .lo = lo, .hi = hi};

	prepare_run(part);
	judge_duplicates(part);
	if (part->goal == RUN_REBUILD && !OidIsValid(part->view->config->state))
		return;					/* only keys are lost */
	scan.exclude = hidden_events(part);
	start_outcomes(part);
	memset(part->late_windows, 0, sizeof(int64) * part->batch->npartitions);
	memset(part->corrections, 0, sizeof(int64) * part->batch->npartitions);
	if (part->late_pairs)
		hash_destroy(part->late_pairs);
	part->late_pairs = NULL;
	part->nrows = 0;
	MemoryContextReset(part->row_cxt);
	sa_batch_offer(&scan);
	sa_query_run(part->view->query, take_row, part);
	sa_batch_offer(NULL);
	if (part->nrows > 0)
		fold_block(part);
}

/* The one row of a view without grouping columns is there even before the first event. */
static void
ensure_only_group(SaView *view)
{
	SaStateSize size;

	if (view->query->transform || view->query->nkeys > 0 || view->query->windowed)
		return;
	sa_state_size(view->state, &size);
	if (size.groups == 0)
		(void) sa_state_group(view->state, sa_state_window(view->state, SA_NO_WINDOW_START, SA_NO_WINDOW_END),
							  sa_state_hash(view->state, NULL, NULL), NULL, NULL);
}

typedef struct Emission
{
	SaView	   *view;
	bool		keep;			/* the groups stay */
} Emission;

static void
emit_groups(SaTouched *groups, int n, void *arg)
{
	Emission   *emission = arg;

	sa_result_emit(emission->view->result, emission->view->state, groups, n, emission->keep);
}

static void
write_sessions(SaTouched *groups, int n, void *arg)
{
	SaView	   *view = arg;

	sa_result_write_groups(view->result, view->state, groups, n);
}

/*
 * The same of sessions.  In append mode, where they stay: those that are closed have their rows after the batch, and
 * no others.  So it does not matter in which batch a late event comes that makes a session grow, or several meet.
 */
static void
close_sessions(SaView *view, TimestampTz watermark)
{
	TimestampTz horizon = horizon_of(view, watermark);
	bool		emits = view->options.output_mode == SA_APPEND;
	bool		stay = view->options.allowed_lateness > 0;
	Emission	emission = {.view = view};

	SA_FAULT("close_window", view->config->view);
	if (emits && stay)
	{
		int			n;
		SaTouched  *reopened = sa_state_reopened(view->state, watermark, &n);

		sa_result_delete_groups(view->result, view->state, reopened, n);
		pfree(reopened);
		sa_state_emit_closed(view->state, view->floor, watermark, write_sessions, view);
	}
	sa_state_close_sessions(view->state, horizon, emits && !stay ? emit_groups : NULL, &emission);
}

/* Emit what the watermark closes, and forget what is behind it by the allowed lateness. */
static void
close_windows(SaView *view, TimestampTz watermark)
{
	bool		has_panes = sa_query_has_panes(view->query, view->options.output_mode);
	bool		emits = view->options.output_mode == SA_APPEND;
	ListCell   *lc;

	if (view->delay == SA_NO_DELAY || !windows_close(view))
		return;
	if (view->query->sessions)
		close_sessions(view, watermark);
	if (has_panes)
	{
		Emission	emission = {.view = view};

		sa_state_emit_hops(view->state, watermark, emit_groups, &emission);
	}
	foreach(lc, sa_state_closing(view->state, watermark))
	{
		SaWindow   *window = lfirst(lc);
		TimestampTz end = sa_state_window_end(window);
		bool		closes = !sa_watermark_closes(end, view->floor);
		bool		forget = sa_watermark_closes(end, horizon_of(view, watermark));
		Emission	emission = {.view = view, .keep = !forget};

		if (!closes && !forget)
			continue;
		SA_FAULT("close_window", view->config->view);
		if (closes && emits && !has_panes)
			sa_state_emit(view->state, window, !forget, emit_groups, &emission);
		if (forget)
			sa_state_forget(view->state, window);
	}
}

/* In append mode: events that were allowed to come after their window's close change its rows. */
static void
write_corrections(SaView *view)
{
	int			n;
	SaTouched  *corrected = sa_state_corrected(view->state, view->floor, &n);

	if (n > 0)
		sa_result_write_groups(view->result, view->state, corrected, n);
	pfree(corrected);
}

static void
write_results(SaView *view, TimestampTz watermark)
{
	int			n;
	SaTouched  *touched;

	sa_result_begin(view->result);
	touched = sa_state_touched(view->state, &n);
	if (view->options.output_mode != SA_APPEND)
		sa_result_write_groups(view->result, view->state, touched, n);
	else if (view->options.allowed_lateness > 0 && !view->query->sessions)
		write_corrections(view);
	close_windows(view, watermark);
	sa_result_end(view->result);
	SA_FAULT("state_write", view->config->view);
	sa_state_write(view->state);
}

/* As the windows of the view are shown: with a time zone or without. */
static const char *
describe_time(const SaView *view, int64 time)
{
	struct pg_tm tm;
	fsec_t		fsec;
	char		text[MAXDATELEN + 1];

	if (view->query->window == NULL || sa_window_call_type(view->query->window) != TIMESTAMPOID ||
		timestamp2tm(time, NULL, &tm, &fsec, NULL, NULL) != 0)
		return pstrdup(timestamptz_to_str(time));
	EncodeDateTime(&tm, fsec, false, 0, NULL, USE_ISO_DATES, text);
	return pstrdup(text);
}

/* By which it is late, and, where windows do not depend on other events, for which: for the last one that would have held it. */
static const char *
describe_bound(Part *part, int ordinal)
{
	const char *watermark = describe_time(part->view, bound_of(part, &part->batch->events[ordinal]));
	const int64 *window = part->late_for ? part->late_for[ordinal] : NULL;

	if (window == NULL || window[0] >= window[1])
		return psprintf("watermark %s", watermark);
	return psprintf("window %s to %s, watermark %s", describe_time(part->view, window[0]), describe_time(part->view, window[1]), watermark);
}

/* How far behind the watermark was the late event? */
static void
note_lateness(Part *part, SaEvent *event)
{
	if (part->lateness == NULL)
		part->lateness = MemoryContextAllocZero(part->batch->cxt, sizeof(SaSketch));
	sa_sketch_add(part->lateness, (uint64) bound_of(part, event) - (uint64) event->time);
}

static SaDeadLetter *
make_letter(Part *part, int ordinal, const char *reason, const char *message)
{
	SaDeadLetter *letter = sa_deadletter_make(part->batch, ordinal, part->view->config->view, reason, message);

	if (part->seen && part->seen[ordinal])
		sa_deadletter_set_seen(letter);
	return letter;
}

/* Dead letters of the view: events that failed, and late ones. */
static List *
make_letters(Part *part)
{
	List	   *letters = NIL;

	part->lateness = NULL;
	for (int i = 0; i < part->batch->nevents; i++)
	{
		if (part->exclude && part->exclude[i])
		{
			part->outcomes[i] = SA_OUTCOME_FAILED;
			letters = lappend(letters, make_letter(part, i, SA_REASON_FAILED, part->messages[i]));
		}
		if (part->outcomes[i] == SA_OUTCOME_LATE)
			note_lateness(part, &part->batch->events[i]);
		if (part->outcomes[i] == SA_OUTCOME_LATE && !part->view->options.drop_late)
			letters = lappend(letters, make_letter(part, i, SA_REASON_LATE, describe_bound(part, i)));
	}
	return letters;
}

/* What becomes of the letters of this batch. */
static void
judge_letters(Part *part)
{
	for (int i = 0; i < part->batch->nevents; i++)
	{
		SaReplayFate *fate = &part->fates[i];

		memset(fate, 0, sizeof(SaReplayFate));
		fate->seen = part->seen && part->seen[i];
		if (sa_replay_is_refused(part->batch, i, fate))
			continue;
		if (part->exclude && part->exclude[i])
		{
			part->outcomes[i] = SA_OUTCOME_FAILED;
			fate->reason = SA_REASON_FAILED;
			fate->message = part->messages[i];
		}
		else if (part->outcomes[i] == SA_OUTCOME_LATE)
		{
			fate->reason = SA_REASON_LATE;
			fate->message = describe_bound(part, i);
		}
	}
}

static void
note_progress(Part *part)
{
	SaView	   *view = part->view;
	SaProgress *progress = &view->progress;

	for (int i = 0; i < SA_NCOUNTERS; i++)
		progress->counters[i] = sa_commit_counter(view->new_positions, i) - sa_commit_counter(view->positions, i);
	progress->watermark = sa_commit_watermark(view->new_positions);
	progress->written = sa_result_written(view->result);
}

static int
compare_places(const ListCell *a, const ListCell *b)
{
	const SaViewPosition *x = lfirst(a);
	const SaViewPosition *y = lfirst(b);
	int			order = strcmp(x->topic, y->topic);

	return order != 0 ? order : (x->partition > y->partition) - (x->partition < y->partition);
}

/* Where the view stands, by which saved state is told to be of just there. */
static const char *
make_mark(const SaView *view)
{
	List	   *places = list_copy(view->positions);
	StringInfoData mark;
	ListCell   *lc;

	list_sort(places, compare_places);
	initStringInfo(&mark);
	appendStringInfo(&mark, "%d", view->config->id);
	foreach(lc, places)
	{
		const SaViewPosition *place = lfirst(lc);

		appendStringInfo(&mark, "\n%s %d " INT64_FORMAT " " INT64_FORMAT " " INT64_FORMAT, place->topic, place->partition,
						 place->position, place->running_max, place->watermark);
	}
	return mark.data;
}

static void
keep_state(Part *part)
{
	SaView	   *view = part->view;
	SaState    *states[MAX_KEPT];
	int			n = kept_states(view, states);

	for (int i = 0; i < n; i++)
	{
		if (part->kind == RUN_SAVE)
		{
			sa_state_save(states[i], make_mark(view));
			SA_FAULT("save", view->config->view);
		}
		else if (sa_state_restore(states[i], horizon_of_state(view, states[i]), make_mark(view)))
		{
			SA_FAULT("restore", view->config->view);
		}
	}
}

/* Unlogged state is lost as a whole. */
bool
sa_pipeline_is_lost(const SaView *view)
{
	SaState    *states[MAX_KEPT];
	int			n = kept_states(view, states);

	if (view->steps == NIL)
		return false;
	for (int i = 0; i < n; i++)
		if (!sa_state_is_ready(states[i]))
			return true;
	return n == 0;				/* not even loaded */
}

/* False when it must begin anew. */
static bool
begin_rebuilding(SaView *view)
{
	SaState    *states[MAX_KEPT];
	int			n = kept_states(view, states);
	bool		valid = true;

	for (int i = 0; i < n; i++)
		valid &= sa_state_rebuild_batch(states[i], !view->rebuild_begun);
	view->rebuild_begun = true;
	return valid;
}

/* False when it is unlogged, and no longer there. */
static bool
begin_one(SaView *view, SaState *state)
{
	return sa_state_begin(state, horizon_of_state(view, state), is_unlogged(view));
}

/* False when unlogged state is lost. */
static bool
begin_state(Part *part)
{
	SaView	   *view = part->view;

	if (part->goal == RUN_REBUILD)
		part->outdated = !begin_rebuilding(view);
	else
		part->outdated = sa_pipeline_is_lost(view) || (view->state && !begin_one(view, view->state)) ||
			(view->dedup && !begin_one(view, sa_dedup_state(view->dedup)));
	if (part->outdated)
		return false;
	if (view->state && view->dedup)
		sa_state_count_alike(view->state, sa_dedup_state(view->dedup));
	if (view->dedup)
		sa_dedup_begin(view->dedup, view->floor);
	return true;
}

/* Has a topic been made anew?  Positions have gone back. */
static bool
begins_anew(const SaBatch *batch)
{
	for (int i = 0; i < batch->npartitions; i++)
		if (batch->partitions[i].loss == SA_LOSS_PASSED && batch->partitions[i].kept_first < batch->partitions[i].first)
			return true;
	return false;
}

/* Groups or keys that only the log or reading again would bring back? */
static bool
has_changed_state(const SaView *view)
{
	SaState    *states[MAX_KEPT];
	int			n = kept_states(view, states);
	bool		changed = false;

	for (int i = 0; i < n; i++)
	{
		int			touched;

		(void) sa_state_touched(states[i], &touched);
		changed |= touched > 0;
	}
	return changed;
}

/*
 * What dead letters have changed in unlogged state could not be made again by reading again: their events' place is here,
 * where their records are not, and the letters go.  So all of it goes to the log, as of here, and is unlogged again by the
 * next batch, from whose beginning on it would be rebuilt.  Letters that change nothing cost nothing.
 *
 * The same where a topic is made anew, whose positions then mean other records, and where the view has come to its end: records
 * are not kept for it any longer.
 */
static void
save_all(Part *part)
{
	SaView	   *view = part->view;
	SaState    *states[MAX_KEPT];
	int			n = kept_states(view, states);

	part->to_log = is_unlogged(view) &&
		(sa_commit_finished(view->new_positions) || begins_anew(part->batch) || (part->replay && has_changed_state(view)));
	for (int i = 0; i < n && part->to_log; i++)
		sa_state_log_all(states[i]);
}

/* Has the batch come to where the view stands, in every partition? */
static bool
is_rebuilt(Part *part)
{
	ListCell   *lc;

	foreach(lc, part->places)
	{
		const SaViewPosition *place = lfirst(lc);
		const SaBatchPartition *partition = sa_batch_find(part->batch, place->topic, place->partition);

		if ((partition ? partition->next : place->position) < place->end)
			return false;
	}
	return true;
}

/* While rebuilding: those that have been forgotten, and that no record behind the beginning of this batch touches. */
static void
forget_sessions(Part *part)
{
	SaView	   *view = part->view;
	TimestampTz bound = sa_rebuild_bound(view->steps, part->places, view->delay);

	sa_state_close_sessions(view->state, horizon_of(view, Min(bound, view->floor)), NULL, NULL);
}

/* What of it has been made again so far; with the last batch, all. */
static void
write_rebuilt(Part *part)
{
	SaView	   *view = part->view;
	SaState    *states[MAX_KEPT];
	int			n = kept_states(view, states);

	for (int i = 0; i < n; i++)
	{
		if (states[i] == view->state && view->query->sessions)
			forget_sessions(part);
		sa_state_write(states[i]);
		if (is_rebuilt(part))
			sa_state_rebuild_end(states[i], horizon_of_state(view, states[i]), !view->incomplete);
	}
}

/* What is the user's: as the owner, under the view's settings. */
static List *
run_as_owner(Part *part, int lo, int hi)
{
	SaView	   *view = part->view;
	List	   *letters = NIL;

	part->writing = false;
	load_view(view);
	if (view->state)
		sa_state_set_spill(view->state, view->config->spill);
	if (view->dedup)
		sa_state_set_spill(sa_dedup_state(view->dedup), view->config->dedup_spill);
	sa_result_check(view->query, view->config->view);
	if (part->kind == RUN_SAVE || part->kind == RUN_RESTORE)
	{
		keep_state(part);
		return NIL;
	}
	if (!begin_state(part))
		return NIL;
	if (view->query->transform && part->kind == RUN_ALL)
		sa_result_begin(view->result);
	if (part->batch->nevents > 0)
		run_query(part, lo, hi);
	part->writing = part->kind == RUN_REBUILD;
	if (part->kind == RUN_REBUILD)
		write_rebuilt(part);
	if (part->kind != RUN_ALL)
		return NIL;
	ensure_only_group(view);
	part->writing = true;
	if (part->replay)
	{
		judge_letters(part);
		view->new_positions = sa_commit_replay(view->positions, part->batch, part->outcomes);
	}
	else
	{
		letters = make_letters(part);
		view->new_positions = sa_commit_advance(view->positions, part->batch, part->outcomes, part->late_windows,
												part->corrections, &part->time);
	}
	save_all(part);
	if (view->query->transform)
		sa_result_end(view->result);
	else
		write_results(view, sa_commit_watermark(view->new_positions));
	if (view->dedup)
		sa_dedup_write(view->dedup, sa_commit_watermark(view->new_positions));
	return letters;
}

/*
 * Deferred constraints of result tables fail inside the view's own part, not at commit, whatever a
 * neighbour's trigger has set.
 */
static void
constraints_immediate(void)
{
	ConstraintsSetStmt stmt = {.type = T_ConstraintsSetStmt, .constraints = NIL, .deferred = false};

	AfterTriggerSetState(&stmt);
}

/* The cut of the last batch that began no later than this one. */
static const SaCut *
find_cut(const SaView *view, uint64 batch)
{
	const SaCut *found = NULL;
	ListCell   *lc;

	foreach(lc, view->cuts)
	{
		const SaCut *cut = lfirst(lc);

		if (cut->batch <= batch)
			found = cut;
	}
	return found;
}

/* The first and the last batch in which windows of groups, and of keys, were born. */
static void
find_births(const SaView *view, SaStateSize *size)
{
	SaState    *states[MAX_KEPT];
	int			n = kept_states(view, states);

	memset(size, 0, sizeof(SaStateSize));
	size->first_birth = PG_UINT64_MAX;
	for (int i = 0; i < n; i++)
	{
		SaStateSize one;

		sa_state_size(states[i], &one);
		size->batch = one.batch;
		size->first_birth = Min(size->first_birth, one.first_birth);
		size->last_birth = Max(size->last_birth, one.last_birth);
	}
}

/* Where rebuilding begins once the batch has committed: where the oldest window was born that is left then. */
static List *
places_after(SaView *view)
{
	SaStateSize size;

	find_births(view, &size);
	if (size.first_birth == PG_UINT64_MAX)
		return sa_rebuild_places(view->new_positions, sa_commit_watermark(view->new_positions));
	if (size.first_birth == size.batch)
		return sa_rebuild_places(view->positions, view->floor);
	return find_cut(view, size.first_birth)->places;
}

/* From where the state would be rebuilt after this batch; nowhere while the log has all of it. */
static void
save_steps(Part *part)
{
	SaView	   *view = part->view;

	view->new_steps = NIL;
	if (is_unlogged(view) && !part->to_log)
	{
		List	   *steps = view->steps == NIL ? sa_rebuild_places(view->positions, view->floor) :
			sa_rebuild_begin_at(view->steps, places_after(view));

		view->new_steps = sa_rebuild_advance(steps, view->positions, view->new_positions, view->delay);
	}
	if (view->dedup && view->new_steps != NIL && !part->replay)
		sa_duplicate_save(view->config->id, part->batch, part->duplicates);
	if (sa_rebuild_same(view->steps, view->new_steps))
		return;
	sa_catalog_replace_steps(view->config->id, view->new_steps);
	if (view->dedup && view->new_steps != NIL)
		sa_duplicate_forget(view->config->id, view->new_steps);
}

static void
forget_cut(SaView *view)
{
	SaCut	   *cut = linitial(view->cuts);

	MemoryContextDelete(cut->cxt);
	view->cuts = list_delete_first(view->cuts);
}

static void
forget_cuts(SaView *view)
{
	while (view->cuts != NIL)
		forget_cut(view);
}

/* Of many, one that is close to its neighbours goes: what was born there is then read again from a little earlier on. */
static void
thin_cuts(SaView *view)
{
	uint64		least = PG_UINT64_MAX;
	int			closest = 0;

	if (list_length(view->cuts) <= MAX_CUTS)
		return;
	for (int i = 1; i + 1 < list_length(view->cuts); i++)
	{
		uint64		span = ((SaCut *) list_nth(view->cuts, i + 1))->batch - ((SaCut *) list_nth(view->cuts, i - 1))->batch;

		if (span < least)
			closest = i;
		least = Min(least, span);
	}
	MemoryContextDelete(((SaCut *) list_nth(view->cuts, closest))->cxt);
	view->cuts = list_delete_nth_cell(view->cuts, closest);
}

static void
add_cut(SaView *view, uint64 batch, List *places)
{
	MemoryContext cxt = AllocSetContextCreate(view->cxt, "stream_agg cut", ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(cxt);
	SaCut	   *cut = palloc(sizeof(SaCut));

	cut->cxt = cxt;
	cut->batch = batch;
	cut->places = sa_rebuild_copy(places);
	MemoryContextSwitchTo(view->cxt);
	view->cuts = lappend(view->cuts, cut);
	MemoryContextSwitchTo(old);
	thin_cuts(view);
}

/* Remember where the batch began when windows were born in it. */
static void
note_cut(SaView *view, List *positions, TimestampTz floor)
{
	SaStateSize size;

	find_births(view, &size);
	if (size.last_birth == size.batch)
		add_cut(view, size.batch, sa_rebuild_places(positions, floor));
}

/* Forget cuts before the last one that windows can need. */
static void
prune_cuts(SaView *view)
{
	SaStateSize size;

	find_births(view, &size);
	while (list_length(view->cuts) > 1 && ((SaCut *) lsecond(view->cuts))->batch <= size.first_birth)
		forget_cut(view);
}

static void
run_part(Part *part, int lo, int hi)
{
	SaView	   *view = part->view;
	SaOwnerSwitch save;
	List	   *letters;

	if (!check_running(part))
		return;
	constraints_immediate();
	PushActiveSnapshot(GetTransactionSnapshot());
	sa_owner_enter(&save, sa_owner_of(view->config->view));
	sa_owner_apply_settings(view->config->settings);
	letters = run_as_owner(part, lo, hi);
	sa_owner_leave(&save);
	if (part->kind == RUN_ALL && !part->outdated)
	{
		note_progress(part);
		sa_commit_save(view->config->id, view->positions, view->new_positions);
		save_steps(part);
		if (!TIMESTAMP_IS_NOBEGIN(part->time.advance_to))
			sa_advance_note_taken(view->config->view, part->time.advance_to, view->floor);
		if (part->lateness)
			sa_lateness_add(view->config->view, part->lateness);
		if (part->replay)
			sa_replay_finish(view->config->view, part->replay, part->fates, part->batch->nevents);
		CommandCounterIncrement();
		sa_deadletter_write(part->batch->stream, letters);
	}
	PopActiveSnapshot();
}

/*
 * Run a part of the batch in a subtransaction, which stays only with RUN_ALL and success.  False with
 * part->error set when it failed.
 */
static bool
attempt(Part *part, RunKind kind, int lo, int hi)
{
	MemoryContext cxt = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	MemoryContext trial = part->batch->cxt;
	volatile bool ok = false;

	part->kind = kind;
	part->error = NULL;
	part->view->new_positions = NIL;
	if (kind != part->goal)
		trial = AllocSetContextCreate(part->batch->cxt, "stream_agg trial", ALLOCSET_DEFAULT_SIZES);
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(trial);
	PG_TRY();
	{
		run_part(part, lo, hi);
		if (kind == part->goal)
			ReleaseCurrentSubTransaction();
		ok = true;
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(part->batch->cxt);
		part->error = CopyErrorData();
		FlushErrorState();
	}
	PG_END_TRY();
	if (!ok || kind != part->goal)
	{
		sa_batch_offer(NULL);
		RollbackAndReleaseCurrentSubTransaction();
		part->view->new_positions = NIL;
		if (part->view->state)
			sa_state_abort(part->view->state);
		if (part->view->dedup)
			sa_state_abort(sa_dedup_state(part->view->dedup));
	}
	MemoryContextSwitchTo(cxt);
	CurrentResourceOwner = owner;
	if (kind != part->goal)
		MemoryContextDelete(trial);
	return ok;
}

/* --- offending events --- */

static void
exclude_event(Part *part, int ordinal)
{
	if (part->exclude == NULL)
	{
		part->exclude = MemoryContextAllocZero(part->batch->cxt, sizeof(bool) * part->batch->nevents);
		part->messages = MemoryContextAllocZero(part->batch->cxt, sizeof(char *) * part->batch->nevents);
	}
	part->exclude[ordinal] = true;
	part->messages[ordinal] = part->error->message;
}

/* Trouble that may pass by itself. */
static bool
may_pass(ErrorData *error)
{
	switch (ERRCODE_TO_CATEGORY(error->sqlerrcode))
	{
		case ERRCODE_TRANSACTION_ROLLBACK:	/* serialization, deadlock */
		case ERRCODE_INSUFFICIENT_RESOURCES:	/* disk full, out of memory */
		case ERRCODE_OPERATOR_INTERVENTION: /* cancelled */
			return true;
		default:
			return error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE;
	}
}

/* A right that is missing is the owner's trouble, which keeping its events aside would hide. */
static bool
is_querys_fault(Part *part)
{
	return part->error != NULL && !part->writing && !may_pass(part->error) &&
		part->error->sqlerrcode != ERRCODE_INSUFFICIENT_PRIVILEGE;
}

/* Events in [lo, hi) that the query's expressions fail for by themselves, found by halving. */
static bool
exclude_offenders(Part *part, int lo, int hi)
{
	int			middle = lo + (hi - lo) / 2;

	if (attempt(part, RUN_QUERY, lo, hi))
		return true;
	if (!is_querys_fault(part))
		return false;
	if (hi - lo <= 1)
	{
		exclude_event(part, lo);
		return true;
	}
	return exclude_offenders(part, lo, middle) && exclude_offenders(part, middle, hi);
}

/*
 * An aggregate fails (an overflow, say) though every event passes by itself: the event at which it does
 * is the last of the shortest prefix that fails.
 */
static bool
exclude_first_failing_fold(Part *part)
{
	int			lo = 0;			/* a prefix that passes */
	int			hi = part->batch->nevents;	/* one that fails */
	ErrorData  *error = part->error;

	while (hi - lo > 1)
	{
		int			middle = lo + (hi - lo) / 2;

		if (attempt(part, RUN_FOLD, 0, middle))
			lo = middle;
		else if (is_querys_fault(part))
		{
			error = part->error;
			hi = middle;
		}
		else
			return false;
	}
	part->error = error;
	if (part->exclude && part->exclude[hi - 1])
		return false;			/* not an event's doing */
	exclude_event(part, hi - 1);
	return true;
}

/* Find the events that made the whole part fail and exclude them.  False: it was none of their doing. */
static bool
exclude_some(Part *part, bool halve)
{
	int			n = part->batch->nevents;
	ErrorData  *error = part->error;

	/* Without any event, does it fail too (a missing privilege, say)? */
	if (!attempt(part, RUN_QUERY, 0, 0))
		return false;
	if (halve)
	{
		if (!exclude_offenders(part, 0, n))
			return false;
		if (part->exclude != NULL)
			return true;
	}
	if (!attempt(part, RUN_FOLD, 0, n))
		return is_querys_fault(part) && exclude_first_failing_fold(part);
	part->error = error;
	return false;
}

/* An error fails the view; but a piece of a forgotten session that is read again may fail where all of it did not. */
static bool
fails_on_error(const Part *part)
{
	const SaView *view = part->view;

	return view->options.fail_on_error && (part->goal == RUN_ALL || view->query == NULL || !view->query->sessions);
}

/* Run the whole part, keeping aside the events that the view's own expressions fail for. */
static bool
run_excluding_offenders(Part *part)
{
	bool		halve = true;

	while (!attempt(part, part->goal, 0, part->batch->nevents))
	{
		if (fails_on_error(part) || part->batch->nevents == 0 || !is_querys_fault(part) ||
			!exclude_some(part, halve))
			return false;
		halve = false;
	}
	return true;
}

/* --- a part of the batch --- */

static const char *
describe(ErrorData *error)
{
	char	   *text = error->detail ? psprintf("%s (%s)", error->message, error->detail) : pstrdup(error->message);

	text[pg_mbcliplen(text, strlen(text), MAX_MESSAGE)] = '\0';
	return text;
}

static void
log_failure(SaView *view, ErrorData *error, const char *consequence)
{
	ereport(LOG,
			(errcode(error->sqlerrcode),
			 errmsg("continuous view \"%s\" %s: %s", get_rel_name(view->config->view), consequence, error->message),
			 error->detail ? errdetail_internal("%s", error->detail) : 0,
			 error->context ? errcontext("%s", error->context) : 0));
}

/* Back-off doubles from a tenth of a second to a minute; why shows in stream_agg.views. */
static void
retry_later(SaView *view, const char *reason)
{
	int64		pause = INT64CONST(100000) << Min(view->retries, 10);

	sa_stats_note_retry(view->config->view, reason);

	view->retries++;
	view->retry_at = sa_clock_now() + Min(pause, USECS_PER_MINUTE);
}

/* Write the view's status in a subtransaction of its own: somebody may hold its row. */
static bool
save_failure(SaView *view, const char *message)
{
	MemoryContext cxt = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	volatile bool ok = false;

	BeginInternalSubTransaction(NULL);
	PG_TRY();
	{
		SaViewConfig *config;

		PushActiveSnapshot(GetTransactionSnapshot());
		lock_at_once(view);
		config = sa_catalog_view(view->config->view);
		if (config != NULL && strcmp(config->status, SA_STATUS_RUNNING) == 0)	/* and not paused meanwhile */
			sa_catalog_set_status(view->config->view, SA_STATUS_FAILED, message);
		PopActiveSnapshot();
		ReleaseCurrentSubTransaction();
		ok = true;
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(cxt);
		FlushErrorState();
	}
	PG_END_TRY();
	if (!ok)
		RollbackAndReleaseCurrentSubTransaction();
	MemoryContextSwitchTo(cxt);
	CurrentResourceOwner = owner;
	return ok;
}

/* No more reading until an administrator resumes the view, from what is on disk; what is not stays in memory. */
SaPartEnd
sa_pipeline_stop(SaView *view, const char *message)
{
	if (view->state && (view->steps == NIL || !OidIsValid(view->config->state)))
		sa_state_reset(view->state);
	if (view->dedup && view->steps == NIL)
		sa_state_reset(sa_dedup_state(view->dedup));
	view->recovered = false;
	if (!save_failure(view, message))
	{
		retry_later(view, message);
		return SA_PART_RETRY;
	}
	sa_stats_note_retry(view->config->view, NULL);
	view->config->status = SA_STATUS_FAILED;
	return SA_PART_STOPPED;
}

/* The end of the oldest window, or where else the watermark next closes or forgets one; DT_NOEND: nowhere. */
static TimestampTz
oldest_window(const SaView *view)
{
	SaStateSize size = {.oldest = DT_NOBEGIN};
	TimestampTz next;

	if (!windows_close(view))
		return DT_NOEND;
	if (!view->recovered)
		return DT_NOBEGIN;
	if (view->state)
		sa_state_size(view->state, &size);
	if (TIMESTAMP_IS_NOBEGIN(size.oldest))
		return DT_NOEND;
	if (pg_add_s64_overflow(size.oldest, view->options.allowed_lateness, &next))
		next = DT_NOEND;
	if (view->options.allowed_lateness > 0 && view->options.output_mode == SA_APPEND)
		next = Min(next, sa_state_next_close(view->state, view->floor));
	return view->query->sessions && next < DT_NOEND ? next + 1 : next;	/* sessions: when the watermark is behind it */
}

/* What an administrator wants of the watermark waits until the view has read what is at hand. */
static SaTimekeeping
timekeeping(SaView *view, const SaBatch *batch)
{
	SaTimekeeping time = {.delay = view->delay, .idle_timeout = view->idle_timeout, .now = sa_clock_now()};

	time.silence = view->options.go_on ? &view->silence : NULL;
	time.oldest = view->options.go_on ? oldest_window(view) : DT_NOEND;
	time.advance_to = batch->drained ? view->advance_to : DT_NOBEGIN;
	return time;
}

bool
sa_pipeline_moves(SaView *view, SaBatch *batch)
{
	SaTimekeeping time = timekeeping(view, batch);

	view->next_idle = DT_NOEND;
	return sa_commit_moves(view->positions, batch, &time, &view->next_idle);
}

/* A view's part of a batch, which begins at these places, with nothing done yet. */
static void
init_part(Part *part, SaView *view, SaBatch *batch, RunKind goal, List *places)
{
	memset(part, 0, sizeof(Part));
	part->view = view;
	part->batch = batch;
	part->goal = goal;
	part->places = places;
	part->time = timekeeping(view, batch);
	view->advancing_to = part->time.advance_to;
	part->row_cxt = AllocSetContextCreate(batch->cxt, "stream_agg row", ALLOCSET_DEFAULT_SIZES);
	part->outcomes = MemoryContextAllocHuge(batch->cxt, batch->nevents + 1);
	memset(part->outcomes, SA_OUTCOME_FILTERED, batch->nevents);
	part->late_windows = MemoryContextAllocZero(batch->cxt, sizeof(int64) * (batch->npartitions + 1));
	part->corrections = MemoryContextAllocZero(batch->cxt, sizeof(int64) * (batch->npartitions + 1));
	memset(&view->progress, 0, sizeof(SaProgress));
}

/* The part could not be done. */
static SaPartEnd
give_up(Part *part)
{
	if (may_pass(part->error))
	{
		log_failure(part->view, part->error, "will try again");
		retry_later(part->view, describe(part->error));
		return SA_PART_RETRY;
	}
	log_failure(part->view, part->error, "has failed");
	return sa_pipeline_stop(part->view, describe(part->error));
}

SaPartEnd
sa_pipeline_process(SaView *view, SaBatch *batch)
{
	Part		part;

	init_part(&part, view, batch, RUN_ALL, view->positions);
	if (!run_excluding_offenders(&part))
		return give_up(&part);
	if (part.outdated)
		return SA_PART_RETRY;
	if (part.stopped)
		return SA_PART_STOPPED;
	view->progress.duration = sa_clock_now() - part.time.now;
	if (view->retries > 0)
		sa_stats_note_retry(view->config->view, NULL);	/* before anybody sees the results */
	return SA_PART_DONE;
}

/* --- dead letters --- */

/* They cannot be taken for a reason of the view's own: they stay letters, and it goes on without them. */
static void
refuse_letters(Part *part)
{
	const char *message = describe(part->error);

	for (int i = 0; i < part->batch->nevents; i++)
	{
		part->fates[i].reason = SA_REASON_FAILED;
		part->fates[i].message = message;
		part->fates[i].seen = part->replay->seen[i];
	}
	PushActiveSnapshot(GetTransactionSnapshot());
	sa_replay_finish(part->view->config->view, part->replay, part->fates, part->batch->nevents);
	PopActiveSnapshot();
}

SaPartEnd
sa_pipeline_replay(SaView *view, SaBatch *batch, const SaReplay *replay)
{
	Part		part;

	init_part(&part, view, batch, RUN_ALL, view->positions);
	part.replay = replay;
	part.fates = MemoryContextAllocZero(batch->cxt, sizeof(SaReplayFate) * (batch->nevents + 1));
	if (!run_excluding_offenders(&part))
	{
		if (may_pass(part.error))
			return give_up(&part);
		log_failure(view, part.error, "has refused its dead letters again");
		refuse_letters(&part);
		return SA_PART_DONE;
	}
	if (part.outdated)
		return SA_PART_RETRY;
	if (part.stopped)
		return SA_PART_STOPPED;
	view->progress.duration = sa_clock_now() - part.time.now;
	return SA_PART_DONE;
}

/* --- saving, restoring and rebuilding --- */

/* Windows that are there already come from the log, as of these places. */
static void
begin_cuts(SaView *view, List *places)
{
	forget_cuts(view);
	add_cut(view, 0, places);
}

/* The same, of the list of SaViewPosition from where it would be rebuilt. */
static void
begin_cuts_at(SaView *view, List *from)
{
	begin_cuts(view, sa_rebuild_begin_at(view->steps, sa_rebuild_places(from, DT_NOBEGIN)));
}

static void
forget_rebuild(SaView *view)
{
	if (view->rebuild_cxt)
		MemoryContextDelete(view->rebuild_cxt);
	view->rebuild_cxt = NULL;
	view->rebuild = NIL;
	view->rebuild_begun = false;
	view->incomplete = false;
}

List *
sa_pipeline_rebuild_from(SaView *view)
{
	MemoryContext old;

	if (!sa_pipeline_is_lost(view))
		forget_rebuild(view);
	if (!sa_pipeline_is_lost(view) || !view->sought)
		return NIL;
	if (view->rebuild != NIL)
		return view->rebuild;
	view->rebuild_cxt = AllocSetContextCreate(view->cxt, "stream_agg rebuild", ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(view->rebuild_cxt);
	view->rebuild = sa_rebuild_begin(view->steps, view->positions);
	MemoryContextSwitchTo(old);
	begin_cuts_at(view, view->rebuild);
	ereport(LOG,
			(errmsg("continuous view with id %d reads " INT64_FORMAT " records again to rebuild its state",
					view->config->id, sa_rebuild_distance(view->rebuild))));
	return view->rebuild;
}

SaPartEnd
sa_pipeline_restore(SaView *view, SaBatch *batch)
{
	Part		part;

	init_part(&part, view, batch, RUN_RESTORE, view->positions);
	if (attempt(&part, RUN_RESTORE, 0, 0))
	{
		view->sought = !part.outdated && !part.stopped;
		if (!sa_pipeline_is_lost(view))
			begin_cuts_at(view, sa_rebuild_begin(view->steps, view->positions));
		return part.stopped ? SA_PART_STOPPED : SA_PART_DONE;
	}
	if (view->state)
		sa_state_reset(view->state);	/* what they had is of a transaction that has never been */
	if (view->dedup)
		sa_state_reset(sa_dedup_state(view->dedup));
	if (may_pass(part.error))
		return give_up(&part);
	log_failure(view, part.error, "cannot have its saved state back");
	view->sought = true;
	return SA_PART_DONE;
}

void
sa_pipeline_save(SaView *view, SaBatch *batch)
{
	Part		part;

	init_part(&part, view, batch, RUN_SAVE, view->positions);
	if (!attempt(&part, RUN_SAVE, 0, 0))
		log_failure(view, part.error, "cannot save its state");
}

/* The events that were duplicates, and those that the view has refused, are that again, wherever batches are cut. */
static void
exclude_known(Part *part)
{
	SaBatch    *batch = part->batch;
	SaView	   *view = part->view;
	bool	   *refused = sa_deadletter_refused(batch, view->config->view);

	if (view->options.dedup_key != NIL)
		part->duplicates = sa_duplicate_read(view->config->id, batch);
	if (refused == NULL)
		return;
	part->exclude = refused;
	part->messages = MemoryContextAllocZero(batch->cxt, sizeof(char *) * batch->nevents);
}

static void
advance_rebuild(SaView *view, const SaBatch *batch)
{
	for (int i = 0; i < batch->npartitions; i++)
	{
		const SaBatchPartition *partition = &batch->partitions[i];
		SaViewPosition *place = sa_commit_find(view->rebuild, partition->topic, partition->partition);

		if (place == NULL)
			continue;
		place->position = partition->next;
		place->running_max = Max(place->running_max, partition->max_time);
	}
}

static void
commit_rebuilt(SaView *view)
{
	SaState    *states[MAX_KEPT];
	int			n = kept_states(view, states);

	for (int i = 0; i < n; i++)
	{
		sa_state_commit(states[i]);
		sa_state_make_room(states[i]);
	}
}

/* Events that were accepted then; a function may have been replaced since, or a letter gone. */
static void
log_left_out(const Part *part)
{
	int			n = 0;
	const char *message = NULL;

	for (int i = 0; part->messages && i < part->batch->nevents; i++)
		if (part->messages[i])
		{
			n++;
			message = message ? message : part->messages[i];
		}
	if (n > 0)
		ereport(LOG,
				(errmsg_plural("continuous view \"%s\" leaves out %d event that fails when it is read again",
							   "continuous view \"%s\" leaves out %d events that fail when they are read again", n,
							   get_rel_name(part->view->config->view), n),
				 errdetail_internal("%s", message)));
}

SaPartEnd
sa_pipeline_rebuild(SaView *view, SaBatch *batch)
{
	Part		part;
	bool		ok;

	for (int i = 0; i < batch->npartitions; i++)
		view->incomplete |= batch->partitions[i].loss == SA_LOSS_PASSED;
	SA_FAULT("rebuild", view->config->view);
	init_part(&part, view, batch, RUN_REBUILD, view->rebuild);
	exclude_known(&part);
	ok = run_excluding_offenders(&part);
	if (ok && !part.outdated && !part.stopped)
	{
		log_left_out(&part);
		commit_rebuilt(view);
		note_cut(view, view->rebuild, DT_NOBEGIN);
		advance_rebuild(view, batch);
		view->retries = 0;
		return SA_PART_DONE;
	}
	forget_rebuild(view);
	if (!ok)
		return give_up(&part);
	return part.outdated ? SA_PART_RETRY : SA_PART_STOPPED;
}

/* The steps after the batch, and where windows were born in it. */
static void
committed_steps(SaView *view)
{
	if (view->new_steps == NIL)
		forget_cuts(view);
	else if (view->steps == NIL)
		begin_cuts(view, sa_rebuild_places(view->positions, view->floor));
	if (view->new_steps != NIL)
	{
		note_cut(view, view->positions, view->floor);
		prune_cuts(view);
	}
	if (view->new_steps != view->steps)
		adopt_steps(view, view->new_steps);
	view->new_steps = NIL;
}

Oid
sa_pipeline_take_vacuum(SaView *view)
{
	Oid			log = view->state ? sa_state_take_vacuum(view->state) : InvalidOid;

	return OidIsValid(log) || view->dedup == NULL ? log : sa_state_take_vacuum(sa_dedup_state(view->dedup));
}

void
sa_pipeline_committed(SaView *view)
{
	SaStateSize size = {.oldest = DT_NOBEGIN};

	if (view->new_positions == NIL)
		return;
	if (view->state)
		sa_state_commit(view->state);
	if (view->dedup)
		sa_state_commit(sa_dedup_state(view->dedup));
	view->recovered = true;
	committed_steps(view);
	adopt_positions(view, view->new_positions);
	view->new_positions = NIL;
	if (view->advance_to <= view->advancing_to)
		view->advance_to = DT_NOBEGIN;
	view->fresh = false;
	view->retries = 0;
	view->retry_at = 0;
	if (view->state)
	{
		sa_state_make_room(view->state);
		sa_state_size(view->state, &size);
	}
	view->progress.database = MyDatabaseId;
	view->progress.view = view->config->view;
	view->progress.finished_at = GetCurrentTimestamp();
	view->progress.groups = size.groups;
	view->progress.windows = size.windows;
	view->progress.largest_window = size.largest;
	view->progress.oldest_window_end = size.oldest;
	view->progress.state_bytes = size.bytes;
	if (view->dedup)
	{
		sa_state_make_room(sa_dedup_state(view->dedup));
		sa_state_size(sa_dedup_state(view->dedup), &size);
		view->progress.state_bytes += size.bytes;
	}
}
