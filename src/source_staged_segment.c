/*
 * source_staged_segment.c
 *		Segments of staged streams: making, emptying and dropping them, their columns and pages.
 *
 * Invariant: a stream's segments are ordinary heap tables in schema stream_agg, named
 * staged_<id>_<k>, owned by the extension's owner (so that nobody else can touch their rows, and DROP
 * OWNED and REASSIGN OWNED go by the stream alone) and dropped with the stream.  Their columns are called
 * after the attribute numbers of the stream's columns, so renames do not matter; a segment may lack
 * columns that came later, which read as NULL, and have ones that are gone.  Rows are only ever
 * inserted; a segment is emptied as a whole.
 *
 * Locks: creating takes ShareUpdateExclusiveLock on the stream, which serialises creators and nobody else.
 *
 * Crash: everything here is transactional.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/reloptions.h"
#include "access/table.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "catalog/toasting.h"
#include "commands/extension.h"
#include "commands/sequence.h"
#include "commands/tablecmds.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "parser/parse_node.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "compat.h"

#include "catalog.h"
#include "mend.h"
#include "owner.h"
#include "source_staged_segment.h"

PG_FUNCTION_INFO_V1(sa_attach_restored);

/* ---------- dependencies ---------- */

/*
 * A segment is an internal part of its stream.  The sequence goes with it in the way that indexes of
 * partitions go with the partition: pg_dump takes a sequence that is an internal part for that of an
 * identity column.
 */
static void
attach_segment(Oid segment, Oid stream)
{
	sa_mend_depend(segment, stream, DEPENDENCY_INTERNAL);
}

static void
attach_sequence(Oid sequence, Oid stream)
{
	sa_mend_depend(sequence, stream, DEPENDENCY_PARTITION_PRI);
}

/* After a restore the tables are there, but not what hangs them on the stream. */
static void
attach_all(const SaStagedStream *staged)
{
	ListCell   *lc;

	foreach(lc, sa_staged_segments(staged->stream))
		attach_segment(lfirst_oid(lc), staged->stream);
	attach_sequence(staged->chunks, staged->stream);
	CommandCounterIncrement();
}

static bool
all_attached(const SaStagedStream *staged)
{
	ListCell   *lc;

	foreach(lc, sa_staged_segments(staged->stream))
		if (!sa_mend_depends(lfirst_oid(lc), staged->stream))
			return false;
	return sa_mend_depends(staged->chunks, staged->stream);
}

void
sa_staged_mend(void)
{
	ListCell   *lc;

	foreach(lc, sa_staged_streams())
	{
		SaStagedStream staged;

		if (!sa_staged_get(lfirst_oid(lc), &staged) || all_attached(&staged) ||
			!ConditionalLockRelationOid(staged.stream, ShareUpdateExclusiveLock))
			continue;			/* what is locked is mended by its next writer */
		if (sa_staged_get(lfirst_oid(lc), &staged))	/* else it has been dropped meanwhile */
			attach_all(&staged);
	}
}

static Oid
get_oid_column(HeapTuple tuple, TupleDesc desc, const char *name)
{
	bool		isnull;

	return DatumGetObjectId(heap_getattr(tuple, SPI_fnumber(desc, name), desc, &isnull));
}

/*
 * AFTER INSERT on staged_stream and staged_segment: a row that comes in through COPY, as in a restore,
 * belongs to tables that a dump knows no dependencies of.  (We ourselves insert below triggers.)
 */
