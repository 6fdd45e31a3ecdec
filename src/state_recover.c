/*
 * state_recover.c
 *		Having the groups of a view back: from its log and result table, by reading again, from the spill table, or
 *		from those of another definition.
 *
 * Invariant: groups leave memory while they are recovered as they do between batches.  Every row of the result that
 * belongs to an open window has its group, and every group that has been committed its row, or it is an error.
 *
 * Locks: AccessShareLock on the tables; AccessExclusiveLock on a spill table that is emptied.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "catalog/heap.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "nodes/params.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "tcop/dest.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "state_key.h"
#include "state_recover.h"
#include "state_row.h"
#include "state_session.h"
#include "watermark.h"
#include "window.h"

#define BLOCK_ROWS 64			/* taken to their groups together */
#define ROOM_ROWS 1024			/* read between looks at memory, a multiple of it */

/* --- logs --- */

/* One entry of a log: a newer one takes the place of an older one.  Sessions that ended before floor have been closed. */
static void
recover_entry(SaState *state, SaWindow *window, SaLogReader *reader, uint32 hash, TimestampTz floor)
{
	SaGroup    *group;
	bool		found;

	sa_state_log_keys(state, reader, state->row_keys, state->row_nulls);
	if (state->sessions && sa_watermark_closes_session(DatumGetInt64(state->row_keys[state->nown + 1]), floor))
		return;
	if (state->sessions)
		group = sa_session_recover(state, window, hash, state->row_keys, state->row_nulls, false);
	else
		group = sa_state_find(state, window, hash, state->row_keys, state->row_nulls, &found);
	sa_state_log_states(state, reader, window->hot, group);
	group->place = reader->place;
}

/* Hashes of a chunk's entries, whose buckets are asked for on the way; returns how many. */
static int
hash_chunk(SaState *state, SaWindow *window, SaLogReader reader, uint32 **hashes)
{
	int			n = 0;

	*hashes = palloc(sizeof(uint32) * (reader.in.len / sizeof(uint32) + 1));
	while (sa_state_log_next(&reader))
	{
		sa_state_log_keys(state, &reader, state->row_keys, state->row_nulls);
		(*hashes)[n] = sa_state_hash_keys(state, state->row_keys, state->row_nulls);
		sa_state_prefetch_bucket(state, window, (*hashes)[n++]);
	}
	return n;
}

static void
recover_chunk(SaState *state, int log, TupleTableSlot *slot, TimestampTz floor)
{
	SaLogReader reader;
	SaWindow   *window;
	uint32	   *hashes;
	int			n;

	state->logs[log].seq = sa_state_log_open_chunk(&reader, log, slot);
	window = sa_state_window(state, reader.start, reader.end);
	n = hash_chunk(state, window, reader, &hashes);
	for (int i = 0; i < n; i++)
		sa_state_prefetch_groups(state, window, hashes[i]);
	for (int i = 0; sa_state_log_next(&reader); i++)
		recover_entry(state, window, &reader, hashes[i], floor);
	sa_state_log_add_chunk(window, log, &slot->tts_tid, n);
}

/* A chunk's place, to read chunks in the order in which they were written. */
typedef struct ChunkPlace
{
	int64		seq;
	ItemPointerData tid;
} ChunkPlace;

static int
compare_chunk(const void *a, const void *b)
{
	int64		x = ((const ChunkPlace *) a)->seq;
	int64		y = ((const ChunkPlace *) b)->seq;

	return x < y ? -1 : x > y;
}

static ChunkPlace *
list_chunks(Relation rel, TupleTableSlot *slot, int *count)
{
	int			n = 0;
	int			max = 1024;
	ChunkPlace *chunks = palloc(sizeof(ChunkPlace) * max);
	TableScanDesc scan = table_beginscan(rel, GetActiveSnapshot(), 0, NULL);

	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		bool		isnull;

		CHECK_FOR_INTERRUPTS();
		if (n == max)
			chunks = repalloc_huge(chunks, sizeof(ChunkPlace) * (Size) (max *= 2));
		chunks[n].seq = DatumGetInt64(slot_getattr(slot, 1, &isnull));
		chunks[n].tid = slot->tts_tid;
		n += chunks[n].seq != SA_MARK_SEQ;
	}
	table_endscan(scan);
	qsort(chunks, n, sizeof(ChunkPlace), compare_chunk);
	*count = n;
	return chunks;
}

