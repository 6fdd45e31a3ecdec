/*
 * fault.c
 *		Fault points, armed by name from tests.  In normal builds this file is empty.
 *
 * Invariant: a fault fires once, at the pass that it was armed for, in one process.  Everything in shared memory
 * is guarded by one lightweight lock.  After a crash nothing is armed; what the setting stream_agg.faults says is
 * armed once in a postmaster's life, so that a server crashes by it and comes back.
 *
 * Tests make the SQL functions by themselves (test/perl/Faults.pm); the extension's script knows nothing of them.
 */
#include "postgres.h"

#include "fault.h"

#ifdef SA_FAULTS

#include <signal.h>

#include "fmgr.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/condition_variable.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/procarray.h"
#include "storage/shmem.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/varlena.h"
#include "utils/wait_event.h"

#define MAX_FAULTS 32
#define NAME_BYTES 32

typedef enum FaultState
{
	FAULT_NONE,					/* a free place */
	FAULT_ARMED,
	FAULT_WAITING,
	FAULT_FIRED
} FaultState;

/* At most one per point. */
typedef struct Fault
{
	char		point[NAME_BYTES];
	char		action[NAME_BYTES];
	Oid			database;		/* InvalidOid: in whichever */
	Oid			relation;		/* InvalidOid: for whichever */
	int			passes;			/* until it fires */
	FaultState	state;
	int			pid;			/* of who waits */
} Fault;

typedef struct Shared
{
	LWLock	   *lock;
	ConditionVariable wake;
	int			narmed;			/* looked at without the lock: mostly none */
	Fault		faults[MAX_FAULTS];
} Shared;

static const char *const actions[] = {
	"wait",						/* until sa_fault_wake(); can be interrupted */
	"error",					/* one that nobody expects */
	"shortage",					/* an error that may pass by itself, like a full disk */
	"exit",						/* the process ends in order (FATAL) */
	"panic",
	"kill"						/* SIGKILL */
};
static Shared *shared = NULL;
static char *setting = NULL;
static bool setting_done = false;	/* in the postmaster */
static shmem_request_hook_type prev_shmem_request = NULL;
static shmem_startup_hook_type prev_shmem_startup = NULL;

/* --- arming --- */

static void
check_action(const char *action)
{
	for (int i = 0; i < lengthof(actions); i++)
		if (strcmp(action, actions[i]) == 0)
			return;
	elog(ERROR, "there is no action \"%s\" at a fault point", action);
}

static Fault *
find_fault(const char *point)
{
	for (int i = 0; i < MAX_FAULTS; i++)
		if (shared->faults[i].state != FAULT_NONE && strcmp(shared->faults[i].point, point) == 0)
			return &shared->faults[i];
	return NULL;
}

static Fault *
find_or_take_fault(const char *point)
{
	Fault	   *fault = find_fault(point);

	for (int i = 0; fault == NULL && i < MAX_FAULTS; i++)
		if (shared->faults[i].state == FAULT_NONE)
			fault = &shared->faults[i];
	if (fault == NULL)
		elog(ERROR, "too many fault points are in use");
	return fault;
}

static void
disarm(Fault *fault)
{
	if (fault->state == FAULT_ARMED)
		shared->narmed--;
	fault->state = FAULT_NONE;
}

/* In a backend, or in the postmaster as it starts. */
static void
arm(const char *point, const char *action, int pass, Oid relation)
{
	Fault	   *fault;

	check_action(action);
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	fault = find_or_take_fault(point);
	disarm(fault);
	strlcpy(fault->point, point, NAME_BYTES);
	strlcpy(fault->action, action, NAME_BYTES);
	fault->database = OidIsValid(relation) ? MyDatabaseId : InvalidOid;
	fault->relation = relation;
	fault->passes = Max(pass, 1);
	fault->state = FAULT_ARMED;
	shared->narmed++;
	LWLockRelease(shared->lock);
}

/* stream_agg.faults = 'point=action, point=action@pass' */
static void
arm_from_setting(void)
{
	List	   *items;
	ListCell   *lc;

	if (!SplitIdentifierString(pstrdup(setting), ',', &items))
		elog(FATAL, "stream_agg.faults is no list: %s", setting);
	foreach(lc, items)
	{
		char	   *point = lfirst(lc);
		char	   *action = strchr(point, '=');
		char	   *pass = strchr(point, '@');

		if (action == NULL)
			elog(FATAL, "stream_agg.faults wants point=action, not \"%s\"", point);
		*action++ = '\0';
		if (pass)
			*pass++ = '\0';
		arm(point, action, pass ? atoi(pass) : 1, InvalidOid);
	}
}

/* --- set-up --- */

static void
request_shmem(void)
{
	if (prev_shmem_request)
		prev_shmem_request();
	RequestAddinShmemSpace(sizeof(Shared));
	RequestNamedLWLockTranche("stream_agg_faults", 1);
}

static void
startup_shmem(void)
{
	bool		found;

	if (prev_shmem_startup)
		prev_shmem_startup();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	shared = ShmemInitStruct("stream_agg faults", sizeof(Shared), &found);
	if (!found)
	{
		memset(shared, 0, sizeof(Shared));
		shared->lock = &(GetNamedLWLockTranche("stream_agg_faults"))->lock;
		ConditionVariableInit(&shared->wake);
	}
	LWLockRelease(AddinShmemInitLock);
	if (!setting_done)
		arm_from_setting();
	setting_done = true;
}

