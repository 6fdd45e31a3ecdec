/*
 * source_staged_write.c
 *		Staging: rows of INSERT and COPY, buffered and appended to the stream's writing segment.
 *
 * Invariant: the rows of a chunk are written by one multi-insert under one number taken from the
 * stream's sequence, so a chunk becomes visible as a whole or not at all, and its last row says that
 * it is the last.  A staging belongs to one subtransaction: its rows are never written in an inner one.
 *
 * Locks: RowExclusiveLock on the segment and the sequence, to the end of the transaction.  Which
 * segment to write to is remembered per backend and looked up again when the relcache entry of the stream or of
 * that segment is invalidated; it is checked after the lock is had.  So once the worker has committed another segment
 * as the one to write to, and then found nobody holding a lock on the old one, the old one
 * is never written to again.  Writers wait for nobody but the first creator of a stream's tables.
 *
 * Crash: numbers may be lost with an aborted or crashed transaction, never used twice: the sequence page
 * is WAL-logged before the rows.
 */
#include "postgres.h"

#include "access/generic_xlog.h"
#include "access/heapam.h"
#include "access/heaptoast.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "commands/sequence.h"
#include "executor/tuptable.h"
#include "lib/ilist.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "storage/lmgr.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "compat.h"

#include "slot.h"
#include "source_staged.h"
#include "source_staged_segment.h"

/* Where the rows of a stream go, as last looked up. */
typedef struct Target
{
	Oid			stream;			/* hash key */
	bool		valid;
	Oid			segment;
	Oid			chunks;
} Target;

struct SaStaging
{
	dlist_node	node;			/* in stagings */
	MemoryContextCallback callback; /* takes it out of there */
	Oid			stream;
	SubTransactionId subid;		/* to which it belongs */
	CommandId	cid;
	ResourceOwner owner;
	MemoryContext cxt;
	MemoryContext row_cxt;		/* the buffered rows; reset at every flush */
	MemoryContext flush_cxt;	/* what writing leaks */

	/* set up by the first row */
	Relation	segment;		/* NULL: no row yet */
	Oid			chunks;
	TupleDesc	desc;			/* of the segment, copied */
	TupleDesc	short_desc;		/* the same without the arrival */
	AttrNumber *map;			/* of the stream's columns */
	int			natts;			/* of the stream */
	int			ncolumns;		/* columns to copy: from[i] of the stream to to[i] of the segment */
	int		   *from;
	int		   *to;
	Datum	   *values;
	bool	   *nulls;
	BulkInsertState bulk;		/* from the first full buffer on */

	/* the buffer */
	TupleTableSlot **slots;
	int			nslots;			/* made so far */
	int			nrows;
	Size		bytes;
	int64		chunk;			/* number promised to the rows in the buffer; 0: none yet */
};

static HTAB *targets = NULL;
static dlist_head stagings = DLIST_STATIC_INIT(stagings);

/* ---------- where to write ---------- */

static void
forget_target(Datum arg, Oid relid)
{
	HASH_SEQ_STATUS status;
	Target	   *target;

	hash_seq_init(&status, targets);
	while ((target = hash_seq_search(&status)) != NULL)
	{
		if (!OidIsValid(relid) || relid == target->stream || relid == target->segment)
			target->valid = false;
	}
}

