/*
 * window_group.c
 *		Windows that a query has as grouping expressions, without a window function.
 *
 * It is done once, when a view is made, so its definition has the window function from then on: views are never read
 * in another way than they were made.  date_trunc() without a zone depends on the setting TimeZone; the window
 * function is given the zone that is set.
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/pg_class.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parse_func.h"
#include "parser/parse_relation.h"
#include "parser/parsetree.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "option.h"
#include "window_call.h"
#include "window_calendar.h"
#include "window_group.h"

typedef struct Search
{
	Query	   *query;
	int			stream_rti;
	AttrNumber	time_attr;
} Search;

/* --- the event time --- */

static void
note_event_time(Search *search, Oid stream)
{
	Relation	rel = table_open(stream, AccessShareLock);

	search->time_attr = sa_option_stream(rel)->time_attr;
	table_close(rel, NoLock);
}

/* A stream with an event time, and no window function. */
static bool
find_stream(Search *search)
{
	ListCell   *lc;
	int			rti = 0;

	foreach(lc, search->query->rtable)
	{
		RangeTblEntry *rte = lfirst(lc);

		rti++;
		if (rte->rtekind == RTE_FUNCTION && sa_window_call_of(rte) != NULL)
			return false;
		if (rte->rtekind != RTE_RELATION || rte->relkind != RELKIND_FOREIGN_TABLE || !sa_option_is_stream(rte->relid))
			continue;
		search->stream_rti = rti;
		note_event_time(search, rte->relid);
	}
	return search->stream_rti != 0 && search->time_attr != InvalidAttrNumber;
}

static bool
is_event_time(const Search *search, Node *arg)
{
	Var		   *var = (Var *) sa_window_call_time(sa_flatten_join_aliases(search->query, arg));

	return IsA(var, Var) && var->varno == search->stream_rti && var->varattno == search->time_attr && var->varlevelsup == 0;
}

/* --- expressions --- */

static Const *
constant(Node *arg)
{
	Const	   *value = (Const *) eval_const_expressions(NULL, arg);

	return IsA(value, Const) && !value->constisnull ? value : NULL;
}

static Const *
text_constant(const char *value)
{
	return makeConst(TEXTOID, -1, DEFAULT_COLLATION_OID, -1, CStringGetTextDatum(value), false, false);
}

/*
 * The server's function, of constants that it can do nothing with and any time, the second argument.  It would complain
 * at each event; so it says so at once.
 */
static void
let_server_complain(FuncExpr *call)
{
	Datum		args[3] = {0};
	int			n = 0;
	ListCell   *lc;

	foreach(lc, call->args)
	{
		Const	   *value = n == 1 ? NULL : constant(lfirst(lc));

		if (n != 1 && value == NULL)
			return;
		args[n++] = value ? value->constvalue : Int64GetDatum(0);
	}
	if (n == 2)
		(void) OidFunctionCall2(call->funcid, args[0], args[1]);
	else
		(void) OidFunctionCall3(call->funcid, args[0], args[1], args[2]);
}

/* A call of one of our functions of the same name, which puts the time first. */
static FuncExpr *
window_call(const char *name, List *args, int location)
{
	Oid			types[3];
	int			nargs = 0;
	FuncExpr   *call;
	ListCell   *lc;

	foreach(lc, args)
		types[nargs++] = exprType(lfirst(lc));
	call = makeFuncExpr(LookupFuncName(list_make2(makeString("stream_agg"), makeString(pstrdup(name))), nargs, types, false),
						RECORDOID, args, InvalidOid, DEFAULT_COLLATION_OID, COERCE_EXPLICIT_CALL);
	call->funcretset = true;
	call->location = location;
	return call;
}

/* date_bin(stride, time, origin) */
static FuncExpr *
from_date_bin(const Search *search, FuncExpr *bin)
{
	Const	   *stride = constant(linitial(bin->args));
	Const	   *origin = constant(lthird(bin->args));
	Interval   *interval;

	if (stride == NULL || origin == NULL || !is_event_time(search, lsecond(bin->args)))
		return NULL;
	interval = DatumGetIntervalP(stride->constvalue);
	if (interval->month != 0 || interval->day < 0 || interval->time < 0 || (interval->day == 0 && interval->time == 0) ||
		TIMESTAMP_NOT_FINITE(DatumGetTimestamp(origin->constvalue)))
	{
		let_server_complain(bin);
		return NULL;
	}
	return window_call("date_bin", list_make3(sa_flatten_join_aliases(search->query, lsecond(bin->args)), stride, origin),
					   bin->location);
}

/* The zone of date_trunc(); NULL: none that is known by the name alone, for the server prefers abbreviations. */
static const char *
zone_of(FuncExpr *trunc)
{
	Const	   *arg;
	char	   *name;

	if (list_length(trunc->args) == 2)
		return pg_get_timezone_name(session_timezone);
	arg = constant(lthird(trunc->args));
	if (arg == NULL)
		return NULL;
	name = TextDatumGetCString(arg->constvalue);
	return (strchr(name, '/') || pg_strcasecmp(name, "UTC") == 0) && pg_tzset(name) != NULL ? name : NULL;
}

