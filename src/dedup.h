/*
 * dedup.h
 *		Duplicates among the events of one view, by their keys.  DESIGN.md 6.
 */
#ifndef SA_DEDUP_H
#define SA_DEDUP_H

#include "batch.h"
#include "query.h"
#include "state.h"

typedef struct SaDedup SaDedup;

/* Complain of what cannot be told apart by these columns (list of String). */
extern void sa_dedup_check(const SaQuery *query, List *columns);

/* The keys that a view has seen, in the parent context; delay of its watermark, log of the keys and their spill table. */
extern SaDedup *sa_dedup_create(const SaQuery *query, List *columns, const SaViewOptions *options, int64 delay, Oid view,
								Oid log, Oid spill, MemoryContext parent);
extern SaState *sa_dedup_state(SaDedup *dedup);

/* A batch has begun for the state; events of the batch are judged in order. */
extern void sa_dedup_begin(SaDedup *dedup, TimestampTz floor);

/*
 * Has an event before this one had its key, and is that not forgotten by its bound (watermark.h)?  If not, its key is
 * seen from here on (seen), unless it is late.
 */
extern bool sa_dedup_judge(SaDedup *dedup, const SaEvent *event, TimestampTz bound, bool *seen);

/* The event is read again, and was none: its key is seen again, unless it was late or the key is forgotten since. */
extern void sa_dedup_see_again(SaDedup *dedup, const SaEvent *event, TimestampTz bound);

/* Without a window: an event behind the watermark is late, since its key may have been forgotten. */
extern bool sa_dedup_is_late(const SaEvent *event, TimestampTz bound);

/* Write the keys that are new, and forget those that no event can be a duplicate of any more. */
extern void sa_dedup_write(SaDedup *dedup, TimestampTz watermark);

#endif							/* SA_DEDUP_H */
