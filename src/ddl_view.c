/*
 * ddl_view.c
 *		Creating continuous views.
 *
 * Invariant: a view consists of its result table, its definition (a view in schema stream_agg), its state
 * log if it needs one, and its row in view_config; the three others belong to the result table by
 * internal dependencies, so that PostgreSQL drops them together.
 *
 * Locks: those that the commands take.  Crash: transactional.
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "parser/parse_node.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"
#include "utils/rel.h"

#include "catalog.h"
#include "compat.h"
#include "ddl_part.h"
#include "ddl_view.h"
#include "dedup.h"
#include "mend.h"
#include "query.h"
#include "slot.h"
#include "source.h"
#include "state.h"
#include "window_group.h"

#define NAMESPACE "stream_agg"

/* Settings that change what an expression means; kept with the view. */
static const char *const kept_settings[] = {
	"TimeZone", "timezone_abbreviations", "DateStyle", "IntervalStyle", "extra_float_digits",
	"bytea_output", "xmlbinary", "xmloption", "array_nulls", "quote_all_identifiers",
	"lc_monetary", "lc_numeric", "lc_time", "default_text_search_config"
};

/* What is being created. */
typedef struct NewView
{
	CreateTableAsStmt *stmt;
	Query	   *query;
	SaQuery    *split;
	List	   *columns;		/* of ColumnDef */
	List	   *option_defs;	/* the view's own */
	List	   *storage_defs;	/* the result table's */
	SaViewOptions options;
	int			id;
	Oid			definition;
	Oid			result;
	Oid			state;
	Oid			spill;
	Oid			dedup;
	Oid			dedup_spill;
	const char *name;			/* of the result table, qualified and quoted */
} NewView;

static bool
is_ours(DefElem *def)
{
	return def->defnamespace && strcmp(def->defnamespace, NAMESPACE) == 0;
}

bool
sa_ddl_view_has_options(List *options)
{
	ListCell   *lc;

	foreach(lc, options)
		if (is_ours(lfirst(lc)))
			return true;
	return false;
}

bool
sa_ddl_view_is_replacement(List *options)
{
	ListCell   *lc;

	foreach(lc, options)
		if (is_ours(lfirst(lc)) && strcmp(lfirst_node(DefElem, lc)->defname, "replace") == 0)
			return defGetBoolean(lfirst(lc));
	return false;
}

/* The view's options, the table's, and the word that makes it continuous. */
static void
sort_options(NewView *new)
{
	bool		continuous = false;
	ListCell   *lc;

	foreach(lc, new->stmt->into->options)
	{
		DefElem    *def = lfirst(lc);

		if (!is_ours(def))
			new->storage_defs = lappend(new->storage_defs, def);
		else if (strcmp(def->defname, "continuous") == 0)
			continuous = defGetBoolean(def);
		else
			new->option_defs = lappend(new->option_defs, def);
	}
	if (!continuous)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("options of schema \"stream_agg\" need \"stream_agg.continuous\""),
				 errhint("Use CREATE MATERIALIZED VIEW ... WITH (stream_agg.continuous, ...).")));
	sa_option_view(new->option_defs, &new->options);
}

static bool
is_named_place(const SaBoundary *boundary)
{
	return boundary->kind == SA_BOUNDARY_TIME || boundary->kind == SA_BOUNDARY_EXPLICIT;
}

/* The other view that this one begins at, by its full name in the option that is kept. */
static void
settle_start(NewView *new)
{
	const char *name = new->options.start.view;
	RangeVar   *rel = makeRangeVarFromNameList(sa_qualified_name(name));
	Oid			relid = RangeVarGetRelid(rel, AccessShareLock, false);
	SaViewConfig *other = sa_catalog_view(relid);
	ListCell   *lc;

	if (other == NULL || other->stream != new->split->stream)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a continuous view of stream \"%s\"", name, get_rel_name(new->split->stream)),
				 errhint("A view can start where another view of the same stream stands.")));
	if (pg_class_aclcheck(relid, GetUserId(), ACL_SELECT) != ACLCHECK_OK)
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_TABLE, name);
	if (sa_catalog_positions(other->id) == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("continuous view \"%s\" has no position yet", name),
				 errhint("Its worker has not met its stream; see stream_agg.streams.")));
	foreach(lc, new->option_defs)
	{
		DefElem    *def = lfirst(lc);

		if (strcmp(def->defname, "start") == 0)
			def->arg = (Node *) makeString(psprintf("view:%s", quote_qualified_identifier(get_namespace_name(get_rel_namespace(relid)),
																						 get_rel_name(relid))));
	}
}

