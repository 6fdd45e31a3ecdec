/*
 * ddl_replace.c
 *		ALTER CONTINUOUS VIEW v AS select: another SELECT for a view that goes on.
 *
 * Invariant: groups stay what they are: grouping, window and HAVING are the same before and after, and a
 * column that stays is computed as before.  What a column is computed from may change with WHERE and FROM,
 * and columns may come and go: a new one is NULL in the rows of groups that are closed, and counts from here
 * on in those that are open.  The view gets a new id, by which its worker knows that what it holds in memory
 * is out of date.
 *
 * Locks: AccessExclusiveLock on the result table, which waits for the batch at hand.  Crash: transactional.
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "commands/tablecmds.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "parser/parse_node.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"

#include "admin.h"
#include "catalog.h"
#include "commit.h"
#include "compat.h"
#include "ddl_guard.h"
#include "ddl_part.h"
#include "ddl_replace.h"
#include "ddl_view.h"
#include "mend.h"
#include "owner.h"
#include "query.h"
#include "result.h"
#include "slot.h"
#include "state_recover.h"
#include "watermark.h"
#include "window_call.h"
#include "window_group.h"

#define NOT_THERE (-1)

typedef struct Change
{
	const char *name;			/* of the view */
	SaViewConfig *config;		/* as it will be */
	SaViewOptions options;
	SaQuery    *from;			/* its columns are those of the result table */
	SaQuery    *to;				/* its columns are those of the select list, until the table has them */
	List	   *columns;		/* of ColumnDef: the new select list */
	int		   *keys;			/* for each key of `to`, that of `from` */
	int		   *aggs;			/* for each aggregate of `to`, that of `from`; NOT_THERE: it is new */
	List	   *added;			/* of ColumnDef */
	List	   *dropped;		/* names */
} Change;

static void
refuse(const Change *change, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot change continuous view \"%s\" in place", change->name),
			 errdetail("%s", detail),
			 errhint("Create another view with start = 'view:%s', let it catch up, and exchange their names with stream_agg.swap().",
					 change->name)));
}

/* --- names --- */

static const char *
old_name(const Change *change, AttrNumber attr)
{
	return attr == InvalidAttrNumber ? NULL : get_attname(change->config->view, attr, false);
}

static ColumnDef *
new_column(const Change *change, AttrNumber resno)
{
	return resno == InvalidAttrNumber ? NULL : list_nth_node(ColumnDef, change->columns, resno - 1);
}

/* Is it the same column, or none in both? */
static bool
same_column(const Change *change, AttrNumber attr, AttrNumber resno)
{
	if (attr == InvalidAttrNumber || resno == InvalidAttrNumber)
		return attr == resno;
	return strcmp(old_name(change, attr), new_column(change, resno)->colname) == 0;
}

/* Index in the new select list, or NOT_THERE. */
static int
find_new(const Change *change, const char *name)
{
	for (int i = 0; i < list_length(change->columns); i++)
		if (strcmp(list_nth_node(ColumnDef, change->columns, i)->colname, name) == 0)
			return i;
	return NOT_THERE;
}

/* Index in the old select list, or NOT_THERE. */
static int
find_old(const Change *change, const char *name)
{
	for (int i = 0; i < change->from->nresults; i++)
		if (strcmp(old_name(change, change->from->results[i]), name) == 0)
			return i;
	return NOT_THERE;
}

/* --- what must stay --- */

static Expr *
below_expr(const SaQuery *query, AttrNumber column)
{
	return column == 0 ? NULL : list_nth_node(TargetEntry, query->below->targetList, column - 1)->expr;
}

static void
compare_windows(const Change *change)
{
	const SaQuery *from = change->from;
	const SaQuery *to = change->to;

	if (from->windowed != to->windowed || !sa_window_call_equal(from->window, to->window) ||
		!equal(below_expr(from, from->start_column), below_expr(to, to->start_column)) ||
		!equal(below_expr(from, from->end_column), below_expr(to, to->end_column)))
		refuse(change, "Its window would be another one.");
	if (!same_column(change, from->start_result, to->start_result) || !same_column(change, from->end_result, to->end_result))
		refuse(change, "Its window would be in other columns.");
}

