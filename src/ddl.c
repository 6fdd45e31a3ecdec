/*
 * ddl.c
 *		CREATE MATERIALIZED VIEW ... WITH (stream_agg.continuous) and everything else that commands do to
 *		continuous views and streams.
 *
 * Invariant: a view consists of its result table, its definition (a view in schema stream_agg), its state
 * log if it needs one, and its row in view_config; the three others belong to the result table by
 * internal dependencies, so that PostgreSQL drops them together.  Everything is transactional: workers
 * hear of it at commit.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/sysattr.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_database.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_trigger.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "commands/tablecmds.h"
#include "commands/view.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "foreign/foreign.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "parser/parse_node.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/ruleutils.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "catalog.h"
#include "compat.h"
#include "ddl.h"
#include "ddl_stream.h"
#include "query.h"
#include "slot.h"
#include "source.h"
#include "state.h"

#define NAMESPACE "stream_agg"

/* Settings that change what an expression means; kept with the view. */
static const char *const kept_settings[] = {
	"TimeZone", "DateStyle", "IntervalStyle", "extra_float_digits"
};

static ProcessUtility_hook_type prev_process_utility = NULL;
static object_access_hook_type prev_object_access = NULL;

/* --- creating a view --- */

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

static bool
has_our_options(List *options)
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
static Oid
extension_owner(void)
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
	SetUserIdAndSecContext(extension_owner(), save_context | SECURITY_LOCAL_USERID_CHANGE);
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

static void
create_view(CreateTableAsStmt *stmt, const char *query_string)
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

/* --- dropping --- */

static Oid
continuous_view_of(List *name)
{
	Oid			relid = RangeVarGetRelid(makeRangeVarFromNameList(name), NoLock, true);

	return OidIsValid(relid) && sa_catalog_exists() && sa_catalog_view(relid) ? relid : InvalidOid;
}

/* DROP MATERIALIZED VIEW of continuous views drops their result tables. */
static DropStmt *
split_drop(DropStmt *drop)
{
	DropStmt   *tables = copyObject(drop);
	List	   *matviews = NIL;
	ListCell   *lc;

	tables->removeType = OBJECT_TABLE;
	tables->objects = NIL;
	foreach(lc, drop->objects)
	{
		if (OidIsValid(continuous_view_of(lfirst(lc))))
			tables->objects = lappend(tables->objects, lfirst(lc));
		else
			matviews = lappend(matviews, lfirst(lc));
	}
	drop->objects = matviews;
	return tables->objects == NIL ? NULL : tables;
}

static void
relation_dropped(Oid relid)
{
	char		relkind = get_rel_relkind(relid);
	SaViewConfig *config;

	if ((relkind != RELKIND_RELATION && relkind != RELKIND_FOREIGN_TABLE) || !sa_catalog_exists())
		return;
	if (relkind == RELKIND_RELATION && (config = sa_catalog_view(relid)) != NULL)
	{
		sa_catalog_delete_view(relid);
		sa_slot_want_at_commit(config->stream);
	}
	else if (relkind == RELKIND_FOREIGN_TABLE && sa_option_is_stream(relid))
		sa_catalog_forget_stream(relid);
}

static void
object_accessed(ObjectAccessType access, Oid class_id, Oid object_id, int sub_id, void *arg)
{
	if (prev_object_access)
		prev_object_access(access, class_id, object_id, sub_id, arg);
	if (access == OAT_DROP && class_id == RelationRelationId && sub_id == 0)
		relation_dropped(object_id);
}

/* --- what may not be done to result tables --- */

static SaViewConfig *
view_of_rangevar(RangeVar *rel)
{
	Oid			relid = RangeVarGetRelid(rel, NoLock, true);

	if (!OidIsValid(relid) || get_rel_relkind(relid) != RELKIND_RELATION || !sa_catalog_exists())
		return NULL;
	return sa_catalog_view(relid);
}

static void
refuse_change(const char *what, const char *name, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("cannot %s continuous view \"%s\"", what, name),
			 errhint("%s", hint)));
}

/* The view's own columns come first in its table; users' columns after them. */
static int
own_columns(SaViewConfig *config)
{
	Relation	rel = table_open(config->definition, AccessShareLock);
	int			n = RelationGetNumberOfAttributes(rel);

	table_close(rel, NoLock);
	return n;
}

