/*
 * state_session.h
 *		Sessions (state_session.c), for the other files of the room.
 */
#ifndef SA_STATE_SESSION_H
#define SA_STATE_SESSION_H

#include "state_memory.h"

static inline int64
sa_session_start(SaState *state, const SaGroup *group)
{
	return DatumGetInt64(sa_group_keys(state, group)[state->nhashed]);
}

static inline int64
sa_session_end(SaState *state, const SaGroup *group)
{
	return DatumGetInt64(sa_group_keys(state, group)[state->nhashed + 1]);
}

/* Put a group into its bucket, the latest session of a key first. */
extern void sa_session_link(SaState *state, SaGroup **bucket, SaGroup *group);

/* The session that an event with these keys, of which the last two are its own start and end, belongs to from here on. */
extern SaGroup *sa_session_join(SaState *state, SaWindow *window, uint32 hash, Datum *keys, bool *nulls);

/* The session that a log has with these keys, in the place of older ones that have become part of it. */
extern SaGroup *sa_session_recover(SaState *state, SaWindow *window, uint32 hash, Datum *keys, bool *nulls);

/* Groups are not where they were, or not as they were. */
extern void sa_session_forget_ends(SaState *state);

extern void sa_session_drop_closed(SaState *state, SaWindow *window, void *floor);

extern TimestampTz sa_session_first_end(SaState *state);	/* DT_NOBEGIN: there is none */

#endif							/* SA_STATE_SESSION_H */
