/*
 * fdw.c
 *		The foreign data wrapper: how PostgreSQL's planner and executor see a stream.
 *
 * Invariant: in a worker, a scan of the stream whose batch is on offer returns the events of that batch,
 * with their ordinal as ctid; elsewhere a scan peeks into the source.  A row that does not pass the
 * stream's constraints is refused to the writer.
 *
 * What core does (15 to 18) for a foreign table that is written to: permissions, defaults, BEFORE and
 * AFTER triggers, stored generated columns, RETURNING and WITH CHECK OPTION, in INSERT and in COPY;
 * the partition constraint only in COPY.  What it leaves to us: NOT NULL and CHECK, and the
 * partition constraint in INSERT.
 *
 * Locks: those that core takes on the foreign table; the source's own.  Crash: see the source.
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "access/table.h"
#include "catalog/pg_am.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "commands/explain.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "foreign/fdwapi.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/planmain.h"
#include "optimizer/restrictinfo.h"
#include "parser/parsetree.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "compat.h"

#include "batch_scan.h"
#include "option.h"
#include "source.h"

PG_FUNCTION_INFO_V1(sa_fdw_handler);

#define ASSUMED_ROWS 10000

/* ---------- planning ---------- */

/*
 * No plan of this statement runs in parallel.  Called while the sizes of tables are estimated, before any
 * of their paths is made.
 */
static void
forbid_parallel(PlannerInfo *root)
{
	root->glob->parallelModeOK = false;
	for (; root != NULL; root = root->parent_root)
	{
		for (int i = 1; i < root->simple_rel_array_size; i++)
			if (root->simple_rel_array[i] != NULL)
				root->simple_rel_array[i]->consider_parallel = false;
	}
}

static void
get_rel_size(PlannerInfo *root, RelOptInfo *baserel, Oid foreigntableid)
{
	if (sa_source_routine(sa_option_source(foreigntableid))->serial)
		forbid_parallel(root);
	baserel->tuples = ASSUMED_ROWS;
	set_baserel_size_estimates(root, baserel);
}

static void
get_paths(PlannerInfo *root, RelOptInfo *baserel, Oid foreigntableid)
{
	Cost		startup = baserel->baserestrictcost.startup;
	Cost		total = startup + (cpu_tuple_cost + baserel->baserestrictcost.per_tuple) * baserel->tuples;

	add_path(baserel, (Path *) sa_create_foreignscan_path(root, baserel, baserel->rows, startup, total));
}

/* The attribute numbers that the scan has to deliver; 0 among them: all. */
static List *
needed_columns(RelOptInfo *baserel, List *scan_clauses)
{
	Bitmapset  *used = NULL;
	List	   *columns = NIL;
	ListCell   *lc;
	int			member = -1;

	pull_varattnos((Node *) baserel->reltarget->exprs, baserel->relid, &used);
	foreach(lc, scan_clauses)
		pull_varattnos((Node *) lfirst_node(RestrictInfo, lc)->clause, baserel->relid, &used);
	while ((member = bms_next_member(used, member)) >= 0)
	{
		AttrNumber	attnum = member + FirstLowInvalidHeapAttributeNumber;

		if (attnum >= 0)
			columns = lappend_int(columns, attnum);
	}
	return columns;
}

/* May the column of this type be compared by numbers, so that a source can use it? */
static bool
is_number_or_time(Oid type)
{
	return type == INT2OID || type == INT4OID || type == INT8OID || type == TIMESTAMPTZOID;
}

/*
 * A condition of the form column (op) value, where the source can use it: its column and btree strategy as
 * a list of two numbers, and the value's expression.  NIL when it is none.
 */
