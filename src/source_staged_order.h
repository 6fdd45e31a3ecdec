/*
 * source_staged_order.h
 *		The order of a staged stream as its worker holds it, and the steps of a call.  For the files of
 *		the worker's side alone; source_staged_order.c tells the invariants.
 */
#ifndef SA_SOURCE_STAGED_ORDER_H
#define SA_SOURCE_STAGED_ORDER_H

#include "access/transam.h"

#include "source_staged.h"
#include "source_staged_segment.h"

/* An entry of the order, and which blocks of which segments hold its rows. */
typedef struct SaPlace
{
	int			segment;
	BlockNumber first;
	BlockNumber last;
} SaPlace;

typedef struct SaEntry
{
	SaStagedEntry order;
	int			maxranges;
	int			nplaces;
	int			maxplaces;
	SaPlace	   *places;
} SaEntry;

/* The chunks of all entries, ascending. */
typedef struct SaRange
{
	int64		first;
	int64		last;
	int			entry;
} SaRange;

typedef struct SaSegment
{
	Oid			relid;			/* InvalidOid: gone */
	Oid			file;
	bool		closed;			/* no writer will come any more */
	bool		closed_before_pass;
	bool		swept;			/* visited from beginning to end since it was closed */
	bool		done;			/* closed, swept, nothing left to look at */
	bool		seen;			/* the places of all its ordered rows are known */
	BlockNumber next;			/* to visit in this pass */
	BlockNumber limit;			/* of this pass */
	BlockNumber npages;
	uint64	   *pages;			/* LSN + 1 when there was nothing left to look at; 0: look; or PAGE_FINAL */
	FullTransactionId passed;	/* all of it was given up before this transaction */

	/* during one call */
	Relation	rel;
	SaRowReader *reader;
} SaSegment;

struct SaSource
{
	SaStreamOptions options;
	Oid			stream;
	MemoryContext cxt;
	MemoryContext state_cxt;
	MemoryContext call_cxt;
	Snapshot	snapshot;		/* of the call at hand */

	bool		loaded;
	bool		changed;		/* by the transaction at hand: forget all if it fails */
	SaStagedStream staged;
	bool		in_pass;
	bool		passed;			/* a pass has begun since all was forgotten */
	SaClock		pass_began;
	SaClock		quiet_since;	/* no new row has been found since */
	int			nentries;
	int			maxentries;
	SaEntry	   *entries;
	int			nranges;
	int			maxranges;
	SaRange	   *ranges;
	int			last_range;		/* where a chunk was last found */
	int			nsegments;
	int			maxsegments;
	SaSegment  *segments;
	MemoryContext open_cxt;
	struct OpenEntry *open;		/* of source_staged_read.c, in open_cxt; NULL: there is neither */
	uint64		uses;
	int64		arrived_chunk;	/* the chunk whose arrival was met last; 0: none */
	TimestampTz arrival;
};

typedef struct SaRows SaRows;	/* source_staged_pass.h */

/* ---------- source_staged_order.c ---------- */

extern void sa_staged_begin_call(SaSource *source);
extern void sa_staged_end_call(SaSource *source, MemoryContext oldcxt);
extern void sa_staged_load_segments(SaSource *source);
extern SaSegment *sa_staged_find_segment(SaSource *source, Oid relid);
extern Relation sa_staged_open_segment(SaSegment *segment); /* NULL when it is gone */
extern void sa_staged_close_segment(SaSegment *segment);
extern void sa_staged_reopen_segment(SaSegment *segment);	/* writers may come */
extern void sa_staged_remove_segment(SaSource *source, SaSegment *segment);
extern int	sa_staged_entry_of_chunk(SaSource *source, int64 chunk);	/* -1: not ordered */
extern void sa_staged_note_place(SaSource *source, SaEntry *entry, int segment, BlockNumber block);
extern void sa_staged_forget_places(SaSource *source, int segment);
extern void sa_staged_extend_order(SaSource *source, const SaRows *rows, bool skipped);

#endif							/* SA_SOURCE_STAGED_ORDER_H */
