/*
 * stats.c
 *		Progress of the last batches, in a ring of shared memory for each view.
 *
 * Invariant: figures here are for the eyes only; what must survive is in view_position.  When more views run
 * than there are rings, the one longest silent loses its ring; likewise with the ends of partitions.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "stats.h"

#define RINGS 256
#define RING_SIZE 20
#define ENDS 2048				/* a power of two */
#define PROBES 16				/* places in which an end may be */

typedef struct Ring
{
	Oid			database;
	Oid			view;
	SaClock		used;			/* last; 0: empty */
	char		retry[SA_RETRY_SIZE];	/* why the batch at hand is to be tried again, or '' */
	int64		reported;		/* batches so far */
	SaProgress	batches[RING_SIZE];
} Ring;

/* Topics are told apart by their hash. */
typedef struct PartitionEnd
{
	Oid			database;
	Oid			stream;
	uint64		topic;
	int32		partition;
	int64		end;
	SaClock		noted_at;		/* 0: an empty place */
} PartitionEnd;

typedef struct Shared
{
	LWLock	   *lock;
	Ring		rings[RINGS];
	PartitionEnd ends[ENDS];
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

	if (ring == NULL)
	{
		ring = &shared->rings[0];
		for (int i = 1; i < RINGS; i++)
			if (shared->rings[i].used < ring->used)
				ring = &shared->rings[i];
		memset(ring, 0, sizeof(Ring));
		ring->database = MyDatabaseId;
		ring->view = view;
	}
	ring->used = sa_clock_now();
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
	ring->retry[0] = '\0';
	LWLockRelease(shared->lock);
}

bool
sa_stats_last(Oid view, SaProgress *progress)
{
	Ring	   *ring;
	bool		found;

	if (shared == NULL)
		return false;
	LWLockAcquire(shared->lock, LW_SHARED);
	ring = find_ring(view);
	found = ring != NULL && ring->reported > 0;
	if (found)
		*progress = ring->batches[(ring->reported - 1) % RING_SIZE];
	LWLockRelease(shared->lock);
	return found;
}

void
sa_stats_note_retry(Oid view, const char *reason)
{
	Ring	   *ring;

	if (shared == NULL)
		return;
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	ring = reason ? find_or_take_ring(view) : find_ring(view);
	if (ring)
		ring->retry[0] = '\0';
	if (reason)
		strlcpy(ring->retry, reason, pg_mbcliplen(reason, strlen(reason), SA_RETRY_SIZE - 1) + 1);
	LWLockRelease(shared->lock);
}

char *
sa_stats_retry(Oid view)
{
	Ring	   *ring;
	char	   *reason = NULL;

	if (shared == NULL)
		return NULL;
	LWLockAcquire(shared->lock, LW_SHARED);
	ring = find_ring(view);
	if (ring && ring->retry[0] != '\0')
		reason = pstrdup(ring->retry);
	LWLockRelease(shared->lock);
	return reason;
}

/* The place of that partition's end; NULL, or the place to take (the longest silent), when it has none. */
static PartitionEnd *
find_end(Oid stream, uint64 topic, int32 partition, bool take)
{
	uint64		hash = hash_combine64(topic, ((uint64) stream << 32) | (uint32) partition);
	PartitionEnd *oldest = NULL;

	for (int i = 0; i < PROBES; i++)
	{
		PartitionEnd *place = &shared->ends[(hash + i) % ENDS];

		if (place->noted_at != 0 && place->database == MyDatabaseId && place->stream == stream &&
			place->topic == topic && place->partition == partition)
			return place;
		if (oldest == NULL || place->noted_at < oldest->noted_at)
			oldest = place;
	}
	return take ? oldest : NULL;
}

static uint64
hash_topic(const char *topic)
{
	return hash_bytes_extended((const unsigned char *) topic, strlen(topic), 0);
}

void
sa_stats_note_end(Oid stream, const char *topic, int32 partition, int64 end)
{
	uint64		hash = hash_topic(topic);
	PartitionEnd *place;

	if (shared == NULL)
		return;
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	place = find_end(stream, hash, partition, true);
	place->database = MyDatabaseId;
	place->stream = stream;
	place->topic = hash;
	place->partition = partition;
	place->end = end;
	place->noted_at = sa_clock_now();
	LWLockRelease(shared->lock);
}

bool
sa_stats_end(Oid stream, const char *topic, int32 partition, int64 *end)
{
	PartitionEnd *place;

	if (shared == NULL)
		return false;
	LWLockAcquire(shared->lock, LW_SHARED);
	place = find_end(stream, hash_topic(topic), partition, false);
	if (place)
		*end = place->end;
	LWLockRelease(shared->lock);
	return place != NULL;
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
