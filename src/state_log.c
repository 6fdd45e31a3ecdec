/*
 * state_log.c
 *		Groups on disk: the state log, and the spill table.
 *
 * Invariant: a log is a table of chunks, each with entries of one window; the newest entry of a group is the one whose
 * place the group holds, in memory or in the index of those that are not, and all others are dead.  Read in order, a
 * newer entry replaces the older ones.  A forgotten window's chunks are deleted whole.  Where a window's chunks hold
 * several times more entries than it has groups, what is alive in the oldest ones is written again.
 *
 * The state log takes part in every batch unless state is unlogged; then the spill table takes what memory has no room
 * for.  That one is unlogged, and good for nothing after a crash: what it holds is valid only to the worker that wrote
 * it, and to the next one where it carries the mark of where that one stopped.
 *
 * Locks: RowExclusiveLock on the tables, kept to the end of the transaction.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "executor/executor.h"
#include "libpq/pqformat.h"
#include "miscadmin.h"
#include "port/pg_bswap.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "fault.h"
#include "state_key.h"
#include "state_row.h"
#include "state_recover.h"
#include "state_session.h"

#define CHUNK_BYTES 7900		/* what fits a page with its headers */
#define COMPACT_FACTOR 4		/* entries per group that a window's chunks may hold */
#define COMPACT_MIN_CHUNKS 16
#define COMPACT_PER_CHUNK 4		/* old chunks looked at for each one written */
#define VACUUM_MIN_BYTES (4 * 1024 * 1024)	/* dead bytes that are worth a vacuum */
#define VACUUM_FACTOR 2			/* dead chunks per live one, likewise */

void
sa_state_lost(Oid relid)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("state of a group is no longer where it was written in table \"%s\"", get_rel_name(relid))));
}

/* --- reading --- */

int64
sa_state_log_open_chunk(SaLogReader *reader, int log, TupleTableSlot *slot)
{
	bool		isnull;
	bytea	   *data;
	int64		seq = DatumGetInt64(slot_getattr(slot, 1, &isnull));

	reader->start = DatumGetInt64(slot_getattr(slot, 2, &isnull));
	reader->end = DatumGetInt64(slot_getattr(slot, 3, &isnull));
	data = DatumGetByteaPP(slot_getattr(slot, 4, &isnull));
	reader->in.data = VARDATA_ANY(data);
	reader->in.len = reader->in.maxlen = VARSIZE_ANY_EXHDR(data);
	reader->in.cursor = reader->next = 0;
	reader->place.chunk = slot->tts_tid;
	reader->place.index = (log == SA_SPILL ? SA_IN_SPILL : 0) - 1;
	return seq;
}

bool
sa_state_log_next(SaLogReader *reader)
{
	StringInfo	in = &reader->in;

	in->cursor = reader->begin = reader->next;
	if (in->cursor >= in->len)
		return false;
	reader->next += sizeof(uint32) + pq_getmsgint(in, sizeof(uint32));
	reader->place.index++;
	return true;
}

void
sa_state_log_keys(SaState *state, SaLogReader *reader, Datum *keys, bool *nulls)
{
	for (int i = 0; i < state->nkeys; i++)
		keys[i] = sa_codec_get(&state->codecs[i], &reader->in, &nulls[i]);
}

void
sa_state_log_states(SaState *state, SaLogReader *reader, MemoryContext cxt, SaGroup *group)
{
	SaTrans    *states = sa_group_states(group);

	sa_agg_run_in(state->run, cxt);
	for (int i = 0; i < state->naggs; i++)
		if (!state->in_result[i])
		{
			sa_agg_discard(state->aggs[i], &states[i]);
			sa_agg_read(state->aggs[i], state->run, &states[i], &reader->in);
		}
}

static int
log_of(SaPlace place)
{
	return place.index & SA_IN_SPILL ? SA_SPILL : SA_LOG;
}

TupleTableSlot *
sa_state_log_seek(SaState *state, SaLogReader *reader, SaPlace place)
{
	int			log = log_of(place);
	Relation	rel = table_open(state->logs[log].relid, AccessShareLock);
	TupleTableSlot *slot = table_slot_create(rel, NULL);

	if (!table_tuple_fetch_row_version(rel, &place.chunk, SnapshotAny, slot))
		sa_state_lost(state->logs[log].relid);
	(void) sa_state_log_open_chunk(reader, log, slot);
	do
	{
		if (!sa_state_log_next(reader))
			sa_state_lost(state->logs[log].relid);
	} while (reader->place.index != place.index);
	table_close(rel, NoLock);
	return slot;
}