static void
recover_log(SaState *state, int log, TimestampTz floor)
{
	Relation	rel = table_open(state->logs[log].relid, AccessShareLock);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	MemoryContext scratch = AllocSetContextCreate(CurrentMemoryContext, "stream_agg recovery", ALLOCSET_DEFAULT_SIZES);
	int			n;
	ChunkPlace *chunks = list_chunks(rel, slot, &n);

	for (int i = 0; i < n; i++)
	{
		MemoryContext old = MemoryContextSwitchTo(scratch);

		CHECK_FOR_INTERRUPTS();
		if (!table_tuple_fetch_row_version(rel, &chunks[i].tid, GetActiveSnapshot(), slot))
			sa_state_lost(state->logs[log].relid);
		recover_chunk(state, log, slot, floor);
		MemoryContextSwitchTo(old);
		MemoryContextReset(scratch);
		sa_state_make_room(state);
	}
	pfree(chunks);
	MemoryContextDelete(scratch);
	ExecDropSingleTupleTableSlot(slot);
	table_close(rel, NoLock);
}

/* --- the result table --- */

/*
 * Rows of the result: the ctid, window, keys (of which those of sessions are the last), and the values that are states.  They come in blocks, so that the groups'
 * memory can be asked for before it is needed.
 */
typedef struct ResultRows
{
	DestReceiver dest;
	SaState    *state;
	MemoryContext cxt;			/* of the block */
	int			n;
	int64		total;
	SaWindow   *windows[BLOCK_ROWS];
	uint32		hashes[BLOCK_ROWS];
	Datum	   *values[BLOCK_ROWS];
	bool	   *nulls[BLOCK_ROWS];
} ResultRows;

static int
first_key(const SaState *state)
{
	return state->query->windowed && !state->sessions ? 3 : 1;
}

static void
recover_row(SaState *state, SaWindow *window, uint32 hash, Datum *values, bool *nulls)
{
	int			column = first_key(state);
	bool		found = false;
	SaGroup    *group;

	if (state->sessions && state->lenient)
		group = sa_session_recover(state, window, hash, values + column, nulls + column, true);
	else
		group = sa_state_find(state, window, hash, values + column, nulls + column, &found);
	if (!found && state->needs_log && !state->lenient)
		sa_state_lost(state->logs[SA_LOG].relid);
	group->unsaved |= !found && state->needs_log;
	if (!found && state->lenient)
		window->birth = 0;		/* its records are gone, and it must be taken from its row the next time, too */
	group->result_tid = *(ItemPointer) DatumGetPointer(values[0]);
	column += state->nkeys;
	sa_agg_run_in(state->run, window->hot);
	for (int i = 0; i < state->naggs; i++)
		if (state->in_result[i])
		{
			sa_agg_from_value(state->aggs[i], state->run, &sa_group_states(group)[i], values[column], nulls[column]);
			column++;
		}
}

static void
recover_rows(ResultRows *rows)
{
	MemoryContext old = MemoryContextSwitchTo(rows->cxt);

	for (int i = 0; i < rows->n; i++)
		sa_state_prefetch_groups(rows->state, rows->windows[i], rows->hashes[i]);
	for (int i = 0; i < rows->n; i++)
		recover_row(rows->state, rows->windows[i], rows->hashes[i], rows->values[i], rows->nulls[i]);
	rows->n = 0;
	MemoryContextSwitchTo(old);
	MemoryContextReset(rows->cxt);
	if (rows->total % ROOM_ROWS == 0)
		sa_state_make_room(rows->state);
}

static SaWindow *
window_of(SaState *state, const Datum *values)
{
	if (!state->query->windowed || state->sessions)
		return sa_state_window(state, SA_NO_WINDOW_START, SA_NO_WINDOW_END);
	return sa_state_window(state, DatumGetInt64(values[1]), DatumGetInt64(values[2]));
}