/* date_trunc(unit, time [, zone]) */
static FuncExpr *
from_date_trunc(const Search *search, FuncExpr *trunc)
{
	Const	   *unit = constant(linitial(trunc->args));
	Node	   *time = lsecond(trunc->args);
	const char *zone;
	SaSpan		span;
	int64		origin;

	if (unit == NULL || !is_event_time(search, time))
		return NULL;
	let_server_complain(trunc);
	if (!sa_calendar_unit(TextDatumGetCString(unit->constvalue), &span, &origin))
		return NULL;
	time = sa_flatten_join_aliases(search->query, time);
	if (trunc->funcid == F_DATE_TRUNC_TEXT_TIMESTAMP)
		return window_call("date_trunc", list_make2(time, unit), trunc->location);
	zone = zone_of(trunc);
	return zone ? window_call("date_trunc", list_make3(time, unit, text_constant(zone)), trunc->location) : NULL;
}

static FuncExpr *
from_expression(const Search *search, Node *expr)
{
	if (!IsA(expr, FuncExpr))
		return NULL;
	switch (((FuncExpr *) expr)->funcid)
	{
		case F_DATE_BIN_INTERVAL_TIMESTAMP_TIMESTAMP:
		case F_DATE_BIN_INTERVAL_TIMESTAMPTZ_TIMESTAMPTZ:
			return from_date_bin(search, (FuncExpr *) expr);
		case F_DATE_TRUNC_TEXT_TIMESTAMP:
		case F_DATE_TRUNC_TEXT_TIMESTAMPTZ:
		case F_DATE_TRUNC_TEXT_TIMESTAMPTZ_TEXT:
			return from_date_trunc(search, (FuncExpr *) expr);
		default:
			return NULL;
	}
}

/* The shortest window among the grouping expressions that are selected. */
static FuncExpr *
find_window(const Search *search, Node **expr)
{
	FuncExpr   *best = NULL;
	int64		shortest = PG_INT64_MAX;
	ListCell   *lc;

	foreach(lc, search->query->groupClause)
	{
		TargetEntry *tle = get_sortgroupclause_tle(lfirst(lc), search->query->targetList);
		FuncExpr   *call = tle->resjunk ? NULL : from_expression(search, (Node *) tle->expr);
		SaWindowMeasures measures;

		if (call == NULL)
			continue;
		sa_window_call_measure(call, &measures);
		if (measures.longest >= shortest)
			continue;
		best = call;
		shortest = measures.longest;
		*expr = (Node *) tle->expr;
	}
	return best;
}

/* --- grouping by the event time without a window --- */

static bool
event_time_walker(Node *node, Search *search)
{
	if (node == NULL)
		return false;
	return is_event_time(search, node) || expression_tree_walker(node, event_time_walker, search);
}

bool
sa_window_group_missed(Query *original)
{
	Search		search = {.query = copyObject(original)};
	ListCell   *lc;

	if (!find_stream(&search))
		return false;
	sa_flatten_groups(search.query);
	foreach(lc, search.query->groupClause)
		if (event_time_walker((Node *) get_sortgroupclause_tle(lfirst(lc), search.query->targetList)->expr, &search))
			return true;
	return false;
}

/* --- the query with a window function --- */

typedef struct Replacement
{
	Node	   *expr;
	Var		   *start;
} Replacement;

static Node *
replace_mutator(Node *node, Replacement *replacement)
{
	if (node == NULL)
		return NULL;
	if (equal(node, replacement->expr))
	{
		Var		   *start = copyObject(replacement->start);

		start->location = exprLocation(node);
		return (Node *) start;
	}
	return expression_tree_mutator(node, replace_mutator, replacement);
}

static void
add_function(Query *query, FuncExpr *call)
{
	ParseState *pstate = make_parsestate(NULL);
	RangeFunction *function = makeNode(RangeFunction);
	RangeTblRef *ref = makeNode(RangeTblRef);
	ParseNamespaceItem *item;

	function->lateral = true;
	function->alias = makeAlias("w", NIL);
	item = addRangeTableEntryForFunction(pstate, list_make1(get_func_name(call->funcid)), list_make1(call), list_make1(NIL),
										 function, true, true);
	query->rtable = lappend(query->rtable, item->p_rte);
	ref->rtindex = list_length(query->rtable);
	query->jointree->fromlist = lappend(query->jointree->fromlist, ref);
	free_parsestate(pstate);
}

Query *
sa_window_group(Query *original)
{
	Search		search = {.query = copyObject(original)};
	Query	   *query = search.query;
	Replacement replacement;
	FuncExpr   *call;

	if (query->commandType != CMD_SELECT || query->groupClause == NIL || query->groupingSets != NIL || query->setOperations ||
		!find_stream(&search))
		return original;
	sa_flatten_groups(query);
	call = find_window(&search, &replacement.expr);
	if (call == NULL)
		return original;
	add_function(query, call);
	replacement.start = makeVar(list_length(query->rtable), 1, sa_window_call_type(call), -1, InvalidOid, 0);
	replacement.expr = copyObject(replacement.expr);
	query->targetList = (List *) replace_mutator((Node *) query->targetList, &replacement);
	query->havingQual = replace_mutator(query->havingQual, &replacement);
	return query;
}
