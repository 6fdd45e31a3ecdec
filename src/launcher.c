/*
 * launcher.c
 *		Keeps one worker per stream running, in every database of the cluster.
 *
 * Invariant: only the launcher starts workers, so a stream never has two.  At its start (server start,
 * crash, promotion) it sends one short-lived probe into each database, which fills the slots from the
 * catalogs; after that, commits of CREATE and RESTORE-like commands fill them by themselves.  Databases that
 * are templates or allow no connections have no workers, until ALTER DATABASE says otherwise.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "storage/procsignal.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "catalog.h"
#include "launcher.h"
#include "mend.h"
#include "slot.h"
#include "source_staged_segment.h"
#include "worker.h"

#define RETRY_MS 5000
#define PROBE_WAIT_MS 30000		/* for a probe that hangs, on a lock say */
#define PROBE_AGAIN (60 * USECS_PER_SEC)	/* pause before a database that could not be probed is tried again */

static BackgroundWorkerHandle **handles;	/* by slot */

static void
fill_worker(BackgroundWorker *bgw, const char *function, Datum arg)
{
	memset(bgw, 0, sizeof(*bgw));
	bgw->bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	bgw->bgw_start_time = BgWorkerStart_RecoveryFinished;
	bgw->bgw_restart_time = BGW_NEVER_RESTART;
	bgw->bgw_main_arg = arg;
	strlcpy(bgw->bgw_library_name, "stream_agg", sizeof(bgw->bgw_library_name));
	strlcpy(bgw->bgw_function_name, function, BGW_MAXLEN);
}

void
sa_launcher_init(void)
{
	BackgroundWorker bgw;

	if (!process_shared_preload_libraries_in_progress || IsBinaryUpgrade)
		return;					/* what pg_upgrade copies must hold still */
	fill_worker(&bgw, "sa_launcher_main", (Datum) 0);
	bgw.bgw_restart_time = 5;
	snprintf(bgw.bgw_name, BGW_MAXLEN, "stream_agg launcher");
	snprintf(bgw.bgw_type, BGW_MAXLEN, "stream_agg launcher");
	RegisterBackgroundWorker(&bgw);
}

typedef enum DatabaseState
{
	DATABASE_OPEN,
	DATABASE_CLOSED,			/* a template, or connections are not allowed */
	DATABASE_GONE				/* or half dropped, by a DROP DATABASE that was interrupted */
} DatabaseState;

static DatabaseState
state_of(Form_pg_database form)
{
	if (database_is_invalid_form(form))
		return DATABASE_GONE;
	return form->datallowconn && !form->datistemplate ? DATABASE_OPEN : DATABASE_CLOSED;
}

/*
 * The databases a probe may enter, as OIDs in CurrentMemoryContext, or whether this one is open.  From the table:
 * we are woken in the midst of a commit, before the caches hear of it; and without its index, which a process of
 * no database cannot always open.
 */
static DatabaseState
read_databases(Oid database, List **open)
{
	MemoryContext cxt = CurrentMemoryContext;
	DatabaseState result = DATABASE_GONE;
	Relation	rel;
	SysScanDesc scan;
	HeapTuple	tuple;

	StartTransactionCommand();
	rel = table_open(DatabaseRelationId, AccessShareLock);
	scan = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_database form = (Form_pg_database) GETSTRUCT(tuple);
		DatabaseState state = state_of(form);
		MemoryContext old = MemoryContextSwitchTo(cxt);

		if (form->oid == database)
			result = state;
		if (open && state == DATABASE_OPEN)
			*open = lappend_oid(*open, form->oid);
		MemoryContextSwitchTo(old);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	CommitTransactionCommand();
	MemoryContextSwitchTo(cxt);
	return result;
}

static List *
list_databases(void)
{
	List	   *result = NIL;

	(void) read_databases(InvalidOid, &result);
	return result;
}

static DatabaseState
database_state(Oid database)
{
	return read_databases(database, NULL);
}

