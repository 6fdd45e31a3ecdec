/*
 * result.c
 *		Writing the result table with the executor's own primitives (see execReplication.c).
 *
 * Invariant: the view's columns are those that its query names; columns that users added keep their values.  A row is fetched and its key compared before it is overwritten.
 *
 * Locks: RowExclusiveLock on the table and its indexes, kept to the end of the transaction.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/sysattr.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "executor/nodeModifyTable.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "rewrite/rewriteHandler.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "fault.h"
#include "result.h"

#define INSERT_ROWS 1000		/* rows of one multi-insert */
#define INSERT_BYTES 65536

struct SaResult
{
	MemoryContext cxt;
	MemoryContext batch_cxt;	/* from begin to the next begin */
	MemoryContext row_cxt;		/* reset after every row, or every multi-insert */
	MemoryContext slots_cxt;	/* of the slots for new rows, until the table changes */
	TupleDesc	slots_desc;
	SaQuery    *query;
	Oid			relid;

	/* above the aggregation */
	ExprContext *econtext;
	TupleTableSlot *group;		/* a group's row */
	TupleTableSlot *projected;	/* the view's columns */
	ProjectionInfo *projection;
	ExprState  *having;

	/* between begin and end */
	Relation	rel;
	EState	   *estate;
	ResultRelInfo *rri;
	EPQState	epq;
	TupleTableSlot *old_row;
	TupleTableSlot *new_row;
	BulkInsertState bulk;
	TupleTableSlot *inserts[INSERT_ROWS];
	SaGroup    *insert_groups[INSERT_ROWS];
	int			ninserts;
	Size		insert_bytes;
	ExprState **defaults;		/* of users' columns; NULL: none */
	bool		one_by_one;		/* a row trigger or partitioning forbids multi-insert */
	bool		is_heap;
	int64		inserted;		/* rows */
	int64		updated;
	int64		deleted;
};