void
sa_fault_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
		return;
	DefineCustomStringVariable("stream_agg.faults",
							   "Fault points to be armed when the server starts.",
							   NULL, &setting, "",
							   PGC_POSTMASTER, 0, NULL, NULL, NULL);
	prev_shmem_request = shmem_request_hook;
	shmem_request_hook = request_shmem;
	prev_shmem_startup = shmem_startup_hook;
	shmem_startup_hook = startup_shmem;
}

/* --- passing --- */

static bool
waits_here(const char *point)
{
	Fault	   *fault;
	bool		result;

	LWLockAcquire(shared->lock, LW_SHARED);
	fault = find_fault(point);
	result = fault != NULL && fault->state == FAULT_WAITING && fault->pid == MyProcPid;
	LWLockRelease(shared->lock);
	return result;
}

static void
wait_for_wake(const char *point)
{
	ConditionVariablePrepareToSleep(&shared->wake);
	while (waits_here(point))
		ConditionVariableSleep(&shared->wake, PG_WAIT_EXTENSION);
	ConditionVariableCancelSleep();
	SetLatch(MyLatch);			/* whatever else has set it was not for us */
}

/* One more pass.  The action, when it is time for it. */
static bool
is_due(const char *point, Oid relation, char *action)
{
	Fault	   *fault;
	bool		due = false;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	fault = find_fault(point);
	if (fault != NULL && fault->state == FAULT_ARMED &&
		(!OidIsValid(fault->relation) || (fault->relation == relation && fault->database == MyDatabaseId)) &&
		--fault->passes == 0)
	{
		due = true;
		strlcpy(action, fault->action, NAME_BYTES);
		fault->state = strcmp(action, "wait") == 0 ? FAULT_WAITING : FAULT_FIRED;
		fault->pid = MyProcPid;
		shared->narmed--;
	}
	LWLockRelease(shared->lock);
	return due;
}

void
sa_fault_pass(const char *point, Oid relation)
{
	char		action[NAME_BYTES];

	if (shared == NULL || shared->narmed == 0 || !is_due(point, relation, action))
		return;
	ereport(LOG, (errmsg("fault point \"%s\": %s", point, action)));
	if (strcmp(action, "wait") == 0)
		wait_for_wake(point);
	else if (strcmp(action, "error") == 0)
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("error at fault point \"%s\"", point)));
	else if (strcmp(action, "shortage") == 0)
		ereport(ERROR, (errcode(ERRCODE_DISK_FULL), errmsg("shortage at fault point \"%s\"", point)));
	else if (strcmp(action, "exit") == 0)
		ereport(FATAL, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("exit at fault point \"%s\"", point)));
	else if (strcmp(action, "panic") == 0)
		ereport(PANIC, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("panic at fault point \"%s\"", point)));
	else
		kill(MyProcPid, SIGKILL);
}

/* --- SQL functions --- */

static void
require_shared(void)
{
	if (shared == NULL)
		elog(ERROR, "fault points need stream_agg in \"shared_preload_libraries\"");
}

/* sa_fault_arm(point text, action text, pass int, relation oid): at which pass, counted from now; 0: any relation */
PG_FUNCTION_INFO_V1(sa_fault_arm);
Datum
sa_fault_arm(PG_FUNCTION_ARGS)
{
	require_shared();
	arm(text_to_cstring(PG_GETARG_TEXT_PP(0)), text_to_cstring(PG_GETARG_TEXT_PP(1)), PG_GETARG_INT32(2),
		PG_GETARG_OID(3));
	ConditionVariableBroadcast(&shared->wake);	/* who has waited at this point goes on */
	PG_RETURN_VOID();
}

/* sa_fault_state(point text) returns text: armed, waiting, fired; NULL: neither since it was last disarmed */
PG_FUNCTION_INFO_V1(sa_fault_state);
Datum
sa_fault_state(PG_FUNCTION_ARGS)
{
	Fault	   *fault;
	FaultState	state = FAULT_NONE;
	int			pid = 0;

	require_shared();
	LWLockAcquire(shared->lock, LW_SHARED);
	fault = find_fault(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	if (fault)
	{
		state = fault->state;
		pid = fault->pid;
	}
	LWLockRelease(shared->lock);
	if (state == FAULT_WAITING && BackendPidGetProc(pid) == NULL)
		state = FAULT_FIRED;	/* who waited is gone */
	if (state == FAULT_NONE)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(state == FAULT_ARMED ? "armed" : state == FAULT_WAITING ? "waiting" : "fired"));
}

/* sa_fault_wake(point text): who waits there goes on */
PG_FUNCTION_INFO_V1(sa_fault_wake);
Datum
sa_fault_wake(PG_FUNCTION_ARGS)
{
	Fault	   *fault;

	require_shared();
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	fault = find_fault(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	if (fault && fault->state == FAULT_WAITING)
		fault->state = FAULT_FIRED;
	LWLockRelease(shared->lock);
	ConditionVariableBroadcast(&shared->wake);
	PG_RETURN_VOID();
}

/* sa_fault_disarm(): everywhere, and whoever waits goes on */
PG_FUNCTION_INFO_V1(sa_fault_disarm);
Datum
sa_fault_disarm(PG_FUNCTION_ARGS)
{
	require_shared();
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < MAX_FAULTS; i++)
		disarm(&shared->faults[i]);
	LWLockRelease(shared->lock);
	ConditionVariableBroadcast(&shared->wake);
	PG_RETURN_VOID();
}

#endif
