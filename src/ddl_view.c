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

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_namespace.h"
#include "commands/defrem.h"
#include "commands/tablecmds.h"
#include "commands/view.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "parser/parse_node.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/ruleutils.h"
#include "utils/syscache.h"

#include "catalog.h"
#include "compat.h"
#include "ddl_view.h"
#include "query.h"
#include "slot.h"
#include "source.h"
#include "state.h"

#define NAMESPACE "stream_agg"

/* Settings that change what an expression means; kept with the view. */
static const char *const kept_settings[] = {
	"TimeZone", "DateStyle", "IntervalStyle", "extra_float_digits"
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

static void
check_boundaries(const NewView *new, Relation rel, const SaStreamOptions *stream)
{
	const SaViewOptions *options = &new->options;
	bool		start = is_named_place(&options->start);

	if ((start || is_named_place(&options->end)) && !sa_source_routine(stream->source)->named_places)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("a view of stream \"%s\" cannot %s at a time or at given positions",
						RelationGetRelationName(rel), start ? "start" : "end"),
				 errhint(start ? "Valid values of the option \"start\" are: earliest, latest." :
						 "The valid value of the option \"end\" is: latest.")));
}

/* The watermark's delay: the view's own, else the stream's. */
static int64
watermark_of(NewView *new)
{
	Relation	rel = table_open(new->split->stream, AccessShareLock);
	SaStreamOptions *stream = sa_option_stream(rel);

	check_boundaries(new, rel, stream);
	if (new->options.watermark != SA_NO_DELAY && stream->time_attr == InvalidAttrNumber)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a watermark needs an event time, and stream \"%s\" has none", RelationGetRelationName(rel)),
				 errhint("Name a column of type timestamp with time zone, timestamp or date in the option \"event_time\" of the stream.")));
	table_close(rel, NoLock);
	return new->options.watermark != SA_NO_DELAY ? new->options.watermark : stream->watermark;
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
	(void) check_permissions_walker((Node *) new->query, NULL);
	new->split = sa_query_split(new->query, pstate);
	sa_query_check_mode(new->split, new->options.output_mode, watermark_of(new));
}

/* The owner of schema stream_agg, who may create what users may not. */
Oid
sa_ddl_extension_owner(void)
{
	HeapTuple	tuple = SearchSysCache1(NAMESPACEOID, ObjectIdGetDatum(get_namespace_oid(NAMESPACE, false)));
	Oid			owner = ((Form_pg_namespace) GETSTRUCT(tuple))->nspowner;

	ReleaseSysCache(tuple);
	return owner;
}

/* The select list as column definitions, under the names of the column list where there is one. */
static List *
column_definitions(NewView *new)
{
	List	   *columns = NIL;
	ListCell   *name = list_head(new->stmt->into->colNames);
	ListCell   *lc;

	foreach(lc, new->query->targetList)
	{
		TargetEntry *tle = lfirst(lc);

		if (tle->resjunk)
			continue;
		if (name)
		{
			tle->resname = pstrdup(strVal(lfirst(name)));
			name = lnext(new->stmt->into->colNames, name);
		}
		columns = lappend(columns, makeColumnDef(tle->resname, exprType((Node *) tle->expr),
												 exprTypmod((Node *) tle->expr), exprCollation((Node *) tle->expr)));
	}
	if (name)
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("too many column names were specified")));
	return columns;
}

/* The definition: a real view, so that PostgreSQL tracks what it depends on. */
static void
create_definition(NewView *new)
{
	CreateStmt *create = makeNode(CreateStmt);

	create->relation = makeRangeVar(NAMESPACE, psprintf("definition_%d", new->id), -1);
	create->relation->relpersistence = RELPERSISTENCE_PERMANENT;
	create->tableElts = column_definitions(new);
	create->oncommit = ONCOMMIT_NOOP;
	new->columns = create->tableElts;
	new->definition = DefineRelation(create, RELKIND_VIEW, InvalidOid, NULL, NULL).objectId;
	CommandCounterIncrement();
	StoreViewQuery(new->definition, copyObject(new->query), false);
	CommandCounterIncrement();
}