SaResult *
sa_result_create(SaQuery *query, Oid relid, MemoryContext parent)
{
	MemoryContext cxt = AllocSetContextCreate(parent, "stream_agg result", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(cxt);
	SaResult   *result = palloc0(sizeof(SaResult));

	result->cxt = cxt;
	result->batch_cxt = AllocSetContextCreate(cxt, "stream_agg result batch", ALLOCSET_DEFAULT_SIZES);
	result->slots_cxt = AllocSetContextCreate(cxt, "stream_agg result slots", ALLOCSET_DEFAULT_SIZES);
	result->row_cxt = AllocSetContextCreate(cxt, "stream_agg result row", ALLOCSET_DEFAULT_SIZES);
	result->query = query;
	result->relid = relid;
	if (!query->transform)
	{
		result->econtext = CreateStandaloneExprContext();
		result->group = MakeSingleTupleTableSlot(query->group_desc, &TTSOpsVirtual);
		result->projected = MakeSingleTupleTableSlot(ExecTypeFromTL(query->targets), &TTSOpsVirtual);
		result->projection = ExecBuildProjectionInfo(query->targets, result->econtext, result->projected, NULL,
													 query->group_desc);
		if (query->having)
			result->having = ExecInitExpr(query->having, NULL);
	}
	MemoryContextSwitchTo(old);
	return result;
}

/* The type of a column of the select list. */
static Oid
type_of_column(const SaQuery *query, int i)
{
	TargetEntry *tle = query->transform ? list_nth(query->below->targetList, i + 1) : list_nth(query->targets, i);

	return exprType((Node *) tle->expr);
}

void
sa_result_check(const SaQuery *query, Oid relid)
{
	Relation	rel = table_open(relid, RowExclusiveLock);
	TupleDesc	desc = RelationGetDescr(rel);

	for (int i = 0; i < query->nresults; i++)
	{
		AttrNumber	attr = query->results[i];
		Oid			type = type_of_column(query, i);

		if (attr > desc->natts || TupleDescAttr(desc, attr - 1)->attisdropped || TupleDescAttr(desc, attr - 1)->atttypid != type)
			ereport(ERROR,
					(errcode(ERRCODE_DATATYPE_MISMATCH),
					 errmsg("column %d of result table \"%s\" is not of type %s any more", attr,
							RelationGetRelationName(rel), format_type_be(type)),
					 errhint("Change its type back and resume the view, or drop the view and create it anew.")));
	}
	table_close(rel, NoLock);
}

void
sa_result_free(SaResult *result)
{
	if (result->econtext)
		FreeExprContext(result->econtext, false);
	MemoryContextDelete(result->cxt);
}

int64
sa_result_written(const SaResult *result)
{
	return result->inserted + result->updated + result->deleted;
}

/* --- opening and closing --- */

static void
open_relation(SaResult *result)
{
	RangeTblEntry *rte = makeNode(RangeTblEntry);
	Relation	rel = table_open(result->relid, RowExclusiveLock);
	Bitmapset  *columns = NULL;

	rte->rtekind = RTE_RELATION;
	rte->relid = result->relid;
	rte->relkind = rel->rd_rel->relkind;
	rte->rellockmode = RowExclusiveLock;
	result->estate = CreateExecutorState();
	for (int i = 0; i < result->query->nresults; i++)
		columns = bms_add_member(columns, result->query->results[i] - FirstLowInvalidHeapAttributeNumber);
	sa_init_range_table(result->estate, rte, columns);	/* for triggers AFTER UPDATE OF a column */
	result->rri = makeNode(ResultRelInfo);
	InitResultRelInfo(result->rri, rel, 1, NULL, 0);
	result->estate->es_opened_result_relations = list_make1(result->rri);
	result->estate->es_output_cid = GetCurrentCommandId(true);
	result->estate->es_snapshot = GetActiveSnapshot();
	ExecOpenIndices(result->rri, false);
	sa_epq_init(&result->epq, result->estate);
	result->rel = rel;
}

static bool
is_own_column(const SaQuery *query, AttrNumber attr)
{
	for (int i = 0; i < query->nresults; i++)
		if (query->results[i] == attr)
			return true;
	return false;
}

static void
prepare_defaults(SaResult *result)
{
	TupleDesc	desc = RelationGetDescr(result->rel);

	result->defaults = palloc0(sizeof(ExprState *) * desc->natts);
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		Expr	   *expr;

		if (att->attisdropped || att->attgenerated || is_own_column(result->query, i + 1))
			continue;
		expr = (Expr *) build_column_default(result->rel, i + 1);
		if (expr)
			result->defaults[i] = ExecInitExpr(expression_planner(expr), NULL);
	}
}

/* Slots for new rows outlive the batch, but not a change of the table's columns. */
static void
prepare_slots(SaResult *result)
{
	MemoryContext old;

	if (result->slots_desc && equalTupleDescs(result->slots_desc, RelationGetDescr(result->rel)))
	{
		for (int i = 0; i < INSERT_ROWS && result->inserts[i]; i++)
			ExecClearTuple(result->inserts[i]);	/* what a failed batch has left */
		return;
	}
	MemoryContextReset(result->slots_cxt);
	memset(result->inserts, 0, sizeof(result->inserts));
	old = MemoryContextSwitchTo(result->slots_cxt);
	result->slots_desc = CreateTupleDescCopyConstr(RelationGetDescr(result->rel));
	MemoryContextSwitchTo(old);
}

void
sa_result_begin(SaResult *result)
{
	MemoryContext old;
	TriggerDesc *triggers;

	/* What a failed batch left behind goes here. */
	MemoryContextReset(result->batch_cxt);
	MemoryContextReset(result->row_cxt);
	old = MemoryContextSwitchTo(result->batch_cxt);
	open_relation(result);
	triggers = result->rri->ri_TrigDesc;
	if (triggers && (triggers->trig_insert_before_row || triggers->trig_update_before_row ||
					 triggers->trig_delete_before_row))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("result table \"%s\" has a BEFORE ROW trigger", RelationGetRelationName(result->rel)),
				 errhint("Use an AFTER trigger.")));
	result->one_by_one = result->rel->rd_rel->relkind != RELKIND_RELATION;
	result->is_heap = result->rel->rd_tableam == GetHeapamTableAmRoutine();
	result->old_row = table_slot_create(result->rel, NULL);
	result->new_row = table_slot_create(result->rel, NULL);
	result->bulk = GetBulkInsertState();
	prepare_slots(result);
	result->ninserts = 0;
	result->insert_bytes = 0;
	result->inserted = result->updated = result->deleted = 0;
	prepare_defaults(result);
	AfterTriggerBeginQuery();
	MemoryContextSwitchTo(old);
}

