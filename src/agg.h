/*
 * agg.h
 *		One aggregate of a view: its transition state, advanced outside the executor because it outlives
 *		the batch.
 */
#ifndef SA_AGG_H
#define SA_AGG_H

#include "codec.h"
#include "nodes/primnodes.h"
#include "parser/parse_node.h"

/* A transition state; by-reference values live in their window's context. */
typedef struct SaTrans
{
	Datum		value;
	bool		isnull;
	bool		novalue;		/* strict transition without initial value, no input yet */
} SaTrans;

typedef struct SaAgg SaAgg;
typedef struct SaAggRun SaAggRun;	/* what transition functions see as their calling AggState */

/* Refuse aggregates that cannot be kept, pointing at them. */
extern void sa_agg_check(Aggref *aggref, ParseState *pstate);

/* And those whose states cannot be put together, as those of sessions that meet must be. */
extern void sa_agg_check_combines(Aggref *aggref, ParseState *pstate);

/*
 * Everything needed to run an aggregate whose arguments are these columns (1-based) of the rows fed to
 * it, and whose FILTER is this boolean column (0: none).  In CurrentMemoryContext.
 */
extern SaAgg *sa_agg_create(Aggref *aggref, List *columns, AttrNumber filter);

/* True when the final value is the transition state, or makes it again, so that a result column can hold it. */
extern bool sa_agg_value_is_state(const SaAgg *agg);

extern Oid	sa_agg_state_type(const SaAgg *agg);

/* Do states in memory still look like what their types say now?  (sa_codec_shape)  And alike for both? */
extern bool sa_agg_keeps_shape(const SaAgg *agg);
extern bool sa_agg_same_shape(const SaAgg *agg, const SaAgg *other);

extern SaAggRun *sa_agg_run_create(MemoryContext cxt);

/* Calls from here on allocate states in this context. */
extern void sa_agg_run_in(SaAggRun *run, MemoryContext states);

extern void sa_agg_start(SaAgg *agg, SaAggRun *run, SaTrans *trans);

/* Runs in CurrentMemoryContext, which the caller resets now and then. */
extern void sa_agg_advance(SaAgg *agg, SaAggRun *run, SaTrans *trans, const Datum *row, const bool *nulls);

/* The final value; may point into the state. */
extern Datum sa_agg_final(SaAgg *agg, SaAggRun *run, const SaTrans *trans, bool *isnull);

/*
 * Of an aggregate with a combine function: `into` becomes the state of the events of both, in the states' context; `from`
 * stays, and lives on its own.  Where the order of events matters, those of `into` come first.
 */
extern void sa_agg_combine(SaAgg *agg, SaAggRun *run, SaTrans *into, const SaTrans *from);

/* To and from bytes, and from the value in a result column. */
extern void sa_agg_write(SaAgg *agg, SaAggRun *run, const SaTrans *trans, StringInfo out);
extern void sa_agg_read(SaAgg *agg, SaAggRun *run, SaTrans *trans, StringInfo in);
extern void sa_agg_discard(SaAgg *agg, SaTrans *trans);

/* A copy in this context to go back to; and the state from it, in memory of its own. */
extern void sa_agg_save(SaAgg *agg, SaAggRun *run, const SaTrans *trans, SaTrans *saved, MemoryContext cxt);
extern void sa_agg_restore(SaAgg *agg, SaAggRun *run, SaTrans *trans, const SaTrans *saved);
extern void sa_agg_from_value(SaAgg *agg, SaAggRun *run, SaTrans *trans, Datum value, bool isnull);

#endif							/* SA_AGG_H */
