/*
 * state.h
 *		The groups of one view: in memory beyond the batch, and in the view's state log.
 */
#ifndef SA_STATE_H
#define SA_STATE_H

#include "agg.h"
#include "cold.h"
#include "query.h"

/* A group in memory, with its places on disk; its states and keys stand behind it. */
typedef struct SaGroup
{
	struct SaGroup *next;		/* in its hash bucket */
	uint32		hash;
	uint32		batch;			/* that touched it last */
	SaPlace		place;			/* its entry in a log */
	ItemPointerData result_tid; /* row of the result table; invalid: none */
	bool		touched;		/* in this batch */
	bool		unsaved;		/* its places do not hold its newest state */
	bool		row_unread;		/* the result may have a row of it (state_row.c) */
	bool		gone;			/* a session that is part of another one now, or closed: in this batch, or for good */
} SaGroup;

#define SA_NO_WINDOW_START INT64CONST(0)	/* of the one window of views without windows */
#define SA_NO_WINDOW_END DT_NOEND

typedef struct SaWindow SaWindow;
typedef struct SaState SaState;

/* A group touched in this batch, with its places as committed. */
typedef struct SaTouched
{
	SaGroup    *group;
	SaWindow   *window;
	bool		fresh;			/* the group is new in this batch */
	bool		changed;		/* else it is only saved */
	bool		unsaved;
	SaPlace		place;
	ItemPointerData result_tid;
	SaTrans    *undo;			/* unsaved: a copy of its states as committed */
	struct SaSessionNode *session;	/* of a session that is not fresh: a copy of its node as committed */
} SaTouched;

typedef struct SaStateSize
{
	int64		groups;
	int64		windows;
	int64		largest;		/* groups of the window that has most */
	int64		bytes;			/* of memory */
	TimestampTz oldest;			/* end of the oldest window; DT_NOBEGIN: none */

	uint64		batch;			/* the one at hand: counted while nothing is forgotten */
	uint64		first_birth;	/* batch in which the oldest window was made that stays, 0: before; PG_UINT64_MAX: none */
	uint64		last_birth;
} SaStateSize;

extern void sa_state_init(void);

/* State of a view, in the parent context; log and spill are InvalidOid where there is none. */
extern SaState *sa_state_create(SaQuery *query, SaOutputMode mode, Oid result, Oid log, Oid spill, MemoryContext parent);
extern bool sa_state_needs_log(SaQuery *query, SaOutputMode mode);

/* In append mode too: groups stay after their windows have closed, and know their rows. */
extern void sa_state_keep_rows(SaState *state);
/* The query was split again, as it must be when types of states have changed.  An error changes nothing. */
extern void sa_state_set_query(SaState *state, SaQuery *query);
extern bool sa_state_keeps_shape(const SaState *state);

/* The window and group of a row from below; groups come into being here.  All sessions are groups of one window. */
extern SaWindow *sa_state_window(SaState *state, int64 start, int64 end);
extern SaGroup *sa_state_group(SaState *state, SaWindow *window, uint32 hash, const Datum *row, const bool *nulls);

/* Hash of a row's keys; and hints that its group will be needed soon, the second some time later. */
extern uint32 sa_state_hash(SaState *state, const Datum *row, const bool *nulls);
extern void sa_state_prefetch_bucket(const SaState *state, const SaWindow *window, uint32 hash);
extern void sa_state_prefetch_groups(const SaState *state, const SaWindow *window, uint32 hash);
extern void sa_state_prefetch_group(const SaGroup *group);

/* Fold a row into a group. */
extern void sa_state_advance(SaState *state, SaWindow *window, SaGroup *group, const Datum *row, const bool *nulls);

/* Groups touched in this batch; and a group's row (keys, window, final values) until the current context is reset. */
extern SaTouched *sa_state_touched(SaState *state, int *count);
extern void sa_state_values(SaState *state, SaWindow *window, SaGroup *group, Datum *values, bool *nulls);
extern void sa_state_key_values(SaState *state, const SaGroup *group, Datum *values, bool *nulls);	/* the keys alone */

extern void sa_state_sort(SaState *state, SaTouched **groups, int n);	/* by window, then by bytes of keys */

/*
 * Where events are folded into panes (state_pane.c), the windows above are panes, whose end is that of the first hopping
 * window that counts their events.  When the state of a window is forgotten.
 */
extern int64 sa_state_last_end(const SaState *state, int64 start, int64 end);
extern void sa_state_emit_hops(SaState *state, TimestampTz watermark, void (*fn) (SaTouched *groups, int n, void *arg), void *arg);

/* Windows that are closed, by their end, as SaWindow; the groups of one, in pieces (keep: they are to know their rows). */
typedef void (*SaGroupsCallback) (SaTouched *groups, int n, void *arg);
extern List *sa_state_closing(SaState *state, TimestampTz watermark);
extern TimestampTz sa_state_window_end(const SaWindow *window);
extern void sa_state_emit(SaState *state, SaWindow *window, bool keep, SaGroupsCallback fn, void *arg);
extern void sa_state_drop_hops(SaState *state); /* what is kept for those to come */
extern void sa_state_forget(SaState *state, SaWindow *window);

/* Sessions that end before the watermark are emitted (fn NULL: not), and forgotten. */
extern void sa_state_close_sessions(SaState *state, TimestampTz watermark, SaGroupsCallback fn, void *arg);
/* Where they stay: closed ones that have no rows yet, or were touched, are emitted; touched ones whose rows are to go. */
extern void sa_state_emit_closed(SaState *state, TimestampTz floor, TimestampTz watermark, SaGroupsCallback fn, void *arg);
extern SaTouched *sa_state_reopened(SaState *state, TimestampTz watermark, int *count);

/* Groups touched in this batch whose windows (not sessions) were closed before it, in CurrentMemoryContext. */
extern SaTouched *sa_state_corrected(SaState *state, TimestampTz floor, int *count);
extern TimestampTz sa_state_next_close(SaState *state, TimestampTz floor);	/* the end of a window; DT_NOEND: all are closed */

/* Write the changed groups to the log, unlogged those that memory has no room for; delete that of forgotten windows. */
extern void sa_state_write(SaState *state);

/* The transaction (or the view's part of it) has ended. */
extern void sa_state_commit(SaState *state);
extern void sa_state_abort(SaState *state);
extern void sa_state_reset(SaState *state); /* forget what is in memory; the next batch reads it back */

/* Between batches: let the coldest groups go until memory is within stream_agg.state_memory; and how much it is. */
extern void sa_state_make_room(SaState *state);
extern void sa_state_size(SaState *state, SaStateSize *size);
extern Oid	sa_state_take_vacuum(SaState *state);	/* a log, if most of it is dead: the caller vacuums it */

#endif							/* SA_STATE_H */
