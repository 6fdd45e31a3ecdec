/*
 * window_call.c
 *		The window function in a query's FROM list: which one it is, and what its arguments tell.
 *
 * Invariant: what is told depends on the call alone.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/dependency.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parse_func.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "window_call.h"

/* A window function, and where its arguments are: -1: it has none. */
typedef struct Shape
{
	const char *name;
	SaWindowKind kind;
	int			size;			/* or the unit, or the gap */
	int			slide;			/* or the step */
	int			origin;
	int			zone;			/* if there are so many */
} Shape;

static const Shape shapes[] = {
	{"tumble", SA_TUMBLE, 1, -1, 2, 3},
	{"hop", SA_HOP, 1, 2, 3, 4},
	{"cumulate", SA_CUMULATE, 2, 1, 3, 4},
	{"tumble_without_zone", SA_TUMBLE, 1, -1, 2, 3},
	{"hop_without_zone", SA_HOP, 1, 2, 3, 4},
	{"date_bin", SA_TUMBLE, 1, -1, 2, 3},
	{"date_trunc", SA_TRUNC, 1, -1, -1, 2},
	{"session", SA_SESSION, 1, -1, -1, -1}
};

/* Arguments as far as they are constant. */
typedef struct Arguments
{
	bool		zone_known;
	bool		size_known;		/* with the zone */
	bool		slide_known;
	bool		origin_known;
	pg_tz	   *zone;
	SaSpan		size;
	SaSpan		slide;
	int64		origin;			/* a local time */
} Arguments;

/* --- which one it is --- */

/* Our window functions are members of the extension, whatever schema they are in. */
static const Shape *
find_shape(Oid funcid)
{
	char	   *name = get_func_name(funcid);

	for (int i = 0; name && i < lengthof(shapes); i++)
		if (strcmp(name, shapes[i].name) == 0 &&
			getExtensionOfObject(ProcedureRelationId, funcid) == get_extension_oid("stream_agg", true))
			return &shapes[i];
	return NULL;
}

static const Shape *
shape_of(const FuncExpr *call)
{
	const Shape *shape = find_shape(call->funcid);

	if (shape == NULL)
		elog(ERROR, "function %u is no window function", call->funcid);
	return shape;
}

FuncExpr *
sa_window_call_of(RangeTblEntry *rte)
{
	FuncExpr   *call;
	HeapTuple	tuple;

	if (rte->rtekind != RTE_FUNCTION || list_length(rte->functions) != 1)
		return NULL;
	call = (FuncExpr *) ((RangeTblFunction *) linitial(rte->functions))->funcexpr;
	if (!IsA(call, FuncExpr) || find_shape(call->funcid) == NULL)
		return NULL;
	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(call->funcid));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", call->funcid);
	call->args = expand_function_arguments(call->args, false, call->funcresulttype, tuple);
	ReleaseSysCache(tuple);
	return call;
}

/* --- where it is not taken for one --- */

typedef struct HiddenSearch
{
	int			depth;			/* sub-queries around */
	FuncExpr   *found;
} HiddenSearch;

static bool
is_window_function(Node *node)
{
	return IsA(node, FuncExpr) && find_shape(((FuncExpr *) node)->funcid) != NULL;
}

/* Of what is around all sub-queries, that is, not of an ordinary table inside one. */
static bool
hidden_walker(Node *node, HiddenSearch *search)
{
	if (node == NULL)
		return false;
	if (is_window_function(node) && contain_vars_of_level(node, search->depth))
	{
		search->found = (FuncExpr *) node;
		return true;
	}
	if (IsA(node, Query))
	{
		bool		found;

		search->depth++;
		found = query_tree_walker((Query *) node, hidden_walker, search, 0);
		search->depth--;
		return found;
	}
	return expression_tree_walker(node, hidden_walker, search);
}