static void
create_targets(void)
{
	HASHCTL		ctl;

	ctl.keysize = sizeof(Oid);
	ctl.entrysize = sizeof(Target);
	ctl.hcxt = CacheMemoryContext;
	targets = hash_create("stream_agg targets", 16, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	CacheRegisterRelcacheCallback(forget_target, (Datum) 0);
}

/*
 * The target may be invalidated while it is looked up.  So it is marked valid first, and is so
 * afterwards only if nothing came in between.
 */
static Target *
find_target(Oid stream)
{
	Target	   *target;
	bool		found;

	if (targets == NULL)
		create_targets();
	target = hash_search(targets, &stream, HASH_ENTER, &found);
	if (!found)
		target->valid = false;
	if (!target->valid)
	{
		SaStagedStream staged;

		target->valid = true;
		target->segment = InvalidOid;
		sa_staged_ensure(stream, &staged);
		target->segment = staged.writing;
		target->chunks = staged.chunks;
	}
	return target;
}

/* The segment to write to, locked, after which nobody can make it another one unseen. */
static Relation
open_target(Oid stream, Oid *chunks)
{
	for (;;)
	{
		Target	   *target = find_target(stream);
		Oid			segment = target->segment;
		Relation	rel;

		CHECK_FOR_INTERRUPTS();
		if (!OidIsValid(segment))
		{
			target->valid = false;	/* left behind by an error */
			continue;
		}
		rel = try_table_open(segment, RowExclusiveLock);
		if (rel != NULL && target->valid)
		{
			*chunks = target->chunks;
			return rel;
		}
		target->valid = false;
		if (rel != NULL)
			table_close(rel, RowExclusiveLock);
	}
}

/*
 * The next number of a sequence.  Not nextval(), which would make it the session's lastval().
 */
static int64
next_chunk(Oid sequence)
{
	Relation	rel = relation_open(sequence, RowExclusiveLock);
	Buffer		buffer = ReadBuffer(rel, 0);
	GenericXLogState *state;
	Page		page;
	ItemId		item;
	HeapTupleHeader header;
	Form_pg_sequence_data data;
	int64		result;

	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	state = GenericXLogStart(rel);
	page = GenericXLogRegisterBuffer(state, buffer, 0);
	item = PageGetItemId(page, FirstOffsetNumber);
	if (!ItemIdIsNormal(item))
		elog(ERROR, "sequence \"%s\" is damaged", RelationGetRelationName(rel));
	header = (HeapTupleHeader) PageGetItem(page, item);
	data = (Form_pg_sequence_data) ((char *) header + header->t_hoff);
	result = data->is_called ? data->last_value + 1 : data->last_value;
	data->last_value = result;
	data->is_called = true;
	data->log_cnt = 0;
	GenericXLogFinish(state);
	UnlockReleaseBuffer(buffer);
	relation_close(rel, NoLock);
	return result;
}

/* ---------- staging ---------- */

/* The staging's memory goes, whether it ended well or not. */
static void
unlink_staging(void *arg)
{
	dlist_delete(&((SaStaging *) arg)->node);
}

SaStaging *
sa_staged_stage_begin(Relation stream, MemoryContext cxt)
{
	MemoryContext own = AllocSetContextCreate(cxt, "stream_agg staging", ALLOCSET_DEFAULT_SIZES);
	SaStaging  *staging = MemoryContextAllocZero(own, sizeof(SaStaging));

	staging->cxt = own;
	staging->row_cxt = AllocSetContextCreate(own, "stream_agg staged rows", ALLOCSET_DEFAULT_SIZES);
	staging->flush_cxt = AllocSetContextCreate(own, "stream_agg flush", ALLOCSET_DEFAULT_SIZES);
	staging->stream = RelationGetRelid(stream);
	staging->subid = GetCurrentSubTransactionId();
	staging->cid = GetCurrentCommandId(true);

	dlist_push_tail(&stagings, &staging->node);
	staging->callback.func = unlink_staging;
	staging->callback.arg = staging;
	MemoryContextRegisterResetCallback(own, &staging->callback);
	return staging;
}

/* Which columns are to be copied where. */
static void
map_columns(SaStaging *staging, TupleDesc stream)
{
	staging->natts = stream->natts;
	staging->map = palloc(sizeof(AttrNumber) * Max(stream->natts, 1));
	staging->from = palloc(sizeof(int) * Max(stream->natts, 1));
	staging->to = palloc(sizeof(int) * Max(stream->natts, 1));
	if (!sa_staged_map(stream, staging->desc, staging->map))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the columns of the stream have changed"),
				 errhint("Try again.")));
	for (int i = 0; i < stream->natts; i++)
	{
		if (staging->map[i] != 0)
		{
			staging->from[staging->ncolumns] = i;
			staging->to[staging->ncolumns++] = staging->map[i] - 1;
		}
	}
	staging->values = palloc0(sizeof(Datum) * staging->desc->natts);
	staging->nulls = palloc(sizeof(bool) * staging->desc->natts);
	memset(staging->nulls, true, sizeof(bool) * staging->desc->natts);
	staging->nulls[SA_SEGMENT_NUMBER - 1] = false;
	staging->nulls[SA_SEGMENT_ARRIVAL(staging->desc) - 1] = false;
}

