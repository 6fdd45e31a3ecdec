/*
 * query.c
 *		Splitting a view's SELECT, and running its lower part against a batch.
 *
 * Invariant: the split depends on the definition alone, so a view split again after an invalidation has
 * the same columns in the same order.  The plan holds no locks between batches; it is made anew when
 * anything it depends on has changed.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/transam.h"
#include "access/sysattr.h"
#include "access/htup_details.h"
#include "catalog/pg_aggregate.h"
#include "catalog/pg_class.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "rewrite/rewriteDefine.h"
#include "rewrite/rewriteHandler.h"
#include "rewrite/rewriteManip.h"
#include "rewrite/rewriteManip.h"
#include "storage/lmgr.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/ruleutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "compat.h"
#include "query.h"
#include "window.h"

/* What the split works with. */
typedef struct SplitContext
{
	ParseState *pstate;
	Query	   *query;
	SaQuery    *result;
	int			stream_rti;
	int			window_rti;		/* 0: none */
	Relids		nullable;		/* relations on the nullable side of an outer join */
	List	   *below;			/* target list so far */
	List	   *groups;			/* grouping expressions, in order of the group row */
	List	   *group_columns;	/* their columns in the group row */
} SplitContext;

static SaQuery *all_queries = NULL;

static void
refuse(ParseState *pstate, int location, const char *what, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("%s in continuous views", what),
			 hint ? errhint("%s", hint) : 0,
			 parser_errposition(pstate, location)));
}

/* --- what a query may hold --- */

static int
location_of_list(List *list)
{
	return exprLocation((Node *) list);
}

/* Position of the first target or clause that a list of SortGroupClause names. */
static int
location_of_clauses(Query *query, List *clauses)
{
	TargetEntry *tle = get_sortgroupclause_tle(linitial(clauses), query->targetList);

	return exprLocation((Node *) tle->expr);
}

/* Position of the first set-returning function. */
static bool
find_set_walker(Node *node, int *location)
{
	if (node == NULL)
		return false;
	if ((IsA(node, FuncExpr) && ((FuncExpr *) node)->funcretset) || (IsA(node, OpExpr) && ((OpExpr *) node)->opretset))
	{
		*location = exprLocation(node);
		return true;
	}
	return expression_tree_walker(node, find_set_walker, location);
}

static int
location_of_set_function(Query *query)
{
	int			location = -1;

	(void) find_set_walker((Node *) query->targetList, &location);
	return location;
}

/* Position of the first branch but one of a UNION, INTERSECT or EXCEPT. */
static int
location_of_set_operation(Query *query)
{
	Node	   *branch = castNode(SetOperationStmt, query->setOperations)->rarg;

	while (IsA(branch, SetOperationStmt))
		branch = ((SetOperationStmt *) branch)->larg;
	return location_of_list(rt_fetch(castNode(RangeTblRef, branch)->rtindex, query->rtable)->subquery->targetList);
}

static void
check_shape(Query *query, ParseState *pstate)
{
	if (query->commandType != CMD_SELECT)
		refuse(pstate, -1, "only SELECT is supported", NULL);
	if (query->setOperations)
		refuse(pstate, location_of_set_operation(query), "UNION, INTERSECT and EXCEPT are not supported", "Create one view for each part.");
	if (query->cteList)
		refuse(pstate, ((CommonTableExpr *) linitial(query->cteList))->location,
			   "WITH is not supported", "Write the sub-query in the FROM list, over ordinary tables.");
	if (query->hasWindowFuncs)
		refuse(pstate, locate_windowfunc((Node *) query->targetList), "window functions are not supported",
			   "Query the result table with window functions instead.");
	if (query->distinctClause)
		refuse(pstate, location_of_clauses(query, query->distinctClause), "DISTINCT is not supported",
			   "Use GROUP BY.");
	if (query->sortClause)
		refuse(pstate, location_of_clauses(query, query->sortClause), "ORDER BY is not supported",
			   "Sort when you query the result table.");
	if (query->limitCount || query->limitOffset)
		refuse(pstate, exprLocation(query->limitCount ? query->limitCount : query->limitOffset),
			   "LIMIT and OFFSET are not supported", "Limit when you query the result table.");
	if (query->rowMarks)
		refuse(pstate, -1, "FOR UPDATE and FOR SHARE are not supported", NULL);
	if (query->groupingSets)
		refuse(pstate, location_of_list(query->groupingSets),
			   "GROUPING SETS, ROLLUP and CUBE are not supported", "Create one view for each grouping.");
	if (query->hasTargetSRFs)
		refuse(pstate, location_of_set_function(query),
			   "set-returning functions in the select list are not supported", "Move them to the FROM list.");
}

static bool
is_stream_rte(RangeTblEntry *rte)
{
	return rte->rtekind == RTE_RELATION && rte->relkind == RELKIND_FOREIGN_TABLE &&
		sa_option_is_stream(rte->relid);
}

/* Streams anywhere below: the number found, sub-queries and views included. */
static bool
count_streams_walker(Node *node, int *count)
{
	if (node == NULL)
		return false;
	if (IsA(node, RangeTblEntry))
	{
		*count += is_stream_rte((RangeTblEntry *) node);
		return false;
	}
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, count_streams_walker, count, QTW_EXAMINE_RTES_BEFORE);
	return expression_tree_walker(node, count_streams_walker, count);
}

static int
count_streams(Query *query)
{
	Query	   *copy = copyObject(query);
	int			count = 0;
	ListCell   *lc;

	AcquireRewriteLocks(copy, true, false);
	foreach(lc, QueryRewrite(copy))
		count_streams_walker(lfirst(lc), &count);
	return count;
}