/* A primary key or unique constraint over the view's own columns. */
static bool
is_key_constraint(Oid relid, const char *name, int own)
{
	Oid			conoid = get_relation_constraint_oid(relid, name, true);
	HeapTuple	tuple = SearchSysCache1(CONSTROID, ObjectIdGetDatum(conoid));
	char		contype;
	Bitmapset  *columns;

	if (!HeapTupleIsValid(tuple))
		return false;
	contype = ((Form_pg_constraint) GETSTRUCT(tuple))->contype;
	ReleaseSysCache(tuple);
	if (contype != CONSTRAINT_PRIMARY && contype != CONSTRAINT_UNIQUE)
		return false;
	columns = get_relation_constraint_attnos(relid, name, true, &conoid);
	for (int i = -1; (i = bms_next_member(columns, i)) >= 0;)
		if (i + FirstLowInvalidHeapAttributeNumber > own)
			return false;
	return true;
}

/* The trigger that refuses direct changes. */
static bool
is_guard(Oid relid, const char *name)
{
	Relation	rel = table_open(relid, AccessShareLock);
	TriggerDesc *triggers = rel->trigdesc;
	bool		result = false;

	for (int i = 0; triggers && i < triggers->numtriggers && !result; i++)
		if (strcmp(triggers->triggers[i].tgname, name) == 0)
		{
			char	   *function = get_func_name(triggers->triggers[i].tgfoid);
			Oid			nsp = get_func_namespace(triggers->triggers[i].tgfoid);

			result = function && strcmp(function, "guard") == 0 && nsp == get_namespace_oid(NAMESPACE, true);
		}
	table_close(rel, NoLock);
	return result;
}

/* A table that inherits from the result would show its rows as the view's. */
static void
check_parent(RangeVar *parent)
{
	if (view_of_rangevar(parent))
		refuse_change("inherit from", parent->relname, "Its result table is an ordinary table without children.");
}

/* Rows routed through a partitioned table would pass by the guard. */
static void
check_partition(RangeVar *partition)
{
	if (view_of_rangevar(partition))
		refuse_change("change the kind of", partition->relname, "Its result table is an ordinary, logged table.");
}

static void
check_parents(CreateStmt *create)
{
	ListCell   *lc;

	foreach(lc, create->inhRelations)
		check_parent(lfirst_node(RangeVar, lc));
}

/* DROP TRIGGER of the guard. */
static void
check_drop_trigger(DropStmt *drop)
{
	ListCell   *lc;

	foreach(lc, drop->objects)
	{
		List	   *name = lfirst(lc);
		RangeVar   *rel = makeRangeVarFromNameList(list_truncate(list_copy(name), list_length(name) - 1));
		SaViewConfig *config = view_of_rangevar(rel);

		if (config && is_guard(config->view, strVal(llast(name))))
			refuse_change("drop the guard of", rel->relname, "It refuses direct changes while the view lives.");
	}
}

static void
check_alter_column(SaViewConfig *config, AlterTableCmd *cmd, const char *relname)
{
	AttrNumber	attr = cmd->name ? get_attnum(config->view, cmd->name) : InvalidAttrNumber;
	int			own = own_columns(config);

	switch (cmd->subtype)
	{
		case AT_DropColumn:
		case AT_AlterColumnType:
			if (attr > 0 && attr <= own)
				refuse_change("change a column of", relname,
							  "The columns of its select list belong to the view; drop it and create another one.");
			break;
		case AT_DropConstraint:
			if (is_key_constraint(config->view, cmd->name, own))
				refuse_change("drop the key of", relname, "The worker keeps groups apart by it.");
			break;
		case AT_DisableTrig:
		case AT_EnableReplicaTrig:
			if (is_guard(config->view, cmd->name))
				refuse_change("disable the guard of", relname, "It refuses direct changes while the view lives.");
			break;
		case AT_DisableTrigAll:
		case AT_DisableTrigUser:
			refuse_change("disable all triggers of", relname,
						  "Its guard refuses direct changes while the view lives; name the triggers to disable.");
			break;
		case AT_AddInherit:
		case AT_SetUnLogged:
			refuse_change("change the kind of", relname, "Its result table is an ordinary, logged table.");
			break;
		case AT_ForceRowSecurity:
			refuse_change("force row-level security on", relname, "The worker reads its rows as their owner.");
			break;
		default:
			break;
	}
}

