/*
 * query.h
 *		A view's SELECT, split once into what lies below the aggregation (planned and run by
 *		PostgreSQL against the batch), the aggregates, and what lies above (target list, HAVING).
 */
#ifndef SA_QUERY_H
#define SA_QUERY_H

#include "agg.h"
#include "executor/tuptable.h"
#include "nodes/parsenodes.h"
#include "nodes/plannodes.h"
#include "option.h"
#include "parser/parse_node.h"
#include "window_call.h"

/* A grouping column that is not the window. */
typedef struct SaKey
{
	AttrNumber	column;			/* of the rows that come from below */
	AttrNumber	result;			/* of the result table */
	Oid			type;
	Oid			collation;
	Oid			eqop;
	bool		nullable;
} SaKey;

typedef struct SaAggColumn
{
	Aggref	   *ref;
	List	   *columns;		/* arguments: columns of the rows from below */
	AttrNumber	filter;			/* likewise; 0: none */
	AttrNumber	result;			/* by itself a column of the result table; 0: not */
} SaAggColumn;

typedef struct SaQuery
{
	MemoryContext cxt;
	Oid			stream;
	bool		transform;		/* no grouping at all: rows are appended as they are */
	bool		windowed;		/* grouped by a window */
	bool		sessions;		/* which is a session: the window columns from below are those of the event alone */
	FuncExpr   *window;			/* the call of the window function; NULL: none */
	int64		window_size;	/* microseconds; 0: not constant */
	SaWindowMeasures measures;	/* what else holds for its windows */

	/* Windows that are no more than grouping columns are put to rows when they are folded: both columns hold the time. */
	int64		hop_count;		/* of constant size; 0: none such */
	int64		hop_slide;
	int64		hop_origin;
	SaWindowSet *window_set;	/* others; NULL: none such */
	bool		combines;		/* all aggregates: their states may be put together from those of panes */

	int			ncolumns;		/* of the rows from below */
	bool	   *fleeting;		/* per column: by reference, and gone with the next row */
	int16	   *lengths;		/* per column: typlen */

	/* Rows from below: the event's ctid, keys, window start and end, aggregate inputs. */
	Query	   *below;
	AttrNumber	start_column;
	AttrNumber	end_column;
	int			nkeys;
	SaKey	   *keys;
	int			naggs;
	SaAggColumn *aggs;

	/* Above: expressions over a group's row (keys, window start and end, aggregates). */
	TupleDesc	group_desc;
	List	   *targets;		/* of TargetEntry */
	Expr	   *having;
	AttrNumber	start_result;	/* columns of the result table; 0: not selected */
	AttrNumber	end_result;
	int			nresults;
	AttrNumber *results;		/* columns of the result table, in the order of the select list */

	/* The plan of what lies below, made when first needed and after invalidations. */
	PlannedStmt *plan;
	MemoryContext plan_cxt;
	bool		stale;
	bool		outdated;		/* functions or rights may have changed: to be loaded anew */
	struct SaQuery *next;		/* list of all, for invalidation */
	MemoryContextCallback unlink;	/* takes it off that list */
} SaQuery;

#define SA_CTID_COLUMN 1

/*
 * Split an analysed SELECT; errors point into pstate's source text and say what to do.  The result lives
 * in a new child of CurrentMemoryContext.
 */
extern SaQuery *sa_query_split(Query *query, ParseState *pstate);

/* Complain of what views that are there already may have, but new ones may not. */
extern void sa_query_check_new(Query *query, ParseState *pstate);

/*
 * The same for the SELECT kept in a definition view, to run with the rights of owner; its columns are those of
 * the same names in the result table (InvalidOid: still those of the select list).
 */
extern SaQuery *sa_query_load(Oid definition, Oid result, Oid owner);
extern void sa_query_free(SaQuery *query);

extern void sa_query_check_mode(const SaQuery *query, SaOutputMode mode, int64 watermark);	/* options that do not fit the query */

/* Unlogged state is made again by reading again, which must give the same; errors say why it would not. */
extern void sa_query_check_unlogged(const SaQuery *query, SaOutputMode mode, int64 watermark);

/* True when the group's whole state is in its result row (DESIGN.md 5); agg i alone. */
extern bool sa_query_agg_in_result(const SaQuery *query, const SaAgg *agg, int i, SaOutputMode mode);

/* Are events folded into panes, from which hopping windows are put together when they close? */
extern bool sa_query_has_panes(const SaQuery *query, SaOutputMode mode);
extern char *sa_query_bound(const SaQuery *query, Oid result, bool end);	/* SQL for a result row's window, in microseconds */

/* Run what lies below against the batch on offer, in the current transaction and snapshot. */
typedef void (*SaRowCallback) (TupleTableSlot *row, void *arg);
extern void sa_query_run(SaQuery *query, SaRowCallback callback, void *arg);

extern PlannedStmt *sa_query_plan(SaQuery *query);	/* of what lies below, for EXPLAIN */

#endif							/* SA_QUERY_H */