static Relids
rtis_of(Node *jtnode)
{
	ListCell   *lc;
	Relids		result = NULL;

	if (IsA(jtnode, RangeTblRef))
		return bms_make_singleton(((RangeTblRef *) jtnode)->rtindex);
	if (IsA(jtnode, FromExpr))
	{
		foreach(lc, ((FromExpr *) jtnode)->fromlist)
			result = bms_join(result, rtis_of(lfirst(lc)));
		return result;
	}
	return bms_join(rtis_of(((JoinExpr *) jtnode)->larg), rtis_of(((JoinExpr *) jtnode)->rarg));
}

/* Relations whose columns an outer join may fill with NULL. */
static Relids
find_nullable(Node *jtnode)
{
	ListCell   *lc;
	JoinExpr   *join;
	Relids		result = NULL;

	if (jtnode == NULL || IsA(jtnode, RangeTblRef))
		return NULL;
	if (IsA(jtnode, FromExpr))
	{
		foreach(lc, ((FromExpr *) jtnode)->fromlist)
			result = bms_join(result, find_nullable(lfirst(lc)));
		return result;
	}
	join = (JoinExpr *) jtnode;
	result = bms_join(find_nullable(join->larg), find_nullable(join->rarg));
	if (join->jointype == JOIN_LEFT || join->jointype == JOIN_FULL)
		result = bms_join(result, rtis_of(join->rarg));
	if (join->jointype == JOIN_RIGHT || join->jointype == JOIN_FULL)
		result = bms_join(result, rtis_of(join->larg));
	return result;
}

/* Windows and watermark must speak of the same time: a window is over the stream's event time. */
static void
check_window_time(SplitContext *split, FuncExpr *window)
{
	Node	   *arg = sa_window_call_time(sa_flatten_join_aliases(split->query, linitial(window->args)));
	Relation	rel = table_open(split->result->stream, AccessShareLock);
	SaStreamOptions *stream = sa_option_stream(rel);

	if (stream->time_attr != InvalidAttrNumber && stream->time_type != TIMESTAMPTZOID && exprType(arg) == TIMESTAMPTZOID)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("a window in a time zone needs an event time of type timestamp with time zone"),
				 errdetail("The event time of stream \"%s\" is of type %s.", RelationGetRelationName(rel),
						   format_type_be(stream->time_type)),
				 errhint("Leave the time zone out: windows are in the local time that the column is in."),
				 parser_errposition(split->pstate, exprLocation((Node *) window))));
	if (stream->time_attr != InvalidAttrNumber &&
		!(IsA(arg, Var) && ((Var *) arg)->varno == split->stream_rti && ((Var *) arg)->varattno == stream->time_attr))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("a window over another time than the event time is not supported in continuous views"),
				 errdetail("The watermark of stream \"%s\" follows its column \"%s\".", RelationGetRelationName(rel),
						   get_attname(split->result->stream, stream->time_attr, false)),
				 errhint("Use that column itself as the first argument of the window function."),
				 parser_errposition(split->pstate, exprLocation((Node *) window))));
	table_close(rel, AccessShareLock);
}

void
sa_query_check_new(Query *query, ParseState *pstate)
{
	ListCell   *lc;

	foreach(lc, query->rtable)
	{
		RangeTblEntry *rte = lfirst(lc);
		FuncExpr   *func = sa_window_call_hidden(rte);

		if (func != NULL)
			refuse(pstate, exprLocation((Node *) func),
				   "a window function in a sub-query, among ROWS FROM or WITH ORDINALITY is not supported",
				   "Put the window function by itself in the FROM list of the view's query.");
		func = sa_window_call_of(copyObject(rte));	/* which writes out what the query leaves to defaults */
		if (func != NULL)
			sa_window_call_check_new(func, pstate);
	}
}

static void
find_stream_and_window(SplitContext *split)
{
	ListCell   *lc;
	int			rti = 0;
	int			nstreams;
	FuncExpr   *window = NULL;

	foreach(lc, split->query->rtable)
	{
		RangeTblEntry *rte = lfirst(lc);
		FuncExpr   *func;

		rti++;
		if (is_stream_rte(rte))
		{
			split->stream_rti = rti;
			split->result->stream = rte->relid;
		}
		else if ((func = sa_window_call_of(rte)) != NULL)
		{
			if (window)
				refuse(split->pstate, exprLocation((Node *) func),
					   "more than one window function is not supported", "Create one view for each window.");
			window = func;
			split->window_rti = rti;
		}
	}
	nstreams = count_streams(split->query);
	if (nstreams == 0)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("a continuous view needs a stream in its FROM list"),
				 errhint("A stream is a foreign table of the wrapper stream_agg; use an ordinary materialized view for ordinary tables.")));
	if (split->stream_rti == 0)
		refuse(split->pstate, -1, "a stream inside a sub-query or view is not supported",
			   "Name the stream in the FROM list itself.");
	if (nstreams > 1)
		refuse(split->pstate, -1, "more than one stream is not supported",
			   "Name one stream in the FROM list itself, and join it with ordinary tables.");
	if (window)
		check_window_time(split, window);
	split->nullable = find_nullable((Node *) split->query->jointree);
	if (bms_is_member(split->stream_rti, split->nullable) ||
		(split->window_rti != 0 && bms_is_member(split->window_rti, split->nullable)))
		refuse(split->pstate, -1, "a stream on the nullable side of an outer join is not supported",
			   "Put the stream on the preserved side, such as the left side of a LEFT JOIN.");
}

/* --- functions whose answer changes from one reading to the next --- */

static bool
is_clock_function(Oid funcid)
{
	return funcid == F_NOW || funcid == F_STATEMENT_TIMESTAMP || funcid == F_TRANSACTION_TIMESTAMP ||
		funcid == F_AGE_TIMESTAMPTZ || funcid == F_AGE_TIMESTAMP;
}

static bool
unsteady_function_checker(Oid funcid, void *context)
{
	return func_volatile(funcid) == PROVOLATILE_VOLATILE || is_clock_function(funcid);
}