static List *
restriction_of(RelOptInfo *baserel, Expr *clause, Expr **value)
{
	OpExpr	   *op = (OpExpr *) clause;
	Node	   *left;
	Node	   *right;
	Oid			opno;
	Oid			opclass;
	int			strategy;

	if (!IsA(clause, OpExpr) || list_length(op->args) != 2)
		return NIL;
	opno = op->opno;
	left = linitial(op->args);
	right = lsecond(op->args);
	if (!IsA(left, Var))
	{
		left = lsecond(op->args);
		right = linitial(op->args);
		opno = get_commutator(opno);
	}
	if (!OidIsValid(opno) || !IsA(left, Var) || ((Var *) left)->varno != baserel->relid ||
		((Var *) left)->varattno <= 0 || contain_var_clause(right) || contain_volatile_functions(right) ||
		!is_number_or_time(((Var *) left)->vartype) || !is_number_or_time(exprType(right)) ||
		(((Var *) left)->vartype == TIMESTAMPTZOID) != (exprType(right) == TIMESTAMPTZOID))
		return NIL;
	opclass = GetDefaultOpClass(((Var *) left)->vartype, BTREE_AM_OID);
	strategy = OidIsValid(opclass) ? get_op_opfamily_strategy(opno, get_opclass_family(opclass)) : 0;
	if (strategy == 0)
		return NIL;
	*value = (Expr *) right;
	return list_make2_int(((Var *) left)->varattno, strategy);
}

static ForeignScan *
get_plan(PlannerInfo *root, RelOptInfo *baserel, Oid foreigntableid, ForeignPath *best_path,
		 List *tlist, List *scan_clauses, Plan *outer_plan)
{
	List	   *columns = needed_columns(baserel, scan_clauses);
	List	   *restrictions = NIL;
	List	   *values = NIL;
	ListCell   *lc;

	foreach(lc, scan_clauses)
	{
		Expr	   *value;
		List	   *restriction = restriction_of(baserel, lfirst_node(RestrictInfo, lc)->clause, &value);

		if (restriction == NIL)
			continue;
		restrictions = lappend(restrictions, restriction);
		values = lappend(values, value);
	}
	return make_foreignscan(tlist, extract_actual_clauses(scan_clauses, false), baserel->relid,
							values, list_make2(columns, restrictions), NIL, NIL, outer_plan);
}

/* ---------- scanning ---------- */

typedef struct StreamScan
{
	Oid			stream;
	const SaSourceRoutine *routine;
	SaPeek	   *peek;			/* begun at the first row */
	const SaBatchScan *offered; /* NULL: peek */
	int			next;			/* ordinal */
	int			ncolumns;
	int		   *columns;		/* to copy from an event */
	List	   *restrictions;	/* of the plan: column and strategy */
	List	   *values;			/* of ExprState: what they compare with */
} StreamScan;

static void
list_columns(StreamScan *state, List *columns, TupleDesc desc)
{
	ListCell   *lc;

	state->columns = palloc(sizeof(int) * (desc->natts + 1));
	if (list_member_int(columns, 0))
	{
		for (int i = 0; i < desc->natts; i++)
			state->columns[state->ncolumns++] = i;
		return;
	}
	foreach(lc, columns)
		state->columns[state->ncolumns++] = lfirst_int(lc) - 1;
}

/* Is there a batch, now, that the scan is to read? */
static void
look_for_batch(StreamScan *state)
{
	state->offered = sa_batch_offered(state->stream);
	state->next = state->offered != NULL ? state->offered->lo : 0;
}

static void
begin_scan(ForeignScanState *node, int eflags)
{
	ForeignScan *plan = (ForeignScan *) node->ss.ps.plan;
	Relation	stream = node->ss.ss_currentRelation;
	StreamScan  *state;

	if (eflags & EXEC_FLAG_EXPLAIN_ONLY)
		return;
	state = palloc0(sizeof(StreamScan));
	state->stream = RelationGetRelid(stream);
	state->routine = sa_source_routine(sa_option_source(state->stream));
	list_columns(state, linitial(plan->fdw_private), RelationGetDescr(stream));
	state->restrictions = lsecond(plan->fdw_private);
	state->values = ExecInitExprList(plan->fdw_exprs, (PlanState *) node);
	look_for_batch(state);
	node->fdw_state = state;
}

static TupleTableSlot *
next_event(StreamScan *state, TupleTableSlot *slot)
{
	const SaBatchScan *scan = state->offered;

	while (state->next < scan->hi)
	{
		int			ordinal = state->next++;
		const SaEvent *event = &scan->batch->events[ordinal];

		if (event->verdict != SA_EVENT_GOOD || (scan->exclude != NULL && scan->exclude[ordinal]))
			continue;
		ExecClearTuple(slot);
		memset(slot->tts_isnull, true, sizeof(bool) * slot->tts_tupleDescriptor->natts);
		for (int i = 0; i < state->ncolumns; i++)
		{
			int			column = state->columns[i];

			slot->tts_values[column] = event->values[column];
			slot->tts_isnull[column] = event->nulls[column];
		}
		ExecStoreVirtualTuple(slot);
		sa_batch_ordinal_to_tid(ordinal, &slot->tts_tid);
		slot->tts_tableOid = state->stream;
		return slot;
	}
	return ExecClearTuple(slot);
}