Datum
sa_attach_restored(PG_FUNCTION_ARGS)
{
	TriggerData *data = (TriggerData *) fcinfo->context;
	TupleDesc	desc;
	Oid			oids[2];

	if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_FOR_ROW(data->tg_event) ||
		(RelationGetRelid(data->tg_relation) != sa_catalog_relation("staged_stream") &&
		 RelationGetRelid(data->tg_relation) != sa_catalog_relation("staged_segment")))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("stream_agg.attach_restored() must be called as a trigger of staged_stream or staged_segment")));
	desc = RelationGetDescr(data->tg_relation);
	oids[0] = get_oid_column(data->tg_trigtuple, desc, "stream");
	if (RelationGetRelid(data->tg_relation) == sa_catalog_relation("staged_stream"))
	{
		oids[1] = get_oid_column(data->tg_trigtuple, desc, "chunks");
		attach_sequence(oids[1], oids[0]);
	}
	else
	{
		oids[1] = get_oid_column(data->tg_trigtuple, desc, "segment");
		attach_segment(oids[1], oids[0]);
	}
	return PointerGetDatum(NULL);
}

/* ---------- creating, emptying, dropping ---------- */

static ColumnDef *
make_column(const char *name, Oid type, int32 typmod, Oid collation)
{
	return makeColumnDef(name, type, typmod, collation);
}

/* The definition of a segment; no automatic vacuum, since rows are never deleted one by one. */
static CreateStmt *
segment_statement(const char *name, TupleDesc desc)
{
	CreateStmt *stmt = makeNode(CreateStmt);
	DefElem    *toast;

	stmt->relation = makeRangeVar(pstrdup("stream_agg"), pstrdup(name), -1);
	stmt->oncommit = ONCOMMIT_NOOP;
	stmt->accessMethod = pstrdup("heap");
	stmt->options = list_make1(makeDefElem(pstrdup("autovacuum_enabled"), (Node *) makeString(pstrdup("false")), -1));
	toast = makeDefElem(pstrdup("autovacuum_enabled"), (Node *) makeString(pstrdup("false")), -1);
	toast->defnamespace = pstrdup("toast");
	stmt->options = lappend(stmt->options, toast);

	stmt->tableElts = list_make1(make_column("n", INT8OID, -1, InvalidOid));
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (!att->attisdropped)
			stmt->tableElts = lappend(stmt->tableElts,
									  make_column(psprintf("c%d", att->attnum),
												  att->atttypid, att->atttypmod, att->attcollation));
	}
	stmt->tableElts = lappend(stmt->tableElts, make_column("arrival", TIMESTAMPTZOID, -1, InvalidOid));
	return stmt;
}

static Oid
create_table(CreateStmt *stmt)
{
	static SaOptionNamespace namespaces[] = HEAP_RELOPT_NAMESPACES;
	ObjectAddress address = DefineRelation(stmt, RELKIND_RELATION, InvalidOid, NULL, NULL);
	Datum		toast_options;

	CommandCounterIncrement();
	toast_options = transformRelOptions((Datum) 0, stmt->options, "toast", namespaces, true, false);
	NewRelationCreateToastTable(address.objectId, toast_options);
	CommandCounterIncrement();
	return address.objectId;
}

static Oid
create_sequence(const char *name)
{
	CreateSeqStmt *stmt = makeNode(CreateSeqStmt);
	ObjectAddress address;

	stmt->sequence = makeRangeVar(pstrdup("stream_agg"), pstrdup(name), -1);
	address = DefineSequence(make_parsestate(NULL), stmt);
	CommandCounterIncrement();
	return address.objectId;
}

/*
 * Makes a segment (desc given) or the sequence, as the extension's owner, and never as a member of an
 * extension whose script happens to run.
 */
static Oid
create_relation(const char *name, TupleDesc desc)
{
	bool		save_creating = creating_extension;
	SaOwnerSwitch save;
	Oid			relid;

	sa_owner_enter_extension(&save);
	creating_extension = false;
	PG_TRY();
	{
		if (desc != NULL)
			relid = create_table(segment_statement(name, desc));
		else
			relid = create_sequence(name);
	}
	PG_FINALLY();
	{
		creating_extension = save_creating;
	}
	PG_END_TRY();
	sa_owner_keep_private(relid);
	sa_owner_leave(&save);
	return relid;
}

