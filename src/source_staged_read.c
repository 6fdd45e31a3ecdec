/*
 * source_staged_read.c
 *		Reading along the order: records that have their place, then new ones, which get theirs.
 *
 * Invariant: a batch holds the records from the reader's position on, in order, without a gap but for
 * those that are counted as skipped.
 *
 * Locks and crash: see source_staged_order.c.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/htup_details.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "compat.h"

#include "source_staged_pass.h"

#define OPEN_ENTRIES 4			/* whose rows' places are remembered */

/* Where the rows of one entry are, in order. */
typedef struct RowPlace
{
	int64		n;
	BlockNumber block;
	OffsetNumber offset;
	uint16		segment;
} RowPlace;

typedef struct OpenEntry
{
	MemoryContext cxt;			/* NULL: unused */
	int64		first_position;
	int64		records;
	RowPlace   *rows;
	uint64		used;			/* when last */
} OpenEntry;

/* ---------- reading along the order ---------- */

/* Values stored out of line must outlive the segment. */
static void
fetch_external_values(SaBatch *batch, SaEvent *event)
{
	for (int i = 0; i < batch->desc->natts; i++)
	{
		if (TupleDescAttr(batch->desc, i)->attlen == -1 && !event->nulls[i] &&
			VARATT_IS_EXTERNAL(DatumGetPointer(event->values[i])))
			event->values[i] = PointerGetDatum(detoast_external_attr((struct varlena *) DatumGetPointer(event->values[i])));
	}
}

static SaRowReader *
reader_of(SaSource *source, SaBatch *batch, int segment)
{
	SaSegment  *seg = &source->segments[segment];

	if (seg->reader == NULL)
	{
		MemoryContext oldcxt = MemoryContextSwitchTo(source->call_cxt);

		seg->reader = sa_staged_reader(batch->desc, seg->rel);
		MemoryContextSwitchTo(oldcxt);
	}
	return seg->reader;
}

/* A chunk's first row tells when all of it arrived. */
static void
note_arrival(SaSource *source, SaRowReader *reader, HeapTuple tuple)
{
	source->arrived_chunk = SaStagedChunk(sa_staged_row_number(tuple));
	source->arrival = sa_staged_row_arrival(reader, tuple);
}

/* The next record as an event; the tuple lives in the batch's memory. */
static void
emit_row(SaSource *source, SaBatch *batch, SaBatchPartition *partition, int segment, HeapTuple tuple)
{
	SaEvent    *event = sa_batch_add(batch);
	SaRowReader *reader = reader_of(source, batch, segment);

	if (SaStagedIndex(sa_staged_row_number(tuple)) == 0)
		note_arrival(source, reader, tuple);
	sa_staged_read_row(reader, tuple, event->values, event->nulls);
	if (HeapTupleHasExternal(tuple))
		fetch_external_values(batch, event);
	event->position = partition->next++;
	event->arrival = source->arrival;
	event->partition = partition - batch->partitions;
}

static void
emit_new_rows(SaSource *source, SaBatch *batch, SaBatchPartition *partition, SaRows *rows, int count)
{
	MemoryContext oldcxt = MemoryContextSwitchTo(batch->cxt);

	for (int i = 0; i < count; i++)
		emit_row(source, batch, partition, rows->rows[i].segment, rows->rows[i].tuple);
	MemoryContextSwitchTo(oldcxt);
}

/* The entry that a position belongs to. */
static int
entry_of_position(SaSource *source, int64 position)
{
	int			low = 0;
	int			high = source->nentries - 1;

	while (low <= high)
	{
		int			middle = low + (high - low) / 2;
		SaStagedEntry *order = &source->entries[middle].order;

		if (position < order->first_position)
			high = middle - 1;
		else if (position >= order->first_position + order->records)
			low = middle + 1;
		else
			return middle;
	}
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("position " INT64_FORMAT " is not in the order of the staged stream", position)));
	return -1;					/* keep compiler quiet */
}

typedef struct EntryVisit
{
	SaSource   *source;
	int			entry;
	int			segment;
	int64		nrows;
	int64		maxrows;
	RowPlace   *rows;
} EntryVisit;

static void
visit_entry_row(void *arg, HeapTuple tuple, int64 n, SaRowState state)
{
	EntryVisit *visit = arg;
	RowPlace   *row;

	if (state != SA_ROW_VISIBLE || sa_staged_entry_of_chunk(visit->source, SaStagedChunk(n)) != visit->entry)
		return;
	if (visit->nrows >= visit->maxrows)
	{
		visit->nrows++;			/* too many, as will be told */
		return;
	}
	row = &visit->rows[visit->nrows++];
	row->n = n;
	row->block = ItemPointerGetBlockNumber(&tuple->t_self);
	row->offset = ItemPointerGetOffsetNumber(&tuple->t_self);
	row->segment = (uint16) visit->segment;
}

static int
compare_row_places(const void *a, const void *b)
{
	int64		x = ((const RowPlace *) a)->n;
	int64		y = ((const RowPlace *) b)->n;

	return x < y ? -1 : x > y ? 1 : 0;
}