FuncExpr *
sa_window_call_hidden(RangeTblEntry *rte)
{
	HiddenSearch search = {.depth = 0};
	ListCell   *lc;

	if (rte->rtekind == RTE_SUBQUERY)
		(void) hidden_walker((Node *) rte->subquery, &search);
	if (rte->rtekind != RTE_FUNCTION || (list_length(rte->functions) == 1 && !rte->funcordinality))
		return search.found;
	foreach(lc, rte->functions)
	{
		Node	   *call = ((RangeTblFunction *) lfirst(lc))->funcexpr;

		if (is_window_function(call))
			return (FuncExpr *) call;
	}
	return NULL;
}

SaWindowKind
sa_window_call_kind(const FuncExpr *call)
{
	return shape_of(call)->kind;
}

Node *
sa_window_call_time(Node *time)
{
	return IsA(time, FuncExpr) && ((FuncExpr *) time)->funcid == F_TIMESTAMP_DATE ? linitial(((FuncExpr *) time)->args) : time;
}

Oid
sa_window_call_type(const FuncExpr *call)
{
	Oid			type = exprType(linitial(call->args));

	return type == DATEOID ? TIMESTAMPOID : type;
}

/* --- arguments --- */

static Const *
constant_argument(const FuncExpr *call, int n)
{
	Node	   *arg;

	if (n < 0 || n >= list_length(call->args))
		return NULL;
	arg = eval_const_expressions(NULL, list_nth(call->args, n));
	return IsA(arg, Const) ? (Const *) arg : NULL;
}

static bool
is_null_argument(const FuncExpr *call, int n)
{
	Const	   *arg = constant_argument(call, n);

	return arg && arg->constisnull;
}

static const char *
slide_name(const Shape *shape)
{
	return shape->kind == SA_CUMULATE ? "step" : "slide";
}

static bool
read_zone(const FuncExpr *call, int n, pg_tz **zone)
{
	Const	   *arg = constant_argument(call, n);

	*zone = NULL;
	if (arg && !arg->constisnull)
		*zone = sa_calendar_zone(TextDatumGetCString(arg->constvalue));
	return arg || n >= list_length(call->args);
}

static bool
read_span(const FuncExpr *call, int n, const char *what, pg_tz *zone, SaSpan *span)
{
	Const	   *arg = constant_argument(call, n);

	if (arg == NULL || arg->constisnull)
		return false;
	*span = sa_calendar_span(DatumGetIntervalP(arg->constvalue), what, zone);
	return true;
}

/* The size of a unit's windows: of an hour and less, in every zone the same. */
static bool
read_unit(const FuncExpr *call, int n, Arguments *arguments)
{
	Const	   *arg = constant_argument(call, n);

	if (arg == NULL || arg->constisnull ||
		!sa_calendar_unit(TextDatumGetCString(arg->constvalue), &arguments->size, &arguments->origin))
		return false;
	if (arguments->size.months == 0 && arguments->size.usecs < USECS_PER_DAY)
		arguments->zone = NULL;
	return true;
}

/* What windows are counted from: by the slide, where it is not given. */
static bool
read_origin(const FuncExpr *call, const Shape *shape, Arguments *arguments)
{
	const SaSpan *span = shape->kind == SA_HOP ? &arguments->slide : &arguments->size;
	bool		span_known = shape->kind == SA_HOP ? arguments->slide_known : arguments->size_known;
	Const	   *arg = constant_argument(call, shape->origin);
	int64		origin;

	if (arg == NULL || !span_known)
		return false;
	if (arg->constisnull)
	{
		arguments->origin = sa_calendar_origin(span, arguments->zone, NULL);
		return true;
	}
	origin = DatumGetInt64(arg->constvalue);
	if (arg->consttype == DATEOID)
		origin = DatumGetTimestamp(DirectFunctionCall1(date_timestamp, arg->constvalue));
	if (TIMESTAMP_NOT_FINITE(origin))
		ereport(ERROR,
				(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
				 errmsg("origin of a window must be finite")));
	arguments->origin = sa_calendar_origin(span, arguments->zone, &origin);
	return true;
}