static void
check_alter(AlterTableStmt *alter)
{
	SaViewConfig *config = view_of_rangevar(alter->relation);
	ListCell   *lc;

	foreach(lc, alter->cmds)
	{
		AlterTableCmd *cmd = lfirst(lc);

		if (cmd->subtype == AT_AddInherit)
			check_parent(castNode(RangeVar, cmd->def));
		else if (cmd->subtype == AT_AttachPartition)
			check_partition(castNode(PartitionCmd, cmd->def)->name);
	}
	if (config == NULL)
		return;
	foreach(lc, alter->cmds)
		check_alter_column(config, lfirst_node(AlterTableCmd, lc), alter->relation->relname);
}

static void
check_trigger(CreateTrigStmt *trigger)
{
	if (trigger->row && (trigger->timing & TRIGGER_TYPE_TIMING_MASK) == TRIGGER_TYPE_BEFORE &&
		view_of_rangevar(trigger->relation))
		refuse_change("create a BEFORE ROW trigger on", trigger->relation->relname,
					  "It could change what the view writes; use an AFTER trigger.");
	if (trigger->transitionRels != NIL && view_of_rangevar(trigger->relation))
		refuse_change("create a trigger with transition tables on", trigger->relation->relname,
					  "The worker writes row by row; use a row trigger.");
}

/* --- databases: our workers leave first --- */

static bool
owns_database(Oid database)
{
	return OidIsValid(database) && (superuser() || sa_database_ownercheck(database, GetUserId()));
}

static bool
may_create_database(void)
{
	HeapTuple	tuple = SearchSysCache1(AUTHOID, ObjectIdGetDatum(GetUserId()));
	bool		result = HeapTupleIsValid(tuple) && ((Form_pg_authid) GETSTRUCT(tuple))->rolcreatedb;

	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	return result;
}

/* Whether CREATE DATABASE may copy this one; PostgreSQL checks the rest. */
static bool
may_copy_database(Oid database)
{
	HeapTuple	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(database));
	bool		template;

	if (!HeapTupleIsValid(tuple))
		return false;
	template = ((Form_pg_database) GETSTRUCT(tuple))->datistemplate;
	ReleaseSysCache(tuple);
	return owns_database(database) || (template && may_create_database());
}

static bool
may_drop_extension(void)
{
	return superuser() || GetUserId() == extension_owner();
}

static Oid
owned_database(const char *name)
{
	Oid			database = get_database_oid(name, true);

	return owns_database(database) ? database : InvalidOid;
}

/* The database that workers must leave for this command, if its user may give it at all. */
static Oid
database_to_leave(Node *stmt)
{
	ListCell   *lc;
	Oid			database;

	switch (nodeTag(stmt))
	{
		case T_DropdbStmt:
			return owned_database(((DropdbStmt *) stmt)->dbname);
		case T_RenameStmt:
			if (((RenameStmt *) stmt)->renameType == OBJECT_DATABASE)
				return owned_database(((RenameStmt *) stmt)->subname);
			break;
		case T_AlterDatabaseStmt:
			foreach(lc, ((AlterDatabaseStmt *) stmt)->options)
				if (strcmp(lfirst_node(DefElem, lc)->defname, "tablespace") == 0)
					return owned_database(((AlterDatabaseStmt *) stmt)->dbname);
			break;
		case T_CreatedbStmt:
			foreach(lc, ((CreatedbStmt *) stmt)->options)
				if (strcmp(lfirst_node(DefElem, lc)->defname, "template") == 0)
				{
					database = get_database_oid(defGetString(lfirst(lc)), true);
					return may_copy_database(database) ? database : InvalidOid;
				}
			break;
		case T_DropStmt:

			/* It locks what workers lock, in another order. */
			if (((DropStmt *) stmt)->removeType == OBJECT_EXTENSION)
				foreach(lc, ((DropStmt *) stmt)->objects)
					if (strcmp(strVal(lfirst(lc)), "stream_agg") == 0 && sa_catalog_exists() && may_drop_extension())
						return MyDatabaseId;
			break;
		default:
			break;
	}
	return InvalidOid;
}

/* --- the hook --- */

