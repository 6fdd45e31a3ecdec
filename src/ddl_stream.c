/*
 * ddl_stream.c
 *		What commands do to streams.
 *
 * Invariant: after every command a stream's options can be read, its event time has a column, and its
 * source has what it needs.  Partitions and inheritance children are reached through their parents.
 *
 * Locks: those that the commands take.  Crash: transactional.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_inherits.h"
#include "commands/defrem.h"
#include "commands/tablecmds.h"
#include "foreign/foreign.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "catalog.h"
#include "compat.h"
#include "ddl_stream.h"
#include "ddl_view.h"
#include "grammar.h"
#include "option.h"
#include "owner.h"
#include "query.h"
#include "slot.h"
#include "source.h"

#define TIME_OPTION "event_time"

/* OIDs of the streams that a command on this relation reaches. */
static List *
streams_of(RangeVar *name)
{
	Oid			relid = RangeVarGetRelid(name, NoLock, true);
	List	   *streams = NIL;
	ListCell   *lc;

	if (!OidIsValid(relid) || !sa_catalog_exists())
		return NIL;
	foreach(lc, find_all_inheritors(relid, NoLock, NULL))
	{
		if (sa_option_is_stream(lfirst_oid(lc)))
			streams = lappend_oid(streams, lfirst_oid(lc));
	}
	return streams;
}

/* Reads the options, in which errors are the user's, and has the source make what it needs. */
static void
prepare(Oid stream)
{
	Relation	rel = table_open(stream, AccessShareLock);
	SaStreamOptions *options = sa_option_stream(rel);
	const SaSourceRoutine *routine = sa_source_routine(options->source);

	table_close(rel, NoLock);
	if (routine->prepare)
		routine->prepare(stream);
}

/* CREATE STREAM names a source or a server of ours. */
void
sa_ddl_stream_creating(CreateForeignTableStmt *create)
{
	ForeignServer *server;

	if (sa_grammar_kind(create->base.relation) == NULL)
		return;
	server = GetForeignServerByName(create->servername, true);
	if (server == NULL && !sa_catalog_exists())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("extension \"stream_agg\" is not in this database"),
				 errhint("Use CREATE EXTENSION stream_agg first.")));
	if (server == NULL || strcmp(GetForeignDataWrapper(server->fdwid)->fdwname, "stream_agg") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("there is no server \"%s\" for streams", create->servername),
				 errhint("The option \"server\" names one made by CREATE SERVER ... FOREIGN DATA WRAPPER stream_agg. "
						 "Valid values of the option \"source\" are: staged, kafka.")));
}

void
sa_ddl_stream_created(CreateForeignTableStmt *create)
{
	Oid			relid;
	ForeignServer *server = GetForeignServerByName(create->servername, true);

	if (server == NULL || strcmp(GetForeignDataWrapper(server->fdwid)->fdwname, "stream_agg") != 0)
		return;
	relid = RangeVarGetRelid(create->base.relation, NoLock, true);
	if (!OidIsValid(relid) || !sa_option_is_stream(relid))
		return;
	CommandCounterIncrement();
	prepare(relid);
}

/* ---------- ALTER TABLE ---------- */

static void
refuse_time_column(Oid stream, const char *what, const char *column)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("cannot %s column \"%s\" of stream \"%s\"", what, column, get_rel_name(stream)),
			 errdetail("It carries the event time."),
			 errhint("Name another column in the stream's option \"event_time\" first.")));
}

static void
check_time_column(Oid stream, const char *what, const char *column)
{
	Relation	rel = table_open(stream, AccessShareLock);
	AttrNumber	time_attr = sa_option_stream(rel)->time_attr;

	table_close(rel, NoLock);
	if (time_attr != InvalidAttrNumber && get_attnum(stream, column) == time_attr)
		refuse_time_column(stream, what, column);
}

/* A view that tells events apart by the column would take them for others. */
static void
check_dedup_column(Oid stream, const char *what, const char *column)
{
	ListCell   *lc;

	foreach(lc, sa_catalog_views(stream))
	{
		SaViewConfig *config = lfirst(lc);
		SaViewOptions options;

		sa_option_view(config->options, &options);
		if (list_member(options.dedup_key, makeString(pstrdup(column))))
			ereport(ERROR,
					(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
					 errmsg("cannot %s column \"%s\" of stream \"%s\"", what, column, get_rel_name(stream)),
					 errdetail("It is in the option dedup_key of continuous view \"%s\".", get_rel_name(config->view)),
					 errhint("Drop the view first.")));
	}
}

