/*
 * stats.c
 *		Progress of the last batches, in a ring of shared memory for each view.
 *
 * Invariant: figures here are for the eyes only; what must survive is in view_position.  A view finds its
 * ring by hashing; when more views run than there are rings, the one longest silent loses its ring.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#include "stats.h"

#define RINGS 256
#define RING_SIZE 20

typedef struct Ring
{
	Oid			database;
	Oid			view;
	int64		reported;		/* batches so far */
	SaProgress	batches[RING_SIZE];
} Ring;

typedef struct Shared
{
	LWLock	   *lock;
	Ring		rings[RINGS];
} Shared;

static Shared *shared = NULL;
static shmem_request_hook_type prev_shmem_request = NULL;
static shmem_startup_hook_type prev_shmem_startup = NULL;

static void
request_shmem(void)
{
	if (prev_shmem_request)
		prev_shmem_request();
	RequestAddinShmemSpace(sizeof(Shared));
	RequestNamedLWLockTranche("stream_agg_progress", 1);
}

static void
startup_shmem(void)
{
	bool		found;

	if (prev_shmem_startup)
		prev_shmem_startup();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	shared = ShmemInitStruct("stream_agg progress", sizeof(Shared), &found);
	if (!found)
	{
		memset(shared, 0, sizeof(Shared));
		shared->lock = &(GetNamedLWLockTranche("stream_agg_progress"))->lock;
	}
	LWLockRelease(AddinShmemInitLock);
}

void
sa_stats_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
		return;
	prev_shmem_request = shmem_request_hook;
	shmem_request_hook = request_shmem;
	prev_shmem_startup = shmem_startup_hook;
	shmem_startup_hook = startup_shmem;
}

static TimestampTz
last_report(const Ring *ring)
{
	return ring->reported == 0 ? 0 : ring->batches[(ring->reported - 1) % RING_SIZE].finished_at;
}

static Ring *
find_ring(Oid view)
{
	for (int i = 0; i < RINGS; i++)
		if (shared->rings[i].database == MyDatabaseId && shared->rings[i].view == view)
			return &shared->rings[i];
	return NULL;
}

/* The view's ring, or that of the view longest silent.  Lock is held. */
static Ring *
find_or_take_ring(Oid view)
{
	Ring	   *ring = find_ring(view);

	if (ring)
		return ring;
	ring = &shared->rings[0];
	for (int i = 1; i < RINGS; i++)
		if (last_report(&shared->rings[i]) < last_report(ring))
			ring = &shared->rings[i];
	memset(ring, 0, sizeof(Ring));
	ring->database = MyDatabaseId;
	ring->view = view;
	return ring;
}

void
sa_stats_report(const SaProgress *progress)
{
	Ring	   *ring;

	if (shared == NULL)
		return;
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	ring = find_or_take_ring(progress->view);
	ring->batches[ring->reported++ % RING_SIZE] = *progress;
	LWLockRelease(shared->lock);
}

static SaProgress *
copy_batch(const SaProgress *batch)
{
	SaProgress *copy = palloc(sizeof(SaProgress));

	*copy = *batch;
	return copy;
}

List *
sa_stats_list(void)
{
	List	   *result = NIL;

	if (shared == NULL)
		return NIL;
	LWLockAcquire(shared->lock, LW_SHARED);
	for (int i = 0; i < RINGS; i++)
	{
		Ring	   *ring = &shared->rings[i];

		if (ring->database != MyDatabaseId)
			continue;
		for (int64 n = Max(0, ring->reported - RING_SIZE); n < ring->reported; n++)
			result = lappend(result, copy_batch(&ring->batches[n % RING_SIZE]));
	}
	LWLockRelease(shared->lock);
	return result;
}
