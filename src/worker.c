/*
 * worker.c
 *		The worker of one stream: reads batches and takes every view along.
 *
 * Invariant: one transaction holds a batch's results, states, dead letters and positions for all views
 * that stand at its beginning.  Views at other positions are read for separately, turn by turn, and join
 * the others when positions meet.
 *
 * An error outside the views' own parts ends the process; the launcher starts another one, which finds
 * everything as of the last commit.
 */
#include "postgres.h"

#include <malloc.h>

#include "access/table.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "commands/trigger.h"
#include "commands/vacuum.h"
#include "foreign/foreign.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "tcop/tcopprot.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/regproc.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "clock.h"
#include "commit.h"
#include "compat.h"
#include "deadletter.h"
#include "fault.h"
#include "lateness.h"
#include "owner.h"
#include "pipeline.h"
#include "rebuild.h"
#include "slot.h"
#include "source.h"
#include "worker.h"

#define IDLE_POLL_MS 1000		/* for what no latch tells: prepared transactions of other backends, say */
#define RELEASE_INTERVAL (USECS_PER_SEC)
#define REPLAY_ROWS 10000		/* dead letters taken at once */
#define SAVE_INTERVAL (10 * USECS_PER_SEC)	/* of what only advice is made of */
#define KEPT_MEMORY (64 * 1024 * 1024)	/* bytes that the process keeps, freed, for the next batch */

typedef struct Worker
{
	SaSlot	   *slot;
	Oid			stream;
	MemoryContext cxt;			/* as long as the process */
	MemoryContext stream_cxt;	/* the stream's options and source */
	MemoryContext round_cxt;	/* one time around the loop */
	MemoryContext batch_cxt;	/* one turn */
	SaStreamOptions *options;
	const SaSourceRoutine *routine;
	SaSource   *source;
	List	   *views;			/* of SaView */
	SaLateness *lateness;
	SaClock		lateness_saved;	/* when last */
	uint64		serving;		/* run() request of the round at hand; 0: none */
	Oid			serving_view;	/* that it is about; InvalidOid: all */
	List	   *target;			/* where that round ends (SaViewPosition); NIL: not known yet */
	MemoryContext target_cxt;
	SaClock		refresh_as_of;	/* triggers wait for the end as of then; 0: they do not */
	uint64		refresh_for;	/* the run() request that this is about */
	bool		reopened;		/* the source knows of no end that views are reading towards */
	SaClock		attend_at;		/* when the source wants to be looked after again */
	bool		woken;			/* something may have been written */
	SaClock		pause_until;	/* the stream is locked, or somebody waits for a lock on it */
	SaClock		look_again_at;	/* a new view was locked; 0: none was */
	SaClock		last_release;
} Worker;

static int	view_lock_timeout = 1000;
static bool stream_changed = false;
static volatile sig_atomic_t saves_at_stop = false;
static volatile sig_atomic_t stop_requested = false;
static Oid	my_stream = InvalidOid;
static MemoryContext round_cxt = NULL;
static SaSlot *my_slot = NULL;
static bool my_slot_unwanted = false;
static char my_failure[SA_MESSAGE_SIZE] = "could not start";	/* until the first reload */

void
sa_worker_init(void)
{
	DefineCustomIntVariable("stream_agg.lock_timeout",
							"How long a view waits for a lock before it leaves its batch to the others.",
							NULL, &view_lock_timeout, 1000, 1, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
}

/* --- starting and ending --- */

static void
detach_at_exit(int code, Datum arg)
{
	if (my_slot)
		sa_slot_detach(my_slot, my_slot_unwanted, my_failure[0] ? my_failure : NULL);
	my_slot = NULL;
}

static void
note_stream_change(Datum arg, Oid relid)
{
	if (relid == my_stream || !OidIsValid(relid))
		stream_changed = true;
}

/* What the stream's settings depend on besides: its server, and the user mappings of its owner and of PUBLIC. */
static uint32 depends_on[3];

static void
note_server_change(Datum arg, int cacheid, uint32 hashvalue)
{
	for (int i = 0; i < lengthof(depends_on); i++)
		stream_changed = stream_changed || hashvalue == 0 || hashvalue == depends_on[i];
}

static void
remember_server(Relation stream)
{
	Oid			server = GetForeignTable(RelationGetRelid(stream))->serverid;

	depends_on[0] = GetSysCacheHashValue1(FOREIGNSERVEROID, ObjectIdGetDatum(server));
	depends_on[1] = GetSysCacheHashValue2(USERMAPPINGUSERSERVER, ObjectIdGetDatum(stream->rd_rel->relowner),
										  ObjectIdGetDatum(server));
	depends_on[2] = GetSysCacheHashValue2(USERMAPPINGUSERSERVER, ObjectIdGetDatum(InvalidOid),
										  ObjectIdGetDatum(server));
}

static void
set(const char *name, const char *value)
{
	SetConfigOption(name, value, PGC_SUSET, PGC_S_OVERRIDE);
}

static void
set_if_known(const char *name, const char *value)
{
	if (GetConfigOption(name, true, false))
		set(name, value);
}

void
sa_worker_apply_settings(void)
{
	set("search_path", "pg_catalog, pg_temp");
	set("synchronous_commit", "off");
	set("statement_timeout", "0");
	set("lock_timeout", "0");
	set("idle_in_transaction_session_timeout", "0");
	set_if_known("transaction_timeout", "0");
	set("default_transaction_isolation", "read committed");
	set("default_transaction_read_only", "off");
	set("default_transaction_deferrable", "off");
	set("session_replication_role", "origin");
	set("exit_on_error", "off");
	set("standard_conforming_strings", "on");
	set("synchronize_seqscans", "off");
	set("gin_fuzzy_search_limit", "0");
	set("jit", "off");
	set("max_parallel_workers_per_gather", "0");
	set("row_security", "on");
	set_if_known("restrict_nonsystem_relation_kind", "");
	set("vacuum_cost_delay", "0");
}

static void
apply_settings(void)
{
	sa_worker_apply_settings();
	set("lock_timeout", psprintf("%d", view_lock_timeout));
	set("deadlock_timeout", "100ms");	/* it is for us to give way, who try again */
}

/*
 * Batch after batch takes and frees some ten megabytes; given back to the kernel in between, the pages would
 * have to be cleared anew each time (a tenth of the worker's time).
 */
static void
keep_freed_memory(void)
{
	mallopt(M_MMAP_THRESHOLD, KEPT_MEMORY);
	mallopt(M_TRIM_THRESHOLD, KEPT_MEMORY);
}

/*
 * SIGTERM: at once, unless there is state to be saved.  Then the batch at hand is cancelled, and saving comes first;
 * the second time that is not waited for either.
 */
static void
stop(SIGNAL_ARGS)
{
	if (!saves_at_stop || stop_requested)
	{
		die(postgres_signal_arg);
		return;
	}
	stop_requested = true;
	QueryCancelPending = true;
	InterruptPending = true;
	SetLatch(MyLatch);
}

static void
start_up(Worker *worker, int index)
{
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, stop);
	BackgroundWorkerUnblockSignals();
	memset(worker, 0, sizeof(*worker));
	keep_freed_memory();
	worker->slot = my_slot = sa_slot_attach(index);
	worker->stream = my_stream = my_slot->stream;
	before_shmem_exit(detach_at_exit, (Datum) 0);
	apply_settings();
	BackgroundWorkerInitializeConnectionByOid(my_slot->database, InvalidOid, 0);
	set("client_encoding", GetDatabaseEncodingName());
	CacheRegisterRelcacheCallback(note_stream_change, (Datum) 0);
	CacheRegisterSyscacheCallback(FOREIGNSERVEROID, note_server_change, (Datum) 0);
	CacheRegisterSyscacheCallback(USERMAPPINGUSERSERVER, note_server_change, (Datum) 0);
	worker->cxt = AllocSetContextCreate(TopMemoryContext, "stream_agg worker", ALLOCSET_DEFAULT_SIZES);
	worker->round_cxt = round_cxt = AllocSetContextCreate(worker->cxt, "stream_agg round", ALLOCSET_DEFAULT_SIZES);
	worker->target_cxt = AllocSetContextCreate(worker->cxt, "stream_agg target", ALLOCSET_SMALL_SIZES);
	worker->batch_cxt = AllocSetContextCreate(worker->cxt, "stream_agg turn", ALLOCSET_DEFAULT_SIZES);
	worker->lateness = sa_lateness_create(worker->cxt);
	worker->woken = true;
	SA_FAULT("start_worker", worker->stream);
}

