/*
 * ddl_database.c
 *		Commands for which our workers must leave the database first.
 *
 * Invariant: workers are sent away only for those who may give the command.
 *
 * No locks, no state: nothing to recover after a crash.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/syscache.h"

#include "catalog.h"
#include "compat.h"
#include "ddl_database.h"
#include "owner.h"

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
	return superuser() || GetUserId() == sa_owner_of_extension();
}

static Oid
owned_database(const char *name)
{
	Oid			database = get_database_oid(name, true);

	return owns_database(database) ? database : InvalidOid;
}

/* Whether ALTER DATABASE moves the database, or makes it one that has no workers. */
static bool
closes_database(AlterDatabaseStmt *alter)
{
	ListCell   *lc;

	foreach(lc, alter->options)
	{
		DefElem    *def = lfirst_node(DefElem, lc);

		if (strcmp(def->defname, "tablespace") == 0 ||
			(strcmp(def->defname, "is_template") == 0 && defGetBoolean(def)) ||
			(strcmp(def->defname, "allow_connections") == 0 && !defGetBoolean(def)))
			return true;
	}
	return false;
}

static const char *
template_of(CreatedbStmt *create)
{
	ListCell   *lc;

	foreach(lc, create->options)
		if (strcmp(lfirst_node(DefElem, lc)->defname, "template") == 0)
			return defGetString(lfirst(lc));
	return "template1";
}

/* The database that workers must leave for this command, if its user may give it at all. */
Oid
sa_ddl_database_to_leave(Node *stmt)
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
			if (closes_database((AlterDatabaseStmt *) stmt))
				return owned_database(((AlterDatabaseStmt *) stmt)->dbname);
			break;
		case T_CreatedbStmt:
			database = get_database_oid(template_of((CreatedbStmt *) stmt), true);
			return may_copy_database(database) ? database : InvalidOid;
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