static int
find_key(const Change *change, const SaKey *key)
{
	const SaQuery *from = change->from;

	for (int i = 0; i < from->nkeys; i++)
	{
		const SaKey *old = &from->keys[i];

		if (same_column(change, old->result, key->result) && old->type == key->type && old->collation == key->collation &&
			old->eqop == key->eqop && old->nullable == key->nullable &&
			equal(below_expr(from, old->column), below_expr(change->to, key->column)))
			return i;
	}
	refuse(change, psprintf("Its grouping by column \"%s\" would be another one.",
							new_column(change, key->result)->colname));
	return NOT_THERE;			/* keep compiler quiet */
}

static void
compare_keys(Change *change)
{
	change->keys = palloc(sizeof(int) * (change->to->nkeys + 1));
	for (int i = 0; i < change->to->nkeys; i++)
		change->keys[i] = find_key(change, &change->to->keys[i]);
	if (change->from->nkeys != change->to->nkeys)
		refuse(change, "It would be grouped by fewer columns.");
}

static void
match_aggs(Change *change)
{
	change->aggs = palloc(sizeof(int) * (change->to->naggs + 1));
	for (int i = 0; i < change->to->naggs; i++)
	{
		change->aggs[i] = NOT_THERE;
		for (int j = 0; j < change->from->naggs; j++)
			if (equal(change->to->aggs[i].ref, change->from->aggs[j].ref))
				change->aggs[i] = j;
	}
}

/* An expression over the new group's row, with the columns of the old one's. */
static Node *
renumber_mutator(Node *node, Change *change)
{
	int			fixed = change->to->nkeys + (change->to->windowed ? 2 : 0);
	Var		   *var;

	if (node == NULL)
		return NULL;
	if (!IsA(node, Var))
		return expression_tree_mutator(node, renumber_mutator, change);
	var = copyObject((Var *) node);
	if (var->varattno <= change->to->nkeys)
		var->varattno = change->keys[var->varattno - 1] + 1;
	else if (var->varattno > fixed)
		var->varattno = fixed + change->aggs[var->varattno - fixed - 1] + 1;	/* a new one's is nobody's */
	return (Node *) var;
}

static bool
same_expression(Change *change, Expr *from, Expr *to)
{
	return equal(from, renumber_mutator((Node *) to, change));
}

/* A column that stays must stay the same, for the rows that are there. */
static void
compare_column(Change *change, int old, int new)
{
	ColumnDef  *column = list_nth_node(ColumnDef, change->columns, new);
	AttrNumber	attr = change->from->results[old];
	Oid			type;
	int32		typmod;
	Oid			collation;

	get_atttypetypmodcoll(change->config->view, attr, &type, &typmod, &collation);
	if (type != column->typeName->typeOid || typmod != column->typeName->typemod || collation != column->collOid)
		refuse(change, psprintf("Column \"%s\" would have another type.", column->colname));
	if (change->to->transform)
		return;
	if (!same_expression(change, list_nth_node(TargetEntry, change->from->targets, old)->expr,
						 list_nth_node(TargetEntry, change->to->targets, new)->expr))
		refuse(change, psprintf("Column \"%s\" would be computed in another way; a new column needs a name of its own.",
								column->colname));
}

static void
compare_columns(Change *change)
{
	for (int i = 0; i < change->from->nresults; i++)
	{
		const char *name = old_name(change, change->from->results[i]);
		int			new = find_new(change, name);

		if (new == NOT_THERE)
			change->dropped = lappend(change->dropped, pstrdup(name));
		else
			compare_column(change, i, new);
	}
	for (int i = 0; i < list_length(change->columns); i++)
	{
		ColumnDef  *column = list_nth_node(ColumnDef, change->columns, i);

		if (find_old(change, column->colname) == NOT_THERE)
			change->added = lappend(change->added, column);
	}
}

