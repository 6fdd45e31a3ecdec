/*
 * state_log.h
 *		A view's logs of groups (state_log.c): the durable one, and the unlogged spill table.
 */
#ifndef SA_STATE_LOG_H
#define SA_STATE_LOG_H

#include "cold.h"
#include "compat.h"
#include "executor/tuptable.h"
#include "state.h"

#define SA_LOG 0
#define SA_SPILL 1				/* where unlogged state goes when memory is short, and when the worker stops */
#define SA_NLOGS 2
#define SA_MARK_SEQ 0			/* of the row that says of what the spill table holds all */
#define SA_IN_SPILL 0x8000		/* of a place's index */

typedef struct SaChunk
{
	ItemPointerData tid;
	uint16		entries;
} SaChunk;

/* A window's chunks in one of the logs, the oldest first. */
typedef struct SaChunks
{
	SaChunk    *list;
	int			n;
	int			max;
	int			committed;
	int			retired;		/* the first so many are deleted by this batch */
	int64		entries;		/* in the others */
} SaChunks;

typedef struct SaLog
{
	Oid			relid;			/* InvalidOid: there is none */
	Oid			file;			/* where places are valid */
	int64		seq;			/* of the newest chunk */
	int64		chunks_written; /* since the worker's start, for their mean size */
	int64		bytes_written;
	int64		chunks_deleted; /* by this batch */
	int64		dead_chunks;	/* deleted by committed batches and not yet vacuumed away */
} SaLog;

/* An entry of a group that the batch has not touched was put elsewhere. */
typedef struct SaMove
{
	SaWindow   *window;
	uint32		hash;
	SaPlace		from;
	SaPlace		to;				/* invalid: not yet */
	struct SaSessionNode *session;	/* that has it; NULL: a group of another kind */
} SaMove;

/* Who has this place: a group in memory, or an entry of those that are not. */
typedef struct SaHolder
{
	SaGroup    *group;			/* NULL: the entry found by `cold` */
	SaColdSearch cold;
	struct SaSessionNode *session;	/* whose group it is, or that has the place itself; NULL: no session */
	int64		move;			/* of the moves; -1: none */
} SaHolder;

/* Chunks of a log in the order in which they were written; the index of an entry is that of its place. */
typedef struct SaLogReader
{
	StringInfoData in;			/* at the entry's keys */
	int64		start;			/* the window */
	int64		end;
	SaPlace		place;
	int			begin;			/* of the entry, with its length */
	int			next;			/* of the next one */
} SaLogReader;

/* Read the chunk in this slot, and its entries; its window's times, and its number, which is 0 for the mark. */
extern int64 sa_state_log_open_chunk(SaLogReader *reader, int log, TupleTableSlot *slot);
extern bool sa_state_log_next(SaLogReader *reader);

/* The keys, in the current context, then (behind them) states that are not in the result, in this one. */
extern void sa_state_log_keys(SaState *state, SaLogReader *reader, Datum *keys, bool *nulls);
extern void sa_state_log_states(SaState *state, SaLogReader *reader, MemoryContext cxt, SaGroup *group);

/* Seek the entry at a place; the row's slot is the caller's to drop.  An error where it is not. */
extern TupleTableSlot *sa_state_log_seek(SaState *state, SaLogReader *reader, SaPlace place);
extern void sa_state_log_add_chunk(SaWindow *window, int log, ItemPointer tid, int entries);

/* Calls fn for each entry of the window's chunks that is the newest of a group out of memory. */
typedef void (*SaEntryCallback) (SaState *state, SaWindow *window, SaLogReader *reader, const SaColdEntry *entry, void *arg);
extern void sa_state_log_each_cold(SaState *state, SaWindow *window, SaEntryCallback fn, void *arg);

static inline bool
sa_same_place(SaPlace a, SaPlace b)
{
	return a.index == b.index && ItemPointerEquals(&a.chunk, &b.chunk);
}

extern void sa_state_log_commit(SaWindow *window);
extern void sa_state_log_abort(SaWindow *window);
extern void sa_state_log_undo_moves(SaState *state);

pg_noreturn extern void sa_state_lost(Oid relid);

#endif							/* SA_STATE_LOG_H */