/* Looks up where all the rows of an entry are. */
static void
fill_open_entry(SaSource *source, OpenEntry *open, int index)
{
	SaEntry	   *entry = &source->entries[index];
	EntryVisit	visit = {source, index, 0, 0, entry->order.records, NULL};

	open->cxt = AllocSetContextCreate(source->open_cxt, "stream_agg open entry", ALLOCSET_SMALL_SIZES);
	visit.rows = MemoryContextAllocHuge(open->cxt, sizeof(RowPlace) * (Size) entry->order.records);
	for (int i = 0; i < entry->nplaces; i++)
	{
		SaPlace	   *place = &entry->places[i];
		SaSegment    *segment = &source->segments[place->segment];

		visit.segment = place->segment;
		if (sa_staged_open_segment(segment) == NULL)
			continue;
		for (BlockNumber block = place->first; block <= place->last; block++)
		{
			CHECK_FOR_INTERRUPTS();
			sa_staged_scan_page(segment->rel, block, source->snapshot, visit_entry_row, &visit, NULL);
		}
	}
	if (visit.nrows != entry->order.records)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("staged rows are missing"),
				 errdetail("The order has " INT64_FORMAT " records from position " INT64_FORMAT " on, but " INT64_FORMAT " were found.",
						   entry->order.records, entry->order.first_position, visit.nrows)));
	qsort(visit.rows, visit.nrows, sizeof(RowPlace), compare_row_places);
	open->rows = visit.rows;
	open->first_position = entry->order.first_position;
	open->records = entry->order.records;
}

static OpenEntry *
open_entry(SaSource *source, int index)
{
	SaStagedEntry *order = &source->entries[index].order;
	OpenEntry  *open;

	if (source->open == NULL)
	{
		source->open_cxt = AllocSetContextCreate(source->state_cxt, "stream_agg open entries", ALLOCSET_SMALL_SIZES);
		source->open = MemoryContextAllocZero(source->open_cxt, sizeof(OpenEntry) * OPEN_ENTRIES);
	}
	open = &source->open[0];
	for (int i = 0; i < OPEN_ENTRIES; i++)
	{
		OpenEntry  *other = &source->open[i];

		if (other->cxt != NULL && other->first_position == order->first_position)
		{
			open = other;
			break;
		}
		if (other->used < open->used)
			open = other;
	}
	if (open->cxt == NULL || open->first_position != order->first_position || open->records != order->records)
	{
		if (open->cxt != NULL)
			MemoryContextDelete(open->cxt);
		memset(open, 0, sizeof(OpenEntry));
		fill_open_entry(source, open, index);
	}
	open->used = ++source->uses;
	return open;
}