static void
compare(Change *change)
{
	if (change->from->stream != change->to->stream)
		refuse(change, "It would read another stream.");
	if (change->from->transform != change->to->transform)
		refuse(change, change->to->transform ? "It would have no groups." : "It would have groups.");
	if (!change->to->transform)
	{
		compare_windows(change);
		compare_keys(change);
		match_aggs(change);
		if (!same_expression(change, change->from->having, change->to->having))
			refuse(change, "Its HAVING would be another one.");
	}
	compare_columns(change);
}

/* --- changing --- */

static void
alter_result(const Change *change)
{
	StringInfoData sql;
	const char *separator = "";
	ListCell   *lc;

	if (change->added == NIL && change->dropped == NIL)
		return;
	initStringInfo(&sql);
	appendStringInfo(&sql, "ALTER TABLE %s",
					 quote_qualified_identifier(get_namespace_name(get_rel_namespace(change->config->view)), change->name));
	foreach(lc, change->dropped)
	{
		appendStringInfo(&sql, "%s DROP COLUMN %s", separator, quote_identifier(lfirst(lc)));
		separator = ",";
	}
	foreach(lc, change->added)
	{
		appendStringInfo(&sql, "%s ADD COLUMN ", separator);
		sa_part_append_column(&sql, lfirst(lc));
		separator = ",";
	}
	sa_ddl_guard_open(change->config->view);
	PG_TRY();
	{
		sa_part_run(sql.data);
	}
	PG_FINALLY();
	{
		sa_ddl_guard_open(InvalidOid);
	}
	PG_END_TRY();
}

/* Are states kept in the same way before and after? */
static bool
same_states(const Change *change, SaOutputMode mode)
{
	const SaQuery *from = change->from;
	const SaQuery *to = change->to;

	if (from->naggs != to->naggs || change->added != NIL || change->dropped != NIL)
		return false;
	for (int i = 0; i < to->naggs; i++)
		if (change->aggs[i] != i || same_column(change, from->aggs[i].result, to->aggs[i].result) == false)
			return false;
	for (int i = 0; i < to->nkeys; i++)
		if (change->keys[i] != i)
			return false;
	return true;
}

/* The groups as they are on disk, all in memory. */
static SaState *
load_groups(const Change *change)
{
	SaViewConfig *config = change->config;
	SaState    *state = sa_state_create(change->from, change->options.output_mode, config->view, config->state,
										InvalidOid, CurrentMemoryContext);

	sa_state_hold(state);
	(void) sa_state_begin(state, sa_watermark_horizon(sa_commit_watermark(sa_catalog_positions(config->id)),
													  change->options.allowed_lateness), false);
	return state;
}

/* Write the groups as the new query keeps them, to the result table and a new log. */
static void
write_groups(Change *change, SaState *groups)
{
	SaViewConfig *config = change->config;
	SaOutputMode mode = change->options.output_mode;
	SaState    *state = sa_state_create(change->to, mode, config->view, config->state, InvalidOid,
										CurrentMemoryContext);
	SaResult   *result = sa_result_create(change->to, config->view, CurrentMemoryContext);
	SaTouched  *touched;
	int			n;

	sa_state_adopt(state, groups, change->keys, change->aggs);
	sa_result_begin(result);
	touched = sa_state_touched(state, &n);
	if (mode != SA_APPEND)
		sa_result_write_groups(result, state, touched, n);
	sa_result_end(result);
	sa_state_write(state);
	sa_result_free(result);
}

static void
tell(const Change *change)
{
	StringInfoData names;
	ListCell   *lc;

	if (change->added == NIL)
	{
		ereport(NOTICE,
				(errmsg("continuous view \"%s\" goes on with its groups as they are", change->name),
				 errdetail("The new query holds for the records from its position on.")));
		return;
	}
	initStringInfo(&names);
	foreach(lc, change->added)
		appendStringInfo(&names, "%s\"%s\"", names.len ? ", " : "", lfirst_node(ColumnDef, lc)->colname);
	ereport(NOTICE,
			(errmsg("continuous view \"%s\" goes on with its groups as they are", change->name),
			 errdetail(change->to->transform ? "New in the rows to come: %s; it is NULL in those that are there." :
					   "New: %s. In groups that are closed it is NULL; in others it covers the records from the view's position on.",
					   names.data)));
}