static void
check_boundaries(NewView *new)
{
	const SaViewOptions *options = &new->options;
	Relation	rel = table_open(new->split->stream, AccessShareLock);
	bool		start = is_named_place(&options->start);

	if ((start || is_named_place(&options->end)) &&
		!sa_source_routine(sa_option_stream(rel)->source)->named_places)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("a view of stream \"%s\" cannot %s at a time or at given positions",
						RelationGetRelationName(rel), start ? "start" : "end"),
				 errhint(start ? "Valid values of the option \"start\" are: earliest, latest, view:name." :
						 "The valid value of the option \"end\" is: latest.")));
	table_close(rel, NoLock);
	if (options->start.kind == SA_BOUNDARY_VIEW)
		settle_start(new);
}

/* The watermark's delay: the view's own, else the stream's. */
static int64
watermark_of(Relation rel, const SaStreamOptions *stream, const SaViewOptions *options)
{
	if (options->watermark != SA_NO_DELAY && stream->time_attr == InvalidAttrNumber)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a watermark needs an event time, and stream \"%s\" has none", RelationGetRelationName(rel)),
				 errhint("Name a column of type timestamp with time zone, timestamp or date in the option \"event_time\" of the stream.")));
	return options->watermark != SA_NO_DELAY ? options->watermark : stream->watermark;
}

/* Time that is to go on while the stream is silent: as of when is it, and who says what time it was? */
static void
check_going_on(Relation rel, const SaViewOptions *options)
{
	SaStreamOptions *stream = sa_option_stream(rel);

	if (watermark_of(rel, stream, options) == SA_NO_DELAY)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("on_idle 'advance' needs a watermark"),
				 errhint("Set the option \"watermark\" of the view or of its stream.")));
	if ((options->idle_timeout >= 0 ? options->idle_timeout : stream->idle_timeout) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("on_idle 'advance' needs an idle_timeout"),
				 errdetail("Without one, no partition is ever idle."),
				 errhint("Set the option \"idle_timeout\" of the view or of its stream.")));
}

/* Groups that are to stay after their windows have closed. */
static void
check_lateness(Relation rel, const SaQuery *query, const SaViewOptions *options)
{
	if (!query->windowed)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("allowed_lateness needs a window"),
				 errdetail("Without a window nothing closes, and no event is late."),
				 errhint("Group by a window function such as tumble().")));
	if (watermark_of(rel, sa_option_stream(rel), options) == SA_NO_DELAY)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("allowed_lateness needs a watermark"),
				 errdetail("Without a watermark no window closes, and no event is late."),
				 errhint("Set the option \"watermark\" of the view or of its stream.")));
}

/* Keys are to be forgotten at some time, and by nobody else. */
static void
check_dedup(Relation rel, const SaQuery *query, const SaViewOptions *options)
{
	if (watermark_of(rel, sa_option_stream(rel), options) == SA_NO_DELAY)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("dedup_key needs a watermark"),
				 errdetail("Without a watermark, every key would have to be kept for ever."),
				 errhint("Set the option \"watermark\" of the view or of its stream.")));
	if (options->output_mode == SA_COMPLETE)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("dedup_key is not supported in output mode \"complete\""),
				 errdetail("Nothing is late in it, so every key would have to be kept for ever."),
				 errhint("Use output_mode = 'update'.")));
	sa_dedup_check(query, options->dedup_key);
}

void
sa_ddl_view_check_options(const SaQuery *query, const SaViewOptions *options)
{
	Relation	rel = table_open(query->stream, AccessShareLock);

	if (options->go_on)
		check_going_on(rel, options);
	if (options->allowed_lateness > 0)
		check_lateness(rel, query, options);
	if (options->dedup_key != NIL)
		check_dedup(rel, query, options);
	sa_query_check_mode(query, options->output_mode, watermark_of(rel, sa_option_stream(rel), options));
	if (options->unlogged)
		sa_query_check_unlogged(query, options->output_mode, watermark_of(rel, sa_option_stream(rel), options));
	table_close(rel, NoLock);
}

/* The creator's rights on every table of the query, sub-queries included. */
static bool
check_permissions_walker(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Query))
	{
		sa_check_query_permissions((Query *) node);
		return query_tree_walker((Query *) node, check_permissions_walker, context, 0);
	}
	return expression_tree_walker(node, check_permissions_walker, context);
}

