/*
 * ddl_kind.c
 *		Relations are what the statement calls them: ALTER STREAM and DROP CONTINUOUS VIEW do not touch other
 *		foreign tables and materialized views, though that is what PostgreSQL makes of them.
 *
 * Locks: none; PostgreSQL looks the names up again and checks what it needs to.  Crash: only reads.
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "utils/formatting.h"
#include "utils/lsyscache.h"

#include "catalog.h"
#include "compat.h"
#include "ddl_kind.h"
#include "grammar.h"
#include "option.h"

/* What a relation is, in the words of a statement. */
static const char *
kind_of(Oid relid)
{
	char		relkind = get_rel_relkind(relid);

	switch (relkind)
	{
		case RELKIND_FOREIGN_TABLE:
			return sa_option_is_stream(relid) ? SA_GRAMMAR_STREAM : "foreign table";
		case RELKIND_RELATION:
			return sa_catalog_view(relid) ? SA_GRAMMAR_VIEW : "table";
		case RELKIND_PARTITIONED_TABLE:
			return "table";
		case RELKIND_VIEW:
			return "view";
		case RELKIND_MATVIEW:
			return "materialized view";
		case RELKIND_SEQUENCE:
			return "sequence";
		case RELKIND_INDEX:
		case RELKIND_PARTITIONED_INDEX:
			return "index";
		case RELKIND_COMPOSITE_TYPE:
			return "type";
		default:
			return "relation";
	}
}

static void
require_extension(const char *kind)
{
	if (!sa_catalog_exists())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("there is no %s in this database", kind),
				 errhint("Use CREATE EXTENSION stream_agg first.")));
}

static void
require_kind(Oid relid, const char *kind, const char *command)
{
	const char *found = kind_of(relid);

	if (strcmp(found, kind) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a %s", get_rel_name(relid), kind),
				 errhint("Use %s %s.", command, asc_toupper(found, strlen(found)))));
}

static void
check_altered(const RangeVar *relation)
{
	const char *kind = sa_grammar_kind(relation);
	Oid			relid;

	if (kind == NULL)
		return;
	require_extension(kind);
	relid = RangeVarGetRelid(relation, NoLock, true);
	if (OidIsValid(relid))
		require_kind(relid, kind, "ALTER");
}

void
sa_ddl_kind_check(Node *stmt)
{
	switch (nodeTag(stmt))
	{
		case T_AlterTableStmt:
			check_altered(((AlterTableStmt *) stmt)->relation);
			break;
		case T_RenameStmt:
			check_altered(((RenameStmt *) stmt)->relation);
			break;
		case T_AlterObjectSchemaStmt:
			check_altered(((AlterObjectSchemaStmt *) stmt)->relation);
			break;
		default:
			break;
	}
}

bool
sa_ddl_kind_check_drop(DropStmt *drop)
{
	const char *kind = sa_grammar_dropped_kind(drop);
	List	   *objects = NIL;
	ListCell   *lc;

	if (kind == NULL)
		return true;
	require_extension(kind);
	drop->concurrent = false;
	foreach(lc, drop->objects)
	{
		Oid			relid = RangeVarGetRelid(makeRangeVarFromNameList(lfirst(lc)), NoLock, true);

		if (!OidIsValid(relid))
			ereport(drop->missing_ok ? NOTICE : ERROR,
					(errcode(ERRCODE_UNDEFINED_TABLE),
					 errmsg(drop->missing_ok ? "%s \"%s\" does not exist, skipping" : "%s \"%s\" does not exist",
							kind, NameListToString(lfirst(lc)))));
		else
		{
			require_kind(relid, kind, "DROP");
			objects = lappend(objects, lfirst(lc));
		}
	}
	drop->objects = objects;
	return objects != NIL;
}