static bool
unsteady_walker(Node *node, ParseState *pstate)
{
	if (node == NULL)
		return false;
	if (IsA(node, SQLValueFunction))
	{
		SQLValueFunctionOp op = ((SQLValueFunction *) node)->op;

		if (op <= SVFOP_LOCALTIMESTAMP_N)
			refuse(pstate, ((SQLValueFunction *) node)->location, "the current time is not supported",
				   "The answer must depend on the events alone; use the event time.");
	}
	if (check_functions_in_node(node, unsteady_function_checker, NULL))
		refuse(pstate, exprLocation(node), "volatile functions and the current time are not supported",
			   "The answer must depend on the events alone: the same log must give the same answer however often it is read.");
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, unsteady_walker, pstate, 0);
	return expression_tree_walker(node, unsteady_walker, pstate);
}

/* --- splitting --- */

/* Column of the rows from below that holds this expression; appended if it is not there yet. */
static AttrNumber
below_column(SplitContext *split, Expr *expr, const char *name)
{
	ListCell   *lc;
	AttrNumber	column = list_length(split->below) + 1;

	foreach(lc, split->below)
	{
		TargetEntry *tle = lfirst(lc);

		if (equal(tle->expr, expr))
			return tle->resno;
	}
	split->below = lappend(split->below, makeTargetEntry(copyObject(expr), column, pstrdup(name), false));
	return column;
}

static bool
is_window_var(SplitContext *split, Node *expr, AttrNumber attno)
{
	Var		   *var = (Var *) expr;

	return split->window_rti != 0 && IsA(expr, Var) && var->varno == split->window_rti &&
		var->varattno == attno && var->varlevelsup == 0;
}

/* A column that can never be NULL: one that its table declares so, or a window's bound. */
static bool
is_never_null(SplitContext *split, Node *expr)
{
	Var		   *var = (Var *) expr;
	RangeTblEntry *rte;
	HeapTuple	tuple;
	bool		result;

	if (!IsA(expr, Var) || var->varattno <= 0 || bms_is_member(var->varno, split->nullable))
		return false;
	if (var->varno == split->window_rti)
		return true;
	rte = rt_fetch(var->varno, split->query->rtable);
	if (rte->rtekind != RTE_RELATION)
		return false;
	tuple = SearchSysCache2(ATTNUM, ObjectIdGetDatum(rte->relid), Int16GetDatum(var->varattno));
	if (!HeapTupleIsValid(tuple))
		return false;
	result = ((Form_pg_attribute) GETSTRUCT(tuple))->attnotnull;
	ReleaseSysCache(tuple);
	return result;
}

static void
check_selected(SplitContext *split, TargetEntry *tle)
{
	if (tle->resjunk)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("every grouping column of a continuous view must be in its select list"),
				 errhint("Add the expression of GROUP BY to the select list."),
				 parser_errposition(split->pstate, exprLocation((Node *) tle->expr))));
}

/* A grouping column that is no window: part of the key. */
static void
add_key(SplitContext *split, SortGroupClause *clause, TargetEntry *tle)
{
	SaQuery    *result = split->result;
	SaKey	   *key = &result->keys[result->nkeys++];

	check_selected(split, tle);
	if (!OidIsValid(clause->sortop))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("grouping type %s has no default btree operator class",
						format_type_be(exprType((Node *) tle->expr))),
				 parser_errposition(split->pstate, exprLocation((Node *) tle->expr))));
	key->column = below_column(split, tle->expr, tle->resname ? tle->resname : "key");
	key->result = tle->resno;
	key->type = exprType((Node *) tle->expr);
	key->collation = exprCollation((Node *) tle->expr);
	key->eqop = clause->eqop;
	key->nullable = !is_never_null(split, (Node *) tle->expr);
	split->groups = lappend(split->groups, tle->expr);
	split->group_columns = lappend_int(split->group_columns, result->nkeys);
}

/* Both bounds of a window must be told by those that are selected. */
static void
measure_window(SplitContext *split, FuncExpr *func)
{
	SaQuery    *result = split->result;
	SaWindowMeasures measures;

	sa_window_call_check(func, split->pstate);
	sa_window_call_measure(func, &measures);
	result->sessions = sa_window_call_kind(func) == SA_SESSION;
	if ((result->start_result == 0 && !measures.end_decides) || (result->end_result == 0 && !measures.start_decides))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("window_start and window_end must both be in GROUP BY and in the select list when %s",
						result->sessions ? "windows are sessions" : measures.start_decides || measures.end_decides ? "one of them does not decide the other" :
						"the window's size is not constant"),
				 measures.end_decides && !measures.start_decides ? errhint("window_end alone is enough, too.") :
				 measures.start_decides ? errhint("window_start alone is enough, too.") : 0,
				 parser_errposition(split->pstate, exprLocation((Node *) func))));
	result->window = (FuncExpr *) sa_flatten_join_aliases(split->query, (Node *) func);
	result->window_size = measures.size;
	result->measures = measures;
}

static void
add_window(SplitContext *split)
{
	SaQuery    *result = split->result;
	FuncExpr   *func = sa_window_call_of(rt_fetch(split->window_rti, split->query->rtable));
	Oid			type = sa_window_call_type(func);
	Var		   *start = makeVar(split->window_rti, 1, type, -1, InvalidOid, 0);
	Var		   *end = makeVar(split->window_rti, 2, type, -1, InvalidOid, 0);

	if (!result->windowed)
		refuse(split->pstate, exprLocation((Node *) func),
			   "a window that is not among the grouping columns is not supported",
			   "Add window_start or window_end to GROUP BY.");
	if (result->start_result == 0 && result->end_result == 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("window_start or window_end must be in the select list of a continuous view"),
				 parser_errposition(split->pstate, exprLocation((Node *) func))));
	measure_window(split, func);
	result->start_column = below_column(split, (Expr *) start, "window_start");
	result->end_column = below_column(split, (Expr *) end, "window_end");
	split->groups = lappend(lappend(split->groups, start), end);
	split->group_columns = lappend_int(lappend_int(split->group_columns, result->nkeys + 1), result->nkeys + 2);
}