static void flush_inserts(SaResult *result);

void
sa_result_end(SaResult *result)
{
	flush_inserts(result);
	if (result->inserted > 0)
		ExecASInsertTriggers(result->estate, result->rri, NULL);
	if (result->updated > 0)
		ExecASUpdateTriggers(result->estate, result->rri, NULL);
	if (result->deleted > 0)
		ExecASDeleteTriggers(result->estate, result->rri, NULL);
	AfterTriggerEndQuery(result->estate);
	EvalPlanQualEnd(&result->epq);
	ExecDropSingleTupleTableSlot(result->old_row);
	ExecDropSingleTupleTableSlot(result->new_row);
	FreeBulkInsertState(result->bulk);
	ExecCloseIndices(result->rri);
	ExecResetTupleTable(result->estate->es_tupleTable, false);
	FreeExecutorState(result->estate);
	table_close(result->rel, NoLock);
	result->rel = NULL;
	result->estate = NULL;
	MemoryContextReset(result->batch_cxt);
	MemoryContextReset(result->row_cxt);
}

/* --- rows --- */

/* A group's row through the target list and HAVING.  False: HAVING refuses it. */
static bool
project_group(SaResult *result, SaState *state, SaTouched *entry)
{
	ExprContext *econtext = result->econtext;

	ExecClearTuple(result->group);
	sa_state_values(state, entry->window, entry->group, result->group->tts_values, result->group->tts_isnull);
	ExecStoreVirtualTuple(result->group);
	ResetExprContext(econtext);
	econtext->ecxt_scantuple = result->group;
	if (result->having)
	{
		bool		isnull;
		Datum		pass = ExecEvalExprSwitchContext(result->having, econtext, &isnull);

		if (isnull || !DatumGetBool(pass))
			return false;
	}
	ExecProject(result->projection);
	return true;
}

/* The view's columns, in the order of its select list, into their places in the row. */
static void
put_own_columns(const SaQuery *query, TupleTableSlot *slot, const Datum *values, const bool *nulls)
{
	for (int i = 0; i < query->nresults; i++)
	{
		slot->tts_values[query->results[i] - 1] = values[i];
		slot->tts_isnull[query->results[i] - 1] = nulls[i];
	}
}

/* A new row: the view's columns, and the defaults of users' columns. */
static void
fill_new_row(SaResult *result, TupleTableSlot *slot, Datum *values, bool *nulls)
{
	int			natts = slot->tts_tupleDescriptor->natts;
	ExprContext *econtext = GetPerTupleExprContext(result->estate);

	ExecClearTuple(slot);
	for (int i = 0; i < natts; i++)
	{
		slot->tts_isnull[i] = true;
		if (result->defaults[i])
			slot->tts_values[i] = ExecEvalExpr(result->defaults[i], econtext, &slot->tts_isnull[i]);
	}
	put_own_columns(result->query, slot, values, nulls);
	ExecStoreVirtualTuple(slot);
}

/* What the executor does to a row before it is written. */
static void
check_row(SaResult *result, TupleTableSlot *slot, CmdType command)
{
	TupleConstr *constr = RelationGetDescr(result->rel)->constr;

	if (constr && constr->has_generated_stored)
		ExecComputeStoredGenerated(result->rri, result->estate, slot, command);
	if (constr)
		ExecConstraints(result->rri, slot, result->estate);
}

