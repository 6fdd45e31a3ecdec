/*
 * pipeline.h
 *		A view as its worker holds it, and the one place where the stages of a batch meet.
 */
#ifndef SA_PIPELINE_H
#define SA_PIPELINE_H

#include "batch.h"
#include "catalog.h"
#include "clock.h"
#include "commit.h"
#include "dedup.h"
#include "query.h"
#include "replay.h"
#include "result.h"
#include "state.h"
#include "stats.h"

typedef struct SaView
{
	MemoryContext cxt;
	MemoryContext config_cxt;	/* of config and options */
	SaViewConfig *config;
	SaViewOptions options;
	int64		delay;			/* of its watermark; SA_NO_DELAY */
	int64		idle_timeout;	/* microseconds; 0: never */

	/* loaded when first needed, for this owner */
	Oid			owner;
	SaQuery    *query;
	SaState    *state;
	SaDedup    *dedup;			/* NULL: duplicates are not looked for */
	SaResult   *result;

	/* as committed */
	MemoryContext positions_cxt;
	List	   *positions;		/* of SaViewPosition */
	TimestampTz floor;
	SaSilence	silence;		/* with on_idle = 'advance' */
	bool		recovered;		/* what there is of state is in memory, or was since */
	bool		replays;		/* it is to take dead letters */
	TimestampTz advance_to;		/* an administrator wants its watermark there; DT_NOBEGIN: nobody does */

	/* unlogged state: from where it would be rebuilt */
	MemoryContext steps_cxt;
	List	   *steps;			/* of SaStep; NIL: it is all on disk */
	List	   *cuts;			/* of SaCut, the oldest first: where windows were born */
	MemoryContext rebuild_cxt;
	List	   *rebuild;		/* of SaViewPosition: from where on it is being rebuilt; NIL: it is not */
	bool		rebuild_begun;
	bool		sought;			/* it has been looked for in the spill table */
	bool		incomplete;		/* records that it was to be rebuilt from were passed over */

	/* in this transaction */
	List	   *new_positions;	/* NIL: takes no part */
	List	   *new_steps;
	TimestampTz advancing_to;	/* of advance_to */
	SaProgress	progress;

	/* for the worker's schedule */
	bool		fresh;			/* nothing written yet, not even the row of a view without keys */
	bool		reading;		/* until it has come to the end */
	bool		exact;			/* the end as of its trigger, not where nothing is at hand */
	bool		asked;			/* a run() call waits for it */
	bool		at_end;
	bool		starved;		/* not at the end, but the source has nothing at hand just now */
	SaClock		next_due;
	SaClock		next_idle;		/* when idleness is to be made sure of; DT_NOEND: never */
	SaClock		retry_at;
	int			retries;
} SaView;

typedef enum SaPartEnd
{
	SA_PART_DONE,				/* stands with the transaction */
	SA_PART_RETRY,				/* passing trouble: try again later */
	SA_PART_STOPPED				/* failed, paused or gone: no more reading */
} SaPartEnd;

extern SaView *sa_pipeline_open(SaViewConfig *config, const SaStreamOptions *stream, MemoryContext parent);

/* Its configuration has been read again. */
extern void sa_pipeline_configure(SaView *view, SaViewConfig *config, const SaStreamOptions *stream);

/* What an administrator may have asked for.  True when that is new, and about its watermark. */
extern bool sa_pipeline_note_requests(SaView *view);
extern void sa_pipeline_close(SaView *view);

/* Would a batch without events move the view?  Also notes when one will, by idleness. */
extern bool sa_pipeline_moves(SaView *view, SaBatch *batch);

/* The view's part of a batch, in a subtransaction of its own. */
extern SaPartEnd sa_pipeline_process(SaView *view, SaBatch *batch);

/* A batch of the letters that it is to take (view->replays), in a subtransaction of its own. */
extern SaPartEnd sa_pipeline_replay(SaView *view, SaBatch *batch, const SaReplay *replay);

/*
 * Unlogged state is saved, in a transaction of its own, when the worker stops in order, and what is lost may have been:
 * it is looked for there first (in a batch without events), once (view->sought).
 */
extern bool sa_pipeline_is_lost(const SaView *view);
extern SaPartEnd sa_pipeline_restore(SaView *view, SaBatch *batch);
extern void sa_pipeline_save(SaView *view, SaBatch *batch);

/*
 * Unlogged state that is lost must be rebuilt before the view takes part in batches: from where on to read, up to
 * where it stands (list of SaViewPosition, with ends); NIL: it is there.  The view's part of a batch from there is
 * folded, and nothing written.
 */
extern List *sa_pipeline_rebuild_from(SaView *view);
extern SaPartEnd sa_pipeline_rebuild(SaView *view, SaBatch *batch);

/* The view's records cannot be had: it fails with this message.  In a subtransaction of its own. */
extern SaPartEnd sa_pipeline_stop(SaView *view, const char *message);

extern Oid	sa_pipeline_take_vacuum(SaView *view);	/* a log, if most of it is dead: the caller vacuums it */

/* The transaction has committed. */
extern void sa_pipeline_committed(SaView *view);

#endif							/* SA_PIPELINE_H */
