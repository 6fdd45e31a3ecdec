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

/* Start and end of the one window of views without windows. */
#define SA_NO_WINDOW_START INT64CONST(0)
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
	char	   *undo;			/* of unlogged state: its states as committed, as in the log; */
	int			undo_size;		/* in bytes */
} SaTouched;

typedef struct SaStateSize
{
	int64		groups;
	int64		windows;
	int64		bytes;			/* of memory */
	TimestampTz oldest;			/* end of the oldest window; DT_NOBEGIN: none */
} SaStateSize;

/* State of a view; log is InvalidOid where none is needed (see sa_state_needs_log). */
extern SaState *sa_state_create(SaQuery *query, SaOutputMode mode, Oid result, Oid log, MemoryContext parent);

/* The query was split again, as it must be when types of states have changed.  An error changes nothing. */
extern void sa_state_set_query(SaState *state, SaQuery *query);
extern bool sa_state_keeps_shape(const SaState *state);

/* Whether a view of this query and mode needs a state log. */
extern bool sa_state_needs_log(SaQuery *query, SaOutputMode mode);

/*
 * Take over the groups of the same view before its definition changed, all of them in memory there; they count as
 * touched.  keys and aggs: for each key and aggregate here, that of `from` (-1: an aggregate that begins here).
 */
extern void sa_state_adopt(SaState *state, SaState *from, const int *keys, const int *aggs);

/*
 * A batch begins.  Places on disk are checked to be valid; when a table was rewritten, the state is recovered first.
 * Unlogged: groups are not written to the log; they must be there (sa_state_is_ready).  When it is not asked for any
 * more, the batch writes all of them.
 */
extern void sa_state_begin(SaState *state, TimestampTz floor, bool unlogged);

/*
 * Unlogged state: are all groups in memory, and (in a transaction) are their places still valid?  If not, they are
 * made again: from what the log holds, by folding the records that were read since, batch by batch, and with the
 * rows of the results at the end.  complete: every record was still to be had.
 */
extern bool sa_state_is_ready(const SaState *state);
extern bool sa_state_is_current(SaState *state);
extern void sa_state_rebuild_begin(SaState *state);
extern bool sa_state_rebuild_batch(SaState *state);	/* false: it must begin again */
extern void sa_state_rebuild_end(SaState *state, TimestampTz floor, bool complete);

/*
 * Batches are numbered as long as nothing is forgotten.  The one at hand; the one in which the oldest window was
 * born that stays after this batch (0: it comes from the log; PG_UINT64_MAX: there is none); and was any born in
 * the one at hand?
 */
extern uint64 sa_state_batch(const SaState *state);
extern uint64 sa_state_oldest_birth(SaState *state);
extern bool sa_state_has_births(SaState *state);

/* The window and group of a row from below; groups come into being here. */
extern SaWindow *sa_state_window(SaState *state, int64 start, int64 end);
extern SaGroup *sa_state_group(SaState *state, SaWindow *window, uint32 hash, const Datum *row, const bool *nulls);

/* Hash of a row's keys; and two hints that its group will be needed soon, the second some time later. */
extern uint32 sa_state_hash(SaState *state, const Datum *row, const bool *nulls);
extern void sa_state_prefetch_bucket(SaWindow *window, uint32 hash);
extern void sa_state_prefetch_group(SaWindow *window, uint32 hash);
extern void sa_state_prefetch_body(SaGroup *group);

/* Fold a row into a group. */
extern void sa_state_advance(SaState *state, SaWindow *window, SaGroup *group, const Datum *row, const bool *nulls);

/* Groups touched in this batch. */
extern SaTouched *sa_state_touched(SaState *state, int *count);

/* A group's row: keys, window start and end, final values.  Valid until the current context is reset. */
extern void sa_state_values(SaState *state, SaWindow *window, SaGroup *group, Datum *values, bool *nulls);

/* Sort groups for writing: by window, then by keys (an order of bytes, not of collations). */
extern void sa_state_sort(SaState *state, SaTouched **groups, int n);

/* Windows that the watermark closes, by their end, as SaWindow; and the groups of one. */
extern List *sa_state_closing(SaState *state, TimestampTz watermark);
extern SaTouched *sa_state_window_groups(SaState *state, SaWindow *window, int *count);

/* Write the changed groups to the log, and delete that of forgotten windows. */
extern void sa_state_write(SaState *state);
extern void sa_state_forget(SaState *state, SaWindow *window);

/* The transaction (or the view's part of it) has ended. */
extern void sa_state_commit(SaState *state);
extern void sa_state_abort(SaState *state);

/* Forget what is in memory; the next batch reads it back. */
extern void sa_state_reset(SaState *state);

/* Keep memory below the limit (bytes) by letting bodies of the coldest windows go. */
extern void sa_state_trim(SaState *state, int64 limit);

/* The log when it holds far more dead chunks than live ones, else InvalidOid; the caller vacuums it. */
extern Oid	sa_state_take_vacuum(SaState *state);

extern void sa_state_size(SaState *state, SaStateSize *size);

#endif							/* SA_STATE_H */