static void
read_arguments(const FuncExpr *call, Arguments *arguments)
{
	const Shape *shape = shape_of(call);

	memset(arguments, 0, sizeof(*arguments));
	arguments->zone_known = read_zone(call, shape->zone, &arguments->zone);
	if (shape->kind == SA_TRUNC)
	{
		arguments->size_known = arguments->origin_known = read_unit(call, shape->size, arguments) && arguments->zone_known;
		return;
	}
	arguments->size_known = read_span(call, shape->size, "size", arguments->zone, &arguments->size) && arguments->zone_known;
	arguments->slide_known = read_span(call, shape->slide, slide_name(shape), arguments->zone, &arguments->slide) &&
		arguments->zone_known;
	arguments->origin_known = read_origin(call, shape, arguments);
}

static void
check_gap(const FuncExpr *call, ParseState *pstate)
{
	Const	   *gap = constant_argument(call, shape_of(call)->size);
	ParseCallbackState callback;

	if (gap == NULL)
		return;
	setup_parser_errposition_callback(&callback, pstate, exprLocation((const Node *) call));
	if (gap->constisnull || sa_calendar_gap(DatumGetIntervalP(gap->constvalue)) <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("gap of a session must be greater than zero"),
				 errhint("Give an interval such as '5 minutes'.")));
	cancel_parser_errposition_callback(&callback);
}

/* '+05:30' and 'UTC+5' are read as POSIX has them, west of Greenwich, which hardly anybody means. */
void
sa_window_call_check_new(const FuncExpr *call, ParseState *pstate)
{
	const Shape *shape = shape_of(call);
	Const	   *arg = shape->kind == SA_TRUNC ? NULL : constant_argument(call, shape->zone);
	const char *name = arg && !arg->constisnull ? TextDatumGetCString(arg->constvalue) : "";

	if (strchr(name, '/') == NULL && strpbrk(name, "+-") != NULL && strpbrk(name, "123456789") != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("time zone \"%s\" of a window is an offset, not a name", name),
				 errdetail("In offsets like this one, positive hours are west of Greenwich."),
				 errhint("Use a full name such as 'Europe/Berlin', or 'Etc/GMT-5' for five hours east; see pg_timezone_names."),
				 parser_errposition(pstate, exprLocation((const Node *) call))));
}

void
sa_window_call_check(const FuncExpr *call, ParseState *pstate)
{
	const Shape *shape = shape_of(call);
	Arguments	arguments;
	ParseCallbackState callback;

	if (shape->kind == SA_SESSION)
	{
		check_gap(call, pstate);
		return;
	}
	if (is_null_argument(call, shape->size) || is_null_argument(call, shape->slide))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("a window whose size or %s is NULL is not supported in continuous views", slide_name(shape)),
				 errhint("Give an interval such as '5 minutes'."),
				 parser_errposition(pstate, exprLocation((const Node *) call))));
	setup_parser_errposition_callback(&callback, pstate, exprLocation((const Node *) call));
	read_arguments(call, &arguments);
	if (arguments.size_known && arguments.slide_known && shape->kind == SA_HOP)
		sa_calendar_check_hop(&arguments.size, &arguments.slide);
	if (arguments.size_known && arguments.slide_known && shape->kind == SA_CUMULATE)
		sa_calendar_check_cumulate(&arguments.slide, &arguments.size);
	cancel_parser_errposition_callback(&callback);
}

void
sa_window_call_measure(const FuncExpr *call, SaWindowMeasures *measures)
{
	SaWindowKind kind = sa_window_call_kind(call);
	Arguments	arguments;
	bool		constant;
	bool		computable;

	memset(measures, 0, sizeof(*measures));
	if (kind == SA_SESSION)
		return;
	read_arguments(call, &arguments);
	if (arguments.size_known)
	{
		measures->longest = sa_calendar_longest(&arguments.size, arguments.zone);
		measures->usual = sa_calendar_longest(&arguments.size, NULL);
	}
	if (arguments.slide_known)
		measures->slide = sa_calendar_longest(&arguments.slide, NULL);
	else if (kind == SA_TUMBLE || kind == SA_TRUNC)
		measures->slide = measures->usual;
	constant = arguments.size_known && kind != SA_CUMULATE && sa_calendar_is_constant(&arguments.size, arguments.zone);
	if (constant)
		measures->size = arguments.size.usecs;
	computable = arguments.size_known && arguments.origin_known;
	measures->start_decides = constant || (computable && kind != SA_CUMULATE);
	measures->end_decides = constant || (computable && kind != SA_HOP && kind != SA_TRUNC);
}

