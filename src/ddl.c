/*
 * ddl.c
 *		The hooks in which commands pass by: who of ours has to do with a command, before and after
 *		PostgreSQL's own part.
 *
 * Invariant: everything that commands do to streams and views is transactional; workers hear of it at
 * commit.
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_class.h"
#include "catalog/pg_proc.h"
#include "nodes/makefuncs.h"
#include "tcop/utility.h"
#include "utils/lsyscache.h"

#include "advance.h"
#include "catalog.h"
#include "compat.h"
#include "ddl.h"
#include "ddl_alter.h"
#include "ddl_database.h"
#include "ddl_guard.h"
#include "ddl_kind.h"
#include "ddl_replace.h"
#include "ddl_stream.h"
#include "ddl_view.h"
#include "deadletter.h"
#include "fault.h"
#include "lateness.h"
#include "replay.h"
#include "slot.h"

static ProcessUtility_hook_type prev_process_utility = NULL;
static object_access_hook_type prev_object_access = NULL;

/* --- dropping --- */

/* Moves the continuous views of a DROP MATERIALIZED VIEW into a DROP TABLE; NULL: there are none. */
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
		if (sa_ddl_guard_view_of(makeRangeVarFromNameList(lfirst(lc))))
			tables->objects = lappend(tables->objects, lfirst(lc));
		else
			matviews = lappend(matviews, lfirst(lc));
	}
	drop->objects = matviews;
	return tables->objects == NIL ? NULL : tables;
}

static PlannedStmt *
with_statement(PlannedStmt *pstmt, Node *stmt)
{
	PlannedStmt *copy = copyObject(pstmt);

	copy->utilityStmt = stmt;
	return copy;
}

/* What PostgreSQL is to run in the place of a DROP; NIL: nothing. */
static List *
drops_of(PlannedStmt *pstmt)
{
	DropStmt   *drop = copyObject((DropStmt *) pstmt->utilityStmt);
	DropStmt   *tables = NULL;
	List	   *list = NIL;

	if (!sa_ddl_kind_check_drop(drop))
		return NIL;
	if (drop->removeType == OBJECT_MATVIEW)
		tables = split_drop(drop);
	if (tables)
		list = lappend(list, with_statement(pstmt, (Node *) tables));
	if (drop->objects != NIL)
		list = lappend(list, with_statement(pstmt, (Node *) drop));
	return list;
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
		sa_deadletter_delete(config->stream, relid);
		sa_advance_forget(relid, true);
		sa_lateness_forget(relid);
		sa_replay_forget(relid);
		sa_catalog_delete_view(relid);
		sa_slot_want_at_commit(config->stream);
		SA_FAULT("drop", relid);
	}
	else if (relkind == RELKIND_FOREIGN_TABLE && sa_option_is_stream(relid))
	{
		sa_catalog_forget_stream(relid);
		sa_lateness_forget(relid);
	}
}

static void
object_accessed(ObjectAccessType access, Oid class_id, Oid object_id, int sub_id, void *arg)
{
	if (prev_object_access)
		prev_object_access(access, class_id, object_id, sub_id, arg);
	if (access == OAT_DROP && class_id == RelationRelationId && sub_id == 0)
		relation_dropped(object_id);
	if (access == OAT_POST_CREATE && class_id == ProcedureRelationId)
		sa_ddl_guard_function(object_id);
}

/* --- the hook --- */

/* Of a kind that streams and continuous views are for PostgreSQL. */
static bool
is_relation_drop(Node *stmt)
{
	ObjectType	type = IsA(stmt, DropStmt) ? ((DropStmt *) stmt)->removeType : OBJECT_ROLE;

	return type == OBJECT_MATVIEW || type == OBJECT_FOREIGN_TABLE;
}

/* What must be checked or rewritten before PostgreSQL runs the command.  True: done with it. */
static bool
before_command(Node *stmt, const char *query_string)
{
	switch (nodeTag(stmt))
	{
		case T_CreateTableAsStmt:
			{
				CreateTableAsStmt *create = (CreateTableAsStmt *) stmt;

				if (create->objtype != OBJECT_MATVIEW || !sa_ddl_view_has_options(create->into->options))
					return false;
				create = copyObject(create);	/* it may be a cached plan's */
				if (sa_ddl_view_is_replacement(create->into->options))
					sa_ddl_replace(create, query_string);
				else
					sa_ddl_view_create(create, query_string);
				return true;
			}
		case T_CreateForeignTableStmt:
			sa_ddl_stream_creating((CreateForeignTableStmt *) stmt);
			return false;
		case T_AlterTableStmt:
			sa_ddl_guard_alter((AlterTableStmt *) stmt);
			sa_ddl_stream_check((AlterTableStmt *) stmt);
			return false;
		case T_CreateTrigStmt:
			sa_ddl_guard_trigger((CreateTrigStmt *) stmt);
			return false;
		case T_CreateStmt:
			sa_ddl_guard_create((CreateStmt *) stmt);
			return false;
		case T_CreateUserMappingStmt:
			sa_option_check_mapping(((CreateUserMappingStmt *) stmt)->servername, ((CreateUserMappingStmt *) stmt)->options);
			return false;
		case T_AlterUserMappingStmt:
			sa_option_check_mapping(((AlterUserMappingStmt *) stmt)->servername, ((AlterUserMappingStmt *) stmt)->options);
			return false;
		case T_DropStmt:
			if (((DropStmt *) stmt)->removeType == OBJECT_TRIGGER)
				sa_ddl_guard_drop_trigger((DropStmt *) stmt);
			return false;
		default:
			return false;
	}
}

/* What a prepared transaction wanted of the workers is not known any more, say: look at every stream anew. */
static void
wake_all(void)
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
			sa_ddl_alter_renamed((RenameStmt *) stmt);
			sa_ddl_stream_renamed((RenameStmt *) stmt);
			break;
		case T_AlterDatabaseStmt:
			sa_slot_look_at_commit();	/* it may allow workers again */
			break;
		case T_AlterExtensionStmt:
			if (strcmp(((AlterExtensionStmt *) stmt)->extname, "stream_agg") == 0)
				wake_all();		/* workers may have waited for newer objects */
			break;
		case T_TransactionStmt:
			if (((TransactionStmt *) stmt)->kind == TRANS_STMT_COMMIT_PREPARED)
				wake_all();
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

	sa_ddl_kind_check(stmt);
	if (is_relation_drop(stmt))
	{
		ListCell   *lc;

		foreach(lc, drops_of(pstmt))
			next(lfirst(lc), query_string, false, context, params, env, dest, qc);
		return;
	}
	if (IsA(stmt, AlterTableStmt))
	{
		/* it may be a cached plan's */
		pstmt = with_statement(pstmt, (Node *) sa_ddl_stream_set_options(copyObject((AlterTableStmt *) stmt)));
		stmt = pstmt->utilityStmt;
		read_only_tree = false;
	}
	pstmt = sa_ddl_alter_translate(pstmt);
	if (pstmt == NULL)
		return;
	stmt = pstmt->utilityStmt;
	if (before_command(stmt, query_string))
	{
		if (qc)
			SetQueryCompletion(qc, CMDTAG_SELECT, 0);	/* as CREATE MATERIALIZED VIEW does; SPI insists */
		return;
	}
	database = sa_ddl_database_to_leave(stmt);
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
