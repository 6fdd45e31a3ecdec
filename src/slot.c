/*
 * slot.c
 *		Shared memory of stream_agg: one slot per stream that wants a worker.
 *
 * Invariant: a slot with a pid is served by exactly that worker.  Everything in SaShared is guarded by
 * one lightweight lock, held for a few instructions; latches are set after it is let go.  After a crash
 * shared memory starts empty and the launcher's probes fill it again from the catalogs.
 */
#include "postgres.h"

#include <signal.h>

#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "slot.h"

#define MAX_BLOCKED 64
#define FIRST_BACKOFF_MS 500
#define LAST_BACKOFF_MS 60000

typedef struct SaShared
{
	LWLock	   *lock;
	Latch	   *launcher;
	ConditionVariable served;
	uint64		requests;		/* run() calls so far */
	Oid			probed;			/* the database that was probed last */
	bool		look;			/* the launcher is to look at the list of databases */
	Oid			blocked[MAX_BLOCKED];	/* databases about to be dropped, renamed or copied */
	SaSlot		slots[FLEXIBLE_ARRAY_MEMBER];
} SaShared;

/* What this transaction will do at commit. */
typedef struct WakeItem
{
	Oid			stream;
	bool		want;
} WakeItem;

int			sa_slot_max = 64;

static SaShared *shared = NULL;
static List *wake_list = NIL;	/* of WakeItem, in TopTransactionContext */
static bool blocked_here[MAX_BLOCKED];	/* entries of shared->blocked that this transaction has made */
static bool dropping_here[MAX_BLOCKED];
static bool any_blocked_here = false;
static bool look_at_commit = false;
static shmem_request_hook_type prev_shmem_request = NULL;
static shmem_startup_hook_type prev_shmem_startup = NULL;

static Size
shared_size(void)
{
	return add_size(offsetof(SaShared, slots), mul_size(sa_slot_max, sizeof(SaSlot)));
}

static void
request_shmem(void)
{
	if (prev_shmem_request)
		prev_shmem_request();
	RequestAddinShmemSpace(shared_size());
	RequestNamedLWLockTranche("stream_agg", 1);
}

static void
startup_shmem(void)
{
	bool		found;

	if (prev_shmem_startup)
		prev_shmem_startup();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	shared = ShmemInitStruct("stream_agg", shared_size(), &found);
	if (!found)
	{
		memset(shared, 0, shared_size());
		shared->lock = &(GetNamedLWLockTranche("stream_agg"))->lock;
		ConditionVariableInit(&shared->served);
	}
	LWLockRelease(AddinShmemInitLock);
}

static SaSlot *
find_slot(Oid database, Oid stream)
{
	for (int i = 0; i < sa_slot_max; i++)
	{
		SaSlot	   *slot = &shared->slots[i];

		if (slot->database == database && slot->stream == stream)
			return slot;
	}
	return NULL;
}

static bool
is_blocked(Oid database)
{
	for (int i = 0; i < MAX_BLOCKED; i++)
		if (shared->blocked[i] == database)
			return true;
	return false;
}

static void
free_slot(SaSlot *slot)
{
	slot->database = slot->stream = InvalidOid;
	slot->wanted = false;
}

/* A database is gone, and with it everything that its streams wanted.  Lock is held. */
static void
forget_database(Oid database)
{
	for (int i = 0; i < sa_slot_max; i++)
		if (shared->slots[i].database == database)
			free_slot(&shared->slots[i]);
}

/* The slot of the stream, a free one if it has none yet, NULL when all are taken.  Lock is held. */
static SaSlot *
find_or_take_slot(Oid database, Oid stream)
{
	SaSlot	   *slot = find_slot(database, stream);

	if (slot)
		return slot;
	for (int i = 0; i < sa_slot_max; i++)
	{
		slot = &shared->slots[i];
		if (!OidIsValid(slot->database))
		{
			memset(slot, 0, sizeof(SaSlot));
			slot->database = database;
			slot->stream = stream;
			return slot;
		}
	}
	return NULL;
}

static bool
wake_one(Oid database, Oid stream, bool want)
{
	SaSlot	   *slot;
	Latch	   *latch = NULL;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	slot = want ? find_or_take_slot(database, stream) : find_slot(database, stream);
	if (slot)
	{
		if (want)
		{
			slot->wanted = true;
			slot->reload = true;
			slot->failures = 0;
			slot->next_start = 0;
		}
		latch = slot->latch;
		if (latch == NULL && want)
			latch = shared->launcher;
	}
	LWLockRelease(shared->lock);
	if (latch)
		SetLatch(latch);
	return slot != NULL;
}