static int64
number_of(Oid type, Datum value)
{
	switch (type)
	{
		case INT2OID:
			return DatumGetInt16(value);
		case INT4OID:
			return DatumGetInt32(value);
		default:
			return DatumGetInt64(value);
	}
}

/* The restrictions of the plan with their values as of now; those that compare with NULL are left out. */
static List *
evaluate_restrictions(ForeignScanState *node, StreamScan *state)
{
	List	   *result = NIL;
	ListCell   *lc;
	ListCell   *lv;

	forboth(lc, state->restrictions, lv, state->values)
	{
		SaRestriction *restriction = palloc(sizeof(SaRestriction));
		ExprState  *value = lfirst(lv);
		bool		isnull;
		Datum		datum = ExecEvalExprSwitchContext(value, node->ss.ps.ps_ExprContext, &isnull);

		if (isnull)
			continue;
		restriction->attnum = linitial_int((List *) lfirst(lc));
		restriction->strategy = lsecond_int((List *) lfirst(lc));
		restriction->value = number_of(exprType((Node *) value->expr), datum);
		result = lappend(result, restriction);
	}
	return result;
}

static TupleTableSlot *
next_peeked(ForeignScanState *node, StreamScan *state, TupleTableSlot *slot)
{
	if (state->peek == NULL)
	{
		EState	   *estate = node->ss.ps.state;
		MemoryContext oldcxt = MemoryContextSwitchTo(estate->es_query_cxt);

		state->peek = state->routine->peek_begin(node->ss.ss_currentRelation, estate->es_snapshot,
												 evaluate_restrictions(node, state));
		MemoryContextSwitchTo(oldcxt);
	}
	if (!state->routine->peek_next(state->peek, slot))
		return ExecClearTuple(slot);
	slot->tts_tableOid = state->stream;
	return slot;
}

static TupleTableSlot *
iterate_scan(ForeignScanState *node)
{
	StreamScan  *state = node->fdw_state;
	TupleTableSlot *slot = node->ss.ss_ScanTupleSlot;

	if (state->offered != NULL)
		return next_event(state, slot);
	return next_peeked(node, state, slot);
}

static void
rescan(ForeignScanState *node)
{
	StreamScan  *state = node->fdw_state;

	look_for_batch(state);
	if (state->peek == NULL)
		return;
	if (node->ss.ps.chgParam == NULL || state->restrictions == NIL)
	{
		state->routine->peek_rewind(state->peek);
		return;
	}
	/* other values to compare with: other places to read */
	state->routine->peek_end(state->peek);
	state->peek = NULL;
}

static void
end_scan(ForeignScanState *node)
{
	StreamScan  *state = node->fdw_state;

	if (state != NULL && state->peek != NULL)
		state->routine->peek_end(state->peek);
}

static void
explain_scan(ForeignScanState *node, ExplainState *es)
{
	Oid			stream = RelationGetRelid(node->ss.ss_currentRelation);

	ExplainPropertyText("Stream source", sa_option_source(stream), es);
}

/* ---------- writing ---------- */

typedef struct StreamModify
{
	const SaSourceRoutine *routine;
	SaStaging  *staging;
	bool		check_constraints;
	bool		check_partition;
} StreamModify;

static int
is_rel_updatable(Relation rel)
{
	return 1 << CMD_INSERT;
}

static void
refuse_modification(Oid stream, const char *what)
{
	bool		writable = sa_source_routine(sa_option_source(stream))->stage_begin != NULL;

	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot %s stream \"%s\"", what, get_rel_name(stream)),
			 writable ? 0 : errdetail("Its source is read only."),
			 writable ? errhint("Streams are append-only: use INSERT or COPY, or TRUNCATE to discard rows that are not yet read.") : 0));
}

