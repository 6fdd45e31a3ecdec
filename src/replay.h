/*
 * replay.h
 *		Dead letters that are fed again into the view that they were refused from.
 */
#ifndef SA_REPLAY_H
#define SA_REPLAY_H

#include "batch.h"
#include "nodes/pg_list.h"
#include "utils/relcache.h"

/* Letters that a view takes at once; the event of a letter is that of its ordinal in the batch. */
typedef struct SaReplay
{
	int64	   *ids;
	bool	   *seen;			/* its key has been, of it: it is no duplicate */
	bool		more;			/* are asked for */
} SaReplay;

/* What became of a letter's event: gone for good, or refused again, for this reason. */
typedef struct SaReplayFate
{
	const char *reason;			/* NULL: it is gone */
	const char *message;
	bool		seen;			/* its key, of it */
} SaReplayFate;

/* Have the view take these letters of its own (list of int64 *); how many were not asked for already. */
extern int64 sa_replay_ask(Oid view, List *ids);

/* Is the view to take any?  Forget that. */
extern bool sa_replay_is_asked(Oid view);
extern void sa_replay_forget(Oid view);

/* The next letters of a view, as a batch that is sealed; at most so many. */
extern SaBatch *sa_replay_read(Relation stream, const SaStreamOptions *options, Oid view, int limit, MemoryContext cxt,
							   SaReplay *replay);

/* They have been taken: delete those that are gone, and the requests. */
extern void sa_replay_finish(Oid view, const SaReplay *replay, const SaReplayFate *fates, int n);

/* Why the event at this ordinal is none that a view can take; false: it is one. */
extern bool sa_replay_is_refused(const SaBatch *batch, int ordinal, SaReplayFate *fate);

#endif							/* SA_REPLAY_H */