static TupleDesc
without_arrival(TupleDesc desc)
{
	TupleDesc	result = CreateTemplateTupleDesc(desc->natts - 1);

	for (int i = 1; i < desc->natts; i++)
		TupleDescCopyEntry(result, i, desc, i);
	return result;
}

/* The first row has come. */
static void
open_segment(SaStaging *staging, TupleDesc stream)
{
	MemoryContext oldcxt = MemoryContextSwitchTo(staging->flush_cxt);
	Relation	segment = open_target(staging->stream, &staging->chunks);

	MemoryContextSwitchTo(staging->cxt);
	MemoryContextReset(staging->flush_cxt);
	staging->desc = CreateTupleDescCopy(RelationGetDescr(segment));
	staging->short_desc = without_arrival(staging->desc);
	map_columns(staging, stream);
	staging->slots = palloc(sizeof(TupleTableSlot *) * SA_CHUNK_ROWS);
	staging->owner = CurrentResourceOwner;
	staging->segment = segment;
	MemoryContextSwitchTo(oldcxt);
}

/*
 * Number and arrival, now that they are known, go to where sa_staged_row_number finds them and to the end
 * of the first row.
 */
static void
number_row(SaStaging *staging, int index, TimestampTz arrival)
{
	HeapTuple	tuple = ((HeapTupleTableSlot *) staging->slots[index])->tuple;
	int64		n = SaStagedNumber(staging->chunk, index, index == staging->nrows - 1);

	memcpy((char *) tuple->t_data + tuple->t_data->t_hoff, &n, sizeof(n));
	if (index == 0)
		memcpy((char *) tuple->t_data + tuple->t_len - sizeof(arrival), &arrival, sizeof(arrival));
}

static void
write_rows(SaStaging *staging)
{
	TimestampTz arrival = GetCurrentTimestamp();

	if (staging->chunk == 0)
		staging->chunk = next_chunk(staging->chunks);
	for (int i = 0; i < staging->nrows; i++)
		number_row(staging, i, arrival);
	table_multi_insert(staging->segment, staging->slots, staging->nrows, staging->cid,
					   TABLE_INSERT_SKIP_FSM, staging->bulk);
}

/* Writes the buffered rows as a chunk.  The pins it takes belong to the staging, whoever calls. */
static void
flush_staging(SaStaging *staging)
{
	ResourceOwner oldowner = CurrentResourceOwner;
	MemoryContext oldcxt;

	if (staging->nrows == 0)
		return;
	Assert(staging->subid == GetCurrentSubTransactionId());
	oldcxt = MemoryContextSwitchTo(staging->flush_cxt);
	CurrentResourceOwner = staging->owner;
	PG_TRY();
	{
		write_rows(staging);
	}
	PG_FINALLY();
	{
		CurrentResourceOwner = oldowner;
	}
	PG_END_TRY();
	sa_slot_wake_at_commit(staging->stream);
	MemoryContextSwitchTo(oldcxt);

	for (int i = 0; i < staging->nrows; i++)
		ExecClearTuple(staging->slots[i]);
	MemoryContextReset(staging->row_cxt);
	MemoryContextReset(staging->flush_cxt);
	staging->nrows = 0;
	staging->bytes = 0;
	staging->chunk = 0;
}