/* The caller holds a lock on the stream that keeps other creators out. */
Oid
sa_staged_create_segment(const SaStagedStream *staged, TupleDesc desc)
{
	Oid			namespace = get_namespace_oid("stream_agg", false);
	char	   *name;
	Oid			segment;

	for (int k = 1;; k++)
	{
		name = psprintf("staged_%d_%d", staged->id, k);
		if (!OidIsValid(get_relname_relid(name, namespace)))
			break;
		pfree(name);
	}
	segment = create_relation(name, desc);
	attach_segment(segment, staged->stream);
	sa_staged_insert_segment(segment, staged->stream);
	return segment;
}

/* An id whose names are free; a restored schema may have taken some that our sequence knows nothing of. */
static int
choose_id(void)
{
	Oid			namespace = get_namespace_oid("stream_agg", false);

	for (;;)
	{
		int			id = sa_catalog_next_id();

		CHECK_FOR_INTERRUPTS();
		if (!OidIsValid(get_relname_relid(psprintf("staged_%d_chunk", id), namespace)) &&
			!OidIsValid(get_relname_relid(psprintf("staged_%d_1", id), namespace)))
			return id;
	}
}

static void
create_stream(Relation stream, SaStagedStream *staged)
{
	staged->stream = RelationGetRelid(stream);
	staged->id = choose_id();
	staged->first_position = 0;
	staged->next_position = 0;
	staged->chunks = create_relation(psprintf("staged_%d_chunk", staged->id), NULL);
	attach_sequence(staged->chunks, staged->stream);
	staged->writing = sa_staged_create_segment(staged, RelationGetDescr(stream));
	sa_staged_insert(staged);
}

/* Can rows of the stream be written to the segment? */
static bool
segment_fits(Oid segment, TupleDesc desc)
{
	Relation	rel = OidIsValid(segment) ? try_table_open(segment, AccessShareLock) : NULL;
	AttrNumber *map;
	bool		fits;

	if (rel == NULL)
		return false;
	map = palloc(sizeof(AttrNumber) * Max(desc->natts, 1));
	fits = sa_staged_map(desc, RelationGetDescr(rel), map);
	pfree(map);
	table_close(rel, AccessShareLock);
	return fits;
}

/*
 * See that the stream has a sequence and a segment that its rows fit into.  Nearly always there is
 * nothing to do and no lock is taken.
 */
void
sa_staged_ensure(Oid stream, SaStagedStream *staged)
{
	Relation	rel = table_open(stream, AccessShareLock);
	TupleDesc	desc = RelationGetDescr(rel);
	bool		exists = sa_staged_get(stream, staged);

	if (!exists || !segment_fits(staged->writing, desc) ||
		!sa_mend_depends(staged->writing, stream))
	{
		LockRelationOid(stream, ShareUpdateExclusiveLock);
		if (!sa_staged_get(stream, staged))
			create_stream(rel, staged);
		else
		{
			attach_all(staged);
			if (!segment_fits(staged->writing, desc))
			{
				staged->writing = sa_staged_create_segment(staged, desc);
				sa_staged_save_writing(staged);
			}
		}
		CacheInvalidateRelcacheByRelid(stream);
	}
	table_close(rel, AccessShareLock);
}

/* The caller holds AccessExclusiveLock on the segment. */
void
sa_staged_empty_segment(Relation segment)
{
	CheckTableNotInUse(segment, "TRUNCATE");
	sa_truncate_relation(segment);
	CommandCounterIncrement();
}

/* Likewise. */
void
sa_staged_drop_segment(Oid segment)
{
	ObjectAddress object;

	sa_staged_delete_segment(segment);
	deleteDependencyRecordsFor(RelationRelationId, segment, false);
	CommandCounterIncrement();
	ObjectAddressSet(object, RelationRelationId, segment);
	performDeletion(&object, DROP_RESTRICT, PERFORM_DELETION_INTERNAL);
	CommandCounterIncrement();
}