static bool
take_result_row(TupleTableSlot *slot, DestReceiver *self)
{
	ResultRows *rows = (ResultRows *) self;
	TupleDesc	desc = slot->tts_tupleDescriptor;
	int			i = rows->n++;
	int			column = first_key(rows->state);
	MemoryContext old = MemoryContextSwitchTo(rows->cxt);

	slot_getallattrs(slot);
	rows->values[i] = palloc(sizeof(Datum) * desc->natts);
	rows->nulls[i] = memcpy(palloc(sizeof(bool) * desc->natts), slot->tts_isnull, sizeof(bool) * desc->natts);
	for (int j = 0; j < desc->natts; j++)
		rows->values[i][j] = slot->tts_isnull[j] ? (Datum) 0 :
			datumCopy(slot->tts_values[j], TupleDescAttr(desc, j)->attbyval, TupleDescAttr(desc, j)->attlen);
	rows->windows[i] = window_of(rows->state, rows->values[i]);
	rows->hashes[i] = sa_state_hash_keys(rows->state, rows->values[i] + column, rows->nulls[i] + column);
	sa_state_prefetch_bucket(rows->state, rows->windows[i], rows->hashes[i]);
	MemoryContextSwitchTo(old);
	rows->total++;
	if (rows->n == BLOCK_ROWS)
		recover_rows(rows);
	return true;
}

static void
ignore_startup(DestReceiver *self, int operation, TupleDesc desc)
{
}

static void
ignore_end(DestReceiver *self)
{
}

static ParamListInfo
time_parameters(const Datum *times, int ntimes, Oid type)
{
	ParamListInfo params = makeParamList(ntimes);

	for (int i = 0; i < ntimes; i++)
		params->params[i] = (ParamExternData) {.value = times[i], .pflags = PARAM_FLAG_CONST, .ptype = type};
	return params;
}

/* Run the query that gives the rows, with these times as $1 ..., as of the active snapshot. */
static void
read_rows(SaState *state, const char *sql, int ntimes, const Datum *times)
{
	Oid			type = ntimes > 0 ? TupleDescAttr(state->query->group_desc, state->query->nkeys)->atttypid : InvalidOid;
	Oid			types[2] = {type, type};
	SPIPlanPtr	plan = SPI_prepare(sql, ntimes, types);
	SPIExecuteOptions options = {.params = time_parameters(times, ntimes, type), .read_only = true};
	ResultRows *rows = palloc0(sizeof(ResultRows));

	if (plan == NULL)
		elog(ERROR, "SPI_prepare failed: %s", SPI_result_code_string(SPI_result));
	rows->dest = (DestReceiver) {take_result_row, ignore_startup, ignore_end, ignore_end, DestTransientRel};
	rows->state = state;
	rows->cxt = AllocSetContextCreate(CurrentMemoryContext, "stream_agg recovery", ALLOCSET_DEFAULT_SIZES);
	options.dest = &rows->dest;
	if (SPI_execute_plan_extended(plan, &options) != SPI_OK_SELECT)
		elog(ERROR, "SPI_execute_plan_extended failed: %s", SPI_result_code_string(SPI_result));
	recover_rows(rows);
	MemoryContextDelete(rows->cxt);
}

static const char *
qualified_name(Oid relid)
{
	return quote_qualified_identifier(get_namespace_name(get_rel_namespace(relid)), get_rel_name(relid));
}

/* Name of a result column, quoted; it may have been renamed. */
static const char *
result_column(SaState *state, AttrNumber attr)
{
	return quote_identifier(get_attname(state->result, attr, false));
}