/* The row as the segment stores it, in the buffer's memory; its values may not outlive the call. */
static HeapTuple
form_row(SaStaging *staging, TupleTableSlot *slot)
{
	TupleDesc	desc = staging->nrows == 0 ? staging->desc : staging->short_desc;
	HeapTuple	tuple;

	for (int i = 0; i < staging->ncolumns; i++)
	{
		staging->values[staging->to[i]] = slot->tts_values[staging->from[i]];
		staging->nulls[staging->to[i]] = slot->tts_isnull[staging->from[i]];
	}
	tuple = heap_form_tuple(desc, staging->values, staging->nulls);
	if (HeapTupleHasExternal(tuple))
		tuple = toast_flatten_tuple(tuple, desc);
	return tuple;
}

void
sa_staged_stage_row(SaStaging *staging, TupleTableSlot *slot)
{
	MemoryContext oldcxt;
	HeapTuple	tuple;

	if (staging->segment == NULL)
		open_segment(staging, slot->tts_tupleDescriptor);

	slot_getallattrs(slot);
	oldcxt = MemoryContextSwitchTo(staging->row_cxt);
	tuple = form_row(staging, slot);
	if (staging->nrows >= staging->nslots)
	{
		MemoryContextSwitchTo(staging->cxt);
		staging->slots[staging->nslots++] = MakeTupleTableSlot(staging->desc, &TTSOpsHeapTuple);
	}
	MemoryContextSwitchTo(oldcxt);
	ExecStoreHeapTuple(tuple, staging->slots[staging->nrows++], true);

	staging->bytes += tuple->t_len;
	if (staging->nrows >= SA_CHUNK_ROWS || staging->bytes >= SA_CHUNK_BYTES)
	{
		if (staging->bulk == NULL)
		{
			MemoryContextSwitchTo(staging->cxt);
			staging->bulk = GetBulkInsertState();
			MemoryContextSwitchTo(oldcxt);
		}
		flush_staging(staging);
	}
}

void
sa_staged_stage_end(SaStaging *staging)
{
	flush_staging(staging);
	if (staging->bulk != NULL)
		FreeBulkInsertState(staging->bulk);
	if (staging->segment != NULL)
		table_close(staging->segment, NoLock);
	MemoryContextDelete(staging->cxt);
}

/* ---------- reading what one's own transaction has staged ---------- */

/* Copies of the buffered rows; the number of the chunk to come is fixed now, so that it can be told. */
static SaPendingRows *
copy_pending(SaStaging *staging)
{
	SaPendingRows *pending = palloc(sizeof(SaPendingRows));
	Size		map_size = sizeof(AttrNumber) * staging->natts;

	if (staging->chunk == 0)
		staging->chunk = next_chunk(staging->chunks);
	pending->chunk = staging->chunk;
	pending->desc = CreateTupleDescCopy(staging->desc);
	pending->map = memcpy(palloc(map_size + 1), staging->map, map_size);
	pending->tuples = NIL;
	for (int i = 0; i < staging->nrows; i++)
		pending->tuples = lappend(pending->tuples, ExecCopySlotHeapTuple(staging->slots[i]));
	return pending;
}

List *
sa_staged_flush_pending(Relation stream, Snapshot snapshot)
{
	List	   *result = NIL;
	dlist_iter	iter;

	dlist_foreach(iter, &stagings)
	{
		SaStaging  *staging = dlist_container(SaStaging, node, iter.cur);

		if (staging->stream != RelationGetRelid(stream) || staging->nrows == 0 ||
			staging->cid >= snapshot->curcid)
			continue;
		if (staging->subid == GetCurrentSubTransactionId())
			flush_staging(staging);
		else
			result = lappend(result, copy_pending(staging));
	}
	return result;
}