static void
insert_triggers_and_indexes(SaResult *result, TupleTableSlot *slot)
{
	List	   *recheck = NIL;

	if (result->rri->ri_NumIndices > 0)
		recheck = sa_insert_index_tuples(result->rri, slot, result->estate);
	ExecARInsertTriggers(result->estate, result->rri, slot, recheck, NULL);
	list_free(recheck);
}

static void
flush_inserts(SaResult *result)
{
	if (result->ninserts == 0)
		return;
	table_multi_insert(result->rel, result->inserts, result->ninserts, result->estate->es_output_cid, 0, result->bulk);
	for (int i = 0; i < result->ninserts; i++)
	{
		TupleTableSlot *slot = result->inserts[i];

		if (result->insert_groups[i])
			result->insert_groups[i]->result_tid = slot->tts_tid;
		SA_FAULT("result_write", result->relid);
		ResetPerTupleExprContext(result->estate);
		insert_triggers_and_indexes(result, slot);
		ExecClearTuple(slot);
	}
	result->inserted += result->ninserts;
	result->ninserts = 0;
	result->insert_bytes = 0;
	MemoryContextReset(result->row_cxt);
}

/* A new row, now or with the next multi-insert. */
static void
insert_row(SaResult *result, Datum *values, bool *nulls, SaGroup *group)
{
	TupleTableSlot *slot = result->inserts[result->ninserts];
	MemoryContext old;

	if (slot == NULL)
	{
		old = MemoryContextSwitchTo(result->slots_cxt);
		slot = result->inserts[result->ninserts] = MakeSingleTupleTableSlot(result->slots_desc,
																			table_slot_callbacks(result->rel));
		MemoryContextSwitchTo(old);
	}
	ResetPerTupleExprContext(result->estate);
	fill_new_row(result, slot, values, nulls);
	check_row(result, slot, CMD_INSERT);
	ExecMaterializeSlot(slot);
	result->insert_groups[result->ninserts++] = group;
	result->insert_bytes += ExecFetchSlotHeapTuple(slot, false, NULL)->t_len;
	if (result->one_by_one || result->ninserts == INSERT_ROWS || result->insert_bytes > INSERT_BYTES)
		flush_inserts(result);
}

/* The row at a group's place, which must still be the group's. */
static void
fetch_old_row(SaResult *result, SaTouched *entry)
{
	SaQuery    *query = result->query;

	if (!table_tuple_fetch_row_version(result->rel, &entry->group->result_tid, SnapshotSelf, result->old_row))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("a row of result table \"%s\" is no longer where it was written",
						RelationGetRelationName(result->rel)),
				 errhint("Only the continuous view itself may change its result table.")));
	for (int i = 0; i < query->nkeys; i++)
	{
		AttrNumber	attr = query->keys[i].result;
		Form_pg_attribute att = TupleDescAttr(RelationGetDescr(result->rel), attr - 1);
		bool		isnull;
		Datum		value = slot_getattr(result->old_row, attr, &isnull);
		Datum		own = result->group->tts_values[i];

		if (isnull != result->group->tts_isnull[i] ||
			(!isnull && !datum_image_eq(value, own, att->attbyval, att->attlen) &&
			 !DatumGetBool(OidFunctionCall2Coll(get_opcode(query->keys[i].eqop), query->keys[i].collation, value, own))))
			ereport(ERROR,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg("a row of result table \"%s\" has another key than it was written with",
							RelationGetRelationName(result->rel))));
	}
}

static void
update_row(SaResult *result, SaTouched *entry)
{
	TupleTableSlot *slot = result->new_row;
	MemoryContext old;

	fetch_old_row(result, entry);
	slot_getallattrs(result->old_row);
	ExecClearTuple(slot);
	memcpy(slot->tts_values, result->old_row->tts_values, sizeof(Datum) * slot->tts_tupleDescriptor->natts);
	memcpy(slot->tts_isnull, result->old_row->tts_isnull, sizeof(bool) * slot->tts_tupleDescriptor->natts);
	put_own_columns(result->query, slot, result->projected->tts_values, result->projected->tts_isnull);
	ExecStoreVirtualTuple(slot);
	old = MemoryContextSwitchTo(result->row_cxt);
	ResetPerTupleExprContext(result->estate);
	ExecSimpleRelationUpdate(result->rri, result->estate, &result->epq, result->old_row, slot);
	MemoryContextSwitchTo(old);
	entry->group->result_tid = slot->tts_tid;
	ExecClearTuple(result->old_row);
	result->updated++;
}