/* Wait for a probe to end, still answering shutdown, but not for ever. */
static void
wait_for_end(BackgroundWorkerHandle *handle)
{
	SaClock		until = sa_clock_now() + PROBE_WAIT_MS * INT64CONST(1000);
	pid_t		pid;

	while (GetBackgroundWorkerPid(handle, &pid) != BGWH_STOPPED)
	{
		if (sa_clock_now() >= until)
		{
			TerminateBackgroundWorker(handle);
			return;
		}
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 1000L, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

/* Send a probe into one database.  False when no worker slot was free. */
static bool
probe_database(Oid database)
{
	BackgroundWorker bgw;
	BackgroundWorkerHandle *handle;

	fill_worker(&bgw, "sa_probe_main", ObjectIdGetDatum(database));
	snprintf(bgw.bgw_name, BGW_MAXLEN, "stream_agg probe of database %u", database);
	snprintf(bgw.bgw_type, BGW_MAXLEN, "stream_agg probe");
	bgw.bgw_notify_pid = MyProcPid;
	sa_slot_note_probe(InvalidOid);
	if (!RegisterDynamicBackgroundWorker(&bgw, &handle))
		return false;
	wait_for_end(handle);
	pfree(handle);
	return true;
}

static void
warn_no_worker_slot(void)
{
	static bool warned = false;

	if (!warned)
		ereport(WARNING,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("stream_agg found no free background worker slot"),
				 errhint("Raise \"max_worker_processes\" and restart the server.")));
	warned = true;
}

/* Databases to be looked at, now and again later; OIDs. */
typedef struct Probes
{
	List	   *known;			/* those that have been, or are going to be */
	List	   *now;			/* those that found no worker slot stay here */
	List	   *again;			/* those that could not be looked at */
	SaClock		again_at;
} Probes;

/* May the database have a worker now?  If not, the slot is told. */
static bool
may_start(Probes *probes, int index, Oid database, SaClock now)
{
	switch (database_state(database))
	{
		case DATABASE_OPEN:
			return true;
		case DATABASE_CLOSED:
			probes->known = list_delete_oid(probes->known, database);	/* ALTER DATABASE has us look again */
			sa_slot_not_started(index, "the database is a template or does not allow connections", now + PROBE_AGAIN);
			return false;
		case DATABASE_GONE:
			sa_slot_forget_database(database);
			return false;
	}
	return false;
}

/* Start the worker of a slot; the launcher is told by the postmaster when it starts and ends. */
static void
start_worker(Probes *probes, int index, Oid database, SaClock now)
{
	BackgroundWorker bgw;

	if (!may_start(probes, index, database, now))
		return;
	fill_worker(&bgw, "sa_worker_main", Int32GetDatum(index));
	snprintf(bgw.bgw_name, BGW_MAXLEN, "stream_agg worker");
	snprintf(bgw.bgw_type, BGW_MAXLEN, "stream_agg worker");
	bgw.bgw_notify_pid = MyProcPid;
	sa_slot_started(index);
	if (handles[index])
		pfree(handles[index]);	/* of a worker just about to end */
	if (RegisterDynamicBackgroundWorker(&bgw, &handles[index]))
		return;
	handles[index] = NULL;
	warn_no_worker_slot();
	sa_slot_worker_gone(index, now);
	sa_slot_not_started(index, "no free background worker slot; raise max_worker_processes",
						now + RETRY_MS * INT64CONST(1000));
}

static void
notice_ended_workers(SaClock now)
{
	pid_t		pid;

	for (int i = 0; i < sa_slot_max; i++)
	{
		if (handles[i] == NULL || GetBackgroundWorkerPid(handles[i], &pid) != BGWH_STOPPED)
			continue;
		pfree(handles[i]);
		handles[i] = NULL;
		sa_slot_worker_gone(i, now);
	}
}

/* Databases that are new, or may have workers anew, are to be probed. */
static void
look_at_databases(Probes *probes)
{
	List	   *databases = list_databases();
	List	   *added = list_difference_oid(databases, probes->known);

	probes->now = list_concat_unique_oid(probes->now, added);
	list_free(probes->known);
	list_free(added);
	probes->known = databases;
}

static void
probe_databases(Probes *probes, SaClock now)
{
	if (probes->again != NIL && now >= probes->again_at)
	{
		List	   *databases = list_databases();
		ListCell   *lc;

		foreach(lc, probes->again)
			if (list_member_oid(databases, lfirst_oid(lc)))	/* it may be gone by now */
				probes->now = list_append_unique_oid(probes->now, lfirst_oid(lc));
		list_free(databases);
		list_free(probes->again);
		probes->again = NIL;
	}
	while (probes->now != NIL)
	{
		Oid			database = linitial_oid(probes->now);

		if (!probe_database(database))
		{
			warn_no_worker_slot();
			break;
		}
		probes->now = list_delete_first(probes->now);
		if (sa_slot_was_probed(database))
			continue;
		probes->again = lappend_oid(probes->again, database);
		probes->again_at = now + PROBE_AGAIN;
	}
}

/* Milliseconds until the launcher has something to do by itself; -1: until it is told. */
static long
time_to_wait(const Probes *probes, SaClock now, SaClock wait_until)
{
	if (probes->now != NIL)
		wait_until = Min(wait_until, now + RETRY_MS * INT64CONST(1000));
	if (probes->again != NIL)
		wait_until = Min(wait_until, probes->again_at);
	return wait_until == DT_NOEND ? -1 : sa_clock_ms_until(now, wait_until);
}

void
sa_launcher_main(Datum arg)
{
	Probes		probes = {0};

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	sa_worker_apply_settings();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	pgstat_report_appname("stream_agg launcher");
	MemoryContextSwitchTo(TopMemoryContext);
	handles = palloc0(sizeof(BackgroundWorkerHandle *) * sa_slot_max);
	sa_slot_set_launcher(MyLatch);
	look_at_databases(&probes);

	for (;;)
	{
		SaClock		now = sa_clock_now();
		SaClock		wait_until;
		long		timeout;
		int			index;
		Oid			database;

		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		if (sa_slot_take_look())
			look_at_databases(&probes);
		probe_databases(&probes, now);
		notice_ended_workers(now);
		while (sa_slot_next_to_start(now, &index, &database, &wait_until))
			start_worker(&probes, index, database, now);
		timeout = time_to_wait(&probes, now, wait_until);
		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_EXIT_ON_PM_DEATH | (timeout >= 0 ? WL_TIMEOUT : 0),
						 timeout, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
	}
}

/*
 * Fill the slots with the streams of one database that have views running here, and end.  After pg_upgrade what it
 * took away is put back first.
 */
void
sa_probe_main(Datum arg)
{
	List	   *streams;
	ListCell   *lc;

	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	sa_worker_apply_settings();
	BackgroundWorkerInitializeConnectionByOid(DatumGetObjectId(arg), InvalidOid, 0);
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	if (sa_catalog_usable())
	{
		sa_mend_views();
		sa_staged_mend();
	}
	streams = sa_catalog_running_streams();
	foreach(lc, streams)
		if (!sa_slot_want(MyDatabaseId, lfirst_oid(lc)))
			ereport(WARNING,
					(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
					 errmsg("no stream_agg slot is free for another stream"),
					 errhint("Raise \"stream_agg.max_streams\" and restart the server.")));
	PopActiveSnapshot();
	CommitTransactionCommand();
	sa_slot_note_probe(MyDatabaseId);
}