bool
sa_window_call_hop(const FuncExpr *call, int64 *size, int64 *slide, int64 *origin)
{
	Arguments	arguments;

	if (sa_window_call_kind(call) != SA_HOP)
		return false;
	read_arguments(call, &arguments);
	if (!arguments.size_known || !arguments.slide_known || !arguments.origin_known ||
		!sa_calendar_is_constant(&arguments.size, arguments.zone) || !sa_calendar_is_constant(&arguments.slide, arguments.zone))
		return false;
	*size = arguments.size.usecs;
	*slide = arguments.slide.usecs;
	*origin = arguments.origin;
	return true;
}

/* --- expressions --- */

/* The arguments, dates as their midnights, without a zone that is NULL. */
static List *
plain_arguments(const FuncExpr *call)
{
	List	   *args = copyObject(call->args);
	int			zone = shape_of(call)->zone;
	ListCell   *lc;

	if (is_null_argument(call, zone))
		args = list_truncate(args, zone);
	foreach(lc, args)
		if (exprType(lfirst(lc)) == DATEOID)
			lfirst(lc) = makeFuncExpr(F_TIMESTAMP_DATE, TIMESTAMPOID, list_make1(lfirst(lc)), InvalidOid, InvalidOid,
									  COERCE_EXPLICIT_CAST);
	return args;
}

bool
sa_window_call_equal(const FuncExpr *a, const FuncExpr *b)
{
	if (a == NULL || b == NULL)
		return a == b;
	return sa_window_call_kind(a) == sa_window_call_kind(b) && equal(plain_arguments(a), plain_arguments(b));
}

/* A call of one of the functions under the window functions; its first argument is a time. */
static Expr *
call_bound(const char *name, Oid type, List *args)
{
	Oid			types[FUNC_MAX_ARGS];
	int			nargs = 0;
	ListCell   *lc;

	foreach(lc, args)
		types[nargs++] = exprType(lfirst(lc));
	return (Expr *) makeFuncExpr(LookupFuncName(list_make2(makeString("stream_agg"), makeString(pstrdup(name))), nargs, types,
												false),
								 type, args, InvalidOid, InvalidOid, COERCE_EXPLICIT_CALL);
}

Expr *
sa_window_call_bound(const FuncExpr *call, bool end)
{
	SaWindowKind kind = sa_window_call_kind(call);

	if (kind == SA_TUMBLE)
		return call_bound(end ? "window_end" : "window_start", sa_window_call_type(call), plain_arguments(call));
	if (kind == SA_TRUNC)
		return call_bound(end ? "trunc_end" : "trunc_start", sa_window_call_type(call), plain_arguments(call));
	if (kind == SA_SESSION)
		return end ? call_bound("session_end", sa_window_call_type(call), plain_arguments(call)) : linitial(plain_arguments(call));
	return NULL;
}

/* The last microsecond of a window that ends at a time. */
static Expr *
last_moment(Expr *end)
{
	Oid			type = exprType((Node *) end);
	Interval   *one = palloc0(sizeof(Interval));

	one->time = 1;
	return (Expr *) makeFuncExpr(type == TIMESTAMPOID ? F_TIMESTAMP_MI_INTERVAL : F_TIMESTAMPTZ_MI_INTERVAL, type,
								 list_make2(end, makeConst(INTERVALOID, -1, InvalidOid, sizeof(Interval), IntervalPGetDatum(one),
														   false, false)),
								 InvalidOid, InvalidOid, COERCE_EXPLICIT_CALL);
}