static void
run_sql(const char *sql)
{
	int			result = SPI_execute(sql, false, 0);

	if (result != SPI_OK_UTILITY)
		elog(ERROR, "SPI_execute failed: %s", SPI_result_code_string(result));
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

/* A column as CREATE TABLE wants it. */
static void
append_column(StringInfo sql, ColumnDef *column)
{
	Oid			collation = column->collOid;

	appendStringInfo(sql, "%s %s", quote_identifier(column->colname),
					 format_type_extended(column->typeName->typeOid, column->typeName->typemod,
										  FORMAT_TYPE_TYPEMOD_GIVEN | FORMAT_TYPE_FORCE_QUALIFY));
	if (OidIsValid(collation) && collation != get_typcollation(column->typeName->typeOid))
		appendStringInfo(sql, " COLLATE %s", generate_collation_name(collation));
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
		append_column(&sql, lfirst(lc));
		separator = ", ";
	}
	appendStringInfoChar(&sql, ')');
	if (into->accessMethod)
		appendStringInfo(&sql, " USING %s", quote_identifier(into->accessMethod));
	appendStringInfoString(&sql, storage_options(new));
	if (into->tableSpaceName)
		appendStringInfo(&sql, " TABLESPACE %s", quote_identifier(into->tableSpaceName));
	run_sql(sql.data);
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
		run_sql(psprintf("ALTER TABLE %s REPLICA IDENTITY FULL", new->name));
		return;
	}
	initStringInfo(&columns);
	if (split->windowed)
	{
		AttrNumber	attr = split->start_result ? split->start_result : split->end_result;

		appendStringInfoString(&columns, quote_identifier(get_attname(new->result, attr, false)));
		/* windows of different sizes may start together */
		if (split->window_size <= 0)
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
	run_sql(psprintf("ALTER TABLE %s ADD %s (%s)", new->name,
					 nullable ? "UNIQUE NULLS NOT DISTINCT" : "PRIMARY KEY", columns.data));
	if (nullable)
		run_sql(psprintf("ALTER TABLE %s REPLICA IDENTITY FULL", new->name));
}

/* Direct changes are refused by a statement trigger, which the worker's row writes do not fire. */
static void
create_guard(NewView *new)
{
	run_sql(psprintf("CREATE TRIGGER stream_agg_guard BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s"
					 " FOR EACH STATEMENT EXECUTE FUNCTION stream_agg.guard()", new->name));
}

/*
 * The state log, for aggregates whose result is not their state.  Like the definition it belongs to the
 * extension's owner: its bytes are trusted.
 */
static void
create_state(NewView *new)
{
	if (!sa_state_needs_log(new->split, new->options.output_mode))
		return;
	run_sql(psprintf("CREATE TABLE stream_agg.state_%d (seq bigint NOT NULL, window_start bigint NOT NULL,"
					 " window_end bigint NOT NULL, data bytea NOT NULL)"
					 " WITH (toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0.2)", new->id));
	run_sql(psprintf("ALTER TABLE stream_agg.state_%d ALTER data SET STORAGE EXTERNAL", new->id));
	new->state = get_relname_relid(psprintf("state_%d", new->id), get_namespace_oid(NAMESPACE, false));
}

static void
belongs_to_result(NewView *new, Oid relid)
{
	ObjectAddress part;
	ObjectAddress whole;

	if (!OidIsValid(relid))
		return;
	ObjectAddressSet(part, RelationRelationId, relid);
	ObjectAddressSet(whole, RelationRelationId, new->result);
	recordDependencyOn(&part, &whole, DEPENDENCY_INTERNAL);
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
		.stream = new->split->stream,
		.database = MyDatabaseId,
		.status = SA_STATUS_RUNNING,
		.options = new->option_defs,
		.settings = settings
	};

	belongs_to_result(new, new->definition);
	belongs_to_result(new, new->state);
	sa_catalog_insert_view(&config);
	sa_slot_want_at_commit(new->split->stream);
}

/* Run part of the creation as the extension's owner. */
static void
as_extension_owner(NewView *new, void (*fn) (NewView *new))
{
	Oid			save_user;
	int			save_context;

	GetUserIdAndSecContext(&save_user, &save_context);
	SetUserIdAndSecContext(sa_ddl_extension_owner(), save_context | SECURITY_LOCAL_USERID_CHANGE);
	fn(new);
	SetUserIdAndSecContext(save_user, save_context);
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
	as_extension_owner(new, create_definition);
	create_result_table(new);
	create_key(new);
	create_guard(new);
	as_extension_owner(new, create_state);
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