/* The definition is replaced, and the groups are carried over where their form changes. */
static void
carry_over(Change *change, Oid definition, int id)
{
	SaViewConfig *config = change->config;
	Oid			old_definition = config->definition;
	Oid			old_state = config->state;
	bool		rewrite = !change->to->transform && !same_states(change, change->options.output_mode);
	SaState    *groups = rewrite ? load_groups(change) : NULL;

	alter_result(change);
	sa_query_free(change->to);
	change->to = sa_query_load(definition, config->view, GetUserId());
	if (rewrite)
	{
		config->state = sa_state_needs_log(change->to, change->options.output_mode) ? sa_part_create_state(id) : InvalidOid;
		write_groups(change, groups);
		sa_part_drop(old_state, config->view);
	}
	sa_part_drop(old_definition, config->view);
	config->definition = definition;
	sa_mend_attach(config);
	config->id = id;
	sa_part_rename(config, id);
	sa_catalog_change_view(config);
}

/* Grouping expressions stay what they are in the view: windows or not. */
static Query *
find_window(const Change *change, Query *query)
{
	SaQuery    *from = sa_query_load(change->config->definition, change->config->view, GetUserId());
	bool		windowed = from->windowed;

	sa_query_free(from);
	return windowed ? sa_window_group(query) : query;
}

static void
replace_query(Change *change, Query *query, List *names)
{
	SaOwnerSwitch save;
	int			id = sa_catalog_next_id();
	Oid			definition;

	PushActiveSnapshot(GetLatestSnapshot());
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	sa_owner_enter(&save, sa_owner_of(change->config->view));
	sa_owner_apply_settings(change->config->settings);
	query = find_window(change, query);
	change->columns = sa_part_columns(query, names);
	definition = sa_part_create_definition(id, change->columns, query);
	change->from = sa_query_load(change->config->definition, change->config->view, GetUserId());
	change->to = sa_query_load(definition, InvalidOid, GetUserId());
	sa_result_check(change->from, change->config->view);
	compare(change);
	carry_over(change, definition, id);
	tell(change);
	sa_query_free(change->to);
	sa_query_free(change->from);
	sa_owner_leave(&save);
	SPI_finish();
	PopActiveSnapshot();
}

/* Errors in the query itself point into the statement. */
static void
check_query(const Change *change, Query *query, const char *query_string)
{
	ParseState *pstate = make_parsestate(NULL);
	SaQuery    *split;

	pstate->p_sourcetext = query_string;
	sa_ddl_view_check_permissions(query);
	sa_query_check_new(query, pstate);
	split = sa_query_split(find_window(change, query), pstate);
	sa_ddl_view_check_options(split, &change->options);
	sa_query_free(split);
	free_parsestate(pstate);
}

static void
check_statement(CreateTableAsStmt *stmt)
{
	if (list_length(stmt->into->options) != 2 || stmt->into->accessMethod || stmt->into->tableSpaceName ||
		stmt->into->skipData || stmt->if_not_exists)
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("options cannot be changed together with the query of a continuous view"),
				 errhint("Use ALTER CONTINUOUS VIEW ... SET (...).")));
}

void
sa_ddl_replace(CreateTableAsStmt *stmt, const char *query_string)
{
	Change		change = {0};
	Oid			view;

	PreventCommandIfReadOnly("ALTER MATERIALIZED VIEW");
	sa_slot_require();
	(void) sa_catalog_relation("view_config");
	check_statement(stmt);
	view = RangeVarGetRelidExtended(stmt->into->rel, AccessExclusiveLock, 0, RangeVarCallbackOwnsRelation, NULL);
	change.config = sa_catalog_view(view);
	if (change.config == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a continuous view", stmt->into->rel->relname)));
	sa_admin_check_on_disk(change.config, "change the query of");
	change.name = get_rel_name(view);
	sa_option_view(copyObject(change.config->options), &change.options);
	check_query(&change, castNode(Query, stmt->query), query_string);
	replace_query(&change, castNode(Query, stmt->query), stmt->into->colNames);
	sa_slot_want_at_commit(change.config->stream);
}