/* --- transactions --- */

static void
begin_transaction(void)
{
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
}

static void
commit_transaction(void)
{
	if (ActiveSnapshotSet())
		PopActiveSnapshot();
	CommitTransactionCommand();
	MemoryContextSwitchTo(round_cxt);
	pgstat_report_stat(false);
}

/* --- the stream and its views --- */

#define LOCK_RETRY (100 * INT64CONST(1000))

typedef enum StreamLock
{
	STREAM_LOCKED,
	STREAM_BUSY,				/* try again after a while, and do not join the queue */
	STREAM_GONE
} StreamLock;

/* Lock the stream for this transaction; with the lock come the changes committed before it. */
static StreamLock
lock_stream(Worker *worker)
{
	if (!ConditionalLockRelationOid(worker->stream, AccessShareLock))
	{
		worker->pause_until = sa_clock_now() + LOCK_RETRY;
		return STREAM_BUSY;
	}
	return SearchSysCacheExists1(RELOID, ObjectIdGetDatum(worker->stream)) ? STREAM_LOCKED : STREAM_GONE;
}

/* Open the stream, which is locked, anew. */
static void
open_stream(Worker *worker)
{
	MemoryContext old;
	Relation	rel = table_open(worker->stream, NoLock);

	if (worker->source)
		worker->routine->close(worker->source);
	if (worker->stream_cxt)
		MemoryContextDelete(worker->stream_cxt);
	worker->source = NULL;
	worker->stream_cxt = AllocSetContextCreate(worker->cxt, "stream_agg stream", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(worker->stream_cxt);
	remember_server(rel);
	worker->options = sa_option_stream(rel);
	worker->routine = sa_source_routine(worker->options->source);
	worker->source = worker->routine->open(worker->options, worker->stream_cxt);
	worker->reopened = true;
	MemoryContextSwitchTo(old);
	pgstat_report_appname(psprintf("stream_agg %s", RelationGetRelationName(rel)));
	table_close(rel, NoLock);
}

static SaView *
find_view(Worker *worker, int id)
{
	ListCell   *lc;

	foreach(lc, worker->views)
	{
		SaView	   *view = lfirst(lc);

		if (view->config->id == id)
			return view;
	}
	return NULL;
}

static bool
is_running(SaView *view)
{
	return strcmp(view->config->status, SA_STATUS_RUNNING) == 0;
}

/* Let a view that begins where another one stands begin there.  False when that one is gone; the view has failed. */
static bool
start_at_view(SaView *view, List *places)
{
	const char *name = view->options.start.view;
	Oid			relid = RangeVarGetRelid(makeRangeVarFromNameList(sa_qualified_name(name)), NoLock, true);
	SaViewConfig *other = OidIsValid(relid) ? sa_catalog_view(relid) : NULL;
	ListCell   *lc;

	if (other == NULL || other->stream != view->config->stream)
	{
		(void) sa_pipeline_stop(view, psprintf("continuous view %s, where it was to start, is gone", name));
		return false;
	}
	foreach(lc, sa_catalog_positions(other->id))
	{
		SaViewPosition *from = lfirst(lc);
		SaPosition *place = sa_source_find_position(places, from->topic, from->partition);

		if (place != NULL)
			place->position = from->position;
	}
	return true;
}

/*
 * A new view's first contact: its place, from here on stored.  False when somebody is about to drop it, or
 * has it locked for another reason, or the source does not know yet: then it is looked at again after a while.
 */
static bool
resolve_start(Worker *worker, SaView *view)
{
	SaBoundary	start = view->options.start;
	List	   *places;
	List	   *positions = NIL;
	ListCell   *lc;

	if (view->positions != NIL)
		return true;
	if (!ConditionalLockRelationOid(view->config->view, RowExclusiveLock))
	{
		worker->look_again_at = sa_clock_now() + LOCK_RETRY;
		return false;
	}
	if (sa_catalog_view(view->config->view) == NULL)
		return false;
	if (start.kind == SA_BOUNDARY_VIEW)
		start.kind = SA_BOUNDARY_EARLIEST;
	if (!worker->routine->resolve(worker->source, &start, &view->options.end, &places))
	{
		worker->look_again_at = sa_clock_now() + LOCK_RETRY;
		return false;
	}
	if (view->options.start.kind == SA_BOUNDARY_VIEW && !start_at_view(view, places))
		return true;
	foreach(lc, places)
	{
		SaPosition *place = lfirst(lc);
		SaViewPosition *pos = palloc0(sizeof(SaViewPosition));

		pos->topic = place->topic;
		pos->partition = place->partition;
		pos->position = pos->start = place->position;
		pos->end = place->end;
		pos->running_max = DT_NOBEGIN;
		pos->watermark = DT_NOBEGIN;
		positions = lappend(positions, pos);
	}
	SA_FAULT("start_view", view->config->view);
	sa_commit_save(view->config->id, NIL, positions);
	view->new_positions = positions;
	return true;
}

/* A view not met yet, or one whose state has been changed by a command: then it goes on with what it was about. */
static SaView *
open_view(Worker *worker, SaViewConfig *config)
{
	SaView	   *view = sa_pipeline_open(config, worker->options, worker->cxt);
	ListCell   *lc;

	foreach(lc, worker->views)
	{
		SaView	   *old = lfirst(lc);

		if (old->config->view != config->view)
			continue;
		view->reading = old->reading;
		view->exact = old->exact;
		view->asked = old->asked;
		view->next_due = old->next_due;
		sa_deadletter_recount(worker->stream);
	}
	return view;
}

/* A watermark that is to move does so when the view has read what is there; so have that begin. */
static void
note_requests(Worker *worker, SaView *view)
{
	bool		advance = sa_pipeline_note_requests(view);

	if (view->replays)
		sa_deadletter_recount(worker->stream);	/* whoever asked may have made some */
	if (!advance)
		return;
	worker->woken = true;
	view->next_due = 0;
}

/* The views as configured now: new ones open, dropped ones close, others take their options over. */
static List *
read_views(Worker *worker)
{
	MemoryContext old = MemoryContextSwitchTo(worker->cxt);
	List	   *views = NIL;
	List	   *configs;
	ListCell   *lc;

	MemoryContextSwitchTo(worker->batch_cxt);
	configs = sa_catalog_views(worker->stream);
	foreach(lc, configs)
	{
		SaViewConfig *config = lfirst(lc);
		SaView	   *view;

		if (config->database != MyDatabaseId)
			continue;
		view = find_view(worker, config->id);
		if (view)
			sa_pipeline_configure(view, config, worker->options);
		else
		{
			view = open_view(worker, config);
			sa_lateness_begin(worker->lateness, view->positions);
		}
		if (is_running(view) && !resolve_start(worker, view))
		{
			if (!list_member_ptr(worker->views, view))
				sa_pipeline_close(view);
			worker->serving = 0;	/* the run() call at hand is about this view too: begin with it again */
			continue;
		}
		note_requests(worker, view);
		MemoryContextSwitchTo(worker->cxt);
		views = lappend(views, view);
		MemoryContextSwitchTo(worker->batch_cxt);
	}
	MemoryContextSwitchTo(old);
	return views;
}

static void
close_missing(Worker *worker, List *views)
{
	ListCell   *lc;

	foreach(lc, worker->views)
		if (!list_member_ptr(views, lfirst(lc)))
			sa_pipeline_close(lfirst(lc));
	list_free(worker->views);
	worker->views = views;
}

/* Read the configuration again.  STREAM_GONE when there is nothing left to do for this stream. */
static StreamLock
reload(Worker *worker)
{
	List	   *views;
	ListCell   *lc;
	StreamLock	lock;

	begin_transaction();
	lock = lock_stream(worker);
	if (lock != STREAM_LOCKED)
	{
		stream_changed = true;
		commit_transaction();
		return lock;
	}
	worker->look_again_at = 0;
	if (stream_changed || worker->source == NULL)
	{
		stream_changed = false;
		open_stream(worker);
	}
	views = read_views(worker);
	commit_transaction();
	worker->routine->end_batch(worker->source, true);
	foreach(lc, views)
		sa_pipeline_committed(lfirst(lc));
	close_missing(worker, views);
	foreach(lc, worker->views)
	{
		SaView	   *view = lfirst(lc);

		view->reading = view->reading && is_running(view);
		view->asked = view->asked && is_running(view);
		view->fresh = view->fresh || sa_commit_counter(view->positions, SA_READ) == 0;
	}
	MemoryContextReset(worker->batch_cxt);
	if (worker->views == NIL)
		return stream_changed || worker->look_again_at != 0 ? STREAM_BUSY : STREAM_GONE;
	return STREAM_LOCKED;
}

/* --- one batch --- */

static bool
same_positions(SaView *a, SaView *b)
{
	ListCell   *lc;

	if (list_length(a->positions) != list_length(b->positions))
		return false;
	foreach(lc, a->positions)
	{
		SaViewPosition *x = lfirst(lc);
		SaViewPosition *y = sa_commit_find(b->positions, x->topic, x->partition);

		if (y == NULL || x->position != y->position || x->end != y->end)
			return false;
	}
	return true;
}

static List *
source_positions(SaView *view)
{
	List	   *rebuild = sa_pipeline_rebuild_from(view);
	List	   *result = NIL;
	ListCell   *lc;

	foreach(lc, rebuild != NIL ? rebuild : view->positions)
	{
		SaViewPosition *pos = lfirst(lc);
		SaPosition *from = palloc(sizeof(SaPosition));

		from->topic = pos->topic;
		from->partition = pos->partition;
		from->position = pos->position;
		from->end = pos->end;
		result = lappend(result, from);
	}
	return result;
}

/* How far the other view is ahead, in records; 0: it is not, or not in every partition. */
static int64
distance_to(SaView *view, SaView *other)
{
	int64		distance = 0;
	ListCell   *lc;

	if (list_length(view->positions) != list_length(other->positions))
		return 0;
	foreach(lc, view->positions)
	{
		SaViewPosition *from = lfirst(lc);
		SaViewPosition *to = sa_commit_find(other->positions, from->topic, from->partition);

		if (to == NULL || to->position < from->position || to->end != from->end)
			return 0;
		distance += to->position - from->position;
	}
	return distance;
}

/*
 * A view that has nearly caught up with others stops where they stand, and from then on reads with them:
 * while records keep coming, their positions would hardly ever meet by chance.  True when it is to stop there.
 */
static bool
stop_at_next_view(Worker *worker, SaView *leader, List *from)
{
	SaView	   *next = NULL;
	int64		least = (int64) leader->options.max_batch_rows + 1;
	ListCell   *lc;

	foreach(lc, worker->views)
	{
		SaView	   *other = lfirst(lc);
		int64		distance = is_running(other) ? distance_to(leader, other) : 0;

		if (distance > 0 && distance < least)
		{
			least = distance;
			next = other;
		}
	}
	if (next == NULL)
		return false;
	foreach(lc, from)
	{
		SaPosition *position = lfirst(lc);

		position->end = sa_commit_find(next->positions, position->topic, position->partition)->position;
	}
	return true;
}

/* Has the batch come to where it was to stop, in every partition? */
static bool
has_come_to_stop(const SaBatch *batch, List *from)
{
	for (int i = 0; i < batch->npartitions; i++)
	{
		const SaBatchPartition *partition = &batch->partitions[i];
		SaPosition *position = sa_source_find_position(from, partition->topic, partition->partition);

		if (position != NULL && partition->next < position->end)
			return false;
	}
	return true;
}

/* The next batch, or NULL when the stream is busy, or has changed and must be looked at anew. */
static SaBatch *
read_batch(Worker *worker, SaView *leader)
{
	SaReadLimits limits = {leader->options.max_batch_rows, leader->options.max_batch_bytes};
	StreamLock	lock = lock_stream(worker);
	Relation	rel;
	SaBatch    *batch;
	List	   *from;
	bool		stops;

	if (lock == STREAM_GONE)
		stream_changed = true;
	if (lock != STREAM_LOCKED || stream_changed)
		return NULL;
	rel = table_open(worker->stream, NoLock);
	batch = sa_batch_create(worker->batch_cxt, worker->stream, RelationGetDescr(rel));
	from = source_positions(leader);
	stops = leader->rebuild == NIL && stop_at_next_view(worker, leader, from);
	worker->routine->read(worker->source, from, &limits, batch);
	SA_FAULT("fetch", worker->stream);
	if (stops)
		batch->at_end = false;	/* there is more where the other view stands */
	if (stops && has_come_to_stop(batch, from))
		batch->drained = false;
	sa_batch_seal(batch, worker->options);
	table_close(rel, NoLock);
	return batch;
}

/* Why an event is a dead letter of the stream itself; NULL: it is none. */
static const char *
reason_of(const SaBatch *batch, int ordinal)
{
	switch ((SaVerdict) batch->events[ordinal].verdict)
	{
		case SA_EVENT_TOMBSTONE:
			return sa_batch_refusal(batch, ordinal) ? SA_REASON_TOMBSTONE : NULL;
		case SA_EVENT_MALFORMED:
			return SA_REASON_MALFORMED;
		case SA_EVENT_NULL_TIME:
			return SA_REASON_NULL_TIME;
		case SA_EVENT_FUTURE:
			return SA_REASON_FUTURE;
		default:
			return NULL;
	}
}

/* Dead letters of the stream itself; type output runs with its owner's rights. */
static List *
make_stream_letters(SaBatch *batch)
{
	List	   *letters = NIL;
	SaOwnerSwitch save;

	sa_owner_enter(&save, sa_owner_of(batch->stream));
	for (int i = 0; i < batch->nevents; i++)
	{
		const char *reason = reason_of(batch, i);

		if (reason)
			letters = lappend(letters, sa_deadletter_make(batch, i, InvalidOid, reason, NULL));
	}
	sa_owner_leave(&save);
	return letters;
}

static int64
end_of(Worker *worker, const SaViewPosition *pos)
{
	return worker->routine->end_position(worker->source, pos->topic, pos->partition);
}

/* For the eyes of administrators. */
static void
report_ends(Worker *worker)
{
	ListCell   *lc;
	ListCell   *lp;

	if (worker->source == NULL)
		return;
	foreach(lc, worker->views)
		foreach(lp, ((SaView *) lfirst(lc))->positions)
		{
			SaViewPosition *pos = lfirst(lp);

			sa_stats_note_end(worker->stream, pos->topic, pos->partition, end_of(worker, pos));
		}
}

static void
report_views(Worker *worker, List *views)
{
	ListCell   *lc;

	foreach(lc, views)
	{
		SaView	   *view = lfirst(lc);
		SaViewPosition *pos;
		ListCell   *lp;

		if (view->new_positions == NIL)
			continue;
		sa_pipeline_committed(view);
		view->progress.lag = 0;
		foreach(lp, view->positions)
		{
			pos = lfirst(lp);
			view->progress.lag += Max(0, end_of(worker, pos) - pos->position);
		}
		sa_stats_report(&view->progress);
	}
}

/* Has the view come to its end for now?  Else it goes on, or waits for the source to have more at hand. */
static void
note_progress(SaView *view, const SaBatch *batch)
{
	view->at_end = view->exact ? batch->at_end : batch->drained;
	view->reading = view->reading && !view->at_end;
	view->starved = batch->drained && !view->at_end;
}

/* Take the views through a batch that has been read; true when any of them takes part. */
static bool
process_views(List *views, SaBatch *batch)
{
	bool		any = false;
	ListCell   *lc;

	foreach(lc, views)
	{
		SaView	   *view = lfirst(lc);

		view->new_positions = NIL;
		switch (sa_pipeline_process(view, batch))
		{
			case SA_PART_DONE:
				any = true;
				note_progress(view, batch);
				break;
			case SA_PART_RETRY:
				view->at_end = false;
				break;
			case SA_PART_STOPPED:
				view->reading = view->asked = false;
				break;
		}
	}
	return any;
}

/* Has the batch anything for the views?  Also notes when, without events, one will have. */
static bool
is_worthwhile(List *views, SaBatch *batch)
{
	bool		result = sa_batch_read(batch) > 0;
	ListCell   *lc;

	foreach(lc, views)
	{
		SaView	   *view = lfirst(lc);

		result |= sa_pipeline_moves(view, batch) || view->fresh;
	}
	return result;
}

static const char *
describe_partition(const SaBatchPartition *partition)
{
	if (partition->topic[0] == '\0')
		return "its stream";
	return psprintf("topic \"%s\", partition %d,", partition->topic, partition->partition);
}

/* What the source no longer has, and no policy passes over; NULL: nothing. */
static const char *
describe_loss(const SaBatchPartition *partition)
{
	const char *place = describe_partition(partition);

	if (partition->loss != SA_LOSS_STOP)
		return NULL;
	if (partition->first > partition->kept_next)
		return psprintf("position " INT64_FORMAT " of %s is beyond its end: it holds positions " INT64_FORMAT
						" to before " INT64_FORMAT, partition->first, place, partition->kept_first, partition->kept_next);
	return psprintf("records from position " INT64_FORMAT " to " INT64_FORMAT " of %s are no longer kept: it holds positions "
					INT64_FORMAT " to before " INT64_FORMAT, partition->first, partition->kept_first - 1, place,
					partition->kept_first, partition->kept_next);
}

/* Why no view may take the batch; NULL: they may. */
static const char *
find_stop(SaBatch *batch, const char **hint)
{
	for (int i = 0; i < batch->npartitions; i++)
	{
		const char *loss = describe_loss(&batch->partitions[i]);

		*hint = "Set the stream's option on_data_loss to 'skip' and resume the view to go on behind them.";
		if (loss)
			return loss;
	}
	*hint = "Set the stream's option on_malformed to 'dead_letter' and resume the view to keep it aside.";
	return batch->failure;
}

static void
stop_views(List *views, const char *message, const char *hint)
{
	ListCell   *lc;

	foreach(lc, views)
	{
		SaView	   *view = lfirst(lc);

		ereport(WARNING,
				(errmsg("continuous view \"%s\" has failed: %s", get_rel_name(view->config->view), message),
				 errhint("%s", hint)));
		view->new_positions = NIL;
		if (sa_pipeline_stop(view, message) == SA_PART_STOPPED)
			view->reading = view->asked = false;
	}
}

/* Keep for the administrator what the views have passed over. */
static void
note_losses(SaBatch *batch)
{
	for (int i = 0; i < batch->npartitions; i++)
	{
		SaBatchPartition *partition = &batch->partitions[i];
		SaPosition	first = {.topic = partition->topic, .partition = partition->partition, .position = partition->first};

		if (partition->loss == SA_LOSS_PASSED)
			sa_catalog_note_loss(batch->stream, &first, partition->kept_first);
	}
}

/* Views that have come to the end that their options say. */
static void
finish_views(List *views)
{
	ListCell   *lc;

	foreach(lc, views)
	{
		SaView	   *view = lfirst(lc);

		if (!is_running(view) || !sa_commit_finished(view->new_positions ? view->new_positions : view->positions))
			continue;
		PushActiveSnapshot(GetTransactionSnapshot());
		sa_catalog_set_status(view->config->view, SA_STATUS_FINISHED, NULL);
		PopActiveSnapshot();
		view->config->status = SA_STATUS_FINISHED;
		view->reading = false;
	}
}

/* A batch that brought nothing. */
static void
note_nothing(List *views, const SaBatch *batch)
{
	ListCell   *lc;

	foreach(lc, views)
		note_progress(lfirst(lc), batch);
}

static bool
has_reached(SaView *view, List *target)
{
	ListCell   *lc;

	foreach(lc, target)
	{
		SaViewPosition *end = lfirst(lc);
		SaViewPosition *pos = sa_commit_find(view->positions, end->topic, end->partition);

		if (pos == NULL || pos->position < end->position)
			return false;
	}
	return true;
}

/* Do its options say where it ends? */
static bool
has_own_end(SaView *view)
{
	ListCell   *lc;

	foreach(lc, view->positions)
		if (((SaViewPosition *) lfirst(lc))->end != PG_INT64_MAX)
			return true;
	return false;
}

/*
 * What a run() call waits for: the first view that comes to the end shows where that is; the others are
 * done when they have come as far, whatever has been written since.  A view that ends by itself shows nothing.
 */
static void
note_request(Worker *worker, List *views)
{
	ListCell   *lc;

	foreach(lc, views)
	{
		SaView	   *view = lfirst(lc);

		if (!view->asked || view->reading)
			continue;
		view->asked = false;
		if (worker->target == NIL && !has_own_end(view))
		{
			MemoryContext old = MemoryContextSwitchTo(worker->target_cxt);

			worker->target = sa_commit_copy(view->positions);
			MemoryContextSwitchTo(old);
		}
	}
	foreach(lc, worker->views)
	{
		SaView	   *view = lfirst(lc);

		if (view->asked && worker->target != NIL)
			view->asked = !has_reached(view, worker->target);
	}
}

/* The views take the batch; what the stream itself keeps commits with them. */
static void
take_batch(Worker *worker, List *views, SaBatch *batch)
{
	pgstat_report_activity(STATE_RUNNING, psprintf("batch of %d events", batch->nevents));
	CommandCounterIncrement();
	if (!process_views(views, batch))
		return;
	sa_slot_succeeded(worker->slot);
	if (worker->options->time_attr != InvalidAttrNumber)
		sa_lateness_count(worker->lateness, batch, ((SaView *) linitial(views))->positions);
	PushActiveSnapshot(GetTransactionSnapshot());
	sa_deadletter_write(worker->stream, make_stream_letters(batch));
	note_losses(batch);
	PopActiveSnapshot();
	finish_views(views);
}

/*
 * Read one batch for views that stand at the same position.  False when there is nothing to be had for now,
 * though they are not at the end.
 */
static bool
turn(Worker *worker, List *views)
{
	SaBatch    *batch;
	const char *stop;
	const char *hint;
	bool		starved;

	pgstat_report_activity(STATE_RUNNING, "reading");
	begin_transaction();
	batch = read_batch(worker, linitial(views));
	if (batch == NULL)
	{
		commit_transaction();
		return true;
	}
	stop = find_stop(batch, &hint);
	if (stop)
		stop_views(views, stop, hint);
	PopActiveSnapshot();
	if (!stop && is_worthwhile(views, batch))
		take_batch(worker, views, batch);
	else if (!stop)
	{
		note_nothing(views, batch);
		finish_views(views);
	}
	if (!batch->drained)
		worker->woken = true;	/* the source will not tell again */
	starved = !stop && sa_batch_read(batch) == 0 && batch->drained;
	SA_FAULT("before_commit", worker->stream);
	commit_transaction();
	SA_FAULT("after_commit", worker->stream);
	worker->routine->end_batch(worker->source, true);
	report_views(worker, views);
	note_request(worker, views);
	MemoryContextReset(worker->batch_cxt);
	return !starved;
}

/*
 * Why what the view has read cannot be read again: its partition is no longer part of the stream, or is another one of
 * that name, which ends before the place where the view stands.  NULL: it can.
 */
static const char *
find_gone(SaView *view, SaBatch *batch)
{
	for (int i = 0; i < batch->npartitions; i++)
	{
		const SaBatchPartition *partition = &batch->partitions[i];
		const SaViewPosition *place = sa_commit_find(view->rebuild, partition->topic, partition->partition);

		if (place == NULL || partition->next >= place->end)
			continue;
		if (partition->gone)
			return psprintf("%s is no longer part of the stream", describe_partition(partition));
		/* not where it ended when last looked up, but where the broker has just now said that it does */
		if (batch->at_end && partition->quiet_since != DT_NOEND && partition->topic[0] != '\0')
			return psprintf("%s ends before position " INT64_FORMAT ", where the view stands",
							describe_partition(partition), place->end);
	}
	return NULL;
}

/* Read again one batch of what a view's lost state was made of.  False when there is nothing to be had for now. */
static bool
rebuild_turn(Worker *worker, SaView *view)
{
	SaBatch    *batch;
	const char *stop;
	const char *hint;
	bool		any = true;

	pgstat_report_activity(STATE_RUNNING, "rebuilding state");
	begin_transaction();
	batch = read_batch(worker, view);
	if (batch == NULL)
	{
		commit_transaction();
		return true;
	}
	stop = find_stop(batch, &hint);
	if (stop == NULL)
	{
		stop = find_gone(view, batch);
		hint = "Use stream_agg.reset() to have the view begin anew.";
	}
	if (stop == NULL)
		note_losses(batch);
	PopActiveSnapshot();
	if (stop)
		stop_views(list_make1(view), psprintf("its state cannot be rebuilt: %s", stop), hint);
	else if (sa_pipeline_rebuild(view, batch) == SA_PART_STOPPED)
		view->reading = view->asked = false;
	else
		any = sa_batch_read(batch) > 0 || !batch->drained || sa_pipeline_rebuild_from(view) == NIL;
	view->starved = !any;
	if (!batch->drained)
		worker->woken = true;	/* the source will not tell again */
	commit_transaction();
	worker->routine->end_batch(worker->source, true);
	MemoryContextReset(worker->batch_cxt);
	return any;
}

static SaBatch *
empty_batch(Worker *worker)
{
	Relation	rel = table_open(worker->stream, NoLock);
	SaBatch    *batch = sa_batch_create(worker->batch_cxt, worker->stream, RelationGetDescr(rel));

	batch->at_end = batch->drained = true;
	table_close(rel, NoLock);
	return batch;
}

/* Look for the state that the worker before has saved. */
static void
restore_turn(Worker *worker, SaView *view)
{
	begin_transaction();
	if (lock_stream(worker) == STREAM_LOCKED)
	{
		SaBatch    *batch = empty_batch(worker);

		PopActiveSnapshot();
		if (sa_pipeline_restore(view, batch) == SA_PART_STOPPED)
			view->reading = view->asked = false;
	}
	commit_transaction();
	MemoryContextReset(worker->batch_cxt);
}

/* A view whose state is lost first has it back.  False: it is there. */
static bool
has_back_state(Worker *worker, SaView *view, bool *any)
{
	if (sa_pipeline_is_lost(view) && !view->sought)
	{
		restore_turn(worker, view);
		*any = true;
		return true;
	}
	if (sa_pipeline_rebuild_from(view) == NIL)
		return false;
	*any |= rebuild_turn(worker, view);
	return true;
}

static bool
is_to_save(SaView *view)
{
	return view->steps != NIL && !sa_pipeline_is_lost(view);
}

static void
save_states(Worker *worker)
{
	ListCell   *lc;

	foreach(lc, worker->views)
	{
		if (!is_to_save(lfirst(lc)))
			continue;
		begin_transaction();
		if (lock_stream(worker) == STREAM_LOCKED)
		{
			SaBatch    *batch = empty_batch(worker);

			PopActiveSnapshot();
			sa_pipeline_save(lfirst(lc), batch);
		}
		commit_transaction();
		MemoryContextReset(worker->batch_cxt);
	}
}

/* A batch of no events, for these views. */
static void
take_nothing(Worker *worker, List *views)
{
	if (views == NIL)
		return;
	begin_transaction();
	if (lock_stream(worker) == STREAM_LOCKED)
	{
		SaBatch    *batch = empty_batch(worker);

		PopActiveSnapshot();
		(void) process_views(views, batch);
	}
	commit_transaction();
	report_views(worker, views);
	MemoryContextReset(worker->batch_cxt);
}

/*
 * The answer over no records yet: a view that waits to be asked shows it from the beginning on, as one
 * without keys has a row for it.
 */
static void
show_empty_answers(Worker *worker)
{
	List	   *views = NIL;
	ListCell   *lc;

	foreach(lc, worker->views)
	{
		SaView	   *view = lfirst(lc);

		if (view->fresh && is_running(view) && view->options.trigger == SA_TRIGGER_MANUAL && !view->reading)
			views = lappend(views, view);
	}
	take_nothing(worker, views);
}

/* --- the schedule --- */

static bool
is_ready(SaView *view, SaClock now)
{
	return view->reading && view->retry_at <= now;
}

/* The one that none is ahead of: those behind may then come to where it stands, and go on with it. */
static SaView *
pick_leader(List *ready)
{
	SaView	   *leader = linitial(ready);
	ListCell   *lc;

	for_each_from(lc, ready, 1)
		if (distance_to(leader, lfirst(lc)) > 0)
			leader = lfirst(lc);
	return leader;
}

/* One batch for every position at which views are ready to read.  False when none has had anything. */
static bool
take_turns(Worker *worker)
{
	SaClock		now = sa_clock_now();
	List	   *ready = NIL;
	ListCell   *lc;
	bool		any = false;

	foreach(lc, worker->views)
	{
		SaView	   *view = lfirst(lc);

		if (!is_ready(view, now))
			continue;
		if (!has_back_state(worker, view, &any))
			ready = lappend(ready, view);
	}
	while (ready != NIL)
	{
		List	   *together = NIL;
		List	   *others = NIL;
		SaView	   *leader = pick_leader(ready);

		foreach(lc, ready)
			if (same_positions(leader, lfirst(lc)))
				together = lappend(together, lfirst(lc));
			else
				others = lappend(others, lfirst(lc));
		any |= turn(worker, together);
		list_free(together);
		list_free(ready);
		ready = others;
	}
	return any;
}

/* May it take what administrators have asked for? */
static bool
takes_requests(SaView *view)
{
	return view->positions != NIL && (is_running(view) || strcmp(view->config->status, SA_STATUS_FINISHED) == 0);
}

/* Is its watermark to be moved, some time or other? */
static bool
is_to_advance(SaView *view)
{
	return takes_requests(view) && !TIMESTAMP_IS_NOBEGIN(view->advance_to);
}

/*
 * Watermarks that administrators want moved move with a batch of no events, whatever triggers and sources say.  False
 * when there was nothing to do, or state that must be rebuilt first cannot be had for now.
 */
static bool
advance_watermarks(Worker *worker)
{
	SaClock		now = sa_clock_now();
	List	   *views = NIL;
	bool		any = false;
	ListCell   *lc;

	foreach(lc, worker->views)
	{
		SaView	   *view = lfirst(lc);

		if (!is_to_advance(view) || view->reading || view->retry_at > now)
			continue;			/* or with what it reads */
		if (!has_back_state(worker, view, &any))
			views = lappend(views, view);
	}
	take_nothing(worker, views);
	return any || views != NIL;
}

/* Is it to take dead letters, some time or other? */
static bool
is_to_replay(SaView *view)
{
	return takes_requests(view) && view->replays;
}

/* Some of the dead letters that a view is to take, in a transaction of their own. */
static void
replay_turn(Worker *worker, SaView *view)
{
	int			limit = Min(view->options.max_batch_rows, REPLAY_ROWS);
	SaReplay	replay = {0};
	StreamLock	lock;

	pgstat_report_activity(STATE_RUNNING, "replaying dead letters");
	begin_transaction();
	lock = lock_stream(worker);
	stream_changed |= lock == STREAM_GONE;
	if (lock == STREAM_LOCKED && !stream_changed)
	{
		Relation	rel = table_open(worker->stream, NoLock);
		SaBatch    *batch = sa_replay_read(rel, worker->options, view->config->view, limit, worker->batch_cxt, &replay);

		table_close(rel, NoLock);
		CommandCounterIncrement();
		PopActiveSnapshot();
		view->new_positions = NIL;
		switch (sa_pipeline_replay(view, batch, &replay))
		{
			case SA_PART_DONE:
				view->replays = replay.more;
				break;
			case SA_PART_RETRY:
				break;
			case SA_PART_STOPPED:
				view->replays = view->reading = view->asked = false;
				break;
		}
	}
	SA_FAULT("before_commit", worker->stream);
	commit_transaction();
	report_views(worker, list_make1(view));
	MemoryContextReset(worker->batch_cxt);
}

static bool
replay_letters(Worker *worker)
{
	SaClock		now = sa_clock_now();
	bool		any = false;
	ListCell   *lc;

	foreach(lc, worker->views)
	{
		SaView	   *view = lfirst(lc);

		if (!is_to_replay(view) || view->retry_at > now || has_back_state(worker, view, &any))
			continue;
		replay_turn(worker, view);
		any = true;
	}
	return any;
}

/* A run() call comes after what was asked of its views before it. */
static bool
any_requests(Worker *worker)
{
	ListCell   *lc;

	foreach(lc, worker->views)
	{
		SaView	   *view = lfirst(lc);

		if (OidIsValid(worker->serving_view) && worker->serving_view != view->config->view)
			continue;
		if (is_to_advance(view) || is_to_replay(view))
			return true;
	}
	return false;
}

static bool
any_asked(Worker *worker)
{
	ListCell   *lc;

	foreach(lc, worker->views)
		if (((SaView *) lfirst(lc))->asked)
			return true;
	return false;
}

/* Views at the end that are reading: the end has been noted for them already. */
static bool
any_at_end_reading(Worker *worker, SaClock now)
{
	ListCell   *lc;

	foreach(lc, worker->views)
	{
		SaView	   *view = lfirst(lc);

		if (view->at_end && is_ready(view, now))
			return true;
	}
	return false;
}

/* Does a run() call ask for this view? */
static bool
is_asked(SaView *view, uint64 request, Oid requested_view)
{
	return request != 0 && is_running(view) && (!OidIsValid(requested_view) || requested_view == view->config->view);
}

static bool
is_due(Worker *worker, SaView *view, SaClock now)
{
	if (!is_running(view) || view->reading)
		return false;
	if (view->fresh && view->options.trigger != SA_TRIGGER_MANUAL)
		return true;
	if (view->options.trigger == SA_TRIGGER_IMMEDIATE)
		return worker->woken || view->next_idle <= now;
	return view->options.trigger > 0 && view->next_due <= now;
}

/*
 * Note the end as of this time (0: what is at hand), for those that begin to read.  False when it is not known
 * yet, or the stream cannot be had just now.
 */
static bool
refresh_source(Worker *worker, SaClock as_of)
{
	StreamLock	lock;
	bool		known = false;

	begin_transaction();
	lock = lock_stream(worker);
	if (lock == STREAM_LOCKED)
		known = worker->routine->refresh(worker->source, as_of);
	else if (lock == STREAM_GONE)
		stream_changed = true;
	commit_transaction();
	worker->routine->end_batch(worker->source, true);
	return lock == STREAM_LOCKED && known;
}

/* Is any view due, or reading, that goes by the end as of its trigger, which the source does not know? */
static bool
wants_exact_end(Worker *worker, SaClock now)
{
	ListCell   *lc;

	foreach(lc, worker->views)
	{
		SaView	   *view = lfirst(lc);

		if (view->options.trigger != SA_TRIGGER_IMMEDIATE && is_due(worker, view, now))
			return true;
		if (worker->reopened && view->reading && view->exact)
			return true;
	}
	return false;
}

/* See to the end as of when it was first asked for.  True when it is known, and wanted. */
static bool
note_exact_end(Worker *worker, uint64 request, SaClock now)
{
	if (request == 0 && !wants_exact_end(worker, now))
	{
		worker->refresh_as_of = 0;
		return false;
	}
	if (worker->refresh_as_of == 0 || request != worker->refresh_for)
		worker->refresh_as_of = now;
	worker->refresh_for = request;
	if (!refresh_source(worker, worker->refresh_as_of))
		return false;
	worker->refresh_as_of = 0;
	worker->reopened = false;
	return true;
}

/*
 * Views that read as soon as there is something do not wait for an exact end.  True when they may read what is
 * at hand.
 */
static bool
note_end_at_hand(Worker *worker, SaClock now)
{
	bool		due = false;
	bool		check_idle = false;
	ListCell   *lc;

	foreach(lc, worker->views)
	{
		SaView	   *view = lfirst(lc);

		if (view->options.trigger != SA_TRIGGER_IMMEDIATE || !is_due(worker, view, now))
			continue;
		due = true;
		check_idle |= view->next_idle <= now;
	}
	if (check_idle)
		(void) refresh_source(worker, now); /* what it finds shows in a later batch */
	return due && refresh_source(worker, 0);
}

/* Views whose trigger has fired, or that are asked for, begin to read, up to the end as of now. */
static void
fire_triggers(Worker *worker)
{
	SaClock		now = sa_clock_now();
	Oid			requested_view = InvalidOid;
	uint64		request = 0;
	bool		exact;
	bool		at_hand;
	ListCell   *lc;

	/* A call counts on every view, also on one that could not be met yet. */
	if (worker->serving == 0 && worker->look_again_at == 0)
		request = sa_slot_pending_request(worker->slot, &requested_view);
	if (request == 0 && !worker->reopened && any_at_end_reading(worker, now))
		return;
	exact = note_exact_end(worker, request, now);
	at_hand = note_end_at_hand(worker, now);
	foreach(lc, worker->views)
	{
		SaView	   *view = lfirst(lc);
		bool		immediate = view->options.trigger == SA_TRIGGER_IMMEDIATE;
		bool		due = (immediate ? at_hand : exact) && is_due(worker, view, now);

		if (exact && request != 0)
			view->asked = is_asked(view, request, requested_view);
		if (!due && !(exact && request != 0 && view->asked))
			continue;
		view->exact = !immediate || (exact && view->asked);
		view->reading = true;
		view->next_idle = DT_NOEND;
		if (view->options.trigger > 0)
			view->next_due = now + view->options.trigger;
	}
	if (at_hand)
		worker->woken = false;
	if (exact && request != 0)
	{
		worker->serving = request;
		worker->serving_view = requested_view;
		worker->target = NIL;
		MemoryContextReset(worker->target_cxt);
	}
}

/*
 * The log of a busy view grows dead chunks faster than autovacuum looks in; so the worker vacuums it by
 * itself, as autovacuum would: skipping when somebody holds a lock.
 */
static void
vacuum_log(Worker *worker, Oid log)
{
	VacuumParams params = {
		.options = SA_VACUUM_OPTIONS,
		.freeze_min_age = -1,
		.freeze_table_age = -1,
		.multixact_freeze_min_age = -1,
		.multixact_freeze_table_age = -1,
		.log_min_duration = -1,
		.nworkers = -1
	};
	MemoryContext cxt = AllocSetContextCreate(worker->cxt, "stream_agg vacuum", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(cxt);
	List	   *relations = list_make1(makeVacuumRelation(NULL, log, NIL));

	MemoryContextSwitchTo(old);
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	pgstat_report_activity(STATE_RUNNING, "vacuuming state log");
	PortalContext = cxt;		/* where vacuum() keeps what must outlive its transactions */
	sa_vacuum(relations, &params, cxt);
	PortalContext = NULL;
	CommitTransactionCommand();
	MemoryContextSwitchTo(round_cxt);
	MemoryContextDelete(cxt);
}

static void
vacuum_logs(Worker *worker)
{
	ListCell   *lc;

	foreach(lc, worker->views)
	{
		SaView	   *view = lfirst(lc);
		Oid			log = sa_pipeline_take_vacuum(view);

		if (OidIsValid(log))
			vacuum_log(worker, log);
	}
}

/* How far events are behind: kept now and then, and when somebody has asked for all there is. */
static void
save_lateness(Worker *worker, bool at_once)
{
	SaClock		now = sa_clock_now();

	if (!sa_lateness_is_dirty(worker->lateness) || (!at_once && now - worker->lateness_saved < SAVE_INTERVAL))
		return;
	worker->lateness_saved = now;
	begin_transaction();
	MemoryContextSwitchTo(worker->batch_cxt);
	if (lock_stream(worker) == STREAM_LOCKED)
		sa_lateness_save(worker->lateness, worker->stream);
	commit_transaction();
	MemoryContextReset(worker->batch_cxt);
}

/* The least position of every partition (list of SaPosition), with those of another view. */
static List *
least_positions(List *least, List *positions)
{
	ListCell   *lc;

	foreach(lc, positions)
	{
		SaViewPosition *pos = lfirst(lc);
		SaPosition *found = sa_source_find_position(least, pos->topic, pos->partition);

		if (found == NULL)
		{
			found = palloc(sizeof(SaPosition));
			found->topic = pos->topic;
			found->partition = pos->partition;
			found->position = pos->position;
			least = lappend(least, found);
		}
		found->position = Min(found->position, pos->position);
	}
	return least;
}

/* From where on the view needs records: where it stands, or where its state would be rebuilt from. */
static List *
needed_positions(int view_id)
{
	List	   *positions = sa_catalog_positions(view_id);
	List	   *steps = sa_catalog_steps(view_id);
	ListCell   *lc;

	foreach(lc, positions)
	{
		SaViewPosition *pos = lfirst(lc);

		pos->position = sa_rebuild_first(steps, pos->topic, pos->partition, pos->position);
	}
	return positions;
}

/* Give back what every view has read, the ones that wait to be resumed after a restore included. */
static void
release(Worker *worker)
{
	SaClock		now = sa_clock_now();
	List	   *positions = NIL;
	ListCell   *lc;

	if (now - worker->last_release < RELEASE_INTERVAL || worker->views == NIL)
		return;
	worker->last_release = now;
	report_ends(worker);
	save_lateness(worker, false);
	vacuum_logs(worker);
	begin_transaction();
	MemoryContextSwitchTo(worker->batch_cxt);
	if (lock_stream(worker) == STREAM_LOCKED)
	{
		foreach(lc, sa_catalog_views(worker->stream))
		{
			SaViewConfig *config = lfirst(lc);

			if (strcmp(config->status, SA_STATUS_FINISHED) != 0)
				positions = least_positions(positions, needed_positions(config->id));
		}
		worker->routine->release(worker->source, positions);
		SA_FAULT("release", worker->stream);
	}
	commit_transaction();
	worker->routine->end_batch(worker->source, true);
	MemoryContextReset(worker->batch_cxt);
}

/* Milliseconds until a trigger or a retry is due; at most the idle poll. */
static long
time_to_wait(Worker *worker)
{
	SaClock		now = sa_clock_now();
	SaClock		until = now + IDLE_POLL_MS * INT64CONST(1000);
	ListCell   *lc;

	foreach(lc, worker->views)
	{
		SaView	   *view = lfirst(lc);

		if (view->reading && !view->starved)
			until = Min(until, view->retry_at);
		else if (is_running(view) && view->options.trigger == SA_TRIGGER_IMMEDIATE)
			until = Min(until, view->next_idle);
		else if (is_running(view) && view->options.trigger > 0 && worker->refresh_as_of == 0)
			until = Min(until, view->next_due); /* else the source wakes us when it knows its end */
	}
	if (worker->attend_at != 0)
		until = Min(until, worker->attend_at);
	if (worker->look_again_at != 0)
		until = Min(until, worker->look_again_at);
	until = Max(until, worker->pause_until);
	return Max(1, sa_clock_ms_until(now, until));
}

static void
wait_for_work(Worker *worker)
{
	int			fd = worker->source && worker->routine->wake_fd ? worker->routine->wake_fd(worker->source) : -1;

	pgstat_report_activity(STATE_IDLE, NULL);
	(void) WaitLatchOrSocket(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH |
							 (fd >= 0 ? WL_SOCKET_READABLE : 0), fd, time_to_wait(worker), PG_WAIT_EXTENSION);
	worker->woken = true;
}

/* Let the source take in what has come, and tell what keeps it from reading. */
static void
attend_source(Worker *worker)
{
	List	   *readers = NIL;
	TimestampTz since;
	const char *trouble;
	bool		news = false;
	ListCell   *lc;

	if (worker->source == NULL || worker->routine->attend == NULL)
		return;
	foreach(lc, worker->views)
		if (is_running(lfirst(lc)))
			readers = lappend(readers, source_positions(lfirst(lc)));
	worker->attend_at = worker->routine->attend(worker->source, readers, &news);
	worker->woken |= news;
	trouble = worker->routine->trouble(worker->source, &since);
	sa_slot_set_trouble(worker->slot, trouble, since);
}

/* Between batches, so that what is saved is of where the views stand. */
static void
handle_interrupts(Worker *worker)
{
	ListCell   *lc;

	if (stop_requested)
	{
		saves_at_stop = false;
		QueryCancelPending = false;
		save_states(worker);
		ProcDiePending = true;
		InterruptPending = true;
	}
	CHECK_FOR_INTERRUPTS();
	saves_at_stop = false;
	foreach(lc, worker->views)
		saves_at_stop |= is_to_save(lfirst(lc));
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
		apply_settings();
	}
}

static bool
must_look_again(Worker *worker)
{
	return worker->look_again_at != 0 && worker->look_again_at <= sa_clock_now();
}

/* True when there is nothing left to do for this stream. */
static bool
look_at_changes(Worker *worker)
{
	if (!sa_slot_take_reload(worker->slot) && !stream_changed && worker->source && !must_look_again(worker))
		return false;
	switch (reload(worker))
	{
		case STREAM_GONE:
			return true;
		case STREAM_BUSY:
			break;
		case STREAM_LOCKED:
			show_empty_answers(worker);
			break;
	}
	my_failure[0] = '\0';
	return false;
}

/* Everything that is due now.  True when there may be more at once. */
static bool
one_round(Worker *worker)
{
	bool		any;

	if (sa_clock_now() < worker->pause_until || worker->source == NULL)
		return false;
	fire_triggers(worker);
	any = take_turns(worker);
	any |= advance_watermarks(worker);
	any |= replay_letters(worker);
	if (worker->serving != 0 && !any_asked(worker) && !any_requests(worker))
	{
		save_lateness(worker, true);
		sa_slot_serve(worker->slot, worker->serving);
		worker->serving = 0;
		any = true;
	}
	return any;
}

static void
work(Worker *worker)
{
	bool		more;

	for (;;)
	{
		MemoryContextSwitchTo(worker->round_cxt);
		MemoryContextReset(worker->round_cxt);
		handle_interrupts(worker);
		if (MyLatch->is_set)
		{
			ResetLatch(MyLatch);
			worker->woken = true;
		}
		attend_source(worker);
		if (look_at_changes(worker))
			return;
		more = one_round(worker);
		release(worker);
		if (!more)
			wait_for_work(worker);
	}
}

void
sa_worker_main(Datum arg)
{
	Worker		worker;

	start_up(&worker, DatumGetInt32(arg));
	PG_TRY();
	{
		work(&worker);
	}
	PG_CATCH();
	{
		MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
		ErrorData  *error = CopyErrorData();

		if (stop_requested)
			proc_exit(1);
		snprintf(my_failure, SA_MESSAGE_SIZE, error->detail ? "%s (%s)" : "%s",
				 error->message ? error->message : "failed", error->detail);
		MemoryContextSwitchTo(old);
		PG_RE_THROW();
	}
	PG_END_TRY();
	my_slot_unwanted = true;
	my_failure[0] = '\0';
	proc_exit(0);
}
