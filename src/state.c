/*
 * state.c
 *		The groups of one view.
 *
 * Invariant: between batches, a group's place on disk (result row, log entry) holds its newest state, so
 * its body may leave memory at any time, and a failed batch is undone by going back to those places:
 * bodies touched by it are dropped, and read again when next needed.  What a batch has done to windows
 * (new, closed, compacted) takes effect in memory only after the commit.
 *
 * Unlogged state has no such places: what the log holds is older, or nothing.  Bodies stay in memory, and a failed
 * batch is undone by copies taken when it touches a group.
 *
 * The log is a table of chunks, each with entries of one window; a newer entry of a group replaces the
 * older ones.  A forgotten window's chunks are deleted whole.  A window whose chunks hold several times
 * more entries than it has groups is written afresh.
 *
 * Locks: RowExclusiveLock on the log, kept to the end of the transaction.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "libpq/pqformat.h"
#include "miscadmin.h"
#include "port/pg_bswap.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

#include "compat.h"
#include "state.h"
#include "watermark.h"

#define CHUNK_BYTES 7900		/* what fits a page with its headers */
#define COMPACT_FACTOR 4		/* entries per group that a window's log may hold */
#define COMPACT_MIN_CHUNKS 16
#define VACUUM_MIN_BYTES (4 * 1024 * 1024)	/* dead bytes in the log that are worth a vacuum */
#define VACUUM_FACTOR 2			/* dead chunks per live one, likewise */
#define MAX_KEY_BYTES 2500		/* what fits an index entry, a third of a page */
#define MIN_LEAKED 1000			/* bodies left behind by failed batches that are worth moving the others */
#define FIRST_WINDOW_SLOTS 64
#define FIRST_ARENA 1024
#define LAST_ARENA 65536

typedef enum KeyKind
{
	KEY_IMAGE,					/* by value, equal iff the datums are */
	KEY_BYTES,					/* varlena, equal iff the bytes are */
	KEY_FUNCTION				/* ask the type */
} KeyKind;

typedef struct KeyInfo
{
	KeyKind		kind;
	bool		byval;
	int16		len;
	Oid			collation;
	FmgrInfo	eq;
	FmgrInfo	hash;
	bool		hashable;
	SaCodec		codec;
} KeyInfo;

/* Keys and states; lives in its window's bodies context. */
typedef struct SaBody
{
	SaTrans    *trans;
	Datum	   *keys;
	bool	   *nulls;
} SaBody;

struct SaWindow
{
	SaWindow   *next;			/* in the hash of windows */
	int64		start;
	int64		end;
	MemoryContext cxt;			/* everything of the window */
	MemoryContext bodies;		/* keys and states alone */
	SaGroup   **buckets;
	uint32		nbuckets;
	int64		ngroups;
	SaGroup    *free_groups;	/* taken back by failed batches */
	char	   *arena;			/* for groups */
	Size		arena_left;
	Size		arena_size;
	uint64		last_batch;		/* for eviction */
	uint64		birth;			/* the batch in which it was made; 0: recovered */
	int64		leaked;			/* bodies that failed batches have left in memory */
	bool		fresh;			/* new in this batch */
	bool		forgotten;		/* by this batch */
	bool		dirty;			/* has groups touched in this batch */
	int64		entries;		/* in the log */
	int			nchunks;
	int			maxchunks;
	ItemPointerData *chunks;
	int			committed_chunks;
	int64		committed_entries;
	ItemPointerData *retired;	/* chunks that compaction replaced in this batch */
	int			nretired;
};

struct SaState
{
	MemoryContext cxt;
	MemoryContext windows_cxt;	/* parent of all windows; reset to start over */
	SaQuery    *query;
	SaOutputMode mode;
	Oid			result;
	Oid			log;
	Oid			result_file;	/* where remembered places are valid */
	Oid			log_file;
	int64		log_seq;		/* of the newest chunk */
	int64		chunks_written; /* since the worker's start, for their mean size */
	int64		bytes_written;
	int64		chunks_deleted; /* by this batch */
	int64		dead_chunks;	/* deleted by committed batches and not yet vacuumed away */
	bool		recovered;
	bool		rebuilding;
	bool		unlogged;		/* as committed */
	bool		unlogging;		/* in this batch */
	int			nkeys;
	KeyInfo    *keys;
	int			naggs;
	SaAgg	  **aggs;
	bool	   *in_result;
	SaAggRun   *run;
	bool		any_in_result;
	bool		needs_log;
	SaWindow  **windows;		/* hash of windows, in windows_cxt */
	uint32		nslots;			/* of it; a power of two */
	SaWindow   *last;			/* the window found last */
	int64		nwindows;
	uint64		batch;
	SaTouched  *touched;
	int			ntouched;
	int			maxtouched;
	MemoryContext undo_cxt;		/* copies of what this batch has touched */
	Datum	   *row_keys;		/* scratch */
	bool	   *row_nulls;
};

/* --- set-up --- */