/* What must be checked or rewritten before PostgreSQL runs the command.  True: done with it. */
static bool
before_command(Node *stmt, const char *query_string)
{
	switch (nodeTag(stmt))
	{
		case T_CreateTableAsStmt:
			{
				CreateTableAsStmt *create = (CreateTableAsStmt *) stmt;

				if (create->objtype != OBJECT_MATVIEW || !has_our_options(create->into->options))
					return false;
				create_view(copyObject(create), query_string);	/* it may be a cached plan's */
				return true;
			}
		case T_AlterTableStmt:
			check_alter((AlterTableStmt *) stmt);
			sa_ddl_stream_check((AlterTableStmt *) stmt);
			return false;
		case T_CreateTrigStmt:
			check_trigger((CreateTrigStmt *) stmt);
			return false;
		case T_CreateStmt:
			check_parents((CreateStmt *) stmt);
			return false;
		case T_CreateUserMappingStmt:
			sa_option_check_mapping(((CreateUserMappingStmt *) stmt)->servername, ((CreateUserMappingStmt *) stmt)->options);
			return false;
		case T_AlterUserMappingStmt:
			sa_option_check_mapping(((AlterUserMappingStmt *) stmt)->servername, ((AlterUserMappingStmt *) stmt)->options);
			return false;
		case T_DropStmt:
			if (((DropStmt *) stmt)->removeType == OBJECT_TRIGGER)
				check_drop_trigger((DropStmt *) stmt);
			return false;
		default:
			return false;
	}
}

/* What a prepared transaction wanted of the workers is not known any more: look at every stream anew. */
static void
wake_prepared(void)
{
	ListCell   *lc;

	foreach(lc, sa_catalog_running_streams())
		sa_slot_want_at_commit(lfirst_oid(lc));
}

static void
after_command(Node *stmt)
{
	switch (nodeTag(stmt))
	{
		case T_CreateForeignTableStmt:
			sa_ddl_stream_created((CreateForeignTableStmt *) stmt);
			break;
		case T_AlterTableStmt:
			sa_ddl_stream_altered((AlterTableStmt *) stmt);
			break;
		case T_RenameStmt:
			sa_ddl_stream_renamed((RenameStmt *) stmt);
			break;
		case T_TransactionStmt:
			if (((TransactionStmt *) stmt)->kind == TRANS_STMT_COMMIT_PREPARED)
				wake_prepared();
			break;
		default:
			break;
	}
}

static void
process_utility(PlannedStmt *pstmt, const char *query_string, bool read_only_tree, ProcessUtilityContext context,
				ParamListInfo params, QueryEnvironment *env, DestReceiver *dest, QueryCompletion *qc)
{
	ProcessUtility_hook_type next = prev_process_utility ? prev_process_utility : standard_ProcessUtility;
	Node	   *stmt = pstmt->utilityStmt;
	Oid			database;

	if (IsA(stmt, DropStmt) && ((DropStmt *) stmt)->removeType == OBJECT_MATVIEW)
	{
		PlannedStmt *rest = copyObject(pstmt);
		DropStmt   *tables = split_drop((DropStmt *) rest->utilityStmt);

		if (tables)
		{
			PlannedStmt *dropping = copyObject(pstmt);

			dropping->utilityStmt = (Node *) tables;
			next(dropping, query_string, false, context, params, env, dest, qc);
			if (((DropStmt *) rest->utilityStmt)->objects != NIL)
				next(rest, query_string, false, context, params, env, dest, qc);
			return;
		}
	}
	if (before_command(stmt, query_string))
	{
		if (qc)
			SetQueryCompletion(qc, CMDTAG_SELECT, 0);	/* as CREATE MATERIALIZED VIEW does; SPI insists */
		return;
	}
	database = database_to_leave(stmt);
	if (OidIsValid(database))
		sa_slot_block_database(database, IsA(stmt, DropdbStmt));	/* until the end of the transaction */
	next(pstmt, query_string, read_only_tree, context, params, env, dest, qc);
	if (context != PROCESS_UTILITY_SUBCOMMAND)	/* a command looked at in the middle would not be whole */
		after_command(stmt);
}

void
sa_ddl_init(void)
{
	prev_process_utility = ProcessUtility_hook;
	ProcessUtility_hook = process_utility;
	prev_object_access = object_access_hook;
	object_access_hook = object_accessed;
}