Expr *
sa_window_call_other(const FuncExpr *call, Expr *known, bool end)
{
	const Shape *shape = shape_of(call);
	List	   *args = plain_arguments(call);
	Oid			type = sa_window_call_type(call);

	linitial(args) = end ? known : last_moment(known);
	if (shape->kind == SA_CUMULATE)
		args = list_delete_nth_cell(args, shape->slide);
	if (shape->kind == SA_HOP)
		args = list_insert_nth(args, shape->origin + 1, makeConst(INT4OID, -1, InvalidOid, sizeof(int32), Int32GetDatum(0), false, true));
	if (end)
		return call_bound(shape->kind == SA_HOP ? "hop_end" : shape->kind == SA_TRUNC ? "trunc_end" : "window_end", type, args);
	return call_bound("window_start", type, args);
}

/* --- sets --- */

SaWindowSet *
sa_window_call_set(const FuncExpr *call)
{
	SaWindowKind kind = sa_window_call_kind(call);
	SaWindowSet *set;
	Arguments	arguments;

	if (kind != SA_HOP && kind != SA_CUMULATE)
		return NULL;
	read_arguments(call, &arguments);
	if (!arguments.size_known || !arguments.slide_known || !arguments.origin_known)
		return NULL;
	set = palloc0(sizeof(SaWindowSet));
	set->kind = kind;
	set->calendar = (SaCalendar) {.zone = arguments.zone, .origin = arguments.origin};
	set->size = arguments.size;
	set->slide = arguments.slide;
	set->max = 16;
	set->windows = palloc(sizeof(*set->windows) * set->max);
	return set;
}

static void
add_window(SaWindowSet *set, int64 start, int64 end)
{
	if (set->nwindows == set->max)
		set->windows = repalloc(set->windows, sizeof(*set->windows) * (set->max *= 2));
	set->windows[set->nwindows][0] = start;
	set->windows[set->nwindows++][1] = end;
}

/* Windows that begin earlier end earlier, too. */
static void
find_hops(SaWindowSet *set, int64 ts, int64 *from, int64 *to)
{
	int64		start;
	int64		end;
	SaSpan		slide = set->slide;

	slide.clock |= set->size.clock;
	sa_calendar_tumble(&set->calendar, &slide, ts, from, to);
	for (int k = 0; sa_calendar_hop(&set->calendar, &set->size, &set->slide, ts, k, &start, &end); k++)
	{
		add_window(set, start, end);
		*to = Min(*to, end);
	}
	*from = Max(*from, end);
}

static void
find_cumulations(SaWindowSet *set, int64 ts, int64 *from, int64 *to)
{
	int64		start;
	int64		last;
	int64		step;
	int64		end;

	sa_calendar_tumble(&set->calendar, &set->size, ts, &start, &last);
	for (int k = 0; sa_calendar_cumulate(&set->calendar, &set->slide, &set->size, ts, k, &step, &end); k++)
	{
		add_window(set, start, end);
		if (k > 0)
			continue;
		*from = step;
		*to = end;
	}
}

void
sa_window_set_find(SaWindowSet *set, int64 ts)
{
	int64		from = 0;
	int64		to = 0;

	if (ts >= set->from && ts < set->to)
		return;
	set->from = set->to = 0;	/* should there be an error */
	set->nwindows = 0;
	if (set->kind == SA_HOP)
		find_hops(set, ts, &from, &to);
	else
		find_cumulations(set, ts, &from, &to);
	set->from = from;
	set->to = to;
}

/* Those that start last end last, and of those that start together the longest does. */
Expr *
sa_window_call_last_end(const FuncExpr *call, Expr *time)
{
	Arguments	arguments;

	read_arguments(call, &arguments);
	if (!arguments.size_known || !arguments.origin_known ||
		(sa_window_call_kind(call) == SA_HOP && !arguments.slide_known))
		return NULL;
	return sa_window_call_other(call, time, true);
}