bool
sa_slot_want(Oid database, Oid stream)
{
	return wake_one(database, stream, true);
}

static void
wake_launcher(void)
{
	Latch	   *latch;

	LWLockAcquire(shared->lock, LW_SHARED);
	latch = shared->launcher;
	LWLockRelease(shared->lock);
	if (latch)
		SetLatch(latch);
}

/* Let workers back into the databases that this transaction blocked; dropped ones want none. */
static void
unblock_databases(bool committed)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < MAX_BLOCKED; i++)
	{
		if (!blocked_here[i])
			continue;
		if (committed && dropping_here[i])
			forget_database(shared->blocked[i]);
		shared->blocked[i] = InvalidOid;
		blocked_here[i] = dropping_here[i] = false;
	}
	LWLockRelease(shared->lock);
	any_blocked_here = false;
	wake_launcher();
}

static void
have_launcher_look(void)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->look = true;
	LWLockRelease(shared->lock);
	wake_launcher();
}

static void
at_xact_end(XactEvent event, void *arg)
{
	ListCell   *lc;

	if (event == XACT_EVENT_COMMIT)
		foreach(lc, wake_list)
		{
			WakeItem   *item = lfirst(lc);

			if (!wake_one(MyDatabaseId, item->stream, item->want) && item->want)
				ereport(WARNING,
						(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
						 errmsg("no stream_agg slot is free for another stream"),
						 errhint("Raise \"stream_agg.max_streams\" and restart the server.")));
		}
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
	{
		wake_list = NIL;		/* freed with TopTransactionContext */
		if (any_blocked_here)
			unblock_databases(event == XACT_EVENT_COMMIT);
		if (look_at_commit && event == XACT_EVENT_COMMIT)
			have_launcher_look();
		look_at_commit = false;
	}
}

static void
remember(Oid stream, bool want)
{
	MemoryContext old;
	WakeItem   *item = NULL;
	ListCell   *lc;

	if (shared == NULL)
		return;
	foreach(lc, wake_list)
	{
		item = lfirst(lc);
		if (item->stream == stream)
		{
			item->want |= want;
			return;
		}
	}
	old = MemoryContextSwitchTo(TopTransactionContext);
	item = palloc(sizeof(WakeItem));
	item->stream = stream;
	item->want = want;
	wake_list = lappend(wake_list, item);
	MemoryContextSwitchTo(old);
}

void
sa_slot_wake_at_commit(Oid stream)
{
	remember(stream, false);
}

void
sa_slot_want_at_commit(Oid stream)
{
	remember(stream, true);
}

void
sa_slot_look_at_commit(void)
{
	look_at_commit = shared != NULL;
}

void
sa_slot_require(void)
{
	if (shared == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("stream_agg must be loaded with \"shared_preload_libraries\""),
				 errhint("Add stream_agg to \"shared_preload_libraries\" and restart the server.")));
}

void
sa_slot_init(void)
{
	RegisterXactCallback(at_xact_end, NULL);
	if (!process_shared_preload_libraries_in_progress)
		return;
	DefineCustomIntVariable("stream_agg.max_streams",
							"Number of streams of all databases that can have a worker.",
							NULL, &sa_slot_max, 64, 1, 10000,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);
	prev_shmem_request = shmem_request_hook;
	shmem_request_hook = request_shmem;
	prev_shmem_startup = shmem_startup_hook;
	shmem_startup_hook = startup_shmem;
}

/* --- the worker's side --- */

SaSlot *
sa_slot_attach(int index)
{
	SaSlot	   *slot = &shared->slots[index];

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	slot->pid = MyProcPid;
	slot->latch = MyLatch;
	slot->message[0] = '\0';
	slot->trouble[0] = '\0';
	LWLockRelease(shared->lock);
	return slot;
}

/* The next start waits twice as long after every failure.  Lock is held. */
static void
note_failure(SaSlot *slot, SaClock now)
{
	int64		pause = FIRST_BACKOFF_MS;

	pause <<= Min(slot->failures, 10);
	slot->failures++;
	slot->next_start = now + Min(pause, LAST_BACKOFF_MS) * INT64CONST(1000);
}