/* --- places --- */

void
sa_state_log_add_chunk(SaWindow *window, int log, ItemPointer tid, int entries)
{
	SaChunks   *chunks = &window->chunks[log];

	if (chunks->n == chunks->max)
	{
		chunks->max = Max(4, chunks->max * 2);
		if (chunks->list)
			chunks->list = repalloc_huge(chunks->list, sizeof(SaChunk) * chunks->max);
		else
			chunks->list = MemoryContextAlloc(window->cxt, sizeof(SaChunk) * chunks->max);
	}
	chunks->list[chunks->n++] = (SaChunk) {.tid = *tid, .entries = entries};
	chunks->entries += entries;
}

static bool
find_cold_at(SaColdSearch *search, SaWindow *window, uint32 hash, SaPlace place)
{
	if (window->cold == NULL)
		return false;
	sa_cold_search(search, window->cold, hash);
	while (sa_cold_next(search))
		if (sa_same_place(search->found.place, place))
			return true;
	return false;
}

/* The session whose newest entry is at this place, which has the keys in the scratch arrays. */
static bool
find_session(SaState *state, uint32 hash, SaPlace place, SaHolder *holder)
{
	holder->session = sa_session_at(state, hash, DatumGetInt64(state->row_keys[state->nown]), place);
	holder->group = holder->session ? holder->session->group : NULL;
	return holder->session != NULL;
}

/* The group whose newest entry is at this place.  False: the entry is nobody's any more. */
static bool
find_holder(SaWindow *window, uint32 hash, SaPlace place, SaHolder *holder)
{
	SaGroup    *group;

	holder->session = NULL;
	for (group = window->buckets[hash & (window->nbuckets - 1)]; group; group = group->next)
		if (group->hash == hash && !group->unsaved && sa_same_place(group->place, place))
			break;
	holder->group = group;
	return group || find_cold_at(&holder->cold, window, hash, place);
}

static void
put_place(SaHolder *holder, SaPlace place)
{
	if (holder->group)
	{
		holder->group->place = place;
		holder->group->unsaved = false;
	}
	else if (holder->session)
		holder->session->place = place;
	else
		sa_cold_move(&holder->cold, place);
}

/* Calls fn for each entry of these chunks, with its keys' hash. */
typedef void (*EntryCallback) (SaState *state, SaWindow *window, SaLogReader *reader, uint32 hash, void *arg);

static void
each_entry(SaState *state, SaWindow *window, int log, int from, int to, EntryCallback fn, void *arg)
{
	Relation	rel;
	TupleTableSlot *slot;
	MemoryContext scratch;
	SaLogReader reader;

	if (from >= to)
		return;
	rel = table_open(state->logs[log].relid, AccessShareLock);
	slot = table_slot_create(rel, NULL);
	scratch = AllocSetContextCreate(CurrentMemoryContext, "stream_agg chunk", ALLOCSET_DEFAULT_SIZES);
	for (int i = from; i < to; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (!table_tuple_fetch_row_version(rel, &window->chunks[log].list[i].tid, SnapshotAny, slot))
			sa_state_lost(state->logs[log].relid);
		(void) sa_state_log_open_chunk(&reader, log, slot);
		while (sa_state_log_next(&reader))
		{
			MemoryContext old = MemoryContextSwitchTo(scratch);

			sa_state_log_keys(state, &reader, state->row_keys, state->row_nulls);
			fn(state, window, &reader, sa_state_hash_keys(state, state->row_keys, state->row_nulls), arg);
			MemoryContextSwitchTo(old);
		}
		MemoryContextReset(scratch);
	}
	MemoryContextDelete(scratch);
	ExecDropSingleTupleTableSlot(slot);
	table_close(rel, NoLock);
}

typedef struct ColdEntries
{
	SaEntryCallback fn;
	void	   *arg;
} ColdEntries;

