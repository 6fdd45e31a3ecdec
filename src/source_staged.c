/*
 * source_staged.c
 *		The staged source: its table of functions, its settings, and TRUNCATE.
 *
 * Invariant: TRUNCATE discards the committed rows that are not yet read: with views around they get their
 * place in the order as skipped, without they go at once.
 *
 * Locks: TRUNCATE holds AccessExclusiveLock on the stream, so that no writer, reader or worker's batch is
 * in progress, and takes the same on segments it empties.
 *
 * Crash: TRUNCATE is transactional.
 */
#include "postgres.h"

#include "access/table.h"
#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "compat.h"

#include "catalog.h"
#include "source.h"
#include "source_staged.h"
#include "source_staged_segment.h"

int			sa_staged_segment_size = 64 * 1024;

void
sa_staged_init(void)
{
	DefineCustomIntVariable("stream_agg.segment_size",
							"Size from which on the rows of a staged stream go to another segment.",
							"Segments are given back as a whole once every view has read them.",
							&sa_staged_segment_size,
							64 * 1024, 1024, MAX_KILOBYTES,
							PGC_SIGHUP, GUC_UNIT_KB,
							NULL, NULL, NULL);
}

static void
prepare(Oid stream)
{
	SaStagedStream staged;

	/*
	 * A dump is being loaded: the tables and rows that we would make now come with it.  Should they not,
	 * the first writer makes them.
	 */
	if (!check_function_bodies || IsBinaryUpgrade)
		return;
	sa_staged_ensure(stream, &staged);
	sa_staged_check_columns(stream);
}

/* ---------- TRUNCATE ---------- */

/* Nobody reads the stream: its rows can go at once. */
static void
discard_rows(SaStagedStream *staged)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	ListCell   *lc;

	foreach(lc, sa_staged_segments(staged->stream))
	{
		Relation	segment = try_table_open(lfirst_oid(lc), AccessExclusiveLock);

		if (segment == NULL)
			continue;
		sa_staged_empty_segment(segment);
		table_close(segment, NoLock);
	}
	foreach(lc, sa_staged_entries(staged->stream, NULL))
		sa_staged_delete_entry(staged->stream, ((SaStagedEntry *) lfirst(lc))->first_position);
	UnregisterSnapshot(snapshot);
	staged->first_position = staged->next_position;
	sa_staged_save_positions(staged);
}

/* Views are to count the rows as skipped: they get their place in the order as such. */
static void
skip_rows(Oid stream)
{
	SaStreamOptions options = {.relid = stream};
	SaSource   *source = sa_staged_open(&options, CurrentMemoryContext);

	(void) sa_staged_order_rest(source, true);
	sa_staged_close(source);
}

static void
truncate_stream(Relation stream)
{
	SaStagedStream staged;

	if (!sa_staged_get(RelationGetRelid(stream), &staged))
		return;
	if (sa_catalog_views(RelationGetRelid(stream)) == NIL)
		discard_rows(&staged);
	else
		skip_rows(RelationGetRelid(stream));
}

/* ---------- the table of functions ---------- */

const SaSourceRoutine sa_source_staged = {
	.type = "staged",
	.open = sa_staged_open,
	.close = sa_staged_close,
	.resolve = sa_staged_resolve,
	.refresh = sa_staged_refresh,
	.read = sa_staged_read,
	.end_batch = sa_staged_end_batch,
	.release = sa_staged_release,
	.end_position = sa_staged_end_position,
	.prepare = prepare,
	.peek_begin = sa_staged_peek_begin,
	.peek_next = sa_staged_peek_next,
	.peek_rewind = sa_staged_peek_rewind,
	.peek_end = sa_staged_peek_end,
	.stage_begin = sa_staged_stage_begin,
	.stage_row = sa_staged_stage_row,
	.stage_end = sa_staged_stage_end,
	.truncate = truncate_stream,
};
