/*
 * state_key.h
 *		Keys of groups (state_key.c), for the other files of the room.
 */
#ifndef SA_STATE_KEY_H
#define SA_STATE_KEY_H

#include "common/hashfn.h"
#include "state_memory.h"

static inline uint32
sa_hash_int64(int64 n)
{
	return murmurhash32((uint32) n ^ (uint32) ((uint64) n >> 32));
}

typedef struct SaKeyInfo SaKeyInfo;

/* What it takes to compare the keys of a query, in its context. */
extern SaKeyInfo *sa_state_key_create(const SaQuery *query);

/* NULLs are equal to each other, as in GROUP BY.  Of a session, start and end do not count in a hash, or in neither. */
extern uint32 sa_state_hash_keys(SaState *state, const Datum *keys, const bool *nulls);
extern bool sa_state_equal_own_keys(SaState *state, const SaGroup *group, const Datum *keys, const bool *nulls);
extern bool sa_state_equal_keys(SaState *state, const SaGroup *group, const Datum *keys, const bool *nulls);

/*
 * The bytes of keys that are not by value; they are detoasted.  And copy them into the space behind the group, with
 * what it takes to align each of them; returns its end.
 */
extern Size sa_state_key_width(SaState *state, Datum *keys, const bool *nulls);
extern char *sa_state_copy_keys(SaState *state, SaGroup *group, const Datum *keys, const bool *nulls, char *space);

/* Keys that are equal to the group's take their place, as those do of the first event: 1.00 that of 1. */
extern void sa_state_respell_keys(SaState *state, SaGroup *group, const Datum *keys, const bool *nulls, MemoryContext cxt);

#endif							/* SA_STATE_KEY_H */