static void
pass_cold_entry(SaState *state, SaWindow *window, SaLogReader *reader, uint32 hash, void *arg)
{
	ColdEntries *entries = arg;
	SaColdSearch search;

	if (find_cold_at(&search, window, hash, reader->place))
		entries->fn(state, window, reader, &search.found, entries->arg);
}

void
sa_state_log_each_cold(SaState *state, SaWindow *window, SaEntryCallback fn, void *arg)
{
	ColdEntries entries = {.fn = fn, .arg = arg};

	for (int log = 0; log < SA_NLOGS; log++)
		each_entry(state, window, log, window->chunks[log].retired, window->chunks[log].n, pass_cold_entry, &entries);
}

/* --- writing --- */

typedef struct LogWriter
{
	int			log;
	Relation	rel;
	TupleTableSlot *slot;
	BulkInsertState bulk;
	SaWindow   *window;			/* of the chunk being filled */
	StringInfoData chunk;		/* behind a varlena header */
	SaHolder   *holders;		/* of its entries */
	int			entries;
	MemoryContext scratch;
} LogWriter;

static void
begin_writing(SaState *state, LogWriter *writer, int log)
{
	memset(writer, 0, sizeof(LogWriter));
	writer->log = log;
	writer->rel = table_open(state->logs[log].relid, RowExclusiveLock);
	writer->slot = MakeSingleTupleTableSlot(RelationGetDescr(writer->rel), &TTSOpsVirtual);
	writer->bulk = GetBulkInsertState();
	writer->scratch = AllocSetContextCreate(CurrentMemoryContext, "stream_agg log", ALLOCSET_DEFAULT_SIZES);
	writer->holders = palloc(sizeof(SaHolder) * (CHUNK_BYTES / sizeof(uint32) + 1));
	initStringInfo(&writer->chunk);
	appendStringInfoSpaces(&writer->chunk, VARHDRSZ);
}

static void
insert_chunk(SaState *state, LogWriter *writer, int64 seq, int64 start, int64 end)
{
	TupleTableSlot *slot = writer->slot;

	SET_VARSIZE(writer->chunk.data, writer->chunk.len);
	ExecClearTuple(slot);
	slot->tts_values[0] = Int64GetDatum(seq);
	slot->tts_values[1] = Int64GetDatum(start);
	slot->tts_values[2] = Int64GetDatum(end);
	slot->tts_values[3] = PointerGetDatum(writer->chunk.data);
	memset(slot->tts_isnull, 0, 4);
	ExecStoreVirtualTuple(slot);
	table_tuple_insert(writer->rel, slot, GetCurrentCommandId(true), 0, writer->bulk);
	resetStringInfo(&writer->chunk);
	appendStringInfoSpaces(&writer->chunk, VARHDRSZ);
}

static void
flush_chunk(SaState *state, LogWriter *writer)
{
	SaLog	   *log = &state->logs[writer->log];
	SaPlace		place;

	if (writer->entries == 0)
		return;
	log->chunks_written++;
	log->bytes_written += writer->chunk.len;
	insert_chunk(state, writer, ++log->seq, writer->window->start, writer->window->end);
	place.chunk = writer->slot->tts_tid;
	for (int i = 0; i < writer->entries; i++)
	{
		place.index = (writer->log == SA_SPILL ? SA_IN_SPILL : 0) + i;
		put_place(&writer->holders[i], place);
		if (writer->holders[i].move >= 0)
			state->moves[writer->holders[i].move].to = place;
	}
	sa_state_log_add_chunk(writer->window, writer->log, &place.chunk, writer->entries);
	writer->entries = 0;
	MemoryContextReset(writer->scratch);
}

static void
end_writing(SaState *state, LogWriter *writer)
{
	flush_chunk(state, writer);
	FreeBulkInsertState(writer->bulk);
	ExecDropSingleTupleTableSlot(writer->slot);
	MemoryContextDelete(writer->scratch);
	pfree(writer->holders);
	pfree(writer->chunk.data);
	table_close(writer->rel, NoLock);
}

/* The chunk at hand is for entries of this window from here on. */
static void
write_for(SaState *state, LogWriter *writer, SaWindow *window)
{
	if (writer->window != window)
		flush_chunk(state, writer);
	writer->window = window;
}