static void
split_groups(SplitContext *split)
{
	Query	   *query = split->query;
	SaQuery    *result = split->result;
	ListCell   *lc;

	result->keys = palloc0(sizeof(SaKey) * (list_length(query->groupClause) + 1));
	foreach(lc, query->groupClause)
	{
		SortGroupClause *clause = lfirst(lc);
		TargetEntry *tle = get_sortgroupclause_tle(clause, query->targetList);
		bool		is_start = is_window_var(split, (Node *) tle->expr, 1);
		bool		is_end = is_window_var(split, (Node *) tle->expr, 2);

		if (!is_start && !is_end)
		{
			add_key(split, clause, tle);
			continue;
		}
		result->windowed = true;
		if (is_start && !tle->resjunk)
			result->start_result = tle->resno;
		if (is_end && !tle->resjunk)
			result->end_result = tle->resno;
	}
	if (split->window_rti != 0)
		add_window(split);
}

/* Collect the aggregates of the target list and HAVING, each once. */
static bool
collect_aggs_walker(Node *node, List **aggs)
{
	if (node == NULL)
		return false;
	if (IsA(node, Aggref))
	{
		*aggs = list_append_unique(*aggs, node);
		return false;
	}
	return expression_tree_walker(node, collect_aggs_walker, aggs);
}

/* The argument as evaluated below: only where the FILTER lets the event pass. */
static Expr *
guarded_argument(Aggref *aggref, Expr *arg)
{
	CaseExpr   *guard;
	CaseWhen   *when;

	if (aggref->aggfilter == NULL || IsA(arg, Var) || IsA(arg, Const))
		return arg;
	when = makeNode(CaseWhen);
	when->expr = aggref->aggfilter;
	when->result = arg;
	when->location = -1;
	guard = makeNode(CaseExpr);
	guard->casetype = exprType((Node *) arg);
	guard->casecollid = exprCollation((Node *) arg);
	guard->args = list_make1(when);
	guard->defresult = (Expr *) makeNullConst(guard->casetype, exprTypmod((Node *) arg), guard->casecollid);
	guard->location = -1;
	return (Expr *) guard;
}

static void
add_agg(SplitContext *split, Aggref *aggref)
{
	SaAggColumn *agg = &split->result->aggs[split->result->naggs++];
	ListCell   *lc;

	sa_agg_check(aggref, split->pstate);
	if (split->result->sessions)
		sa_agg_check_combines(aggref, split->pstate);
	agg->ref = aggref;
	foreach(lc, aggref->args)
	{
		Expr	   *arg = guarded_argument(aggref, ((TargetEntry *) lfirst(lc))->expr);

		agg->columns = lappend_int(agg->columns, below_column(split, arg, "argument"));
	}
	if (aggref->aggfilter)
		agg->filter = below_column(split, aggref->aggfilter, "filter");
	foreach(lc, split->query->targetList)
	{
		TargetEntry *tle = lfirst(lc);

		if (!tle->resjunk && agg->result == 0 && equal(tle->expr, aggref))
			agg->result = tle->resno;
	}
}

static void
split_aggs(SplitContext *split)
{
	List	   *aggs = NIL;
	ListCell   *lc;

	collect_aggs_walker((Node *) split->query->targetList, &aggs);
	collect_aggs_walker(split->query->havingQual, &aggs);
	split->result->aggs = palloc0(sizeof(SaAggColumn) * (list_length(aggs) + 1));
	foreach(lc, aggs)
		add_agg(split, lfirst(lc));
}

/* Rewrite an expression of the target list or HAVING to read a group's row. */
static Node *
above_mutator(Node *node, SplitContext *split)
{
	SaQuery    *result = split->result;
	ListCell   *lc;
	ListCell   *lcol;

	if (node == NULL)
		return NULL;
	if (IsA(node, Aggref))
	{
		for (int i = 0; i < result->naggs; i++)
			if (equal(result->aggs[i].ref, node))
				return (Node *) makeVar(1, result->nkeys + (result->windowed ? 2 : 0) + i + 1,
										exprType(node), exprTypmod(node), exprCollation(node), 0);
		elog(ERROR, "aggregate not found");
	}
	forboth(lc, split->groups, lcol, split->group_columns)
		if (equal(lfirst(lc), node))
		return (Node *) makeVar(1, lfirst_int(lcol), exprType(node), exprTypmod(node), exprCollation(node), 0);
	if (IsA(node, SubLink))
		refuse(split->pstate, exprLocation(node),
			   "a sub-query above the aggregation is not supported",
			   "Join the table in the FROM list, or query it together with the result table.");
	if (IsA(node, Var))
		ereport(ERROR,
				(errcode(ERRCODE_GROUPING_ERROR),
				 errmsg("every column outside aggregates must appear in GROUP BY in continuous views"),
				 errhint("Add the column to GROUP BY."),
				 parser_errposition(split->pstate, exprLocation(node))));
	return expression_tree_mutator(node, above_mutator, split);
}

static void
split_above(SplitContext *split)
{
	SaQuery    *result = split->result;
	ListCell   *lc;

	foreach(lc, split->query->targetList)
	{
		TargetEntry *tle = lfirst(lc);
		TargetEntry *above;

		if (tle->resjunk)
			continue;
		above = makeTargetEntry((Expr *) above_mutator((Node *) tle->expr, split), tle->resno, tle->resname, false);
		above->expr = expression_planner(above->expr);
		result->targets = lappend(result->targets, above);
	}
	result->nresults = list_length(result->targets);
	if (split->query->havingQual)
	{
		Node	   *having = above_mutator(split->query->havingQual, split);

		if (IsA(having, List))
			having = (Node *) make_ands_explicit((List *) having);
		result->having = expression_planner((Expr *) having);
	}
}

