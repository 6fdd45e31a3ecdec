/*
 * owner.c
 *		Acting as the owner of a view or stream.
 *
 * Invariant: no code of a user's (expressions, triggers, casts, type output) runs with other rights than
 * its own, and what it does to settings, search_path above all, does not outlive it.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_class.h"
#include "commands/defrem.h"
#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/syscache.h"

#include "owner.h"

void
sa_owner_enter(SaOwnerSwitch *save, Oid owner)
{
	GetUserIdAndSecContext(&save->user, &save->context);
	SetUserIdAndSecContext(owner, save->context | SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION);
	save->nest = NewGUCNestLevel();
	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0,
							 false);
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

		(void) set_config_option(def->defname, defGetString(def), PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE,
								 true, 0, false);
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