static List *
plan_modify(PlannerInfo *root, ModifyTable *plan, Index result_relation, int subplan_index)
{
	Oid			stream = planner_rt_fetch(result_relation, root)->relid;

	if (plan->operation == CMD_UPDATE)
		refuse_modification(stream, "update");
	if (plan->operation == CMD_DELETE)
		refuse_modification(stream, "delete from");
	if (plan->operation != CMD_INSERT)
		refuse_modification(stream, "merge into");
	return NIL;
}

static void
begin_staging(ModifyTableState *mtstate, ResultRelInfo *info)
{
	ModifyTable *plan = castNode(ModifyTable, mtstate->ps.plan);
	Relation	stream = info->ri_RelationDesc;
	MemoryContext cxt = mtstate->ps.state->es_query_cxt;
	StreamModify *state = MemoryContextAllocZero(cxt, sizeof(StreamModify));
	TriggerDesc *triggers = info->ri_TrigDesc;

	if (plan != NULL && plan->onConflictAction == ONCONFLICT_UPDATE)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("INSERT with ON CONFLICT DO UPDATE is not supported on stream \"%s\"",
						RelationGetRelationName(stream))));
	state->routine = sa_source_routine(sa_option_source(RelationGetRelid(stream)));
	if (state->routine->stage_begin == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot insert into stream \"%s\"", RelationGetRelationName(stream)),
				 errdetail("Its source is read only.")));
	state->check_constraints = RelationGetDescr(stream)->constr != NULL;
	state->check_partition = stream->rd_rel->relispartition &&
		(info->ri_RootResultRelInfo == NULL ||
		 (triggers != NULL && triggers->trig_insert_before_row));
	state->staging = state->routine->stage_begin(stream, cxt);
	info->ri_FdwState = state;
}

static void
begin_modify(ModifyTableState *mtstate, ResultRelInfo *info, List *fdw_private, int subplan_index, int eflags)
{
	if (eflags & EXEC_FLAG_EXPLAIN_ONLY)
		return;
	begin_staging(mtstate, info);
}

static TupleTableSlot *
exec_insert(EState *estate, ResultRelInfo *info, TupleTableSlot *slot, TupleTableSlot *plan_slot)
{
	StreamModify *state = info->ri_FdwState;

	if (state->check_constraints)
		ExecConstraints(info, slot, estate);
	if (state->check_partition)
		ExecPartitionCheck(info, slot, estate, true);
	state->routine->stage_row(state->staging, slot);
	return slot;
}

/* In a worker's own statements, and for partitions that no row was routed to, there may be no state. */
static void
end_modify(EState *estate, ResultRelInfo *info)
{
	StreamModify *state = info->ri_FdwState;

	if (state == NULL)
		return;
	state->routine->stage_end(state->staging);
	info->ri_FdwState = NULL;
}

static void
exec_truncate(List *rels, DropBehavior behavior, bool restart_seqs)
{
	ListCell   *lc;

	foreach(lc, rels)
	{
		Relation	stream = lfirst(lc);
		const SaSourceRoutine *routine = sa_source_routine(sa_option_source(RelationGetRelid(stream)));

		if (routine->truncate == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot truncate stream \"%s\"", RelationGetRelationName(stream)),
					 errdetail("Its source is read only.")));
		routine->truncate(stream);
	}
}

/* ---------- the handler ---------- */

Datum
sa_fdw_handler(PG_FUNCTION_ARGS)
{
	FdwRoutine *routine = makeNode(FdwRoutine);

	routine->GetForeignRelSize = get_rel_size;
	routine->GetForeignPaths = get_paths;
	routine->GetForeignPlan = get_plan;
	routine->BeginForeignScan = begin_scan;
	routine->IterateForeignScan = iterate_scan;
	routine->ReScanForeignScan = rescan;
	routine->EndForeignScan = end_scan;
	routine->ExplainForeignScan = explain_scan;

	routine->IsForeignRelUpdatable = is_rel_updatable;
	routine->PlanForeignModify = plan_modify;
	routine->BeginForeignModify = begin_modify;
	routine->ExecForeignInsert = exec_insert;
	routine->EndForeignModify = end_modify;
	routine->BeginForeignInsert = begin_staging;
	routine->EndForeignInsert = end_modify;
	routine->ExecForeignTruncate = exec_truncate;

	PG_RETURN_POINTER(routine);
}