/* An entry has been appended behind `before` bytes.  One that does not fit any more begins the next chunk. */
static void
end_entry(SaState *state, LogWriter *writer, int before, const SaHolder *holder)
{
	StringInfo	chunk = &writer->chunk;

	if (chunk->len > CHUNK_BYTES && writer->entries > 0)
	{
		int			len = chunk->len - before;
		char	   *entry = memcpy(palloc(len), chunk->data + before, len);

		chunk->len = before;
		flush_chunk(state, writer);
		appendBinaryStringInfo(chunk, entry, len);
		pfree(entry);
	}
	writer->holders[writer->entries++] = *holder;
}

/* One entry: its length after the four bytes that hold it, keys, states. */
static void
write_group(SaState *state, LogWriter *writer, SaWindow *window, SaGroup *group)
{
	StringInfo	out = &writer->chunk;
	SaHolder	holder = {.group = group, .move = -1};
	int			start;
	uint32		len;
	MemoryContext old;

	write_for(state, writer, window);
	start = out->len;
	old = MemoryContextSwitchTo(writer->scratch);
	appendStringInfoSpaces(out, sizeof(uint32));
	for (int i = 0; i < state->nkeys; i++)
		sa_codec_put(&state->codecs[i], out, sa_group_keys(state, group)[i], sa_group_nulls(state, group)[i]);
	sa_agg_run_in(state->run, window->hot);
	for (int i = 0; i < state->naggs; i++)
		if (!state->in_result[i])
			sa_agg_write(state->aggs[i], state->run, &sa_group_states(group)[i], out);
	MemoryContextSwitchTo(old);
	len = pg_hton32(out->len - start - sizeof(uint32));
	memcpy(out->data + start, &len, sizeof(uint32));
	end_entry(state, writer, start, &holder);
}

static int
compare_touched_window(const void *a, const void *b)
{
	const SaTouched *x = a;
	const SaTouched *y = b;

	if (x->window->end != y->window->end)
		return x->window->end < y->window->end ? -1 : 1;
	return x->window->start < y->window->start ? -1 : x->window->start > y->window->start;
}

/* What this batch has changed or is to save; unlogged, only what memory has no room for. */
static void
write_touched(SaState *state, LogWriter *writer)
{
	qsort(state->touched, state->ntouched, sizeof(SaTouched), compare_touched_window);
	for (int i = 0; i < state->ntouched; i++)
	{
		SaTouched  *entry = &state->touched[i];

		if (entry->window->forgotten || entry->group->gone || (state->unlogging && entry->changed && entry->window->spill != SPILL_ALL))
			continue;
		CHECK_FOR_INTERRUPTS();
		write_group(state, writer, entry->window, entry->group);
	}
}

/* --- writing again --- */

static int64
note_move(SaState *state, SaWindow *window, uint32 hash, SaPlace from)
{
	if (state->nmoves == state->maxmoves)
	{
		int64		n = Max(1024, state->maxmoves * 2);

		if (state->moves)
			state->moves = repalloc_huge(state->moves, sizeof(SaMove) * n);
		else
			state->moves = MemoryContextAllocHuge(state->undo_cxt, sizeof(SaMove) * n);
		state->maxmoves = n;
	}
	state->moves[state->nmoves] = (SaMove) {.window = window, .hash = hash, .from = from};
	ItemPointerSetInvalid(&state->moves[state->nmoves].to.chunk);
	return state->nmoves++;
}

void
sa_state_log_undo_moves(SaState *state)
{
	SaHolder	holder;

	for (int64 i = 0; i < state->nmoves; i++)
	{
		SaMove	   *move = &state->moves[i];

		if (!ItemPointerIsValid(&move->to.chunk))
			continue;
		if (move->session)
			holder = (SaHolder) {.session = move->session, .group = move->session->group};
		else if (!find_holder(move->window, move->hash, move->to, &holder))
			continue;
		put_place(&holder, move->from);
	}
}

/* An entry that is somebody's goes into the chunk being filled, as it is. */
static void
copy_live_entry(SaState *state, SaWindow *window, SaLogReader *reader, uint32 hash, void *arg)
{
	LogWriter  *writer = arg;
	SaHolder	holder;
	int			before;

	if (state->sessions ? !find_session(state, hash, reader->place, &holder) : !find_holder(window, hash, reader->place, &holder))
		return;
	holder.move = note_move(state, window, hash, reader->place);
	state->moves[holder.move].session = holder.session;
	write_for(state, writer, window);
	before = writer->chunk.len;
	appendBinaryStringInfo(&writer->chunk, reader->in.data + reader->begin, reader->next - reader->begin);
	end_entry(state, writer, before, &holder);
}