/* ---------- columns ---------- */

/* The attribute number of the stream's column that a segment's column holds; 0 when it holds none. */
static int
stream_column(Form_pg_attribute att)
{
	if (att->attisdropped || NameStr(att->attname)[0] != 'c')
		return 0;
	return atoi(NameStr(att->attname) + 1);
}

bool
sa_staged_map(TupleDesc stream, TupleDesc segment, AttrNumber *map)
{
	bool		complete = true;

	memset(map, 0, sizeof(AttrNumber) * stream->natts);
	for (int i = 0; i < segment->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(segment, i);
		int			column = stream_column(att);

		if (column > 0 && column <= stream->natts &&
			TupleDescAttr(stream, column - 1)->atttypid == att->atttypid)
			map[column - 1] = att->attnum;
	}
	for (int i = 0; i < stream->natts; i++)
		complete &= TupleDescAttr(stream, i)->attisdropped || map[i] != 0;
	return complete;
}

/* A column whose type was changed has rows that can no longer be read as what they are. */
static void
check_types(TupleDesc stream, Relation segment)
{
	TupleDesc	desc = RelationGetDescr(segment);

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		int			column = stream_column(att);
		Form_pg_attribute other;

		if (column <= 0 || column > stream->natts)
			continue;
		other = TupleDescAttr(stream, column - 1);
		if (!other->attisdropped && other->atttypid != att->atttypid)
			ereport(ERROR,
					(errcode(ERRCODE_DATATYPE_MISMATCH),
					 errmsg("column \"%s\" has staged rows of type %s", NameStr(other->attname),
							format_type_be(att->atttypid)),
					 errhint("Change its type back, or drop it and add a new one.")));
	}
}

void
sa_staged_check_columns(Oid stream)
{
	Relation	rel = table_open(stream, AccessShareLock);
	ListCell   *lc;

	foreach(lc, sa_staged_segments(stream))
	{
		Relation	segment = try_table_open(lfirst_oid(lc), AccessShareLock);

		if (segment == NULL)
			continue;
		if (sa_staged_blocks(segment) > 0)
			check_types(RelationGetDescr(rel), segment);
		table_close(segment, NoLock);
	}
	table_close(rel, NoLock);
}

SaRowReader *
sa_staged_reader(TupleDesc stream, Relation segment)
{
	SaRowReader *reader = palloc(sizeof(SaRowReader));

	reader->segment = CreateTupleDescCopy(RelationGetDescr(segment));
	reader->natts = stream->natts;
	reader->map = palloc(sizeof(AttrNumber) * Max(stream->natts, 1));
	reader->scratch = palloc(sizeof(Datum) * reader->segment->natts);
	reader->scratch_nulls = palloc(sizeof(bool) * reader->segment->natts);
	if (!sa_staged_map(stream, reader->segment, reader->map))
		check_types(stream, segment);
	return reader;
}

void
sa_staged_read_row(SaRowReader *reader, HeapTuple tuple, Datum *values, bool *nulls)
{
	heap_deform_tuple(tuple, reader->segment, reader->scratch, reader->scratch_nulls);
	for (int i = 0; i < reader->natts; i++)
	{
		AttrNumber	attnum = reader->map[i];

		nulls[i] = attnum == 0 || reader->scratch_nulls[attnum - 1];
		values[i] = nulls[i] ? (Datum) 0 : reader->scratch[attnum - 1];
	}
}

/* The number is the first column, never NULL and eight bytes, so it stands right at the beginning. */
int64
sa_staged_row_number(HeapTuple tuple)
{
	int64		n;

	memcpy(&n, (char *) tuple->t_data + tuple->t_data->t_hoff, sizeof(n));
	return n;
}