static void
init_key(KeyInfo *info, const SaKey *key, MemoryContext cxt)
{
	RegProcedure hashfn;
	TypeCacheEntry *type = lookup_type_cache(key->type, TYPECACHE_EQ_OPR);

	get_typlenbyval(key->type, &info->len, &info->byval);
	info->collation = key->collation;
	info->kind = KEY_FUNCTION;
	if (info->byval && (type->type_id == INT4OID || type->type_id == INT8OID || type->type_id == INT2OID ||
						type->type_id == BOOLOID || type->type_id == DATEOID || type->type_id == OIDOID ||
						type->type_id == TIMESTAMPOID || type->type_id == TIMESTAMPTZOID ||
						type->typtype == TYPTYPE_ENUM))
		info->kind = KEY_IMAGE;
	else if ((key->type == TEXTOID || key->type == VARCHAROID || key->type == BYTEAOID) &&
			 (!OidIsValid(key->collation) || get_collation_isdeterministic(key->collation)))
		info->kind = KEY_BYTES;
	fmgr_info_cxt(get_opcode(key->eqop), &info->eq, cxt);
	info->hashable = get_op_hash_functions(key->eqop, &hashfn, NULL);
	if (info->hashable)
		fmgr_info_cxt(hashfn, &info->hash, cxt);
	sa_codec_init(&info->codec, key->type, cxt);
}

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
static void
start_over(SaState *state)
{
	MemoryContextReset(state->windows_cxt);
	state->nslots = FIRST_WINDOW_SLOTS;
	state->windows = MemoryContextAllocZero(state->windows_cxt, sizeof(SaWindow *) * state->nslots);
	state->last = NULL;
	state->nwindows = 0;
	state->ntouched = 0;
	state->batch = 0;
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
	KeyInfo    *keys = palloc0(sizeof(KeyInfo) * (query->nkeys + 1));
	SaAgg	  **aggs = palloc0(sizeof(SaAgg *) * (query->naggs + 1));
	bool	   *in_result = palloc0(sizeof(bool) * (query->naggs + 1));
	bool		same_shapes = true;

	if (state->query && (query->nkeys != state->nkeys || query->naggs != state->naggs))
		refuse_query();
	for (int i = 0; i < query->nkeys; i++)
		init_key(&keys[i], &query->keys[i], query->cxt);
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
	MemoryContextSwitchTo(old);

	/* Errors have left everything as it was. */
	state->query = query;
	state->nkeys = query->nkeys;
	state->naggs = query->naggs;
	state->keys = keys;
	state->aggs = aggs;
	state->in_result = in_result;
	state->any_in_result = false;
	for (int i = 0; i < query->naggs; i++)
		state->any_in_result |= in_result[i];
	if (!same_shapes)
		start_over(state);		/* what is on disk is checked when it is read back */
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
sa_state_create(SaQuery *query, SaOutputMode mode, Oid result, Oid log, MemoryContext parent)
{
	MemoryContext cxt = AllocSetContextCreate(parent, "stream_agg state", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(cxt);
	SaState    *state = palloc0(sizeof(SaState));

	state->cxt = cxt;
	state->windows_cxt = AllocSetContextCreate(cxt, "stream_agg windows", ALLOCSET_DEFAULT_SIZES);
	state->undo_cxt = GenerationContextCreate(cxt, "stream_agg undo", ALLOCSET_DEFAULT_SIZES);
	state->mode = mode;
	state->result = result;
	state->log = log;
	state->needs_log = OidIsValid(log);
	state->run = sa_agg_run_create(cxt);
	start_over(state);
	sa_state_set_query(state, query);
	state->row_keys = palloc0(sizeof(Datum) * (state->nkeys + 1));
	state->row_nulls = palloc0(sizeof(bool) * (state->nkeys + 1));
	MemoryContextSwitchTo(old);
	return state;
}

/* --- windows --- */

static uint32
hash_int64(int64 n)
{
	return murmurhash32((uint32) n ^ (uint32) ((uint64) n >> 32));
}

static SaWindow **
window_slot(SaState *state, int64 end)
{
	return &state->windows[hash_int64(end) & (state->nslots - 1)];
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
	window->bodies = AllocSetContextCreate(cxt, "stream_agg groups", ALLOCSET_SMALL_SIZES);
	window->start = start;
	window->end = end;
	window->fresh = true;
	window->birth = state->batch;
	window->nbuckets = 16;
	window->buckets = MemoryContextAllocZero(cxt, sizeof(SaGroup *) * window->nbuckets);
	window->arena_size = FIRST_ARENA;
	window->next = *slot;
	*slot = window;
	state->nwindows++;
	state->last = window;
	return window;
}

SaWindow *
sa_state_window(SaState *state, int64 start, int64 end)
{
	SaWindow   *window = find_window(state, start, end);

	return window ? window : create_window(state, start, end);
}

static void
drop_window(SaState *state, SaWindow *window)
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
static void
each_window(SaState *state, void (*fn) (SaState *state, SaWindow *window, void *arg), void *arg)
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

/* --- keys --- */

static uint32
hash_key(KeyInfo *info, Datum value)
{
	switch (info->kind)
	{
		case KEY_IMAGE:
			return hash_int64(info->len == sizeof(int32) ? DatumGetInt32(value) : (int64) value);
		case KEY_BYTES:
			{
				struct varlena *v = PG_DETOAST_DATUM_PACKED(value);

				return hash_bytes((unsigned char *) VARDATA_ANY(v), VARSIZE_ANY_EXHDR(v));
			}
		default:
			return info->hashable ? DatumGetUInt32(FunctionCall1Coll(&info->hash, info->collation, value)) : 0;
	}
}

static uint32
hash_keys(SaState *state, Datum *keys, bool *nulls)
{
	uint32		hash = 0x9e3779b9;

	for (int i = 0; i < state->nkeys; i++)
		hash = hash_combine(hash, nulls[i] ? 0 : hash_key(&state->keys[i], keys[i]));
	return hash;
}

static bool
equal_key(KeyInfo *info, Datum a, Datum b)
{
	switch (info->kind)
	{
		case KEY_IMAGE:
			/* an OID may have come sign-extended or not */
			return info->len == sizeof(int32) ? DatumGetInt32(a) == DatumGetInt32(b) : a == b;
		case KEY_BYTES:
			{
				struct varlena *va = PG_DETOAST_DATUM_PACKED(a);
				struct varlena *vb = PG_DETOAST_DATUM_PACKED(b);
				Size		len = VARSIZE_ANY_EXHDR(va);

				return len == VARSIZE_ANY_EXHDR(vb) && memcmp(VARDATA_ANY(va), VARDATA_ANY(vb), len) == 0;
			}
		default:
			return DatumGetBool(FunctionCall2Coll(&info->eq, info->collation, a, b));
	}
}

/* NULLs group together, as in SQL. */
static bool
equal_keys(SaState *state, SaBody *body, Datum *keys, bool *nulls)
{
	for (int i = 0; i < state->nkeys; i++)
	{
		if (body->nulls[i] != nulls[i])
			return false;
		if (!nulls[i] && !equal_key(&state->keys[i], body->keys[i], keys[i]))
			return false;
	}
	return true;
}

/* --- bodies --- */

static Datum
flat_key(KeyInfo *info, Datum value)
{
	return info->len == -1 ? PointerGetDatum(PG_DETOAST_DATUM_PACKED(value)) : value;
}

/* A body with copies of these keys, in one piece of memory; states are still to be filled. */
static SaBody *
create_body(SaState *state, SaWindow *window, Datum *keys, bool *nulls)
{
	Size		fixed = MAXALIGN(sizeof(SaBody) + sizeof(SaTrans) * state->naggs + sizeof(Datum) * state->nkeys +
								 sizeof(bool) * state->nkeys);
	Size		size = fixed;
	SaBody	   *body;
	char	   *free_space;

	for (int i = 0; i < state->nkeys; i++)
		if (!nulls[i] && !state->keys[i].byval)
		{
			keys[i] = flat_key(&state->keys[i], keys[i]);
			size += MAXALIGN(datumGetSize(keys[i], false, state->keys[i].len));
		}
	body = MemoryContextAlloc(window->bodies, size);
	body->trans = (SaTrans *) (body + 1);
	body->keys = (Datum *) (body->trans + state->naggs);
	body->nulls = (bool *) (body->keys + state->nkeys);
	free_space = (char *) body + fixed;
	for (int i = 0; i < state->nkeys; i++)
	{
		body->nulls[i] = nulls[i];
		body->keys[i] = keys[i];
		if (!nulls[i] && !state->keys[i].byval)
		{
			Size		len = datumGetSize(keys[i], false, state->keys[i].len);

			memcpy(free_space, DatumGetPointer(keys[i]), len);
			body->keys[i] = PointerGetDatum(free_space);
			free_space += MAXALIGN(len);
		}
	}
	return body;
}

static void
start_states(SaState *state, SaWindow *window, SaBody *body)
{
	sa_agg_run_in(state->run, window->bodies);
	for (int i = 0; i < state->naggs; i++)
		sa_agg_start(state->aggs[i], state->run, &body->trans[i]);
}

/* Position a reader at the index-th entry of a chunk. */
static void
seek_entry(StringInfo in, bytea *chunk, int index)
{
	in->data = VARDATA_ANY(chunk);
	in->len = VARSIZE_ANY_EXHDR(chunk);
	in->maxlen = in->len;
	in->cursor = 0;
	while (index-- > 0)
		in->cursor += pq_getmsgint(in, 4);
	(void) pq_getmsgint(in, 4);
}

/* Read the keys of the entry at the reader. */
static void
read_entry_keys(SaState *state, StringInfo in, Datum *keys, bool *nulls)
{
	for (int i = 0; i < state->nkeys; i++)
		keys[i] = sa_codec_get(&state->keys[i].codec, in, &nulls[i]);
}

/* Then the states that are not in the result. */
static void
read_entry_states(SaState *state, SaWindow *window, StringInfo in, SaBody *body)
{
	sa_agg_run_in(state->run, window->bodies);
	for (int i = 0; i < state->naggs; i++)
		if (!state->in_result[i])
			sa_agg_read(state->aggs[i], state->run, &body->trans[i], in);
}

/* Copies of all states of a body, until the end of the batch. */
static SaTrans *
save_states(SaState *state, SaWindow *window, const SaBody *body)
{
	SaTrans    *saved = MemoryContextAlloc(state->undo_cxt, sizeof(SaTrans) * (state->naggs + 1));

	sa_agg_run_in(state->run, window->bodies);
	for (int i = 0; i < state->naggs; i++)
		sa_agg_save(state->aggs[i], state->run, &body->trans[i], &saved[i], state->undo_cxt);
	return saved;
}

/* A body in the window's bodies context with these keys and states. */
static SaBody *
copy_body(SaState *state, SaWindow *window, const SaBody *keys, const SaTrans *states)
{
	SaBody	   *body = create_body(state, window, keys->keys, keys->nulls);

	sa_agg_run_in(state->run, window->bodies);
	for (int i = 0; i < state->naggs; i++)
		sa_agg_restore(state->aggs[i], state->run, &body->trans[i], &states[i]);
	return body;
}

/* Columns of a result row (as a slot of the result table) that are keys. */
static void
read_result_keys(SaState *state, TupleTableSlot *slot, Datum *keys, bool *nulls)
{
	for (int i = 0; i < state->nkeys; i++)
		keys[i] = slot_getattr(slot, state->query->keys[i].result, &nulls[i]);
}

static void
read_result_states(SaState *state, SaWindow *window, TupleTableSlot *slot, SaBody *body)
{
	sa_agg_run_in(state->run, window->bodies);
	for (int i = 0; i < state->naggs; i++)
		if (state->in_result[i])
		{
			bool		isnull;
			Datum		value = slot_getattr(slot, state->query->aggs[i].result, &isnull);

			sa_agg_from_value(state->aggs[i], state->run, &body->trans[i], value, isnull);
		}
}

static void
lost_place(Oid relid)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("state of a group is no longer where it was written in table \"%s\"", get_rel_name(relid))));
}

