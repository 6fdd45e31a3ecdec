/*
 * state_session.h
 *		Sessions (state_session.c), for the other files of the room.
 */
#ifndef SA_STATE_SESSION_H
#define SA_STATE_SESSION_H

#include "state_memory.h"

/* A group's place in the index, behind its keys. */
typedef struct SaSessionNode
{
	SaGroup    *left;
	SaGroup    *right;
	uint32		own_hash;		/* of its keys without start and end */
	bool		awaited;		/* to close; said only where that is asked */
} SaSessionNode;

static inline int64
sa_session_start(SaState *state, const SaGroup *group)
{
	return DatumGetInt64(sa_group_keys(state, group)[state->nown]);
}

static inline int64
sa_session_end(SaState *state, const SaGroup *group)
{
	return DatumGetInt64(sa_group_keys(state, group)[state->nown + 1]);
}

/* Put a session into the index, and take it out, with start and end as they are. */
extern void sa_session_add(SaState *state, SaGroup *group);
extern void sa_session_remove(SaState *state, SaGroup *group);
extern SaSessions *sa_session_forget(SaSessions *index);	/* all of them; gives NULL */
extern void sa_session_forget_ends(SaState *state); /* which sessions end first must be found anew */

/* The session that an event with these keys, of which the last two are its own start and end, belongs to from here on. */
extern SaGroup *sa_session_join(SaState *state, SaWindow *window, uint32 hash, Datum *keys, bool *nulls);

/* The batch has ended, and those that it has emitted have their rows, or none. */
extern void sa_session_commit(SaState *state);
extern void sa_session_abort(SaState *state);

/* The session that a log has with these keys, in the place of older ones that have become part of it. */
extern SaGroup *sa_session_recover(SaState *state, SaWindow *window, uint32 hash, Datum *keys, bool *nulls);

extern void sa_session_drop_closed(SaState *state, SaWindow *window, void *floor);

extern TimestampTz sa_session_first_end(SaState *state);	/* DT_NOBEGIN: there is none */
extern TimestampTz sa_session_next_close(SaState *state, TimestampTz floor);	/* DT_NOEND: all are closed */

#endif							/* SA_STATE_SESSION_H */