TimestampTz
sa_staged_row_arrival(SaRowReader *reader, HeapTuple tuple)
{
	bool		isnull;
	Datum		arrival = heap_getattr(tuple, SA_SEGMENT_ARRIVAL(reader->segment), reader->segment, &isnull);

	return isnull ? DT_NOBEGIN : DatumGetTimestampTz(arrival);
}

/* ---------- pages ---------- */

#define SMALLEST_ROW MAXALIGN(SizeofHeapTupleHeader + sizeof(int64))

BlockNumber
sa_staged_blocks(Relation segment)
{
	return RelationGetNumberOfBlocks(segment);
}

int64
sa_staged_bytes(Relation segment)
{
	int64		blocks = RelationGetNumberOfBlocks(segment);

	if (OidIsValid(segment->rd_rel->reltoastrelid))
	{
		Relation	toast = table_open(segment->rd_rel->reltoastrelid, AccessShareLock);

		blocks += RelationGetNumberOfBlocks(toast);
		table_close(toast, NoLock);
	}
	return blocks * BLCKSZ;
}

/*
 * Why a row is not visible.  As in heapam's own checks, a transaction in progress is asked for before
 * one that committed.
 */
static SaRowState
invisible_state(HeapTupleHeader header)
{
	TransactionId xmin = HeapTupleHeaderGetRawXmin(header);

	if (HeapTupleHeaderXminInvalid(header))
		return SA_ROW_DEAD;
	if (HeapTupleHeaderXminCommitted(header) ||
		TransactionIdIsCurrentTransactionId(xmin) ||
		TransactionIdIsInProgress(xmin) ||
		TransactionIdDidCommit(xmin))
		return SA_ROW_PENDING;
	return SA_ROW_DEAD;
}

/* Visits every row of a page, seen or not; returns the page's LSN as of then, and if there is room for more. */
XLogRecPtr
sa_staged_scan_page(Relation segment, BlockNumber block, Snapshot snapshot,
					SaRowVisitor visit, void *arg, bool *full)
{
	Buffer		buffer = ReadBufferExtended(segment, MAIN_FORKNUM, block, RBM_NORMAL, NULL);
	Page		page;
	XLogRecPtr	lsn;
	OffsetNumber last;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(buffer);
	lsn = PageGetLSN(page);
	last = PageIsNew(page) ? InvalidOffsetNumber : PageGetMaxOffsetNumber(page);
	for (OffsetNumber offset = FirstOffsetNumber; offset <= last; offset = OffsetNumberNext(offset))
	{
		ItemId		item = PageGetItemId(page, offset);
		HeapTupleData tuple;
		bool		visible;

		if (!ItemIdIsNormal(item))
			continue;
		tuple.t_data = (HeapTupleHeader) PageGetItem(page, item);
		tuple.t_len = ItemIdGetLength(item);
		tuple.t_tableOid = RelationGetRelid(segment);
		ItemPointerSet(&tuple.t_self, block, offset);
		visible = HeapTupleSatisfiesVisibility(&tuple, snapshot, buffer);
		HeapCheckForSerializableConflictOut(visible, segment, &tuple, buffer, snapshot);
		visit(arg, &tuple, sa_staged_row_number(&tuple),
			  visible ? SA_ROW_VISIBLE : invisible_state(tuple.t_data));
	}
	if (full != NULL)
		*full = last != InvalidOffsetNumber && PageGetHeapFreeSpace(page) < SMALLEST_ROW;
	UnlockReleaseBuffer(buffer);
	return lsn;
}

/* The page's LSN alone, read without locking the page. */
XLogRecPtr
sa_staged_page_lsn(Relation segment, BlockNumber block)
{
	Buffer		buffer = ReadBufferExtended(segment, MAIN_FORKNUM, block, RBM_NORMAL, NULL);
	XLogRecPtr	lsn = BufferGetLSNAtomic(buffer);

	ReleaseBuffer(buffer);
	return lsn;
}