static void
delete_row(SaResult *result, SaTouched *entry)
{
	fetch_old_row(result, entry);
	ExecSimpleRelationDelete(result->rri, result->estate, &result->epq, result->old_row);
	ItemPointerSetInvalid(&entry->group->result_tid);
	ExecClearTuple(result->old_row);
	result->deleted++;
}

/* --- groups --- */

/* A group with its place, so that sorting does not touch the group's memory. */
typedef struct Placed
{
	uint64		place;
	SaTouched  *entry;
} Placed;

#define ST_SORT sort_placed
#define ST_ELEMENT_TYPE Placed
#define ST_COMPARE(a, b) ((a)->place < (b)->place ? -1 : (a)->place > (b)->place)
#define ST_SCOPE static
#define ST_DEFINE
#include "lib/sort_template.h"

#define PREFETCH_AHEAD 8

/* The memory of groups that come next is asked for while the present one is written. */
static void
prefetch_entry(SaTouched *const *list, int i, int n)
{
	if (i + 2 * PREFETCH_AHEAD < n)
		__builtin_prefetch(list[i + 2 * PREFETCH_AHEAD]->group);
	if (i + PREFETCH_AHEAD < n)
		sa_state_prefetch_group(list[i + PREFETCH_AHEAD]->group);
}

static void
sort_by_place(SaTouched **changed, int n)
{
	Placed	   *placed = MemoryContextAllocHuge(CurrentMemoryContext, sizeof(Placed) * (n + 1));

	for (int i = 0; i < n; i++)
	{
		ItemPointer tid = &changed[i]->group->result_tid;

		placed[i].place = ((uint64) ItemPointerGetBlockNumber(tid) << 16) | ItemPointerGetOffsetNumber(tid);
		placed[i].entry = changed[i];
	}
	sort_placed(placed, n);
	for (int i = 0; i < n; i++)
		changed[i] = placed[i].entry;
	pfree(placed);
}

/*
 * Access by place never prunes, so make room for the new versions that are about to come to this page
 * when its free space would not hold them; so updates stay on the page (HOT).
 */
static void
prune_page(SaResult *result, SaTouched **sorted, int from, int n)
{
	BlockNumber block = ItemPointerGetBlockNumber(&sorted[from]->group->result_tid);
	Size		row = 0;
	Buffer		buffer;
	Page		page;
	int			count = 1;

	while (from + count < n && ItemPointerGetBlockNumber(&sorted[from + count]->group->result_tid) == block)
		count++;
	buffer = ReadBuffer(result->rel, block);
	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	page = BufferGetPage(buffer);
	if (ItemPointerGetOffsetNumber(&sorted[from]->group->result_tid) <= PageGetMaxOffsetNumber(page))
		row = ItemIdGetLength(PageGetItemId(page, ItemPointerGetOffsetNumber(&sorted[from]->group->result_tid)));
	if (PageGetHeapFreeSpace(page) < count * (MAXALIGN(row) + sizeof(ItemIdData)))
		PageSetFull(page);		/* a hint: lets heap_page_prune_opt() go on */
	else
		row = 0;
	LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
	if (row > 0)
		heap_page_prune_opt(result->rel, buffer);
	ReleaseBuffer(buffer);
}