static void
make_group_desc(SplitContext *split)
{
	SaQuery    *result = split->result;
	int			column = 0;
	ListCell   *lc;

	result->group_desc = CreateTemplateTupleDesc(list_length(split->groups) + result->naggs);
	foreach(lc, split->groups)
	{
		Node	   *expr = lfirst(lc);

		TupleDescInitEntry(result->group_desc, ++column, NULL, exprType(expr), exprTypmod(expr), 0);
		TupleDescInitEntryCollation(result->group_desc, column, exprCollation(expr));
	}
	for (int i = 0; i < result->naggs; i++)
	{
		Node	   *ref = (Node *) result->aggs[i].ref;

		TupleDescInitEntry(result->group_desc, ++column, NULL, exprType(ref), exprTypmod(ref), 0);
		TupleDescInitEntryCollation(result->group_desc, column, exprCollation(ref));
	}
}

/* True when the batch itself feeds the rows: no join stands between, which would copy values. */
static bool
reads_stream_alone(SplitContext *split)
{
	Relids		rtis = rtis_of((Node *) split->query->jointree);

	if (split->window_rti != 0)
	{
		FuncExpr   *window = sa_window_call_of(rt_fetch(split->window_rti, split->query->rtable));

		if (split->result->hop_count > 0 || split->result->window_set || sa_window_call_bound(window, false) != NULL)
			rtis = bms_del_member(rtis, split->window_rti);
	}
	return bms_membership(rtis) == BMS_SINGLETON;
}

/* Which columns are gone with the next row: by reference, and not the batch's own. */
static void
note_columns(SplitContext *split)
{
	SaQuery    *result = split->result;
	bool		alone = reads_stream_alone(split);
	ListCell   *lc;

	result->fleeting = palloc0(sizeof(bool) * list_length(split->below));
	result->lengths = palloc0(sizeof(int16) * list_length(split->below));
	foreach(lc, split->below)
	{
		TargetEntry *tle = lfirst(lc);
		int			column = result->ncolumns++;
		bool		byval;
		bool		own = alone && IsA(tle->expr, Var) && ((Var *) tle->expr)->varno == split->stream_rti;

		get_typlenbyval(exprType((Node *) tle->expr), &result->lengths[column], &byval);
		result->fleeting[column] = !byval && !own;
	}
	result->fleeting[SA_CTID_COLUMN - 1] = false;	/* read at once */
}

/* The window function has been taken out of the FROM list. */
static void
forget_function(RangeTblEntry *rte)
{
	rte->rtekind = RTE_RESULT;
	rte->functions = NIL;
	rte->lateral = false;
}

/*
 * tumble() gives one row, so its columns are expressions of the event.  The planner would inline it too,
 * but keep a join for the sake of its WHERE.
 */
static Query *
inline_tumble(SplitContext *split, Query *below, FuncExpr *tumble)
{
	List	   *bounds = list_make2(makeTargetEntry(sa_window_call_bound(tumble, false), 1, NULL, false),
									makeTargetEntry(sa_window_call_bound(tumble, true), 2, NULL, false));

	below = (Query *) sa_replace_vars((Node *) below, split->window_rti, rt_fetch(split->window_rti, below->rtable), bounds,
									  &below->hasSubLinks);
	forget_function(rt_fetch(split->window_rti, below->rtable));
	return below;
}

/* Take hop() or cumulate() out where its windows are grouping columns and nothing else. */
static Query *
take_out_windows(SplitContext *split, Query *below, FuncExpr *call)
{
	SaQuery    *result = split->result;
	TargetEntry *start = list_nth(below->targetList, result->start_column - 1);
	TargetEntry *end = list_nth(below->targetList, result->end_column - 1);
	Expr	   *start_var = start->expr;
	Expr	   *end_var = end->expr;
	Expr	   *time = copyObject(linitial(call->args));
	SaWindowSet *set = sa_window_call_set(call);
	int64		size;

	if (set == NULL)
		return below;
	if (exprType((Node *) time) == DATEOID)
		time = (Expr *) makeFuncExpr(F_TIMESTAMP_DATE, TIMESTAMPOID, list_make1(time), InvalidOid, InvalidOid,
									 COERCE_EXPLICIT_CAST);
	start->expr = end->expr = time;
	if (bms_is_member(split->window_rti, pull_varnos(NULL, (Node *) below)))
	{
		start->expr = start_var;
		end->expr = end_var;
		return below;
	}
	forget_function(rt_fetch(split->window_rti, below->rtable));
	if (sa_window_call_hop(call, &size, &result->hop_slide, &result->hop_origin))
		result->hop_count = sa_window_hop_count(size, result->hop_slide);
	else
		result->window_set = set;
	return below;
}

/* Types whose equal values are the same to the last bit, so that it does not matter which comes first. */
static bool
is_exact_type(Oid type, Oid collation)
{
	switch (type)
	{
		case BOOLOID:
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case OIDOID:
		case DATEOID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
		case UUIDOID:
		case BYTEAOID:
			return true;
		case TEXTOID:
		case VARCHAROID:
			return !OidIsValid(collation) || get_collation_isdeterministic(collation);
		default:
			return type_is_enum(type);
	}
}

/* Aggregates that give the same in whatever order events come. */
static bool
is_order_free(Aggref *aggref)
{
	static const char *const sums[] = {
		"sum", "avg", "stddev", "stddev_pop", "stddev_samp", "variance", "var_pop", "var_samp",
		"bit_and", "bit_or", "bit_xor", "bool_and", "bool_or", "every"
	};
	const char *name = get_func_name(aggref->aggfnoid);
	Node	   *arg;
	Oid			type;

	if (aggref->aggfnoid >= FirstNormalObjectId)
		return false;
	if (strcmp(name, "count") == 0)
		return true;
	if (list_length(aggref->args) != 1)
		return false;
	arg = (Node *) linitial_node(TargetEntry, aggref->args)->expr;
	type = exprType(arg);
	if (strcmp(name, "min") == 0 || strcmp(name, "max") == 0)
		return is_exact_type(type, exprCollation(arg));
	for (int i = 0; i < lengthof(sums); i++)
		if (strcmp(name, sums[i]) == 0)
			return type == NUMERICOID || is_exact_type(type, InvalidOid);
	return false;
}