/* A condition for the windows not yet forgotten, whose times are appended to the parameters. */
static void
append_condition(SaState *state, StringInfo sql, TimestampTz floor, Datum *times, int *ntimes)
{
	SaQuery    *query = state->query;

	if (TIMESTAMP_IS_NOBEGIN(floor))
		return;
	appendStringInfoString(sql, " WHERE true");
	if (query->end_result)
	{
		times[(*ntimes)++] = TimestampTzGetDatum(floor);
		appendStringInfo(sql, " AND %s %s $%d", result_column(state, query->end_result), state->sessions ? ">=" : ">", *ntimes);
	}
	else if (query->window_size == 0)
		appendStringInfo(sql, " AND %s > " INT64_FORMAT, sa_query_bound(query, state->result, true), floor);
	if (query->start_result && query->measures.longest > 0 && floor - query->measures.longest > MIN_TIMESTAMP)
	{
		times[(*ntimes)++] = TimestampTzGetDatum(floor - query->measures.longest);
		appendStringInfo(sql, " AND %s > $%d", result_column(state, query->start_result), *ntimes);
	}
}

static void
append_window(SaState *state, StringInfo sql)
{
	if (state->query->windowed)
		appendStringInfo(sql, ", %s, %s", sa_query_bound(state->query, state->result, false),
						 sa_query_bound(state->query, state->result, true));
}

static void
recover_result(SaState *state, TimestampTz floor)
{
	StringInfoData sql;
	Datum		times[2];
	int			ntimes = 0;

	initStringInfo(&sql);
	appendStringInfoString(&sql, "SELECT ctid");
	if (!state->sessions)
		append_window(state, &sql);
	for (int i = 0; i < state->query->nkeys; i++)
		appendStringInfo(&sql, ", %s", result_column(state, state->query->keys[i].result));
	if (state->sessions)
		append_window(state, &sql);
	for (int i = 0; i < state->naggs; i++)
		if (state->in_result[i])
			appendStringInfo(&sql, ", %s", result_column(state, state->query->aggs[i].result));
	appendStringInfo(&sql, " FROM ONLY %s", qualified_name(state->result));
	if (state->query->windowed)
		append_condition(state, &sql, floor, times, &ntimes);
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	read_rows(state, sql.data, ntimes, times);
	SPI_finish();
}

static Oid
file_of(Oid relid)
{
	Relation	rel;
	Oid			result;

	if (!OidIsValid(relid))
		return InvalidOid;
	rel = table_open(relid, AccessShareLock);
	result = sa_relation_filenumber(rel);
	table_close(rel, NoLock);
	return result;
}

static bool
is_closed(const SaState *state, const SaWindow *window, TimestampTz floor)
{
	return state->query->windowed && sa_watermark_closes(window->last_end, floor);
}

/* Every group has its place, and in update mode its row, which HAVING may refuse. */
static void
check_recovered(SaState *state, SaWindow *window, void *floor)
{
	bool		needs_row = state->mode != SA_APPEND && state->query->having == NULL && !window->rows_unread;
	SaColdSearch search;

	if (is_closed(state, window, *(TimestampTz *) floor))
		return;
	for (uint32 i = 0; i < window->nbuckets; i++)
		for (SaGroup *group = window->buckets[i]; group; group = group->next)
			if ((needs_row && !ItemPointerIsValid(&group->result_tid)) ||
				(state->needs_log && !group->unsaved && !ItemPointerIsValid(&group->place.chunk)))
				sa_state_lost(state->result);
	if (needs_row && !sa_session_have_rows(state))
		sa_state_lost(state->result);
	if (window->cold == NULL || !needs_row)
		return;
	sa_cold_walk(&search, window->cold);
	while (sa_cold_next_of_all(&search))
		if (!ItemPointerIsValid(&search.found.row))
			sa_state_lost(state->result);
}

static void
note_files(SaState *state)
{
	state->result_file = file_of(state->result);
	for (int i = 0; i < SA_NLOGS; i++)
		state->logs[i].file = file_of(state->logs[i].relid);
}

void
sa_state_set_spill(SaState *state, Oid spill)
{
	if (state->logs[SA_SPILL].relid == spill)
		return;
	state->logs[SA_SPILL].relid = spill;
	state->logs[SA_SPILL].file = file_of(spill);
}

static bool
same_files(SaState *state)
{
	for (int i = 0; i < SA_NLOGS; i++)
		if (state->logs[i].file != file_of(state->logs[i].relid))
			return false;
	return state->result_file == file_of(state->result);
}