void
sa_ddl_view_check_permissions(Query *query)
{
	(void) check_permissions_walker((Node *) query, NULL);
}

/* Who groups by the event time mostly means windows. */
static void
warn_of_missed_window(const NewView *new)
{
	Relation	rel = table_open(new->split->stream, AccessShareLock);
	SaStreamOptions *stream = sa_option_stream(rel);

	if (!new->split->windowed && new->options.output_mode == SA_UPDATE &&
		watermark_of(rel, stream, &new->options) != SA_NO_DELAY && sa_window_group_missed(new->query))
		ereport(NOTICE,
				(errmsg("groups of continuous view \"%s\" will never close", new->stmt->into->rel->relname),
				 errdetail("It groups by an expression of the event time that is no window."),
				 errhint("For groups that close, use a window function such as tumble(), or date_trunc() or date_bin() of \"%s\"%s.",
						 get_attname(RelationGetRelid(rel), stream->time_attr, false),
						 stream->time_type == DATEOID ? "::timestamp" : " itself, without a cast")));
	table_close(rel, NoLock);
}

static void
check_view(NewView *new, ParseState *pstate)
{
	if (new->stmt->into->rel->relpersistence != RELPERSISTENCE_PERMANENT)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("a continuous view cannot be temporary or unlogged"),
				 errdetail("Its result and its position must survive together.")));
	if (new->stmt->into->skipData)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("WITH NO DATA is not supported in continuous views"),
				 errhint("Use start = 'latest' to begin with the events to come.")));
	sa_ddl_view_check_permissions(new->query);
	sa_query_check_new(new->query, pstate);
	new->query = sa_window_group(new->query);
	new->split = sa_query_split(new->query, pstate);
	check_boundaries(new);
	sa_ddl_view_check_options(new->split, &new->options);
	warn_of_missed_window(new);
}

/* The table's own options as they were written, with a fillfactor that keeps updates on the page. */
static const char *
storage_options(NewView *new)
{
	StringInfoData sql;
	bool		has_fillfactor = false;
	const char *separator = " WITH (";
	ListCell   *lc;

	initStringInfo(&sql);
	foreach(lc, new->storage_defs)
	{
		DefElem    *def = lfirst(lc);

		has_fillfactor |= strcmp(def->defname, "fillfactor") == 0;
		appendStringInfoString(&sql, separator);
		if (def->defnamespace)
			appendStringInfo(&sql, "%s.", quote_identifier(def->defnamespace));
		appendStringInfo(&sql, "%s = %s", quote_identifier(def->defname), quote_literal_cstr(defGetString(def)));
		separator = ", ";
	}
	if (!has_fillfactor && new->options.output_mode != SA_APPEND && !new->split->transform)
	{
		appendStringInfo(&sql, "%sfillfactor = 50", separator);
		separator = ", ";
	}
	if (separator[0] == ',')
		appendStringInfoChar(&sql, ')');
	return sql.data;
}

static void
create_result_table(NewView *new)
{
	IntoClause *into = new->stmt->into;
	StringInfoData sql;
	const char *separator = "";
	ListCell   *lc;

	initStringInfo(&sql);
	appendStringInfo(&sql, "CREATE TABLE %s (", new->name);
	foreach(lc, new->columns)
	{
		appendStringInfoString(&sql, separator);
		sa_part_append_column(&sql, lfirst(lc));
		separator = ", ";
	}
	appendStringInfoChar(&sql, ')');
	if (into->accessMethod)
		appendStringInfo(&sql, " USING %s", quote_identifier(into->accessMethod));
	appendStringInfoString(&sql, storage_options(new));
	if (into->tableSpaceName)
		appendStringInfo(&sql, " TABLESPACE %s", quote_identifier(into->tableSpaceName));
	sa_part_run(sql.data);
	new->result = RangeVarGetRelid(into->rel, NoLock, false);
}

