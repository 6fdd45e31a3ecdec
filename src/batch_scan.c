/*
 * batch_scan.c
 *		What scans of a stream find in this process.
 *
 * Invariant: at most one part of a batch is on offer; whoever offers it withdraws it, also after an error.
 *
 * No locks, nothing to recover.
 */
#include "postgres.h"

#include "compat.h"

#include "batch_scan.h"

static const SaBatchScan *offered_scan = NULL;

void
sa_batch_offer(const SaBatchScan *scan)
{
	offered_scan = scan;
}

const SaBatchScan *
sa_batch_offered(Oid stream)
{
	if (offered_scan != NULL && offered_scan->batch->stream == stream)
		return offered_scan;
	return NULL;
}