/* What is in the logs and the results, as of the active snapshot; windows that end by floor are forgotten. */
static void
recover(SaState *state, TimestampTz floor, int nlogs)
{
	if (state->mode == SA_COMPLETE)
		floor = DT_NOBEGIN;		/* none is */
	sa_state_reset(state);
	state->closed = state->closing = floor;
	note_files(state);
	if (state->needs_log)
		for (int i = 0; i < nlogs; i++)
			recover_log(state, i, floor);
	if (state->keeps_rows && !sa_state_leave_rows(state))
	{
		recover_result(state, floor);
		sa_state_each_window(state, check_recovered, &floor);
	}
	sa_state_each_window(state, sa_state_commit_window, NULL);
	state->recovered = true;
}

bool
sa_state_begin(SaState *state, TimestampTz floor, bool unlogged)
{
	bool		valid = state->recovered && same_files(state);

	if (!valid && state->unlogged)
	{
		sa_state_reset(state);
		return false;
	}
	if (!valid)
		recover(state, floor, 1);
	state->unlogging = unlogged && state->needs_log;
	state->closed = state->closing = floor;
	state->batch++;
	return true;
}

void
sa_state_count_alike(SaState *a, SaState *b)
{
	a->batch = b->batch = Max(a->batch, b->batch);
}

bool
sa_state_is_ready(const SaState *state)
{
	return state->unlogged && state->recovered;
}

/* --- unlogged state --- */

void
sa_state_log_all(SaState *state)
{
	state->unlogging = false;
}