/* The oldest chunks, up to this one, go. */
static void
drop_chunks(SaChunks *chunks, int to)
{
	for (; chunks->retired < to; chunks->retired++)
		chunks->entries -= chunks->list[chunks->retired].entries;
}

/* And what is alive in them is written again. */
static void
retire_chunks(SaState *state, LogWriter *writer, SaWindow *window, int log, int to)
{
	each_entry(state, window, log, window->chunks[log].retired, to, copy_live_entry, writer);
	drop_chunks(&window->chunks[log], to);
	flush_chunk(state, writer);
}

/* Where the chunks have grown far beyond the groups, as many of the oldest go as new ones come, and some more. */
static void
compact_window(SaState *state, SaWindow *window, void *arg)
{
	LogWriter  *writer = arg;
	SaChunks   *chunks = &window->chunks[writer->log];
	int			fresh = chunks->n - chunks->committed;

	if (window->forgotten || !window->dirty || chunks->n < COMPACT_MIN_CHUNKS ||
		chunks->entries < COMPACT_FACTOR * sa_state_window_size(state, window))
		return;
	SA_FAULT("compact", state->result);
	retire_chunks(state, writer, window, writer->log,
				  Min(chunks->committed, Max(COMPACT_MIN_CHUNKS, COMPACT_PER_CHUNK * fresh)));
}

/* What the spill table holds goes to the log. */
static void
empty_spilled(SaState *state, SaWindow *window, void *arg)
{
	if (!window->forgotten)
		retire_chunks(state, arg, window, SA_SPILL, window->chunks[SA_SPILL].n);
}

/* --- a batch --- */

/* Groups that are not saved are to be, those that the batch has touched apart. */
static void
take_unsaved(SaState *state, SaWindow *window, void *arg)
{
	if (window->forgotten)
		return;
	for (uint32 i = 0; i < window->nbuckets; i++)
		for (SaGroup *group = window->buckets[i]; group; group = group->next)
			if (group->unsaved && !group->touched && !group->gone)
				sa_state_touch(state, window, group, false, false);
}

static void
take_spilled(SaState *state, SaWindow *window, void *arg)
{
	if (window->spill != SPILL_NONE)
		take_unsaved(state, window, arg);
}

static int64
count_old(SaState *state, SaWindow *window)
{
	int64		n = 0;

	for (uint32 i = 0; i < window->nbuckets; i++)
		for (SaGroup *group = window->buckets[i]; group; group = group->next)
			n += group->batch != (uint32) state->batch;
	return n;
}

/* Memory is short: first what the batch has not touched is to be saved, the coldest windows first, then any. */
static void
plan_spill(SaState *state)
{
	int64		excess = sa_state_excess(state);
	SaWindow  **windows;
	int64	   *rest;
	int			n;

	if (excess == 0)
		return;
	windows = sa_state_hot_windows(state, &n);
	rest = palloc(sizeof(int64) * (n + 1));
	for (int i = 0; i < n && excess > 0; i++)
	{
		int64		bytes = sa_state_hot_bytes(windows[i]);
		int64		old = bytes * count_old(state, windows[i]) / windows[i]->ngroups;

		windows[i]->spill = SPILL_OLD;
		rest[i] = bytes - old;
		excess -= old;
	}
	for (int i = 0; i < n && excess > 0; i++)
	{
		windows[i]->spill = SPILL_ALL;
		excess -= rest[i];
	}
	pfree(rest);
	pfree(windows);
	SA_FAULT("spill", state->result);
}

static void
delete_chunks(SaState *state, SaWindow *window, Relation rel, int log)
{
	SaChunks   *chunks = &window->chunks[log];
	int			n = window->forgotten ? chunks->n : chunks->retired;

	for (int i = 0; i < n; i++)
		simple_table_tuple_delete(rel, &chunks->list[i].tid, GetActiveSnapshot());
	state->logs[log].chunks_deleted += n;
}