/* A slot with the row at this place. */
static TupleTableSlot *
fetch_row(Relation rel, ItemPointer tid, Snapshot snapshot)
{
	TupleTableSlot *slot = table_slot_create(rel, NULL);

	if (!table_tuple_fetch_row_version(rel, tid, snapshot, slot))
		lost_place(RelationGetRelid(rel));
	return slot;
}

/* Keys and states from the group's entry in the log. */
static SaBody *
load_from_log(SaState *state, SaWindow *window, SaGroup *group, Datum *keys, bool *nulls)
{
	Relation	rel = table_open(state->log, AccessShareLock);
	TupleTableSlot *slot = fetch_row(rel, &group->log_tid, SnapshotAny);
	bool		isnull;
	bytea	   *chunk = DatumGetByteaPP(slot_getattr(slot, 4, &isnull));
	StringInfoData in;
	SaBody	   *body;

	seek_entry(&in, chunk, group->log_index);
	read_entry_keys(state, &in, keys, nulls);
	body = create_body(state, window, keys, nulls);
	read_entry_states(state, window, &in, body);
	ExecDropSingleTupleTableSlot(slot);
	table_close(rel, NoLock);
	return body;
}

/* States from the group's row in the result; keys too where there is no log (body NULL). */
static SaBody *
load_from_result(SaState *state, SaWindow *window, SaGroup *group, SaBody *body, Datum *keys, bool *nulls)
{
	Relation	rel = table_open(state->result, AccessShareLock);
	TupleTableSlot *slot = fetch_row(rel, &group->result_tid, SnapshotSelf);

	if (body == NULL)
	{
		read_result_keys(state, slot, keys, nulls);
		body = create_body(state, window, keys, nulls);
	}
	read_result_states(state, window, slot, body);
	ExecDropSingleTupleTableSlot(slot);
	table_close(rel, NoLock);
	return body;
}

/* Bring a group's body back from disk. */
static void
load_body(SaState *state, SaWindow *window, SaGroup *group)
{
	Datum	   *keys = palloc(sizeof(Datum) * (state->nkeys + 1));
	bool	   *nulls = palloc(sizeof(bool) * (state->nkeys + 1));
	SaBody	   *body = NULL;

	if (state->needs_log)
		body = load_from_log(state, window, group, keys, nulls);
	if (body == NULL || state->any_in_result)
		body = load_from_result(state, window, group, body, keys, nulls);
	group->body = body;
	pfree(keys);
	pfree(nulls);
}

/* Unlogged, they have no place to be brought back from. */
static void
load_bodies(SaState *state, SaWindow *window, void *arg)
{
	for (uint32 i = 0; i < window->nbuckets; i++)
		for (SaGroup *group = window->buckets[i]; group; group = group->next)
			if (group->body == NULL)
				load_body(state, window, group);
}

/* --- groups --- */

static SaGroup *
allocate_group(SaWindow *window)
{
	SaGroup    *group = window->free_groups;

	if (group)
		window->free_groups = group->next;
	else if (window->arena_left < sizeof(SaGroup))
	{
		window->arena = MemoryContextAlloc(window->cxt, window->arena_size);
		window->arena_left = window->arena_size;
		window->arena_size = Min(window->arena_size * 2, LAST_ARENA);
	}
	if (group == NULL)
	{
		group = (SaGroup *) window->arena;
		window->arena += sizeof(SaGroup);
		window->arena_left -= sizeof(SaGroup);
	}
	memset(group, 0, sizeof(SaGroup));
	ItemPointerSetInvalid(&group->log_tid);
	ItemPointerSetInvalid(&group->result_tid);
	return group;
}

