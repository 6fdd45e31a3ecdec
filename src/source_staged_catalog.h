/*
 * source_staged_catalog.h
 *		What the catalog says of staged streams: their segments and the fixed order.
 */
#ifndef SA_SOURCE_STAGED_CATALOG_H
#define SA_SOURCE_STAGED_CATALOG_H

#include "nodes/pg_list.h"
#include "utils/snapshot.h"

typedef struct SaStagedStream
{
	Oid			stream;
	int			id;				/* in the names of segments and sequence */
	Oid			chunks;			/* sequence of chunk numbers */
	int64		first_position; /* lowest position still kept; the beginning of an entry, or the end */
	int64		next_position;	/* end of the fixed order */
	Oid			writing;		/* segment that writers use */
} SaStagedStream;

typedef struct SaChunkRange
{
	int64		first;
	int64		last;
} SaChunkRange;

/* A stretch of the fixed order: the records of these chunks, by number. */
typedef struct SaStagedEntry
{
	int64		first_position;
	int64		records;
	bool		skipped;
	int			nranges;
	SaChunkRange *ranges;		/* ascending */
} SaStagedEntry;

extern bool sa_staged_get(Oid stream, SaStagedStream *staged);
extern List *sa_staged_streams(void);	/* their OIDs */
extern void sa_staged_insert(const SaStagedStream *staged);
extern void sa_staged_save_positions(const SaStagedStream *staged); /* the first and the next one */
extern void sa_staged_save_writing(const SaStagedStream *staged);

extern List *sa_staged_entries(Oid stream, Snapshot snapshot);	/* of SaStagedEntry, by position */
extern void sa_staged_insert_entry(Oid stream, const SaStagedEntry *entry);
extern void sa_staged_update_entry(Oid stream, const SaStagedEntry *entry);
extern void sa_staged_delete_entry(Oid stream, int64 first_position);

extern List *sa_staged_segments(Oid stream);	/* OIDs, ascending */
extern void sa_staged_insert_segment(Oid segment, Oid stream);
extern void sa_staged_delete_segment(Oid segment);

#endif							/* SA_SOURCE_STAGED_CATALOG_H */
