/*
 * state_session.h
 *		Sessions (state_session.c), for the other files of the room.
 */
#ifndef SA_STATE_SESSION_H
#define SA_STATE_SESSION_H

#include "state_key.h"

/* A session in the index, whether its group is in memory or not. */
typedef struct SaSessionNode
{
	struct SaSessionNode *left;
	struct SaSessionNode *right;
	int64		start;
	int64		end;
	SaGroup    *group;			/* NULL: it is out of memory, where the places say */
	SaPlace		place;
	ItemPointerData row;		/* of the result table */
	bool		gone;			/* part of another one now, or closed: in this batch, or for good */
	bool		awaited;		/* to close; said only where that is asked */
	uint32		own_hash;		/* of its keys without start and end */
	uint32		birth;			/* the batch of its first event; 0: recovered */
} SaSessionNode;

/* A group's node, behind its keys. */
static inline SaSessionNode **
sa_session_node(const SaState *state, const SaGroup *group)
{
	return (SaSessionNode **) ((char *) group + state->node_at);
}

static inline int64
sa_session_start(const SaState *state, const SaGroup *group)
{
	return DatumGetInt64(sa_group_keys(state, group)[state->nown]);
}

static inline int64
sa_session_end(const SaState *state, const SaGroup *group)
{
	return DatumGetInt64(sa_group_keys(state, group)[state->nown + 1]);
}

/* The hash of a session's group, from that of its keys. */
static inline uint32
sa_session_hash(uint32 own_hash, int64 start)
{
	return hash_combine(own_hash, sa_hash_int64(start));
}

/* Put a new session into the index, whose keys have this hash. */
extern void sa_session_add(SaState *state, SaGroup *group, uint32 hash);
extern int64 sa_session_count(const SaState *state);
extern void sa_session_forget_ends(SaState *state); /* which sessions end first must be found anew */
extern void sa_session_prefetch_root(const SaState *state, uint32 hash);
extern void sa_session_prefetch_node(const SaState *state, uint32 hash);
extern void sa_session_compact(SaState *state); /* between batches */

/* Its group moves in memory, or leaves it; and its places then. */
extern void sa_session_move(SaState *state, SaGroup *from, SaGroup *to);
extern void sa_session_let_go(SaState *state, SaGroup *group);
extern SaColdEntry sa_session_entry(const SaSessionNode *node);

/* The session that an event with these keys, of which the last two are its own start and end, belongs to from here on. */
extern SaGroup *sa_session_join(SaState *state, SaWindow *window, uint32 hash, Datum *keys, bool *nulls);

/* The one with these keys, start and end, NULL: there is none; and the one whose saved state is at this place. */
extern SaGroup *sa_session_look_up(SaState *state, SaWindow *window, uint32 hash, const Datum *keys, const bool *nulls);
extern SaSessionNode *sa_session_at(const SaState *state, uint32 hash, int64 start, SaPlace place);

/*
 * What the batch has closed goes with its commit, and what it has emitted keeps its row then.  A copy of a group's node
 * before it changes, to undo that.
 */
extern void sa_session_commit(SaState *state);
extern void sa_session_abort(SaState *state);
extern SaSessionNode *sa_session_save(SaState *state, const SaGroup *group);
extern void sa_session_undo(SaState *state, const SaTouched *entry);

/*
 * The session that a log has with these keys, in the place of older ones that have become part of it.  Or put together
 * from them (combine), where they are but pieces.
 */
extern SaGroup *sa_session_recover(SaState *state, SaWindow *window, uint32 hash, Datum *keys, bool *nulls, bool combine);
extern bool sa_session_have_rows(const SaState *state); /* all that are out of memory */

/* Read a group from its places back into memory (state.c). */
extern SaGroup *sa_state_load(SaState *state, SaWindow *window, const SaColdEntry *entry);

/*
 * These sessions, in pieces; those that are out of memory are read in the order in which they were written (state.c).
 * keep: they are to know the rows that they get.
 */
extern void sa_state_emit_sessions(SaState *state, SaWindow *window, SaSessionNode **sessions, int64 n, bool keep,
								   SaGroupsCallback fn, void *arg);

/* The batches of which sessions stay, the first perhaps too early; last 0: none, or recovered ones. */
extern void sa_session_births(const SaState *state, uint64 *first, uint64 *last);

extern TimestampTz sa_session_first_end(SaState *state);	/* DT_NOBEGIN: there is none */
extern TimestampTz sa_session_next_close(SaState *state, TimestampTz floor);	/* DT_NOEND: all are closed */

#endif							/* SA_STATE_SESSION_H */