/* Copies the row from its page, which stays pinned in *buffer for the next one. */
static HeapTuple
fetch_row(SaSource *source, const RowPlace *place, Buffer *buffer, SaRows *rows)
{
	SaSegment    *segment = &source->segments[place->segment];
	HeapTupleData tuple;
	HeapTuple	copy;
	Page		page;
	ItemId		item;

	if (sa_staged_open_segment(segment) == NULL)
		elog(ERROR, "segment of staged rows is gone");
	*buffer = ReleaseAndReadBuffer(*buffer, segment->rel, place->block);
	LockBuffer(*buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(*buffer);
	item = PageGetItemId(page, place->offset);
	if (place->offset > PageGetMaxOffsetNumber(page) || !ItemIdIsNormal(item))
		elog(ERROR, "staged row has vanished");
	tuple.t_data = (HeapTupleHeader) PageGetItem(page, item);
	tuple.t_len = ItemIdGetLength(item);
	tuple.t_tableOid = segment->relid;
	ItemPointerSet(&tuple.t_self, place->block, place->offset);
	if (sa_staged_row_number(&tuple) != place->n)
		elog(ERROR, "staged row has changed");
	copy = sa_staged_copy_row(rows, &tuple);
	LockBuffer(*buffer, BUFFER_LOCK_UNLOCK);
	rows->bytes += tuple.t_len;
	return copy;
}

/* Reading goes on in the middle of a chunk: its arrival may have to be looked up. */
static void
find_arrival(SaSource *source, SaBatch *batch, const RowPlace *place, Buffer *buffer, SaRows *rows)
{
	int			index = SaStagedIndex(place->n);

	if (index > 0 && SaStagedChunk(place->n) != source->arrived_chunk)
		note_arrival(source, reader_of(source, batch, place[-index].segment), fetch_row(source, place - index, buffer, rows));
}

/* Read on within one entry. */
static void
reread(SaSource *source, SaBatch *batch, SaBatchPartition *partition, const SaReadLimits *limits, SaRows *rows)
{
	int			index = entry_of_position(source, partition->next);
	SaStagedEntry *order = &source->entries[index].order;
	int64		end = order->first_position + order->records;
	Buffer		buffer = InvalidBuffer;
	MemoryContext oldcxt;
	OpenEntry  *open;

	if (order->skipped)
	{
		partition->skipped += end - partition->next;
		partition->next = end;
		return;
	}
	sa_staged_survey(source);
	open = open_entry(source, index);
	oldcxt = MemoryContextSwitchTo(batch->cxt);
	while (partition->next < end && batch->nevents < limits->max_rows && rows->bytes < limits->max_bytes)
	{
		const RowPlace *place = &open->rows[partition->next - open->first_position];

		CHECK_FOR_INTERRUPTS();
		find_arrival(source, batch, place, &buffer, rows);
		emit_row(source, batch, partition, place->segment, fetch_row(source, place, &buffer, rows));
	}
	if (BufferIsValid(buffer))
		ReleaseBuffer(buffer);
	MemoryContextSwitchTo(oldcxt);
}

/* Fix the order of rows that are new, and read them. */
static void
read_new(SaSource *source, SaBatch *batch, SaBatchPartition *partition, int max_rows, SaRows *rows)
{
	sa_staged_find_rows(source, rows, max_rows);
	if (rows->nrows == 0)
		return;
	source->quiet_since = sa_clock_now();
	sa_staged_extend_order(source, rows, false);
	emit_new_rows(source, batch, partition, rows, Min(rows->nrows, max_rows));
}

/* The reader is at a position whose rows are no longer kept. */
static void
read_lost(SaSource *source, SaBatchPartition *partition)
{
	partition->kept_first = source->staged.first_position;
	partition->kept_next = source->staged.next_position;
	partition->loss = SA_LOSS_STOP;
	if (!source->options.skip_data_loss)
		return;
	partition->loss = SA_LOSS_PASSED;
	partition->skipped += partition->kept_first - partition->next;
	partition->next = partition->kept_first;
}

/* ---------- the routine's functions ---------- */

bool
sa_staged_resolve(SaSource *source, const SaBoundary *start, const SaBoundary *end, List **positions)
{
	MemoryContext oldcxt = CurrentMemoryContext;
	SaPosition *position = palloc(sizeof(SaPosition));

	position->topic = "";
	position->partition = 0;
	position->end = PG_INT64_MAX;
	if (start->kind == SA_BOUNDARY_LATEST || end->kind == SA_BOUNDARY_LATEST)
		(void) sa_staged_order_rest(source, false);
	else
	{
		sa_staged_begin_call(source);
		sa_staged_end_call(source, oldcxt);
	}
	position->position = start->kind == SA_BOUNDARY_LATEST ? source->staged.next_position :
		source->staged.first_position;
	if (end->kind == SA_BOUNDARY_LATEST)
		position->end = source->staged.next_position;
	*positions = list_make1(position);
	return true;
}

bool
sa_staged_refresh(SaSource *source, SaClock as_of)
{
	MemoryContext oldcxt = CurrentMemoryContext;

	sa_staged_begin_call(source);
	sa_staged_start_pass(source);
	sa_staged_end_call(source, oldcxt);
	return true;
}

/* Records that are in the order already, then new ones. */
static void
read_on(SaSource *source, SaBatch *batch, SaBatchPartition *partition, const SaReadLimits *limits)
{
	SaRows		rows = {.copy_cxt = batch->cxt};

	while (partition->next < source->staged.next_position && batch->nevents < limits->max_rows &&
		   rows.bytes < limits->max_bytes)
		reread(source, batch, partition, limits, &rows);
	if (partition->next == source->staged.next_position && batch->nevents < limits->max_rows &&
		rows.bytes < limits->max_bytes)
		read_new(source, batch, partition, limits->max_rows - batch->nevents, &rows);
	batch->drained = batch->at_end = source->passed && !source->in_pass && partition->next == source->staged.next_position;
	if (batch->at_end)
	{
		partition->quiet_since = source->quiet_since;
		partition->quiet_until = Max(source->pass_began, source->quiet_since);
	}
}

void
sa_staged_read(SaSource *source, List *from, const SaReadLimits *limits, SaBatch *batch)
{
	MemoryContext oldcxt = CurrentMemoryContext;
	const SaPosition *position = linitial(from);
	SaReadLimits bounded = *limits;
	SaBatchPartition *partition;
	int			index;

	sa_staged_begin_call(source);
	index = sa_batch_partition(batch, "", 0, position->position);
	partition = &batch->partitions[index];
	if (partition->next > source->staged.next_position)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("position " INT64_FORMAT " is beyond the end of the staged stream", partition->next),
				 errdetail("The end is at position " INT64_FORMAT ".", source->staged.next_position)));
	if (partition->next < source->staged.first_position)
		read_lost(source, partition);
	if (position->end != PG_INT64_MAX)
		bounded.max_rows = (int) Min(bounded.max_rows, Max(position->end - partition->next, 0));
	if (partition->loss != SA_LOSS_STOP)
		read_on(source, batch, partition, &bounded);
	sa_staged_end_call(source, oldcxt);
}
