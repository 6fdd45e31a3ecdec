/*
 * state_recover.h
 *		Having the groups of a view back (state_recover.c), and keeping what that takes.
 */
#ifndef SA_STATE_RECOVER_H
#define SA_STATE_RECOVER_H

#include "state.h"

extern void sa_state_hold(SaState *state);	/* groups never leave memory */
extern void sa_state_set_spill(SaState *state, Oid spill);

/*
 * A batch begins.  Places on disk are checked to be valid; when a table was rewritten, the state is recovered first.
 * Unlogged: groups are not written to the log, until they are no longer to be.  False: they are lost, and must be
 * made again: from what the log holds, by folding what was read since (each batch false: begin anew), and with the
 * rows of the results at the end.  complete: every record was still to be had.  Windows that end by floor are forgotten.
 */
extern bool sa_state_begin(SaState *state, TimestampTz floor, bool unlogged);
extern bool sa_state_rebuild_batch(SaState *state, bool first);
extern void sa_state_rebuild_end(SaState *state, TimestampTz floor, bool complete);
extern void sa_state_count_alike(SaState *a, SaState *b);	/* from this batch on, so that births are told by one number */
extern bool sa_state_is_ready(const SaState *state);	/* unlogged, and there */
extern void sa_state_log_all(SaState *state);	/* the batch at hand writes unlogged groups to the log after all */

/*
 * A worker that stops in order saves unlogged state in the spill table, with a mark of where it stands; another one has
 * it back from there.  False: nothing there has that mark.
 */
extern void sa_state_save(SaState *state, const char *mark);
extern bool sa_state_restore(SaState *state, TimestampTz floor, const char *mark);

/*
 * Take over the groups of the same view before its definition changed, all of them held in memory; they count as
 * touched.  keys and aggs: for each key and aggregate here, that of `from` (-1: an aggregate that begins here).
 */
extern void sa_state_adopt(SaState *state, SaState *from, const int *keys, const int *aggs);

#endif							/* SA_STATE_RECOVER_H */