/*
 * States that can be combined; but not those of aggregates that show the order of events, which is that in which they
 * came, not that of panes.  (Some servers have combine functions for these, for plans where any order will do.)
 */
static bool
may_combine(Aggref *aggref)
{
	HeapTuple	tuple = SearchSysCache1(AGGFNOID, ObjectIdGetDatum(aggref->aggfnoid));
	const char *name = get_func_name(aggref->aggfnoid);
	bool		result;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for aggregate %u", aggref->aggfnoid);
	result = OidIsValid(((Form_pg_aggregate) GETSTRUCT(tuple))->aggcombinefn);
	ReleaseSysCache(tuple);
	if (aggref->aggfnoid < FirstNormalObjectId && (strcmp(name, "array_agg") == 0 || strcmp(name, "string_agg") == 0))
		return false;
	return result;
}

static void
note_combining(SaQuery *query)
{
	query->combines = true;
	for (int i = 0; i < query->naggs; i++)
		query->combines &= may_combine(query->aggs[i].ref);
}

/*
 * A join may give rows in another order than that of the events, and in another one when the batch is cut
 * elsewhere.  Where that could show in the answer, they are put back in order.
 */
static void
keep_order(SplitContext *split, Query *below)
{
	SaQuery    *result = split->result;
	bool		order_free = true;
	TargetEntry *ctid = linitial(below->targetList);
	SortGroupClause *sort;

	for (int i = 0; i < result->nkeys; i++)
		order_free &= is_exact_type(result->keys[i].type, result->keys[i].collation);
	for (int i = 0; i < result->naggs; i++)
		order_free &= is_order_free(result->aggs[i].ref);
	if (reads_stream_alone(split) || (order_free && !result->transform))
		return;
	sort = makeNode(SortGroupClause);
	sort->tleSortGroupRef = ctid->ressortgroupref = 1;
	sort->eqop = TIDEqualOperator;
	sort->sortop = TIDLessOperator;
	sort->hashable = true;
	below->sortClause = list_make1(sort);
}

/*
 * Where a session begins and ends is known above the aggregation only: below it, its columns are those of the event
 * alone, which nobody means.
 */
static void
check_session_columns(SplitContext *split, Query *below)
{
	SaQuery    *result = split->result;
	Query	   *rest = copyObject(below);
	bool		used = false;

	for (int i = 0; i < result->naggs; i++)
		used |= list_member_int(result->aggs[i].columns, result->start_column) ||
			list_member_int(result->aggs[i].columns, result->end_column);
	rest->targetList = list_delete_nth_cell(rest->targetList, Max(result->start_column, result->end_column) - 1);
	rest->targetList = list_delete_nth_cell(rest->targetList, Min(result->start_column, result->end_column) - 1);
	if (used || bms_is_member(split->window_rti, pull_varnos(NULL, (Node *) rest)))
		refuse(split->pstate, -1, "a session's window_start or window_end in WHERE, in an aggregate or in an expression of GROUP BY is not supported",
			   "Use them in the select list and in HAVING, where the session is known.");
}

/* Windows as expressions where that is possible, which spares a join. */
static Query *
inline_window(SplitContext *split, Query *below)
{
	FuncExpr   *func;

	if (split->window_rti == 0)
		return below;
	func = sa_window_call_of(rt_fetch(split->window_rti, below->rtable));
	if (split->result->sessions)
		check_session_columns(split, below);
	if (sa_window_call_bound(func, false) != NULL)
		return inline_tumble(split, below, func);
	return split->result->windowed ? take_out_windows(split, below, func) : below;
}

/* What lies below: the same FROM and WHERE, with the columns collected on the way. */
static void
finish_below(SplitContext *split)
{
	Query	   *below = copyObject(split->query);

	below->targetList = split->below;
	below->groupClause = NIL;
	below->havingQual = NULL;
	below->hasAggs = false;
	below = inline_window(split, below);
	keep_order(split, below);
	split->result->below = below;
	note_columns(split);
}

static void
split_transform(SplitContext *split)
{
	ListCell   *lc;
	FuncExpr   *window = split->window_rti == 0 ? NULL :
		sa_window_call_of(rt_fetch(split->window_rti, split->query->rtable));

	if (window && sa_window_call_kind(window) == SA_SESSION)
		refuse(split->pstate, exprLocation((Node *) window), "sessions of events that are not grouped are not supported",
			   "Group by window_start and window_end.");
	foreach(lc, split->query->targetList)
	{
		TargetEntry *tle = copyObject(lfirst(lc));

		if (tle->resjunk)
			continue;
		tle->resno = list_length(split->below) + 1;
		split->below = lappend(split->below, tle);
		split->result->nresults++;
	}
}

/* However a query's memory goes, invalidations must not find it any more. */
static void
unlink_query(void *arg)
{
	SaQuery   **link = &all_queries;

	while (*link && *link != arg)
		link = &(*link)->next;
	if (*link)
		*link = (*link)->next;
}

static void register_invalidation(void);

/* From here on the query hears of changes, also of those while it is being split. */
static void
link_query(SaQuery *query)
{
	register_invalidation();
	query->unlink.func = unlink_query;
	query->unlink.arg = query;
	MemoryContextRegisterResetCallback(query->cxt, &query->unlink);
	query->next = all_queries;
	all_queries = query;
}

