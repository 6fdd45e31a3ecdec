/*
 * state_memory.h
 *		The groups of a view in memory (state.c), for the other files of the room.
 */
#ifndef SA_STATE_MEMORY_H
#define SA_STATE_MEMORY_H

#include "state_log.h"

/* Memory that groups are cut from, one after another. */
typedef struct SaArena
{
	MemoryContext cxt;
	char	   *free;
	Size		left;
	Size		size;			/* of the next block */
} SaArena;

/* What of a window's groups goes to the spill table with this batch. */
typedef enum SaSpill
{
	SPILL_NONE,
	SPILL_OLD,					/* groups that it has not touched */
	SPILL_ALL
} SaSpill;

struct SaWindow
{
	SaWindow   *next;			/* in the hash of windows */
	int64		start;
	int64		end;
	int64		last_end;		/* when it is forgotten: its end, unless it is a pane */
	MemoryContext cxt;			/* everything of the window */
	MemoryContext hot;			/* groups in memory, with their states */
	SaArena		arena;			/* in it */
	SaGroup   **buckets;
	uint32		nbuckets;
	int64		ngroups;		/* in memory */
	SaCold	   *cold;			/* the others; NULL: never any */
	uint64		last_batch;		/* that touched it */
	uint64		birth;			/* the batch in which it was made; 0: recovered */
	int64		leaked;			/* groups and states left behind in `hot` */
	bool		fresh;			/* new in this batch */
	bool		forgotten;		/* by this batch */
	bool		emitted;		/* by this batch: before it, no group had a row */
	bool		dirty;			/* has groups touched in this batch */
	bool		rows_unread;	/* groups that know no row may have one (state_row.c) */
	SaSpill		spill;
	SaChunks	chunks[SA_NLOGS];
};

struct SaState
{
	MemoryContext cxt;
	MemoryContext windows_cxt;	/* parent of all windows; reset to start over */
	SaQuery    *query;
	SaOutputMode mode;
	Oid			result;
	Oid			result_file;
	SaLog		logs[SA_NLOGS];
	ItemPointerData mark;		/* that says of what the spill table holds all; invalid: there is none */
	bool		needs_log;
	bool		keeps_rows;		/* groups know their rows of the result */
	bool		held;			/* groups never leave memory */
	bool		has_panes;		/* windows are panes (state_pane.c) */
	TimestampTz closed;			/* windows that end by then have been closed */
	struct SaHops *hops;		/* in windows_cxt (state_pane.c); NULL: nothing is kept */
	TimestampTz closing;		/* likewise, once this batch has committed */
	bool		recovered;
	bool		rebuilding;
	bool		lenient;		/* rows of the result may have lost their groups */
	bool		unlogged;		/* as committed */
	bool		unlogging;		/* in this batch */
	uint64		last_logged;	/* the last batch that was not */
	bool		sessions;		/* their starts and ends are the last two keys, in microseconds */
	struct SaSessions *index;			/* of them, in windows_cxt; NULL: none yet */
	int			nkeys;
	int			nown;			/* the first so many: without starts and ends */
	Size		node_at;		/* where a group says which node of the index is its */
	struct SaKeyInfo *keys;
	SaCodec    *codecs;			/* of the keys */
	int			naggs;
	SaAgg	  **aggs;
	bool	   *in_result;
	bool		any_in_result;
	SaAggRun   *run;
	SaWindow  **windows;		/* hash of windows, in windows_cxt */
	uint32		nslots;			/* of it; a power of two */
	SaWindow   *last;			/* the window found last */
	int64		nwindows;
	uint64		batch;
	SaTouched  *touched;
	int			ntouched;
	int			maxtouched;
	SaMove	   *moves;			/* in undo_cxt */
	int64		nmoves,
				maxmoves;
	MemoryContext undo_cxt;		/* what it takes to undo a failed batch */
	struct SaRowFinder *finder;		/* in undo_cxt; NULL: not open */
	Datum	   *row_keys;		/* scratch */
	bool	   *row_nulls;
};

#define sa_group_states(group) ((SaTrans *) ((group) + 1))
#define sa_group_keys(state, group) ((Datum *) (sa_group_states(group) + (state)->naggs))
#define sa_group_nulls(state, group) ((bool *) (sa_group_keys(state, group) + (state)->nkeys))

extern void *sa_state_cut(SaArena *arena, Size size);
extern void sa_state_start_groups(SaWindow *window, uint32 nbuckets);	/* none yet, in `hot`; nbuckets is a power of two */
extern void sa_state_start_states(SaState *state, MemoryContext cxt, SaGroup *group);
extern void sa_state_each_window(SaState *state, void (*fn) (SaState *state, SaWindow *window, void *arg), void *arg);
extern void sa_state_drop_window(SaState *state, SaWindow *window);
extern void sa_state_commit_window(SaState *state, SaWindow *window, void *arg);

/* The group with these keys, or NULL; and one which comes into being where it is not there; its states are started. */
extern SaGroup *sa_state_look_up(SaState *state, SaWindow *window, uint32 hash, const Datum *keys, const bool *nulls);
extern SaGroup *sa_state_find(SaState *state, SaWindow *window, uint32 hash, Datum *keys, bool *nulls, bool *found);
extern void sa_state_add(SaWindow *window, SaGroup *group); /* to its bucket */
extern void sa_state_remove(SaWindow *window, SaGroup *group);
extern SaGroup *sa_state_make_group(SaState *state, SaArena *arena, Datum *keys, bool *nulls);
extern SaGroup *sa_state_create_group(SaState *state, SaWindow *window, uint32 hash, Datum *keys, bool *nulls);
extern void sa_state_touch(SaState *state, SaWindow *window, SaGroup *group, bool fresh, bool changed);

extern int64 sa_state_limit(void);	/* stream_agg.state_memory in bytes */
extern int64 sa_state_excess(SaState *state);	/* bytes to be freed, 0 below the limit */
extern SaWindow **sa_state_hot_windows(SaState *state, int *count);	/* the coldest first */
extern int64 sa_state_hot_bytes(const SaWindow *window);
extern int64 sa_state_window_size(const SaState *state, const SaWindow *window);	/* groups */

#endif							/* SA_STATE_MEMORY_H */