void
sa_ddl_stream_check(AlterTableStmt *alter)
{
	ListCell   *lc;
	ListCell   *ls;

	foreach(lc, alter->cmds)
	{
		AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);
		const char *what = cmd->subtype == AT_DropColumn ? "drop" :
			cmd->subtype == AT_AlterColumnType ? "change the type of" : NULL;

		if (what == NULL)
			continue;
		foreach(ls, streams_of(alter->relation))
		{
			check_time_column(lfirst_oid(ls), what, cmd->name);
			check_dedup_column(lfirst_oid(ls), what, cmd->name);
		}
	}
}

/* Does the view live by the stream's watermark, or by its idle_timeout? */
static bool
needs_stream_options(const SaViewOptions *options)
{
	if (options->go_on && options->idle_timeout < 0)
		return true;
	return options->watermark == SA_NO_DELAY && (options->output_mode == SA_APPEND || options->unlogged || options->go_on ||
												 options->allowed_lateness > 0 || options->dedup_key != NIL);
}

static void
name_view(void *arg)
{
	errcontext("continuous view \"%s\"", (const char *) arg);
}

/* Loading a query may call the owner's functions. */
static void
check_view(const SaViewConfig *config, const SaViewOptions *options)
{
	ErrorContextCallback callback = {.callback = name_view, .arg = get_rel_name(config->view), .previous = error_context_stack};
	SaOwnerSwitch save;
	SaQuery    *query;

	error_context_stack = &callback;
	sa_owner_enter(&save, sa_owner_of(config->view));
	query = sa_query_load(config->definition, config->view, GetUserId());
	sa_ddl_view_check_options(query, options);
	sa_query_free(query);
	sa_owner_leave(&save);
	error_context_stack = callback.previous;
}

/* Views that live by the stream's options must not lose them, nor their windows the event time. */
static void
check_views(Oid stream, bool time_changes)
{
	ListCell   *lc;

	foreach(lc, sa_catalog_views(stream))
	{
		SaViewConfig *config = lfirst(lc);
		SaViewOptions options;

		sa_option_view(config->options, &options);
		if (time_changes || needs_stream_options(&options))
			check_view(config, &options);
	}
}

static bool
sets_option(AlterTableStmt *alter, const char *name)
{
	ListCell   *lc;
	ListCell   *lo;

	foreach(lc, alter->cmds)
	{
		AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);

		if (cmd->subtype != AT_GenericOptions)
			continue;
		foreach(lo, castNode(List, cmd->def))
			if (strcmp(lfirst_node(DefElem, lo)->defname, name) == 0)
				return true;
	}
	return false;
}

/* May another column carry the event time from now on?  One of that name does by itself. */
static bool
changes_time(AlterTableStmt *alter)
{
	ListCell   *lc;

	foreach(lc, alter->cmds)
	{
		AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);

		if (cmd->subtype == AT_AddColumn && strcmp(castNode(ColumnDef, cmd->def)->colname, TIME_OPTION) == 0)
			return true;
	}
	return sets_option(alter, TIME_OPTION);
}

/* Does the command change what records say? */
static bool
changes_reading(AlterTableStmt *alter)
{
	static const char *const names[] = {TIME_OPTION, "watermark", "max_future", "format", "delimiter", "quote", "max_record_bytes"};
	ListCell   *lc;

	foreach(lc, alter->cmds)
		if (lfirst_node(AlterTableCmd, lc)->subtype == AT_AlterColumnGenericOptions)
			return true;
	for (int i = 0; i < lengthof(names); i++)
		if (sets_option(alter, names[i]))
			return true;
	return false;
}

/* Are records decoded into the columns as they are, by their names, types and constraints? */
static bool
is_decoded(Oid stream)
{
	return strcmp(sa_option_source(stream), "staged") != 0;
}