SaQuery *
sa_query_split(Query *original, ParseState *pstate)
{
	MemoryContext cxt = AllocSetContextCreate(CurrentMemoryContext, "stream_agg query", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(cxt);
	SplitContext split = {.pstate = pstate, .query = copyObject(original)};
	Query	   *query = split.query;
	SaQuery    *result = palloc0(sizeof(SaQuery));

	split.result = result;
	result->cxt = cxt;
	result->plan_cxt = AllocSetContextCreate(cxt, "stream_agg plan", ALLOCSET_DEFAULT_SIZES);
	link_query(result);
	check_shape(query, pstate);
	sa_flatten_groups(query);
	query->targetList = (List *) sa_flatten_join_aliases(query, (Node *) query->targetList);
	query->havingQual = sa_flatten_join_aliases(query, query->havingQual);
	find_stream_and_window(&split);
	below_column(&split, (Expr *) makeVar(split.stream_rti, SelfItemPointerAttributeNumber, TIDOID, -1, InvalidOid, 0),
				 "ctid");
	result->transform = !query->hasAggs && query->groupClause == NIL && query->havingQual == NULL;
	if (result->transform)
		split_transform(&split);
	else
	{
		unsteady_walker((Node *) query, pstate);
		split_groups(&split);
		split_aggs(&split);
		note_combining(result);
		split_above(&split);
		make_group_desc(&split);
	}
	finish_below(&split);
	result->results = palloc(sizeof(AttrNumber) * (result->nresults + 1));
	for (int i = 0; i < result->nresults; i++)
		result->results[i] = i + 1;
	MemoryContextSwitchTo(old);
	return result;
}

static AttrNumber
result_column(const SaQuery *query, AttrNumber resno)
{
	return resno == 0 ? 0 : query->results[resno - 1];
}

/* Where the columns of the select list are in the result table: those of the same names. */
static void
place_columns(SaQuery *query, Relation definition, Oid result)
{
	for (int i = 0; i < query->nresults; i++)
	{
		char	   *name = NameStr(TupleDescAttr(RelationGetDescr(definition), i)->attname);

		query->results[i] = get_attnum(result, name);
		if (query->results[i] == InvalidAttrNumber)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_COLUMN),
					 errmsg("column \"%s\" of continuous view \"%s\" is missing in its result table", name, get_rel_name(result)),
					 errhint("Rename the column back that was renamed while the library was not loaded.")));
	}
	query->start_result = result_column(query, query->start_result);
	query->end_result = result_column(query, query->end_result);
	for (int i = 0; i < query->nkeys; i++)
		query->keys[i].result = result_column(query, query->keys[i].result);
	for (int i = 0; i < query->naggs; i++)
		query->aggs[i].result = result_column(query, query->aggs[i].result);
}

SaQuery *
sa_query_load(Oid definition, Oid result, Oid owner)
{
	Relation	rel = table_open(definition, AccessShareLock);
	ParseState *pstate = make_parsestate(NULL);
	Query	   *select = copyObject(get_view_query(rel));
	SaQuery    *query;

	setRuleCheckAsUser((Node *) select, owner);
	query = sa_query_split(select, pstate);
	if (OidIsValid(result))
		place_columns(query, rel, result);
	free_parsestate(pstate);
	table_close(rel, NoLock);
	return query;
}

void
sa_query_free(SaQuery *query)
{
	MemoryContextDelete(query->cxt);
}

void
sa_query_check_mode(const SaQuery *query, SaOutputMode mode, int64 watermark)
{
	if (mode == SA_APPEND && !query->transform && !query->windowed)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("output mode \"append\" needs a window"),
				 errdetail("Without a window, no group is ever final."),
				 errhint("Group by a window function such as tumble(), or by date_trunc() or date_bin() of the event time column itself, "
						 "or use output_mode = 'update'.")));
	if (mode == SA_APPEND && !query->transform && watermark == SA_NO_DELAY)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("output mode \"append\" needs a watermark"),
				 errdetail("Without a watermark, no window ever closes."),
				 errhint("Set the option watermark of the stream or of the view.")));
	if (mode == SA_COMPLETE && query->transform)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("output mode \"complete\" needs an aggregation"),
				 errdetail("A view without groups appends rows."),
				 errhint("Use output_mode = 'append'.")));
}

static void
refuse_unlogged(const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("state of this continuous view cannot be unlogged"),
			 errdetail("%s", detail),
			 errhint("Use state = 'heap'.")));
}

/* Does the query read anything but its stream, once? */
static bool
joins_walker(Node *node, int *streams)
{
	if (node == NULL)
		return false;
	if (IsA(node, RangeTblEntry))
	{
		RangeTblEntry *rte = (RangeTblEntry *) node;

		return rte->rtekind == RTE_RELATION && rte->inFromCl && (*streams)++ > 0;
	}
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, joins_walker, streams, QTW_EXAMINE_RTES_BEFORE);
	return expression_tree_walker(node, joins_walker, streams);
}

static bool
has_mutable_aggregate(const SaQuery *query)
{
	for (int i = 0; i < query->naggs; i++)
	{
		HeapTuple	tuple = SearchSysCache1(AGGFNOID, ObjectIdGetDatum(query->aggs[i].ref->aggfnoid));
		Oid			transfn;

		if (!HeapTupleIsValid(tuple))
			elog(ERROR, "cache lookup failed for aggregate %u", query->aggs[i].ref->aggfnoid);
		transfn = ((Form_pg_aggregate) GETSTRUCT(tuple))->aggtransfn;
		ReleaseSysCache(tuple);
		if (func_volatile(transfn) != PROVOLATILE_IMMUTABLE)
			return true;
	}
	return false;
}

void
sa_query_check_unlogged(const SaQuery *query, SaOutputMode mode, int64 watermark)
{
	int			streams = 0;

	if (mode == SA_COMPLETE)
		refuse_unlogged("In output mode \"complete\" no window closes, so every record would have to be read again.");
	if (query->transform || !query->windowed || watermark == SA_NO_DELAY)
		refuse_unlogged("Without windows that close, every record would have to be read again.");
	if (joins_walker((Node *) query->below, &streams))
		refuse_unlogged("It joins tables, which may have changed when records are read again.");
	if (contain_mutable_functions((Node *) query->below) || has_mutable_aggregate(query))
		refuse_unlogged("It calls functions that are not immutable, which may give something else when records are read again.");
}