static void
delete_old_chunks(SaState *state, int log)
{
	Relation	rel = table_open(state->logs[log].relid, RowExclusiveLock);

	for (uint32 i = 0; i < state->nslots; i++)
		for (SaWindow *window = state->windows[i]; window; window = window->next)
			delete_chunks(state, window, rel, log);
	if (log == SA_SPILL && ItemPointerIsValid(&state->mark))
		simple_table_tuple_delete(rel, &state->mark, GetActiveSnapshot());
	table_close(rel, NoLock);
}

/* Unlogged: all sessions that the log has may have been forgotten, though not the window that they are of. */
static void
drop_old_sessions(SaState *state, SaWindow *window, void *arg)
{
	SaStateSize size;

	if (window->chunks[SA_LOG].n == 0)
		return;
	sa_state_size(state, &size);
	if (size.first_birth > state->last_logged)
		drop_chunks(&window->chunks[SA_LOG], window->chunks[SA_LOG].n);
}

static bool
spills(SaState *state)
{
	return OidIsValid(state->logs[SA_SPILL].relid);
}

void
sa_state_write(SaState *state)
{
	LogWriter	writer;

	sa_state_close_finder(state);
	if (!state->needs_log)
		return;
	if (state->unlogging && spills(state))
	{
		plan_spill(state);
		sa_state_each_window(state, take_spilled, NULL);
	}
	else if (state->unlogged && !state->unlogging)
		sa_state_each_window(state, take_unsaved, NULL);
	if (!state->unlogging || spills(state))
	{
		begin_writing(state, &writer, state->unlogging ? SA_SPILL : SA_LOG);
		write_touched(state, &writer);
		if (state->unlogged && !state->unlogging)
			sa_state_each_window(state, empty_spilled, &writer);
		sa_state_each_window(state, compact_window, &writer);
		end_writing(state, &writer);
	}
	if (state->sessions && state->unlogging && !state->rebuilding)
		sa_state_each_window(state, drop_old_sessions, NULL);
	delete_old_chunks(state, SA_LOG);
	if (spills(state))
		delete_old_chunks(state, SA_SPILL);
}

static void
spill_all(SaState *state, SaWindow *window, void *arg)
{
	window->spill = SPILL_ALL;
}

void
sa_state_save(SaState *state, const char *mark)
{
	LogWriter	writer;

	if (!spills(state))
		return;
	sa_state_each_window(state, spill_all, NULL);
	sa_state_each_window(state, take_spilled, NULL);
	begin_writing(state, &writer, SA_SPILL);
	write_touched(state, &writer);
	flush_chunk(state, &writer);
	appendStringInfoString(&writer.chunk, mark);
	insert_chunk(state, &writer, SA_MARK_SEQ, 0, 0);
	end_writing(state, &writer);
	delete_old_chunks(state, SA_SPILL);
}

void
sa_state_log_commit(SaWindow *window)
{
	for (int i = 0; i < SA_NLOGS; i++)
	{
		SaChunks   *chunks = &window->chunks[i];

		if (chunks->retired > 0)
			memmove(chunks->list, chunks->list + chunks->retired, sizeof(SaChunk) * (chunks->n - chunks->retired));
		chunks->n -= chunks->retired;
		chunks->retired = 0;
		chunks->committed = chunks->n;
	}
}

void
sa_state_log_abort(SaWindow *window)
{
	for (int i = 0; i < SA_NLOGS; i++)
	{
		SaChunks   *chunks = &window->chunks[i];

		chunks->n = chunks->committed;
		chunks->retired = 0;
		chunks->entries = 0;
		for (int j = 0; j < chunks->n; j++)
			chunks->entries += chunks->list[j].entries;
	}
}

/* --- vacuum --- */

Oid
sa_state_take_vacuum(SaState *state)
{
	for (int i = 0; i < SA_NLOGS; i++)
	{
		SaLog	   *log = &state->logs[i];
		int64		live = 0;

		if (log->dead_chunks * (log->bytes_written / Max(log->chunks_written, 1)) < VACUUM_MIN_BYTES)
			continue;
		for (uint32 j = 0; j < state->nslots; j++)
			for (SaWindow *window = state->windows[j]; window; window = window->next)
				live += window->chunks[i].n;
		if (log->dead_chunks < VACUUM_FACTOR * live)
			continue;
		log->dead_chunks = 0;
		return log->relid;
	}
	return InvalidOid;
}