static void
grow_buckets(SaWindow *window)
{
	uint32		n = window->nbuckets * 2;
	SaGroup   **buckets = MemoryContextAllocExtended(window->cxt, sizeof(SaGroup *) * n,
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

/* The group with these keys; *found tells whether it was there. */
static SaGroup *
find_or_create_group(SaState *state, SaWindow *window, uint32 hash, Datum *keys, bool *nulls, bool *found)
{
	SaGroup    *group;

	for (group = window->buckets[hash & (window->nbuckets - 1)]; group; group = group->next)
	{
		if (group->hash != hash)
			continue;
		if (group->body == NULL)
			load_body(state, window, group);
		if (equal_keys(state, group->body, keys, nulls))
		{
			*found = true;
			return group;
		}
	}
	*found = false;
	if (window->ngroups >= window->nbuckets)
		grow_buckets(window);
	group = allocate_group(window);
	group->hash = hash;
	group->body = create_body(state, window, keys, nulls);
	start_states(state, window, group->body);
	group->next = window->buckets[hash & (window->nbuckets - 1)];
	window->buckets[hash & (window->nbuckets - 1)] = group;
	window->ngroups++;
	return group;
}

static void
remove_group(SaWindow *window, SaGroup *group)
{
	SaGroup   **link = &window->buckets[group->hash & (window->nbuckets - 1)];

	while (*link != group)
		link = &(*link)->next;
	*link = group->next;
	group->next = window->free_groups;
	window->free_groups = group;
	window->ngroups--;
}

static void
touch(SaState *state, SaWindow *window, SaGroup *group, bool fresh, bool changed)
{
	SaTouched  *entry;

	if (state->ntouched == state->maxtouched)
	{
		Size		n = Max(1024, (Size) state->maxtouched * 2);

		if (state->touched)
			state->touched = repalloc_huge(state->touched, n * sizeof(SaTouched));
		else
			state->touched = MemoryContextAllocHuge(state->cxt, n * sizeof(SaTouched));
		state->maxtouched = n;
	}
	entry = &state->touched[state->ntouched++];
	entry->group = group;
	entry->window = window;
	entry->fresh = fresh;
	entry->changed = changed;
	entry->log_tid = group->log_tid;
	entry->log_index = group->log_index;
	entry->result_tid = group->result_tid;
	entry->undo = NULL;
	if (state->unlogged && changed && !fresh)
		entry->undo = save_states(state, window, group->body);
	group->touched = true;
	window->dirty = true;
	window->last_batch = state->batch;
}

/* The keys of a row from below, into the scratch arrays. */
static void
take_row_keys(SaState *state, const Datum *row, const bool *nulls)
{
	for (int i = 0; i < state->nkeys; i++)
	{
		int			column = state->query->keys[i].column - 1;

		state->row_keys[i] = row[column];
		state->row_nulls[i] = nulls[column];
	}
}

/* A key that would not fit an index entry is the event's fault, found before anything is changed. */
static void
check_key_width(SaState *state)
{
	Size		size = 0;

	for (int i = 0; i < state->nkeys; i++)
		if (!state->row_nulls[i] && !state->keys[i].byval)
		{
			state->row_keys[i] = flat_key(&state->keys[i], state->row_keys[i]);
			size += datumGetSize(state->row_keys[i], false, state->keys[i].len);
		}
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
	return hash_keys(state, state->row_keys, state->row_nulls);
}

void
sa_state_prefetch_bucket(SaWindow *window, uint32 hash)
{
	__builtin_prefetch(&window->buckets[hash & (window->nbuckets - 1)]);
}

/* Two lines of the cache hold most bodies. */
void
sa_state_prefetch_body(SaGroup *group)
{
	if (group->body == NULL)
		return;
	__builtin_prefetch(group->body);
	__builtin_prefetch((char *) group->body + 64);
}

void
sa_state_prefetch_group(SaWindow *window, uint32 hash)
{
	SaGroup    *group = window->buckets[hash & (window->nbuckets - 1)];

	if (group == NULL)
		return;
	__builtin_prefetch(group);
	sa_state_prefetch_body(group);
}

SaGroup *
sa_state_group(SaState *state, SaWindow *window, uint32 hash, const Datum *row, const bool *nulls)
{
	SaGroup    *group;
	bool		found;

	take_row_keys(state, row, nulls);
	group = find_or_create_group(state, window, hash, state->row_keys, state->row_nulls, &found);
	if (!group->touched)
		touch(state, window, group, !found, true);
	return group;
}

void
sa_state_advance(SaState *state, SaWindow *window, SaGroup *group, const Datum *row, const bool *nulls)
{
	SaTrans    *trans = group->body->trans;

	sa_agg_run_in(state->run, window->bodies);
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
sa_state_values(SaState *state, SaWindow *window, SaGroup *group, Datum *values, bool *nulls)
{
	int			n = 0;

	if (group->body == NULL)
		load_body(state, window, group);
	for (int i = 0; i < state->nkeys; i++, n++)
	{
		values[n] = group->body->keys[i];
		nulls[n] = group->body->nulls[i];
	}
	if (state->query->windowed)
	{
		values[n] = TimestampTzGetDatum(window->start);
		nulls[n++] = false;
		values[n] = TimestampTzGetDatum(window->end);
		nulls[n++] = false;
	}
	sa_agg_run_in(state->run, window->bodies);
	for (int i = 0; i < state->naggs; i++, n++)
		values[n] = sa_agg_final(state->aggs[i], state->run, &group->body->trans[i], &nulls[n]);
}

static int
compare_key(KeyInfo *info, Datum a, Datum b)
{
	struct varlena *va;
	struct varlena *vb;
	Size		la;
	Size		lb;
	int			result;

	if (info->byval)
		return (int64) a < (int64) b ? -1 : (int64) a > (int64) b;
	if (info->len != -1)
		return memcmp(DatumGetPointer(a), DatumGetPointer(b), info->len > 0 ? info->len : 1);
	va = (struct varlena *) DatumGetPointer(a);
	vb = (struct varlena *) DatumGetPointer(b);
	la = VARSIZE_ANY_EXHDR(va);
	lb = VARSIZE_ANY_EXHDR(vb);
	result = memcmp(VARDATA_ANY(va), VARDATA_ANY(vb), Min(la, lb));
	return result != 0 ? result : la < lb ? -1 : la > lb;
}

static int
compare_keys(SaState *state, const SaBody *x, const SaBody *y)
{
	for (int i = 0; i < state->nkeys; i++)
	{
		int			result;

		if (x->nulls[i] || y->nulls[i])
		{
			if (x->nulls[i] != y->nulls[i])
				return x->nulls[i] ? 1 : -1;
			continue;
		}
		result = compare_key(&state->keys[i], x->keys[i], y->keys[i]);
		if (result != 0)
			return result;
	}
	return 0;
}

/* A group with the beginning of what it is sorted by, at hand: most bodies are not looked at again. */
typedef struct Ordered
{
	int64		end;			/* of its window */
	uint64		prefix;			/* of its first key */
	SaTouched  *group;
} Ordered;

/* The first bytes of the first key as a number, NULLs last; equal keys have equal ones. */
static uint64
key_prefix(SaState *state, const SaBody *body)
{
	KeyInfo    *info = state->keys;
	uint64		prefix = 0;
	const char *bytes;
	Size		size;

	if (state->nkeys == 0)
		return 0;
	if (body->nulls[0])
		return PG_UINT64_MAX;
	if (info->byval)
		return (uint64) body->keys[0] ^ (UINT64CONST(1) << 63);
	bytes = DatumGetPointer(body->keys[0]);
	size = info->len > 0 ? info->len : 1;
	if (info->len == -1)
	{
		size = VARSIZE_ANY_EXHDR(bytes);
		bytes = VARDATA_ANY(bytes);
	}
	memcpy(&prefix, bytes, Min(size, sizeof(prefix)));
	return pg_ntoh64(prefix);
}

static inline int
compare_ordered(const Ordered *a, const Ordered *b, SaState *state)
{
	if (a->end != b->end)
		return a->end < b->end ? -1 : 1;
	if (a->prefix != b->prefix)
		return a->prefix < b->prefix ? -1 : 1;
	return compare_keys(state, a->group->group->body, b->group->group->body);
}

#define ST_SORT sort_ordered
#define ST_ELEMENT_TYPE Ordered
#define ST_COMPARE_ARG_TYPE SaState
#define ST_COMPARE(a, b, state) compare_ordered(a, b, state)
#define ST_SCOPE static
#define ST_DEFINE
#include "lib/sort_template.h"

#define PREFETCH_AHEAD 8

void
sa_state_sort(SaState *state, SaTouched **groups, int n)
{
	Ordered    *ordered = MemoryContextAllocHuge(CurrentMemoryContext, sizeof(Ordered) * ((Size) n + 1));

	for (int i = 0; i < n; i++)
	{
		if (i + PREFETCH_AHEAD < n)
			sa_state_prefetch_body(groups[i + PREFETCH_AHEAD]->group);
		ordered[i].end = groups[i]->window->end;
		ordered[i].prefix = key_prefix(state, groups[i]->group->body);
		ordered[i].group = groups[i];
	}
	sort_ordered(ordered, n, state);
	for (int i = 0; i < n; i++)
		groups[i] = ordered[i].group;
	pfree(ordered);
}

/* --- closing --- */

static int
compare_window_end(const ListCell *a, const ListCell *b)
{
	int64		x = ((SaWindow *) lfirst(a))->end;
	int64		y = ((SaWindow *) lfirst(b))->end;

	return x < y ? -1 : x > y;
}

List *
sa_state_closing(SaState *state, TimestampTz watermark)
{
	List	   *result = NIL;

	if (!state->query->windowed)
		return NIL;
	for (uint32 i = 0; i < state->nslots; i++)
		for (SaWindow *window = state->windows[i]; window; window = window->next)
			if (!window->forgotten && sa_watermark_closes(window->end, watermark))
				result = lappend(result, window);
	list_sort(result, compare_window_end);
	return result;
}

SaTouched *
sa_state_window_groups(SaState *state, SaWindow *window, int *count)
{
	SaTouched  *result = MemoryContextAllocHuge(CurrentMemoryContext, sizeof(SaTouched) * (window->ngroups + 1));
	int			n = 0;

	for (uint32 i = 0; i < window->nbuckets; i++)
		for (SaGroup *group = window->buckets[i]; group; group = group->next)
		{
			if (group->body == NULL)
				load_body(state, window, group);
			if (!group->touched)
				touch(state, window, group, false, false);	/* a failed batch must find its places as they were */
			result[n].group = group;
			result[n++].window = window;
		}
	*count = n;
	return result;
}

void
sa_state_forget(SaState *state, SaWindow *window)
{
	window->forgotten = true;
}

/* --- the log --- */

static void
remember_chunk(SaWindow *window, ItemPointer tid, int entries)
{
	if (window->nchunks == window->maxchunks)
	{
		window->maxchunks = Max(4, window->maxchunks * 2);
		if (window->chunks)
			window->chunks = repalloc(window->chunks, sizeof(ItemPointerData) * window->maxchunks);
		else
			window->chunks = MemoryContextAlloc(window->cxt, sizeof(ItemPointerData) * window->maxchunks);
	}
	window->chunks[window->nchunks++] = *tid;
	window->entries += entries;
}

/* One entry: its length after the four bytes that hold it, keys, states. */
static void
append_entry(SaState *state, SaWindow *window, SaGroup *group, StringInfo out)
{
	int			start = out->len;
	uint32		len;

	appendStringInfoSpaces(out, 4);
	for (int i = 0; i < state->nkeys; i++)
		sa_codec_put(&state->keys[i].codec, out, group->body->keys[i], group->body->nulls[i]);
	sa_agg_run_in(state->run, window->bodies);
	for (int i = 0; i < state->naggs; i++)
		if (!state->in_result[i])
			sa_agg_write(state->aggs[i], state->run, &group->body->trans[i], out);
	len = pg_hton32(out->len - start - 4);
	memcpy(out->data + start, &len, 4);
}

typedef struct LogWriter
{
	Relation	rel;
	TupleTableSlot *slot;
	BulkInsertState bulk;
	StringInfoData chunk;		/* being filled, behind a varlena header */
	SaTouched  *first;			/* the groups in it */
	int			entries;
	MemoryContext scratch;
} LogWriter;

static void
flush_chunk(SaState *state, LogWriter *writer)
{
	SaWindow   *window;
	TupleTableSlot *slot = writer->slot;

	if (writer->entries == 0)
		return;
	window = writer->first->window;
	SET_VARSIZE(writer->chunk.data, writer->chunk.len);
	ExecClearTuple(slot);
	slot->tts_values[0] = Int64GetDatum(++state->log_seq);
	slot->tts_values[1] = Int64GetDatum(window->start);
	slot->tts_values[2] = Int64GetDatum(window->end);
	slot->tts_values[3] = PointerGetDatum(writer->chunk.data);
	memset(slot->tts_isnull, 0, 4);
	ExecStoreVirtualTuple(slot);
	table_tuple_insert(writer->rel, slot, GetCurrentCommandId(true), 0, writer->bulk);
	for (int i = 0; i < writer->entries; i++)
	{
		writer->first[i].group->log_tid = slot->tts_tid;
		writer->first[i].group->log_index = i;
	}
	remember_chunk(window, &slot->tts_tid, writer->entries);
	state->chunks_written++;
	state->bytes_written += writer->chunk.len;
	resetStringInfo(&writer->chunk);
	appendStringInfoSpaces(&writer->chunk, VARHDRSZ);
	writer->entries = 0;
	MemoryContextReset(writer->scratch);
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

static void
write_entries(SaState *state, Relation rel)
{
	LogWriter	writer = {.rel = rel};

	writer.slot = MakeSingleTupleTableSlot(RelationGetDescr(rel), &TTSOpsVirtual);
	writer.bulk = GetBulkInsertState();
	writer.scratch = AllocSetContextCreate(CurrentMemoryContext, "stream_agg log", ALLOCSET_DEFAULT_SIZES);
	initStringInfo(&writer.chunk);
	appendStringInfoSpaces(&writer.chunk, VARHDRSZ);
	qsort(state->touched, state->ntouched, sizeof(SaTouched), compare_touched_window);
	for (int i = 0; i < state->ntouched; i++)
	{
		SaTouched  *entry = &state->touched[i];
		int			before = writer.chunk.len;
		MemoryContext old;

		if (entry->window->forgotten)
			continue;
		CHECK_FOR_INTERRUPTS();
		if (writer.entries > 0 && writer.first->window != entry->window)
			flush_chunk(state, &writer);
		if (writer.entries == 0)
			before = writer.chunk.len;
		old = MemoryContextSwitchTo(writer.scratch);
		append_entry(state, entry->window, entry->group, &writer.chunk);
		MemoryContextSwitchTo(old);
		if (writer.chunk.len > CHUNK_BYTES && writer.entries > 0)
		{
			/* does not fit any more: it begins the next chunk */
			writer.chunk.len = before;
			flush_chunk(state, &writer);
			i--;
			continue;
		}
		if (writer.entries++ == 0)
			writer.first = entry;
	}
	flush_chunk(state, &writer);
	FreeBulkInsertState(writer.bulk);
	ExecDropSingleTupleTableSlot(writer.slot);
	MemoryContextDelete(writer.scratch);
}

/* All groups of the window are written, the old chunks go. */
static void
rewrite_window(SaState *state, SaWindow *window)
{
	for (uint32 i = 0; i < window->nbuckets; i++)
		for (SaGroup *group = window->buckets[i]; group; group = group->next)
		{
			if (group->body == NULL)
				load_body(state, window, group);
			if (!group->touched)
				touch(state, window, group, false, false);
		}
	window->retired = window->chunks;
	window->nretired = window->nchunks;
	window->chunks = NULL;
	window->nchunks = window->maxchunks = 0;
	window->entries = 0;
}

/* Where the log has grown far beyond the groups, or does not hold them. */
static void
compact_window(SaState *state, SaWindow *window, void *arg)
{
	bool		all = state->unlogged;	/* and is not to be any more */

	if (window->forgotten)
		return;
	if (all || (window->dirty && window->nchunks >= COMPACT_MIN_CHUNKS &&
				window->entries >= COMPACT_FACTOR * window->ngroups))
		rewrite_window(state, window);
}

static void
delete_chunks(SaState *state, Relation rel, ItemPointerData *chunks, int n)
{
	for (int i = 0; i < n; i++)
		simple_table_tuple_delete(rel, &chunks[i], GetActiveSnapshot());
	state->chunks_deleted += n;
}

static void
delete_old_chunks(SaState *state, SaWindow *window, void *arg)
{
	delete_chunks(state, arg, window->retired, window->nretired);
	if (window->forgotten)
		delete_chunks(state, arg, window->chunks, window->nchunks);
}

void
sa_state_write(SaState *state)
{
	Relation	rel;

	if (!state->needs_log)
		return;
	rel = table_open(state->log, RowExclusiveLock);
	if (!state->unlogging)
		each_window(state, compact_window, NULL);
	each_window(state, delete_old_chunks, rel);
	if (!state->unlogging)
		write_entries(state, rel);
	table_close(rel, NoLock);
}

/* --- the end of a batch --- */

static void
commit_window(SaState *state, SaWindow *window, void *arg)
{
	if (window->forgotten)
	{
		drop_window(state, window);
		return;
	}
	window->fresh = false;
	window->dirty = false;
	window->committed_chunks = window->nchunks;
	window->committed_entries = window->entries;
	if (window->retired)
		pfree(window->retired);
	window->retired = NULL;
	window->nretired = 0;
}

void
sa_state_commit(SaState *state)
{
	for (int i = 0; i < state->ntouched; i++)
		state->touched[i].group->touched = false;
	state->ntouched = 0;
	state->unlogged = state->unlogging;
	MemoryContextReset(state->undo_cxt);
	state->dead_chunks += state->chunks_deleted;
	state->chunks_deleted = 0;
	each_window(state, commit_window, NULL);
}

/* Bodies of the window are out of memory from here on. */
static void
drop_bodies(SaWindow *window)
{
	for (uint32 i = 0; i < window->nbuckets; i++)
		for (SaGroup *group = window->buckets[i]; group; group = group->next)
			group->body = NULL;
	MemoryContextReset(window->bodies);
}

/* Into a new context, without what failed batches have left in the old one. */
static void
move_bodies(SaState *state, SaWindow *window)
{
	MemoryContext old = window->bodies;

	window->bodies = AllocSetContextCreate(window->cxt, "stream_agg groups", ALLOCSET_SMALL_SIZES);
	for (uint32 i = 0; i < window->nbuckets; i++)
		for (SaGroup *group = window->buckets[i]; group; group = group->next)
		{
			SaTrans    *states = save_states(state, window, group->body);

			group->body = copy_body(state, window, group->body, states);
		}
	MemoryContextReset(state->undo_cxt);
	MemoryContextDelete(old);
	window->leaked = 0;
}

/*
 * The group's states as they were, in new memory: what a transition function that failed has left of the old ones
 * is nobody's business.
 */
static void
undo(SaState *state, SaTouched *entry)
{
	entry->window->leaked++;
	if (entry->undo)
		entry->group->body = copy_body(state, entry->window, entry->group->body, entry->undo);
}

static void
abort_window(SaState *state, SaWindow *window, void *arg)
{
	window->forgotten = false;
	if (window->fresh)
	{
		drop_window(state, window);
		return;
	}
	if (window->retired)
	{
		if (window->chunks)
			pfree(window->chunks);
		window->chunks = window->retired;
		window->maxchunks = window->nretired;
		window->retired = NULL;
		window->nretired = 0;
	}
	window->nchunks = window->committed_chunks;
	window->entries = window->committed_entries;
	if (window->dirty && !state->unlogged)
		drop_bodies(window);
	window->dirty = false;
	if (window->leaked > Max(window->ngroups, MIN_LEAKED))
		move_bodies(state, window);
}

void
sa_state_abort(SaState *state)
{
	for (int i = 0; i < state->ntouched; i++)
	{
		SaTouched  *entry = &state->touched[i];
		SaGroup    *group = entry->group;

		group->touched = false;
		group->log_tid = entry->log_tid;
		group->log_index = entry->log_index;
		group->result_tid = entry->result_tid;
		if (state->unlogged)
			undo(state, entry);
		if (entry->fresh)
			remove_group(entry->window, group);
	}
	state->ntouched = 0;
	MemoryContextReset(state->undo_cxt);
	state->chunks_deleted = 0;
	if (!state->recovered && !state->rebuilding)
		start_over(state);
	else
		each_window(state, abort_window, NULL);
}

void
sa_state_reset(SaState *state)
{
	start_over(state);
}

/* --- recovery --- */

/* One entry of the log: a newer one takes the place of an older one. */
static void
recover_entry(SaState *state, SaWindow *window, StringInfo in, ItemPointer tid, int index)
{
	SaGroup    *group;
	bool		found;

	read_entry_keys(state, in, state->row_keys, state->row_nulls);
	group = find_or_create_group(state, window, hash_keys(state, state->row_keys, state->row_nulls), state->row_keys,
								 state->row_nulls, &found);
	for (int i = 0; i < state->naggs; i++)
		if (!state->in_result[i])
			sa_agg_discard(state->aggs[i], &group->body->trans[i]);
	read_entry_states(state, window, in, group->body);
	group->log_tid = *tid;
	group->log_index = index;
}

static void
recover_chunk(SaState *state, TupleTableSlot *slot)
{
	bool		isnull;
	int64		start = DatumGetInt64(slot_getattr(slot, 2, &isnull));
	int64		end = DatumGetInt64(slot_getattr(slot, 3, &isnull));
	bytea	   *chunk = DatumGetByteaPP(slot_getattr(slot, 4, &isnull));
	SaWindow   *window = sa_state_window(state, start, end);
	StringInfoData in;
	int			index = 0;

	state->log_seq = DatumGetInt64(slot_getattr(slot, 1, &isnull));
	in.data = VARDATA_ANY(chunk);
	in.len = in.maxlen = VARSIZE_ANY_EXHDR(chunk);
	in.cursor = 0;
	while (in.cursor < in.len)
	{
		int			len = pq_getmsgint(&in, 4);
		int			next = in.cursor + len;

		recover_entry(state, window, &in, &slot->tts_tid, index++);
		in.cursor = next;
	}
	remember_chunk(window, &slot->tts_tid, index);
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
		chunks[n++].tid = slot->tts_tid;
	}
	table_endscan(scan);
	qsort(chunks, n, sizeof(ChunkPlace), compare_chunk);
	*count = n;
	return chunks;
}

static void
recover_log(SaState *state)
{
	Relation	rel = table_open(state->log, AccessShareLock);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	MemoryContext scratch = AllocSetContextCreate(CurrentMemoryContext, "stream_agg recovery", ALLOCSET_DEFAULT_SIZES);
	int			n;
	ChunkPlace *chunks = list_chunks(rel, slot, &n);

	for (int i = 0; i < n; i++)
	{
		MemoryContext old = MemoryContextSwitchTo(scratch);

		CHECK_FOR_INTERRUPTS();
		if (!table_tuple_fetch_row_version(rel, &chunks[i].tid, GetActiveSnapshot(), slot))
			lost_place(state->log);
		recover_chunk(state, slot);
		MemoryContextSwitchTo(old);
		MemoryContextReset(scratch);
	}
	pfree(chunks);
	MemoryContextDelete(scratch);
	ExecDropSingleTupleTableSlot(slot);
	table_close(rel, NoLock);
}

/* Run a query with these times as $1 ... through a cursor, calling fn for each row. */
static void
each_row(SaState *state, const char *sql, int ntimes, Datum *times,
		 void (*fn) (SaState *state, HeapTuple tuple, TupleDesc desc))
{
	Oid			types[2];
	Portal		portal;
	SPIPlanPtr	plan;
	MemoryContext scratch = AllocSetContextCreate(CurrentMemoryContext, "stream_agg recovery", ALLOCSET_DEFAULT_SIZES);

	for (int i = 0; i < ntimes; i++)
		types[i] = TupleDescAttr(state->query->group_desc, state->nkeys)->atttypid;
	if ((plan = SPI_prepare(sql, ntimes, types)) == NULL)
		elog(ERROR, "SPI_prepare failed: %s", SPI_result_code_string(SPI_result));
	portal = SPI_cursor_open(NULL, plan, times, NULL, true);
	for (;;)
	{
		MemoryContext old;

		SPI_cursor_fetch(portal, true, 1000);
		if (SPI_processed == 0)
			break;
		old = MemoryContextSwitchTo(scratch);
		for (uint64 i = 0; i < SPI_processed; i++)
			fn(state, SPI_tuptable->vals[i], SPI_tuptable->tupdesc);
		MemoryContextSwitchTo(old);
		MemoryContextReset(scratch);
		SPI_freetuptable(SPI_tuptable);
	}
	SPI_cursor_close(portal);
	MemoryContextDelete(scratch);
}

static const char *
qualified_name(Oid relid)
{
	return quote_qualified_identifier(get_namespace_name(get_rel_namespace(relid)), get_rel_name(relid));
}

/* A row of the result: its ctid, the keys, the values that are states, and the window. */
static void
recover_result_row(SaState *state, HeapTuple tuple, TupleDesc desc)
{
	int			column = 1;
	bool		isnull;
	ItemPointer tid = (ItemPointer) DatumGetPointer(SPI_getbinval(tuple, desc, column++, &isnull));
	int64		start = SA_NO_WINDOW_START;
	int64		end = SA_NO_WINDOW_END;
	SaGroup    *group;
	SaWindow   *window;
	bool		found;

	if (state->query->windowed)
	{
		start = DatumGetInt64(SPI_getbinval(tuple, desc, column++, &isnull));
		end = DatumGetInt64(SPI_getbinval(tuple, desc, column++, &isnull));
	}
	for (int i = 0; i < state->nkeys; i++)
		state->row_keys[i] = SPI_getbinval(tuple, desc, column++, &state->row_nulls[i]);
	window = sa_state_window(state, start, end);
	group = find_or_create_group(state, window, hash_keys(state, state->row_keys, state->row_nulls), state->row_keys,
								 state->row_nulls, &found);
	group->result_tid = *tid;
	sa_agg_run_in(state->run, window->bodies);
	for (int i = 0; i < state->naggs; i++)
		if (state->in_result[i])
		{
			Datum		value = SPI_getbinval(tuple, desc, column++, &isnull);

			sa_agg_from_value(state->aggs[i], state->run, &group->body->trans[i], value, isnull);
		}
}

/* Name of a result column, quoted; it may have been renamed. */
static const char *
result_column(SaState *state, AttrNumber attr)
{
	return quote_identifier(get_attname(state->result, attr, false));
}

/* Window start and end of a result row in microseconds. */
static void
append_window(SaState *state, StringInfo sql)
{
	SaQuery    *query = state->query;
	AttrNumber	start = query->start_result ? query->start_result : query->end_result;
	AttrNumber	end = query->end_result ? query->end_result : query->start_result;

	appendStringInfo(sql, ", stream_agg.usecs(%s) - " INT64_FORMAT ", stream_agg.usecs(%s) + " INT64_FORMAT,
					 result_column(state, start), query->start_result ? 0 : query->window_size,
					 result_column(state, end), query->end_result ? 0 : query->window_size);
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
		appendStringInfo(sql, " AND %s > $%d", result_column(state, query->end_result), *ntimes);
	}
	if (query->start_result && query->window_size > 0 && floor - query->window_size > MIN_TIMESTAMP)
	{
		times[(*ntimes)++] = TimestampTzGetDatum(floor - query->window_size);
		appendStringInfo(sql, " AND %s > $%d", result_column(state, query->start_result), *ntimes);
	}
}

static void
recover_result(SaState *state, TimestampTz floor)
{
	StringInfoData sql;
	Datum		times[2];
	int			ntimes = 0;

	initStringInfo(&sql);
	appendStringInfoString(&sql, "SELECT ctid");
	if (state->query->windowed)
		append_window(state, &sql);
	for (int i = 0; i < state->nkeys; i++)
		appendStringInfo(&sql, ", %s", result_column(state, state->query->keys[i].result));
	for (int i = 0; i < state->naggs; i++)
		if (state->in_result[i])
			appendStringInfo(&sql, ", %s", result_column(state, state->query->aggs[i].result));
	appendStringInfo(&sql, " FROM ONLY %s", qualified_name(state->result));
	if (state->query->windowed)
		append_condition(state, &sql, floor, times, &ntimes);
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	each_row(state, sql.data, ntimes, times, recover_result_row);
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

/* Every group whose state is in the log must have been found there. */
static void
check_recovered(SaState *state, SaWindow *window, void *arg)
{
	for (uint32 i = 0; i < window->nbuckets; i++)
		for (SaGroup *group = window->buckets[i]; group; group = group->next)
			if (state->needs_log ? !ItemPointerIsValid(&group->log_tid) : !ItemPointerIsValid(&group->result_tid))
				lost_place(state->needs_log ? state->log : state->result);
	window->last_batch = state->batch;
}

static int64
count_groups(SaState *state)
{
	SaStateSize size;

	sa_state_size(state, &size);
	return size.groups;
}

static void
note_files(SaState *state)
{
	state->result_file = file_of(state->result);
	state->log_file = file_of(state->log);
}

static bool
same_files(SaState *state)
{
	return state->result_file == file_of(state->result) && state->log_file == file_of(state->log);
}

/* Read everything back from disk, as of the active snapshot; windows that end by floor are forgotten. */
static void
recover(SaState *state, TimestampTz floor)
{
	start_over(state);
	note_files(state);
	if (state->mode != SA_APPEND)
		recover_result(state, floor);
	if (state->needs_log)
		recover_log(state);
	each_window(state, check_recovered, NULL);
	each_window(state, commit_window, NULL);
	state->recovered = true;
}

bool
sa_state_begin(SaState *state, TimestampTz floor, bool unlogged)
{
	bool		valid = state->recovered && same_files(state);

	if (!valid && state->unlogged)
	{
		start_over(state);
		return false;
	}
	if (!valid)
		recover(state, floor);
	state->unlogging = unlogged;
	state->batch++;
	if (unlogged && !state->unlogged)
		each_window(state, load_bodies, NULL);
	return true;
}

bool
sa_state_is_ready(const SaState *state)
{
	return state->unlogged && state->recovered;
}

static void
begin_rebuild(SaState *state)
{
	start_over(state);
	note_files(state);
	state->unlogged = state->unlogging = true;
	state->rebuilding = true;
	recover_log(state);
	each_window(state, commit_window, NULL);
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
check_has_row(SaState *state, SaWindow *window, void *arg)
{
	for (uint32 i = 0; i < window->nbuckets; i++)
		for (SaGroup *group = window->buckets[i]; group; group = group->next)
			if (!ItemPointerIsValid(&group->result_tid))
				lost_place(state->result);
}

static void
drop_closed(SaState *state, SaWindow *window, void *floor)
{
	if (state->query->windowed && sa_watermark_closes(window->end, *(TimestampTz *) floor))
		drop_window(state, window);
}

/* Rows of the results are taken to their groups; where nothing was lost, they find each other. */
static void
find_rows(SaState *state, TimestampTz floor, bool complete)
{
	int64		groups = count_groups(state);

	recover_result(state, floor);
	each_window(state, drop_closed, &floor);
	if (!complete)
		return;
	if (state->query->having == NULL)
		each_window(state, check_has_row, NULL);
	if (count_groups(state) != groups)
		lost_place(state->result);
}

void
sa_state_rebuild_end(SaState *state, TimestampTz floor, bool complete)
{
	if (state->mode != SA_APPEND)
		find_rows(state, floor, complete);
	each_window(state, commit_window, NULL);
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

	if (old->body == NULL)
		load_body(from, old_window, old);
	for (int i = 0; i < state->nkeys; i++)
	{
		state->row_keys[i] = old->body->keys[adoption->keys[i]];
		state->row_nulls[i] = old->body->nulls[adoption->keys[i]];
	}
	group = find_or_create_group(state, window, hash_keys(state, state->row_keys, state->row_nulls), state->row_keys,
								 state->row_nulls, &found);
	group->result_tid = old->result_tid;
	touch(state, window, group, true, true);
	for (int i = 0; i < state->naggs; i++)
	{
		int			j = adoption->aggs[i];

		if (j < 0)
			continue;
		resetStringInfo(&adoption->bytes);
		sa_agg_run_in(from->run, old_window->bodies);
		sa_agg_write(from->aggs[j], from->run, &old->body->trans[j], &adoption->bytes);
		sa_agg_discard(state->aggs[i], &group->body->trans[i]);
		sa_agg_run_in(state->run, window->bodies);
		sa_agg_read(state->aggs[i], state->run, &group->body->trans[i], &adoption->bytes);
	}
}

void
sa_state_adopt(SaState *state, SaState *from, const int *keys, const int *aggs)
{
	Adoption	adoption = {.from = from, .keys = keys, .aggs = aggs};

	initStringInfo(&adoption.bytes);
	for (uint32 i = 0; i < from->nslots; i++)
		for (SaWindow *old = from->windows[i]; old; old = old->next)
		{
			SaWindow   *window = sa_state_window(state, old->start, old->end);

			for (uint32 j = 0; j < old->nbuckets; j++)
				for (SaGroup *group = old->buckets[j]; group; group = group->next)
				{
					CHECK_FOR_INTERRUPTS();
					adopt_group(state, &adoption, old, window, group);
				}
		}
	state->recovered = true;
}

/* --- vacuum --- */

static void
count_chunks(SaState *state, SaWindow *window, void *arg)
{
	*(int64 *) arg += window->nchunks;
}

Oid
sa_state_take_vacuum(SaState *state)
{
	int64		live = 0;

	if (state->dead_chunks * (state->bytes_written / Max(state->chunks_written, 1)) < VACUUM_MIN_BYTES)
		return InvalidOid;
	each_window(state, count_chunks, &live);
	if (state->dead_chunks < VACUUM_FACTOR * live)
		return InvalidOid;
	state->dead_chunks = 0;
	return state->log;
}

/* --- memory --- */

static SaWindow *
coldest_window(SaState *state)
{
	SaWindow   *coldest = NULL;

	for (uint32 i = 0; i < state->nslots; i++)
		for (SaWindow *window = state->windows[i]; window; window = window->next)
			if (window->last_batch != PG_UINT64_MAX && (coldest == NULL || window->last_batch < coldest->last_batch))
				coldest = window;
	return coldest;
}

void
sa_state_trim(SaState *state, int64 limit)
{
	if (state->unlogged)
		return;
	while (MemoryContextMemAllocated(state->windows_cxt, true) > limit)
	{
		SaWindow   *window = coldest_window(state);

		if (window == NULL)
			break;
		drop_bodies(window);
		window->last_batch = PG_UINT64_MAX;	/* nothing left to drop until it is touched again */
	}
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
			if (window->forgotten)
				continue;
			size->groups += window->ngroups;
			size->windows++;
			size->largest = Max(size->largest, window->ngroups);
			if (window->end != SA_NO_WINDOW_END && (TIMESTAMP_IS_NOBEGIN(size->oldest) || window->end < size->oldest))
				size->oldest = window->end;
			size->first_birth = Min(size->first_birth, window->birth);
			size->last_birth = Max(size->last_birth, window->birth);
		}
	size->bytes = MemoryContextMemAllocated(state->windows_cxt, true);
}