static void
write_changed(SaResult *result, SaState *state, SaTouched **changed, int n)
{
	BlockNumber last = InvalidBlockNumber;

	sort_by_place(changed, n);
	for (int i = 0; i < n; i++)
	{
		BlockNumber block = ItemPointerGetBlockNumber(&changed[i]->group->result_tid);
		MemoryContext old = MemoryContextSwitchTo(result->row_cxt);

		CHECK_FOR_INTERRUPTS();
		prefetch_entry(changed, i, n);
		if (block != last && result->is_heap)
			prune_page(result, changed, i, n);
		last = block;
		SA_FAULT("result_write", result->relid);
		if (project_group(result, state, changed[i]))
			update_row(result, changed[i]);
		else
			delete_row(result, changed[i]);
		MemoryContextSwitchTo(old);
		MemoryContextReset(result->row_cxt);
	}
}

/* keep: the groups remember their rows. */
static void
write_new(SaResult *result, SaState *state, SaTouched **fresh, int n, bool keep)
{
	sa_state_sort(state, fresh, n);
	for (int i = 0; i < n; i++)
	{
		MemoryContext old = MemoryContextSwitchTo(result->row_cxt);

		CHECK_FOR_INTERRUPTS();
		prefetch_entry(fresh, i, n);
		if (project_group(result, state, fresh[i]))
			insert_row(result, result->projected->tts_values, result->projected->tts_isnull,
					   keep ? fresh[i]->group : NULL);
		MemoryContextSwitchTo(old);
	}
	flush_inserts(result);
}

/* Rows of groups that are to have none. */
static void
delete_rows(SaResult *result, SaState *state, SaTouched **gone, int n)
{
	sort_by_place(gone, n);
	for (int i = 0; i < n; i++)
	{
		MemoryContext old = MemoryContextSwitchTo(result->row_cxt);

		CHECK_FOR_INTERRUPTS();
		SA_FAULT("result_write", result->relid);
		ExecClearTuple(result->group);
		sa_state_key_values(state, gone[i]->group, result->group->tts_values, result->group->tts_isnull);
		delete_row(result, gone[i]);
		MemoryContextSwitchTo(old);
		MemoryContextReset(result->row_cxt);
	}
}

void
sa_result_write_groups(SaResult *result, SaState *state, SaTouched *groups, int ngroups)
{
	SaTouched **list = MemoryContextAllocHuge(CurrentMemoryContext, sizeof(SaTouched *) * (ngroups + 1));
	int			ngone = 0;
	int			nchanged = 0;
	int			nfresh = 0;

	for (int i = 0; i < ngroups; i++)
		if (groups[i].group->gone && ItemPointerIsValid(&groups[i].group->result_tid))
			list[ngone++] = &groups[i];
	delete_rows(result, state, list, ngone);	/* of sessions that are part of others now */
	/* Changed ones from the front, new ones from the back. */
	for (int i = 0; i < ngroups; i++)
	{
		if (groups[i].group->gone)
			continue;
		if (ItemPointerIsValid(&groups[i].group->result_tid))
			list[nchanged++] = &groups[i];
		else
			list[ngroups - ++nfresh] = &groups[i];
	}
	write_changed(result, state, list, nchanged);
	write_new(result, state, list + ngroups - nfresh, nfresh, true);
	pfree(list);
}

void
sa_result_delete_groups(SaResult *result, SaState *state, SaTouched *groups, int ngroups)
{
	SaTouched **list = MemoryContextAllocHuge(CurrentMemoryContext, sizeof(SaTouched *) * (ngroups + 1));

	for (int i = 0; i < ngroups; i++)
		list[i] = &groups[i];
	delete_rows(result, state, list, ngroups);
	pfree(list);
}

void
sa_result_emit(SaResult *result, SaState *state, SaTouched *groups, int ngroups, bool keep)
{
	SaTouched **list = MemoryContextAllocHuge(CurrentMemoryContext, sizeof(SaTouched *) * (ngroups + 1));

	for (int i = 0; i < ngroups; i++)
		list[i] = &groups[i];
	write_new(result, state, list, ngroups, keep);
	pfree(list);
}

void
sa_result_append(SaResult *result, TupleTableSlot *row)
{
	MemoryContext old = MemoryContextSwitchTo(result->row_cxt);

	insert_row(result, row->tts_values + 1, row->tts_isnull + 1, NULL);
	MemoryContextSwitchTo(old);
}