bool
sa_query_agg_in_result(const SaQuery *query, const SaAgg *agg, int i, SaOutputMode mode)
{
	return mode != SA_APPEND && query->having == NULL && query->aggs[i].result != 0 && sa_agg_value_is_state(agg);
}

bool
sa_query_has_panes(const SaQuery *query, SaOutputMode mode)
{
	return mode == SA_APPEND && query->hop_count > 1 && query->combines;
}

char *
sa_query_bound(const SaQuery *query, Oid result, bool end)
{
	AttrNumber	own = end ? query->end_result : query->start_result;
	AttrNumber	other = end ? query->start_result : query->end_result;
	const char *name = quote_identifier(get_attname(result, own ? own : other, false));
	Oid			type = sa_window_call_type(query->window);
	Expr	   *bound;

	if (own)
		return psprintf("stream_agg.usecs(%s)", name);
	if (query->window_size > 0)
		return psprintf("stream_agg.usecs(%s) %c " INT64_FORMAT, name, end ? '+' : '-', query->window_size);
	bound = sa_window_call_other(query->window, (Expr *) makeVar(1, other, type, -1, InvalidOid, 0), end);
	return psprintf("stream_agg.usecs(%s)",
					deparse_expression((Node *) bound, deparse_context_for(get_rel_name(result), result), false, false));
}

/* --- the plan --- */

static void
mark_stale(Oid relid)
{
	for (SaQuery *query = all_queries; query; query = query->next)
		if (!OidIsValid(relid) || query->plan == NULL || list_member_oid(query->plan->relationOids, relid))
			query->stale = true;
}

static void
relation_changed(Datum arg, Oid relid)
{
	mark_stale(relid);
}

static void
object_changed(Datum arg, int cacheid, uint32 hashvalue)
{
	for (SaQuery *query = all_queries; query; query = query->next)
	{
		ListCell   *lc;

		if (query->plan == NULL)
			query->stale = true;	/* it may be in the making */
		foreach(lc, query->plan ? query->plan->invalItems : NIL)
		{
			PlanInvalItem *item = lfirst(lc);

			if (item->cacheId == cacheid && (hashvalue == 0 || item->hashValue == hashvalue))
				query->stale = true;
		}
	}
}

static void
anything_changed(Datum arg, int cacheid, uint32 hashvalue)
{
	mark_stale(InvalidOid);
}

/*
 * What functions are and who may call them, and what roles may do and be: policies of row-level security are chosen
 * by it, and rights to functions are looked at when a query is loaded.
 */
static void
rights_changed(Datum arg, int cacheid, uint32 hashvalue)
{
	for (SaQuery *query = all_queries; query; query = query->next)
		query->stale = query->outdated = true;
}

static void
register_invalidation(void)
{
	static bool done = false;

	if (done)
		return;
	done = true;
	CacheRegisterRelcacheCallback(relation_changed, (Datum) 0);
	CacheRegisterSyscacheCallback(PROCOID, rights_changed, (Datum) 0);
	CacheRegisterSyscacheCallback(AUTHOID, rights_changed, (Datum) 0);
	CacheRegisterSyscacheCallback(AUTHMEMMEMROLE, rights_changed, (Datum) 0);
	CacheRegisterSyscacheCallback(TYPEOID, object_changed, (Datum) 0);
	CacheRegisterSyscacheCallback(OPEROID, anything_changed, (Datum) 0);
	CacheRegisterSyscacheCallback(AMOPOPID, anything_changed, (Datum) 0);
	CacheRegisterSyscacheCallback(FOREIGNSERVEROID, anything_changed, (Datum) 0);
	CacheRegisterSyscacheCallback(FOREIGNDATAWRAPPEROID, anything_changed, (Datum) 0);
}

static void
make_plan(SaQuery *query)
{
	MemoryContext old;
	Query	   *copy;
	PlannedStmt *plan;

	query->stale = false;
	query->plan = NULL;
	copy = copyObject(query->below);
	AcquireRewriteLocks(copy, true, false);
	plan = pg_plan_query(linitial(QueryRewrite(copy)), "", 0, NULL);
	MemoryContextReset(query->plan_cxt);
	old = MemoryContextSwitchTo(query->plan_cxt);
	query->plan = copyObject(plan);
	MemoryContextSwitchTo(old);
}

/* The plan, valid and with its relations locked. */
PlannedStmt *
sa_query_plan(SaQuery *query)
{
	ListCell   *lc;

	for (;;)
	{
		if (query->plan == NULL || query->stale)
			make_plan(query);
		foreach(lc, query->plan->relationOids)
			LockRelationOid(lfirst_oid(lc), AccessShareLock);
		if (!query->stale)
			return query->plan;
	}
}

/* --- running it --- */

typedef struct CallbackReceiver
{
	DestReceiver pub;
	SaRowCallback callback;
	void	   *arg;
} CallbackReceiver;

static bool
receive_row(TupleTableSlot *slot, DestReceiver *self)
{
	CallbackReceiver *receiver = (CallbackReceiver *) self;

	slot_getallattrs(slot);
	receiver->callback(slot, receiver->arg);
	return true;
}

static void
receive_startup(DestReceiver *self, int operation, TupleDesc desc)
{
}

static void
receive_nothing(DestReceiver *self)
{
}

void
sa_query_run(SaQuery *query, SaRowCallback callback, void *arg)
{
	CallbackReceiver receiver = {
		.pub = {receive_row, receive_startup, receive_nothing, receive_nothing, DestNone},
		.callback = callback,
		.arg = arg
	};
	PlannedStmt *plan = sa_query_plan(query);
	QueryDesc  *desc = CreateQueryDesc(plan, "stream_agg batch", GetActiveSnapshot(), InvalidSnapshot,
									   &receiver.pub, NULL, NULL, 0);

	ExecutorStart(desc, 0);
	sa_executor_run(desc, ForwardScanDirection, 0L);
	ExecutorFinish(desc);
	ExecutorEnd(desc);
	FreeQueryDesc(desc);
}