/* The key: the window first, then the other grouping columns. */
static void
create_key(NewView *new)
{
	SaQuery    *split = new->split;
	StringInfoData columns;
	bool		nullable = false;
	const char *separator = "";

	if (split->transform || (split->nkeys == 0 && !split->windowed))
	{
		sa_part_run(psprintf("ALTER TABLE %s REPLICA IDENTITY FULL", new->name));
		return;
	}
	initStringInfo(&columns);
	if (split->windowed)
	{
		AttrNumber	attr = split->start_result ? split->start_result : split->end_result;

		appendStringInfoString(&columns, quote_identifier(get_attname(new->result, attr, false)));
		/* windows of different sizes may start together, sessions of one key never; and their ends change */
		if (split->start_result && !split->measures.start_decides && !split->sessions)
			appendStringInfo(&columns, ", %s", quote_identifier(get_attname(new->result, split->end_result, false)));
		separator = ", ";
	}
	for (int i = 0; i < split->nkeys; i++)
	{
		appendStringInfo(&columns, "%s%s", separator,
						 quote_identifier(get_attname(new->result, split->keys[i].result, false)));
		separator = ", ";
		nullable |= split->keys[i].nullable;
	}
	sa_part_run(psprintf("ALTER TABLE %s ADD %s (%s)", new->name,
					 nullable ? "UNIQUE NULLS NOT DISTINCT" : "PRIMARY KEY", columns.data));
	if (nullable)
		sa_part_run(psprintf("ALTER TABLE %s REPLICA IDENTITY FULL", new->name));
}

static List *
current_settings(void)
{
	List	   *settings = NIL;

	for (int i = 0; i < lengthof(kept_settings); i++)
		settings = lappend(settings, makeDefElem(pstrdup(kept_settings[i]),
												 (Node *) makeString(pstrdup(GetConfigOption(kept_settings[i], false, false))),
												 -1));
	return settings;
}

static void
register_view(NewView *new, List *settings)
{
	SaViewConfig config = {
		.id = new->id,
		.view = new->result,
		.definition = new->definition,
		.state = new->state,
		.spill = new->spill,
		.dedup = new->dedup,
		.dedup_spill = new->dedup_spill,
		.stream = new->split->stream,
		.database = MyDatabaseId,
		.status = SA_STATUS_RUNNING,
		.options = new->option_defs,
		.settings = settings
	};

	sa_mend_attach(&config);
	sa_catalog_insert_view(&config);
	sa_slot_want_at_commit(new->split->stream);
}

static void
create_parts(NewView *new)
{
	List	   *settings = current_settings();
	int			save_nest = NewGUCNestLevel();

	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0,
							 false);
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	new->id = sa_catalog_next_id();
	new->columns = sa_part_columns(new->query, new->stmt->into->colNames);
	new->definition = sa_part_create_definition(new->id, new->columns, new->query);
	create_result_table(new);
	create_key(new);
	sa_mend_guard(new->result);
	if (sa_state_needs_log(new->split, new->options.output_mode))
		new->state = sa_part_create_state(new->id);
	if (OidIsValid(new->state) && new->options.unlogged)
		new->spill = sa_part_create_spill(new->id);
	if (new->options.dedup_key != NIL)
		new->dedup = sa_part_create_dedup(new->id);
	if (OidIsValid(new->dedup) && new->options.unlogged)
		new->dedup_spill = sa_part_create_dedup_spill(new->id);
	register_view(new, settings);
	SPI_finish();
	AtEOXact_GUC(false, save_nest);
}

void
sa_ddl_view_create(CreateTableAsStmt *stmt, const char *query_string)
{
	NewView		new = {.stmt = stmt, .query = castNode(Query, stmt->query)};
	ParseState *pstate = make_parsestate(NULL);
	RangeVar   *rel = stmt->into->rel;
	Oid			nsp;
	Oid			existing;

	pstate->p_sourcetext = query_string;
	PreventCommandIfReadOnly("CREATE MATERIALIZED VIEW");
	sa_slot_require();
	(void) sa_catalog_relation("view_config");
	sort_options(&new);
	nsp = RangeVarGetAndCheckCreationNamespace(rel, NoLock, &existing);
	if (OidIsValid(existing))
	{
		ereport(stmt->if_not_exists ? NOTICE : ERROR,
				(errcode(ERRCODE_DUPLICATE_TABLE),
				 errmsg(stmt->if_not_exists ? "relation \"%s\" already exists, skipping" :
						"relation \"%s\" already exists", rel->relname)));
		return;
	}
	check_view(&new, pstate);
	rel->schemaname = get_namespace_name(nsp);
	new.name = quote_qualified_identifier(rel->schemaname, rel->relname);
	create_parts(&new);
	sa_query_free(new.split);
	free_parsestate(pstate);
}