/* The place of the row that says of what the spill table holds all, if it says this. */
static bool
find_mark(SaState *state, const char *mark, ItemPointer tid)
{
	Relation	rel = table_open(state->logs[SA_SPILL].relid, AccessShareLock);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	TableScanDesc scan = table_beginscan(rel, GetActiveSnapshot(), 0, NULL);
	bool		found = false;

	while (!found && table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		SaLogReader reader;

		CHECK_FOR_INTERRUPTS();
		if (sa_state_log_open_chunk(&reader, SA_SPILL, slot) != SA_MARK_SEQ)
			continue;
		found = reader.in.len == strlen(mark) && memcmp(reader.in.data, mark, reader.in.len) == 0;
		*tid = slot->tts_tid;
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	table_close(rel, NoLock);
	return found;
}

bool
sa_state_restore(SaState *state, TimestampTz floor, const char *mark)
{
	ItemPointerData tid;

	if (!OidIsValid(state->logs[SA_SPILL].relid) || !find_mark(state, mark, &tid))
		return false;
	recover(state, floor, SA_NLOGS);
	state->mark = tid;
	state->unlogged = state->unlogging = true;
	return true;
}

/* What an earlier worker has left there is good for nothing. */
static void
empty_spill(SaState *state)
{
	Relation	rel;

	if (!OidIsValid(state->logs[SA_SPILL].relid))
		return;
	rel = table_open(state->logs[SA_SPILL].relid, AccessShareLock);
	if (RelationGetNumberOfBlocks(rel) > 0)
	{
		LockRelationOid(state->logs[SA_SPILL].relid, AccessExclusiveLock);
		heap_truncate_one_rel(rel);
	}
	table_close(rel, NoLock);
}

static void
begin_rebuild(SaState *state)
{
	sa_state_reset(state);
	note_files(state);
	empty_spill(state);
	state->unlogged = state->unlogging = true;
	state->rebuilding = true;
	recover_log(state, SA_LOG, DT_NOBEGIN);
	sa_state_each_window(state, sa_state_commit_window, NULL);
}

bool
sa_state_rebuild_batch(SaState *state, bool first)
{
	if (first)
		begin_rebuild(state);
	state->batch++;
	return state->rebuilding && same_files(state);
}

static void
drop_closed(SaState *state, SaWindow *window, void *floor)
{
	if (is_closed(state, window, *(TimestampTz *) floor))
		sa_state_drop_window(state, window);
}

/* Rows of the results are taken to their groups; where nothing was lost, they find each other. */
static void
find_rows(SaState *state, TimestampTz floor, bool complete)
{
	sa_state_each_window(state, drop_closed, &floor);
	if (complete && sa_state_leave_rows(state))
		return;
	state->lenient = !complete;
	recover_result(state, floor);
	state->lenient = false;
}

void
sa_state_rebuild_end(SaState *state, TimestampTz floor, bool complete)
{
	sa_state_commit(state);		/* should the rest fail, it begins anew */
	sa_session_forget_ends(state);	/* those that are closed have their rows: they are not awaited for having been touched */
	state->closed = state->closing = floor;
	if (state->keeps_rows)
		find_rows(state, floor, complete);
	if (state->sessions)
		sa_state_close_sessions(state, floor, NULL, NULL);
	sa_state_commit(state);
	if (state->keeps_rows && complete)
		sa_state_each_window(state, check_recovered, &floor);
	state->recovered = true;
	state->rebuilding = false;
}

/* --- another definition --- */

typedef struct Adoption
{
	SaState    *from;
	const int  *keys;
	const int  *aggs;
	StringInfoData bytes;		/* of a state on its way */
} Adoption;

static void
adopt_group(SaState *state, Adoption *adoption, SaWindow *old_window, SaWindow *window, SaGroup *old)
{
	SaState    *from = adoption->from;
	SaGroup    *group;
	bool		found;

	for (int i = 0; i < state->nkeys; i++)
	{
		int			key = i < state->query->nkeys ? adoption->keys[i] : i;	/* or the start and end of a session */

		state->row_keys[i] = sa_group_keys(from, old)[key];
		state->row_nulls[i] = sa_group_nulls(from, old)[key];
	}
	group = sa_state_find(state, window, sa_state_hash_keys(state, state->row_keys, state->row_nulls), state->row_keys,
						  state->row_nulls, &found);
	group->result_tid = old->result_tid;
	if (!found)
		sa_state_touch(state, window, group, true, true);
	for (int i = 0; i < state->naggs; i++)
	{
		int			j = adoption->aggs[i];
		SaTrans    *into = &sa_group_states(group)[i];
		SaTrans		more;

		if (j < 0)
			continue;
		resetStringInfo(&adoption->bytes);
		sa_agg_run_in(from->run, old_window->hot);
		sa_agg_write(from->aggs[j], from->run, &sa_group_states(old)[j], &adoption->bytes);
		sa_agg_run_in(state->run, window->hot);
		sa_agg_read(state->aggs[i], state->run, &more, &adoption->bytes);
		if (found)
			sa_agg_combine(state->aggs[i], state->run, into, &more);
		else
		{
			sa_agg_discard(state->aggs[i], into);
			*into = more;
		}
	}
}

static void
adopt_window(SaState *state, Adoption *adoption, SaWindow *old, int64 start, int64 end)
{
	SaWindow   *window = sa_state_window(state, start, end);

	for (uint32 i = 0; i < old->nbuckets; i++)
		for (SaGroup *group = old->buckets[i]; group; group = group->next)
		{
			CHECK_FOR_INTERRUPTS();
			adopt_group(state, adoption, old, window, group);
		}
}

/* Without panes from here on: to each of its hopping windows that are still to close. */
static void
adopt_pane(SaState *state, Adoption *adoption, SaWindow *old)
{
	const SaQuery *query = state->query;

	for (int64 end = sa_window_hop_after(old->end, query->hop_slide, adoption->from->closed); end <= old->last_end;
		 end += query->hop_slide)
		adopt_window(state, adoption, old, end - query->window_size, end);
}

void
sa_state_adopt(SaState *state, SaState *from, const int *keys, const int *aggs)
{
	Adoption	adoption = {.from = from, .keys = keys, .aggs = aggs};

	initStringInfo(&adoption.bytes);
	for (uint32 i = 0; i < from->nslots; i++)
		for (SaWindow *old = from->windows[i]; old; old = old->next)
		{
			if (from->has_panes && !state->has_panes)
				adopt_pane(state, &adoption, old);
			else
				adopt_window(state, &adoption, old, old->start, old->end);
		}
	state->recovered = true;
}
