/*
 * catalog.h
 *		The configuration tables of schema stream_agg: views, their positions and counters.
 *
 * All access is from C with the rights of nobody: callers have checked who may do what.
 */
#ifndef SA_CATALOG_H
#define SA_CATALOG_H

#include "access/genam.h"
#include "datatype/timestamp.h"
#include "nodes/pg_list.h"
#include "option.h"

#define SA_VERSION "1.1"		/* of the library; that of the SQL objects that go with it */

/* What became of the records read, each counted once (DESIGN.md 2.4); late_windows counts pairs. */
typedef enum SaCounter
{
	SA_READ,
	SA_SKIPPED,
	SA_TOMBSTONE,
	SA_MALFORMED,
	SA_NULL_TIME,
	SA_FUTURE,
	SA_DUPLICATE,
	SA_FAILED,
	SA_FILTERED,
	SA_LATE,
	SA_ACCEPTED,
	SA_LATE_WINDOWS
} SaCounter;

#define SA_NCOUNTERS (SA_LATE_WINDOWS + 1)

typedef struct SaViewConfig
{
	int			id;
	Oid			view;			/* the result table */
	Oid			definition;
	Oid			state;			/* InvalidOid: the view needs no log */
	Oid			spill;			/* where unlogged state goes when memory is short; InvalidOid: never unlogged */
	Oid			dedup;			/* log of the keys seen; InvalidOid: duplicates are not looked for */
	Oid			dedup_spill;	/* where unlogged keys go; InvalidOid: never unlogged */
	Oid			stream;
	Oid			database;		/* where it runs; InvalidOid: waits for resume */
	const char *status;
	const char *message;
	List	   *options;		/* of DefElem */
	List	   *settings;		/* of DefElem: name and value of settings at creation */
} SaViewConfig;

#define SA_STATUS_RUNNING	"running"
#define SA_STATUS_PAUSED	"paused"
#define SA_STATUS_FAILED	"failed"
#define SA_STATUS_FINISHED	"finished"	/* has come to its end, as its options say */
/* A view's place in one partition, as committed. */
typedef struct SaViewPosition
{
	const char *topic;
	int32		partition;
	int64		position;
	TimestampTz running_max;	/* DT_NOBEGIN: none yet */
	TimestampTz watermark;		/* DT_NOBEGIN: not known yet */
	int64		end;			/* where the view ends; PG_INT64_MAX: never */
	int64		start;			/* where it began; -1: not known */
	int64		counters[SA_NCOUNTERS];
	int64		replayed;		/* dead letters taken in since */
	int64		corrections;	/* (event, window) pairs accepted after the window had closed */
} SaViewPosition;

/* Where a view with unlogged state stood: what it takes to read on from there as it was read then (rebuild.h). */
typedef struct SaStep
{
	const char *topic;
	int32		partition;
	int64		position;
	TimestampTz floor;			/* by which records from here on are judged; DT_NOBEGIN: none */
	TimestampTz running_max;	/* over the records before; DT_NOBEGIN: none */
} SaStep;

/* OID of a relation in schema stream_agg; the first errors where it is not, the second returns InvalidOid. */
extern Oid	sa_catalog_relation(const char *name);
extern Oid	sa_catalog_find(const char *name);

/* Is the extension installed in this database, and of no version newer than the library? */
extern bool sa_catalog_exists(void);
extern bool sa_catalog_usable(void);

/* Rows of one of ours whose first column, that of the index, is this OID; and write one in the place of the old (NULL: none). */
extern SysScanDesc sa_catalog_scan(Relation rel, const char *index, Oid oid);
extern void sa_catalog_topic_key(ScanKey key, AttrNumber attr, const char *topic);	/* and where the topic is this one */
extern void sa_catalog_put(Relation rel, HeapTuple old, HeapTuple tuple);

/* In CurrentMemoryContext; NULL when there is none. */
extern SaViewConfig *sa_catalog_view(Oid view);
extern List *sa_catalog_views(Oid stream);	/* of SaViewConfig, by id */
extern List *sa_catalog_all_views(void);	/* likewise, in no order; NIL without the extension */

extern List *sa_catalog_running_streams(void);	/* that have a view running, failed or paused in this database */

extern int	sa_catalog_next_id(void);
extern void sa_catalog_insert_view(const SaViewConfig *config);
extern void sa_catalog_set_status(Oid view, const char *status, const char *message);

/*
 * Write what a command has changed: options, definition, state.  With a new id, under which the positions go on,
 * workers take the view for another one.
 */
extern void sa_catalog_change_view(const SaViewConfig *config);
extern void sa_catalog_delete_view(Oid view);

extern void sa_catalog_count_dropped(Oid stream, int64 letters);	/* that had to make room for newer ones */

/* A stream is being dropped: everything kept about it goes. */
extern void sa_catalog_forget_stream(Oid stream);

extern List *sa_catalog_positions(int view_id); /* of SaViewPosition */
extern void sa_catalog_save_position(int view_id, const SaViewPosition *position);
extern void sa_catalog_delete_positions(int view_id);	/* and steps */
extern List *sa_catalog_steps(int view_id); /* of SaStep, sorted; NIL: the state is all on disk */
extern int	sa_catalog_compare_steps(const ListCell *a, const ListCell *b);
extern void sa_catalog_replace_steps(int view_id, List *steps);

/* The views of the stream passed over [first, next), which the source no longer had; noted once. */
extern void sa_catalog_note_loss(Oid stream, const SaPosition *first, int64 next);

#endif							/* SA_CATALOG_H */