/*
 * Let the slot go: for good when nothing wants it any more (unwanted), else to be started again, after a
 * pause when it failed (message).
 */
void
sa_slot_detach(SaSlot *slot, bool unwanted, const char *message)
{
	SaClock		now = sa_clock_now();

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	slot->pid = 0;
	slot->latch = NULL;
	slot->trouble[0] = '\0';
	if (message)
	{
		strlcpy(slot->message, message, SA_MESSAGE_SIZE);
		note_failure(slot, now);
	}
	if (unwanted && !slot->reload)
		free_slot(slot);
	LWLockRelease(shared->lock);
	ConditionVariableBroadcast(&shared->served);
	wake_launcher();
}

bool
sa_slot_take_reload(SaSlot *slot)
{
	bool		reload;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	reload = slot->reload;
	slot->reload = false;
	LWLockRelease(shared->lock);
	return reload;
}

/*
 * Number of a run() call not yet answered and the view that it is about; 0: none.  Not while there is a
 * change to be looked at first: the call may count on it.
 */
uint64
sa_slot_pending_request(SaSlot *slot, Oid *view)
{
	uint64		request = 0;

	LWLockAcquire(shared->lock, LW_SHARED);
	if (slot->requested > slot->served && !slot->reload)
	{
		request = slot->requested;
		*view = slot->requested_view;
	}
	LWLockRelease(shared->lock);
	return request;
}

/* A batch has committed: an earlier failure counts no longer. */
void
sa_slot_succeeded(SaSlot *slot)
{
	if (slot->failures == 0)
		return;
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	slot->failures = 0;
	LWLockRelease(shared->lock);
}

void
sa_slot_set_trouble(SaSlot *slot, const char *trouble, TimestampTz since)
{
	if (strncmp(slot->trouble, trouble ? trouble : "", SA_MESSAGE_SIZE - 1) == 0)
		return;					/* nobody else writes it */
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	strlcpy(slot->trouble, trouble ? trouble : "", SA_MESSAGE_SIZE);
	slot->trouble_since = since;
	LWLockRelease(shared->lock);
}

void
sa_slot_serve(SaSlot *slot, uint64 request)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	slot->served = Max(slot->served, request);
	LWLockRelease(shared->lock);
	ConditionVariableBroadcast(&shared->served);
}

/* --- run() --- */

uint64
sa_slot_request(Oid stream, Oid view)
{
	SaSlot	   *slot;
	uint64		request = 0;

	if (!sa_slot_want(MyDatabaseId, stream))
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("no stream_agg slot is free for another stream"),
				 errhint("Raise \"stream_agg.max_streams\" and restart the server.")));
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	slot = find_slot(MyDatabaseId, stream);
	if (slot)
	{
		/* Calls about different views become one about all. */
		if (slot->requested > slot->served && slot->requested_view != view)
			view = InvalidOid;
		slot->requested_view = view;
		request = slot->requested = ++shared->requests;
		if (slot->latch)
			SetLatch(slot->latch);
	}
	LWLockRelease(shared->lock);
	return request;
}

bool
sa_slot_wait(Oid stream, uint64 request, SaClock until)
{
	bool		done = false;

	ConditionVariablePrepareToSleep(&shared->served);
	for (;;)
	{
		SaSlot	   *slot;
		long		left;

		LWLockAcquire(shared->lock, LW_EXCLUSIVE);
		slot = find_slot(MyDatabaseId, stream);
		done = slot == NULL || slot->served >= request;
		if (!done && slot->requested < request)
		{
			slot->requested = request;	/* another slot than the one that was asked */
			slot->requested_view = InvalidOid;
		}
		LWLockRelease(shared->lock);
		left = sa_clock_ms_until(sa_clock_now(), until);
		if (done || left <= 0)
			break;
		ConditionVariableTimedSleep(&shared->served, Min(left, 1000), PG_WAIT_EXTENSION);
	}
	ConditionVariableCancelSleep();
	return done;
}

/* --- the launcher's side --- */

void
sa_slot_set_launcher(Latch *latch)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->launcher = latch;
	for (int i = 0; i < sa_slot_max; i++)
		if (shared->slots[i].pid < 0)
			shared->slots[i].pid = 0;	/* a former launcher's, which never came */
	LWLockRelease(shared->lock);
}

