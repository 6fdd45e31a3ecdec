/*
 * owner.c
 *		Acting as the owner of a view or stream, or of the extension.
 *
 * Invariant: no code of a user's (expressions, triggers, casts, type output) runs with other rights than
 * its own, and what it does to settings, search_path above all, does not outlive it.  What is made as the
 * extension's owner is nobody else's, and made alike whatever the settings of the session.
 *
 * No locks but those of the catalog rows changed.  Crash: transactional.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_namespace.h"
#include "commands/defrem.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/guc.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "owner.h"

void
sa_owner_set(const char *name, const char *value)
{
	const char *now = GetConfigOption(name, true, false);

	if (now != NULL && strcmp(now, value) == 0)
		return;
	(void) set_config_option(name, value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
}

static void
enter(SaOwnerSwitch *save, Oid owner, int context)
{
	GetUserIdAndSecContext(&save->user, &save->context);
	SetUserIdAndSecContext(owner, save->context | SECURITY_LOCAL_USERID_CHANGE | context);
	save->nest = NewGUCNestLevel();
	sa_owner_set("search_path", "pg_catalog, pg_temp");
}

void
sa_owner_enter(SaOwnerSwitch *save, Oid owner)
{
	enter(save, owner, SECURITY_RESTRICTED_OPERATION);
}

Oid
sa_owner_of_extension(void)
{
	HeapTuple	tuple = SearchSysCache1(NAMESPACEOID, ObjectIdGetDatum(get_namespace_oid("stream_agg", false)));
	Oid			owner;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for schema stream_agg");
	owner = ((Form_pg_namespace) GETSTRUCT(tuple))->nspowner;
	ReleaseSysCache(tuple);
	return owner;
}

void
sa_owner_enter_extension(SaOwnerSwitch *save)
{
	enter(save, sa_owner_of_extension(), 0);
	sa_owner_set("default_tablespace", "");	/* the user may have no right to his own */
	sa_owner_set("default_table_access_method", "heap");
}

void
sa_owner_leave(const SaOwnerSwitch *save)
{
	AtEOXact_GUC(false, save->nest);
	SetUserIdAndSecContext(save->user, save->context);
}

void
sa_owner_apply_settings(List *settings)
{
	ListCell   *lc;

	foreach(lc, settings)
	{
		DefElem    *def = lfirst(lc);

		sa_owner_set(def->defname, defGetString(def));
	}
}

Oid
sa_owner_of(Oid relid)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	Oid			owner;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for relation %u", relid);
	owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
	ReleaseSysCache(tuple);
	return owner;
}

void
sa_owner_keep_private(Oid relid)
{
	Relation	rel = table_open(RelationRelationId, RowExclusiveLock);
	HeapTuple	tuple = SearchSysCacheCopy1(RELOID, ObjectIdGetDatum(relid));
	bool		isnull = true;
	Datum		acl;
	int			column = Anum_pg_class_relacl;
	Oid		   *members;
	int			nmembers;
	Datum		none = (Datum) 0;
	bool		none_isnull = true;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for relation %u", relid);
	acl = SysCacheGetAttr(RELOID, tuple, column, &isnull);
	if (!isnull)
	{
		nmembers = aclmembers(DatumGetAclP(acl), &members);
		tuple = heap_modify_tuple_by_cols(tuple, RelationGetDescr(rel), 1, &column, &none, &none_isnull);
		CatalogTupleUpdate(rel, &tuple->t_self, tuple);
		updateAclDependencies(RelationRelationId, relid, 0, ((Form_pg_class) GETSTRUCT(tuple))->relowner,
							  nmembers, members, 0, NULL);
		CommandCounterIncrement();
	}
	heap_freetuple(tuple);
	table_close(rel, NoLock);
}
