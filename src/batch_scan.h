/*
 * batch_scan.h
 *		A batch as the scans of its stream see it.
 */
#ifndef SA_BATCH_SCAN_H
#define SA_BATCH_SCAN_H

#include "batch.h"
#include "storage/itemptr.h"

/* A part [lo, hi) of a batch offered to scans of its stream in this process, minus excluded events. */
typedef struct SaBatchScan
{
	SaBatch    *batch;
	int			lo;
	int			hi;
	const bool *exclude;		/* per event, or NULL */
} SaBatchScan;

/* Offer (or, with NULL, withdraw) a batch; what scans of the stream find meanwhile. */
extern void sa_batch_offer(const SaBatchScan *scan);
extern const SaBatchScan *sa_batch_offered(Oid stream);

/* An event's ordinal travels as the scan's ctid, which survives joins. */
static inline void
sa_batch_ordinal_to_tid(int ordinal, ItemPointer tid)
{
	ItemPointerSet(tid, (BlockNumber) (ordinal >> 10), (OffsetNumber) ((ordinal & 1023) + 1));
}

static inline int
sa_batch_tid_to_ordinal(ItemPointer tid)
{
	return (int) ((ItemPointerGetBlockNumberNoCheck(tid) << 10) |
				  (ItemPointerGetOffsetNumberNoCheck(tid) - 1));
}

#endif							/* SA_BATCH_SCAN_H */