/* Does the command change which records fit the columns, and what they say in them? */
static bool
changes_columns(AlterTableStmt *alter)
{
	ListCell   *lc;

	foreach(lc, alter->cmds)
		switch (lfirst_node(AlterTableCmd, lc)->subtype)
		{
			case AT_AddColumn:
			case AT_DropColumn:
			case AT_AlterColumnType:
			case AT_SetNotNull:
			case AT_DropNotNull:
			case AT_AddConstraint:
			case AT_DropConstraint:
				return true;
			default:
				break;
		}
	return false;
}

/* State that is not on disk would be read again as records say now, not as they said. */
static void
check_unlogged(Oid stream)
{
	ListCell   *lc;

	foreach(lc, sa_catalog_views(stream))
	{
		SaViewConfig *config = lfirst(lc);

		if (sa_catalog_steps(config->id) != NIL)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("cannot change how stream \"%s\" is read while the state of continuous view \"%s\" is unlogged",
							get_rel_name(stream), get_rel_name(config->view)),
					 errdetail("Its state would not be the same when records are read again."),
					 errhint("Set the view's option state to 'heap' and wait for its next batch (CALL stream_agg.run()).")));
	}
}

void
sa_ddl_stream_altered(AlterTableStmt *alter)
{
	ListCell   *lc;

	if (alter->objtype != OBJECT_TABLE && alter->objtype != OBJECT_FOREIGN_TABLE)
		return;
	CommandCounterIncrement();
	foreach(lc, streams_of(alter->relation))
	{
		prepare(lfirst_oid(lc));
		check_views(lfirst_oid(lc), changes_time(alter));
		if (changes_reading(alter) || (changes_columns(alter) && is_decoded(lfirst_oid(lc))))
			check_unlogged(lfirst_oid(lc));
	}
}

/* ---------- SET (...), RESET (...) ---------- */

static bool
sets_options(const AlterTableStmt *alter)
{
	ListCell   *lc;

	if (alter->objtype != OBJECT_TABLE && alter->objtype != OBJECT_FOREIGN_TABLE)
		return false;
	foreach(lc, alter->cmds)
	{
		AlterTableType type = lfirst_node(AlterTableCmd, lc)->subtype;

		if (type == AT_SetRelOptions || type == AT_ResetRelOptions)
			return true;
	}
	return false;
}

static void
check_set_option(const DefElem *def)
{
	if (def->defnamespace)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid option \"%s.%s\"", def->defnamespace, def->defname),
				 errhint("Options of a stream are written without a prefix.")));
	if (strcmp(def->defname, "server") == 0 || strcmp(def->defname, "source") == 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("the source of a stream cannot be changed"),
				 errhint("Create another stream, and its views anew.")));
}

/* One element of OPTIONS (...), given the names that are set at this point; NULL: there is nothing to do. */
static DefElem *
change_option(DefElem *def, bool reset, List **names)
{
	String	   *name = makeString(def->defname);
	bool		is_set = list_member(*names, name);

	check_set_option(def);
	if (!reset)
	{
		*names = list_append_unique(*names, name);
		return makeDefElemExtended(NULL, def->defname, (Node *) makeString(def->arg ? defGetString(def) : pstrdup("true")),
								   is_set ? DEFELEM_SET : DEFELEM_ADD, def->location);
	}
	if (def->arg)
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("RESET must not include values for parameters")));
	*names = list_delete(*names, name);
	return is_set ? makeDefElemExtended(NULL, def->defname, NULL, DEFELEM_DROP, def->location) : NULL;
}

/* All of them in one, so that the validator sees no state in between. */
static AlterTableCmd *
merge_options(AlterTableStmt *alter, Oid stream)
{
	AlterTableCmd *merged = makeNode(AlterTableCmd);
	List	   *options = NIL;
	List	   *names = NIL;
	List	   *others = NIL;
	ListCell   *lc;
	ListCell   *lo;

	foreach(lo, GetForeignTable(stream)->options)
		names = lappend(names, makeString(lfirst_node(DefElem, lo)->defname));
	foreach(lc, alter->cmds)
	{
		AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);

		if (cmd->subtype != AT_SetRelOptions && cmd->subtype != AT_ResetRelOptions)
		{
			others = lappend(others, cmd);
			continue;
		}
		foreach(lo, (List *) cmd->def)
		{
			DefElem    *option = change_option(lfirst_node(DefElem, lo), cmd->subtype == AT_ResetRelOptions, &names);

			if (option)
				options = lappend(options, option);
		}
	}
	merged->subtype = AT_GenericOptions;
	merged->def = (Node *) options;
	alter->cmds = others;
	return merged;
}