/*
 * A slot whose worker is due, into *index, and its database.  Otherwise false, and *wait_until is when the next one will
 * be (DT_NOEND: none is waiting).  The launcher, the only caller, tracks which ones it has started.
 */
bool
sa_slot_next_to_start(SaClock now, int *index, Oid *database, SaClock *wait_until)
{
	bool		found = false;

	*wait_until = DT_NOEND;
	LWLockAcquire(shared->lock, LW_SHARED);
	for (int i = 0; i < sa_slot_max && !found; i++)
	{
		SaSlot	   *slot = &shared->slots[i];

		if (!OidIsValid(slot->database) || !slot->wanted || slot->pid != 0 ||
			is_blocked(slot->database))
			continue;
		if (slot->next_start > now)
			*wait_until = Min(*wait_until, slot->next_start);
		else
		{
			*index = i;
			*database = slot->database;
			found = true;
		}
	}
	LWLockRelease(shared->lock);
	return found;
}

/* The worker is on its way: until it has attached, it is not due again. */
void
sa_slot_started(int index)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->slots[index].pid = -1;
	LWLockRelease(shared->lock);
}

void
sa_slot_not_started(int index, const char *message, SaClock retry_at)
{
	SaSlot	   *slot = &shared->slots[index];

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	strlcpy(slot->message, message, SA_MESSAGE_SIZE);
	slot->next_start = retry_at;
	LWLockRelease(shared->lock);
}

/* The worker has ended.  One that could not even let its slot go has failed. */
void
sa_slot_worker_gone(int index, SaClock now)
{
	SaSlot	   *slot = &shared->slots[index];

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	if (slot->pid != 0)
	{
		slot->pid = 0;
		slot->latch = NULL;
		note_failure(slot, now);
	}
	LWLockRelease(shared->lock);
	ConditionVariableBroadcast(&shared->served);
}

bool
sa_slot_take_look(void)
{
	bool		look;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	look = shared->look;
	shared->look = false;
	LWLockRelease(shared->lock);
	return look;
}

void
sa_slot_forget_database(Oid database)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	forget_database(database);
	LWLockRelease(shared->lock);
}

void
sa_slot_note_probe(Oid database)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->probed = database;
	LWLockRelease(shared->lock);
}

bool
sa_slot_was_probed(Oid database)
{
	bool		result;

	LWLockAcquire(shared->lock, LW_SHARED);
	result = shared->probed == database;
	LWLockRelease(shared->lock);
	return result;
}

bool
sa_slot_lookup(Oid stream, SaSlot *copy)
{
	SaSlot	   *slot;

	if (shared == NULL)
		return false;
	LWLockAcquire(shared->lock, LW_SHARED);
	slot = find_slot(MyDatabaseId, stream);
	if (slot)
		*copy = *slot;
	LWLockRelease(shared->lock);
	return slot != NULL;
}

/* --- DROP DATABASE and friends --- */

static bool
signal_workers(Oid database)
{
	bool		any = false;

	LWLockAcquire(shared->lock, LW_SHARED);
	for (int i = 0; i < sa_slot_max; i++)
	{
		SaSlot	   *slot = &shared->slots[i];

		if (slot->database == database && slot->pid != 0)
		{
			any = true;
			if (slot->pid > 0)
				kill(slot->pid, SIGTERM);
		}
	}
	LWLockRelease(shared->lock);
	return any;
}

void
sa_slot_block_database(Oid database, bool dropping)
{
	int			i;

	if (shared == NULL)
		return;
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	for (i = 0; i < MAX_BLOCKED; i++)
		if (!OidIsValid(shared->blocked[i]))
		{
			shared->blocked[i] = database;
			break;
		}
	LWLockRelease(shared->lock);
	if (i == MAX_BLOCKED)
		return;					/* so many at once: the command will wait and fail by itself */
	any_blocked_here = blocked_here[i] = true;
	dropping_here[i] = dropping;

	/* The workers tell when they leave. */
	ConditionVariablePrepareToSleep(&shared->served);
	while (signal_workers(database))
	{
		CHECK_FOR_INTERRUPTS();
		ConditionVariableTimedSleep(&shared->served, 100, PG_WAIT_EXTENSION);
	}
	ConditionVariableCancelSleep();
}
