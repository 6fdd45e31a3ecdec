/*
 * state.h
 *		The groups of one view: in memory beyond the batch, and in the view's state log.
 */
#ifndef SA_STATE_H
#define SA_STATE_H

#include "agg.h"
#include "query.h"
#include "storage/itemptr.h"

/*
 * A group.  Keys and transition states (the body) may be out of memory; then the group's newest
 * committed place on disk, in the result table and in the log, tells where to read them again.
 */
typedef struct SaGroup
{
	struct SaGroup *next;		/* in its hash bucket */
	struct SaBody *body;		/* NULL: out of memory */
	uint32		hash;
	uint16		log_index;		/* entry within the chunk */
	bool		touched;		/* in this batch */
	ItemPointerData log_tid;	/* chunk of the state log; invalid: none */
	ItemPointerData result_tid; /* row of the result table; invalid: none */
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
	bool		changed;		/* else only its log entry moves */
	uint16		log_index;
	ItemPointerData log_tid;
	ItemPointerData result_tid;
	SaTrans    *undo;			/* unlogged: a copy of its states as committed */
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

/* State of a view; log is InvalidOid where none is needed. */
extern SaState *sa_state_create(SaQuery *query, SaOutputMode mode, Oid result, Oid log, MemoryContext parent);
extern bool sa_state_needs_log(SaQuery *query, SaOutputMode mode);

/* The query was split again, as it must be when types of states have changed.  An error changes nothing. */
extern void sa_state_set_query(SaState *state, SaQuery *query);
extern bool sa_state_keeps_shape(const SaState *state);

/*
 * Take over the groups of the same view before its definition changed, all of them in memory there; they count as
 * touched.  keys and aggs: for each key and aggregate here, that of `from` (-1: an aggregate that begins here).
 */
extern void sa_state_adopt(SaState *state, SaState *from, const int *keys, const int *aggs);

/*
 * A batch begins.  Places on disk are checked to be valid; when a table was rewritten, the state is recovered first.
 * Unlogged: groups are not written to the log, until they are no longer to be.  False: they are lost, and must be
 * made again: from what the log holds, by folding what was read since (each batch false: begin anew), and with the
 * rows of the results at the end.  complete: every record was still to be had.
 */
extern bool sa_state_begin(SaState *state, TimestampTz floor, bool unlogged);
extern bool sa_state_rebuild_batch(SaState *state, bool first);
extern void sa_state_rebuild_end(SaState *state, TimestampTz floor, bool complete);
extern bool sa_state_is_ready(const SaState *state);	/* unlogged, and in memory */

/* The window and group of a row from below; groups come into being here. */
extern SaWindow *sa_state_window(SaState *state, int64 start, int64 end);
extern SaGroup *sa_state_group(SaState *state, SaWindow *window, uint32 hash, const Datum *row, const bool *nulls);

/* Hash of a row's keys; and hints that its group will be needed soon, the second some time later. */
extern uint32 sa_state_hash(SaState *state, const Datum *row, const bool *nulls);
extern void sa_state_prefetch_bucket(SaWindow *window, uint32 hash);
extern void sa_state_prefetch_group(SaWindow *window, uint32 hash);
extern void sa_state_prefetch_body(SaGroup *group);

/* Fold a row into a group. */
extern void sa_state_advance(SaState *state, SaWindow *window, SaGroup *group, const Datum *row, const bool *nulls);

/* Groups touched in this batch; and a group's row (keys, window, final values) until the current context is reset. */
extern SaTouched *sa_state_touched(SaState *state, int *count);
extern void sa_state_values(SaState *state, SaWindow *window, SaGroup *group, Datum *values, bool *nulls);

extern void sa_state_sort(SaState *state, SaTouched **groups, int n);	/* by window, then by bytes of keys */
/* Windows that the watermark closes, by their end, as SaWindow; the groups of one. */
extern List *sa_state_closing(SaState *state, TimestampTz watermark);
extern SaTouched *sa_state_window_groups(SaState *state, SaWindow *window, int *count);
extern void sa_state_forget(SaState *state, SaWindow *window);

/* Write the changed groups to the log, and delete that of forgotten windows. */
extern void sa_state_write(SaState *state);

/* The transaction (or the view's part of it) has ended. */
extern void sa_state_commit(SaState *state);
extern void sa_state_abort(SaState *state);
extern void sa_state_reset(SaState *state); /* forget what is in memory; the next batch reads it back */

/* Keep memory below the limit (bytes) by letting bodies of the coldest windows go; and how much it is. */
extern void sa_state_trim(SaState *state, int64 limit);
extern void sa_state_size(SaState *state, SaStateSize *size);
extern Oid	sa_state_take_vacuum(SaState *state);	/* the log, if most of it is dead: the caller vacuums it */

#endif							/* SA_STATE_H */