AlterTableStmt *
sa_ddl_stream_set_options(AlterTableStmt *alter)
{
	Oid			relid;
	AlterTableCmd *merged;

	if (!sets_options(alter))
		return alter;
	relid = RangeVarGetRelid(alter->relation, NoLock, true);
	if (!OidIsValid(relid) || !sa_option_is_stream(relid))
		return alter;
	relid = RangeVarGetRelidExtended(alter->relation, AccessExclusiveLock, 0, RangeVarCallbackOwnsRelation, NULL);
	if (!sa_option_is_stream(relid))
		return alter;
	merged = merge_options(alter, relid);
	alter->cmds = lappend(alter->cmds, merged);
	return alter;
}

/* ---------- RENAME COLUMN ---------- */

static const char *
time_option(Oid stream)
{
	ListCell   *lc;

	foreach(lc, GetForeignTable(stream)->options)
	{
		DefElem    *def = lfirst_node(DefElem, lc);

		if (strcmp(def->defname, TIME_OPTION) == 0)
			return defGetString(def);
	}
	return NULL;
}

static void
set_time_option(Oid stream, const char *column, DefElemAction action)
{
	AlterTableCmd *cmd = makeNode(AlterTableCmd);

	cmd->subtype = AT_GenericOptions;
	cmd->def = (Node *) list_make1(makeDefElemExtended(NULL, pstrdup(TIME_OPTION), (Node *) makeString(pstrdup(column)),
													   action, -1));
	AlterTableInternal(stream, list_make1(cmd), false);
	CommandCounterIncrement();
}

/* The same columns, with this one by its new name. */
static char *
renamed_key(List *columns, const char *from, const char *to)
{
	StringInfoData text;
	ListCell   *lc;

	initStringInfo(&text);
	foreach(lc, columns)
	{
		const char *column = strVal(lfirst(lc));

		appendStringInfo(&text, "%s%s", text.len > 0 ? ", " : "", quote_identifier(strcmp(column, from) == 0 ? to : column));
	}
	return text.data;
}

/* Views go on telling events apart by the column. */
static void
rename_in_views(Oid stream, const char *from, const char *to)
{
	ListCell   *lc;
	ListCell   *lo;

	foreach(lc, sa_catalog_views(stream))
	{
		SaViewConfig *config = lfirst(lc);
		SaViewOptions options;

		sa_option_view(config->options, &options);
		if (!list_member(options.dedup_key, makeString(pstrdup(from))))
			continue;
		foreach(lo, config->options)
		{
			DefElem    *def = lfirst_node(DefElem, lo);

			if (strcmp(def->defname, "dedup_key") == 0)
				def->arg = (Node *) makeString(renamed_key(options.dedup_key, from, to));
		}
		sa_catalog_change_view(config);
		sa_slot_want_at_commit(stream);
	}
}

/* The event time stays where it is when its column gets another name. */
void
sa_ddl_stream_renamed(RenameStmt *rename)
{
	ListCell   *lc;

	if (rename->renameType != OBJECT_COLUMN || rename->relation == NULL ||
		(rename->relationType != OBJECT_TABLE && rename->relationType != OBJECT_FOREIGN_TABLE))
		return;
	CommandCounterIncrement();
	foreach(lc, streams_of(rename->relation))
	{
		Oid			stream = lfirst_oid(lc);
		const char *option = time_option(stream);

		if (get_attnum(stream, rename->subname) != InvalidAttrNumber)
			continue;
		if (is_decoded(stream))
			check_unlogged(stream);
		rename_in_views(stream, rename->subname, rename->newname);
		if (option != NULL && strcmp(option, rename->subname) == 0)
			set_time_option(stream, rename->newname, DEFELEM_SET);
		else if (option == NULL && strcmp(rename->subname, TIME_OPTION) == 0 &&
				 sa_option_is_time(get_atttype(stream, get_attnum(stream, rename->newname))))
			set_time_option(stream, rename->newname, DEFELEM_ADD);
		else if (option == NULL && strcmp(rename->newname, TIME_OPTION) == 0)
			check_views(stream, true);
	}
}
