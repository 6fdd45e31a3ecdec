/*
 * mend.c
 *		What belongs to a result table and no dump knows of: the internal dependencies of its definition
 *		and state log, and its guard.
 *
 * Invariant: the parts depend on the result table from the moment that the view's row in view_config is
 * there; the guard is there while the view is one of this database.  A restored result table is an ordinary
 * one, which restores may write to in any order, until its view is resumed.  That is why the guard is an
 * internal trigger: pg_dump leaves those out, so that a table taken along without its view (-t, -n) comes
 * back without a trigger that calls for the extension.
 *
 * pg_upgrade loses dependencies and guards too, but not the mark that the view is of this database: the
 * launcher's probes mend it before any worker starts.
 *
 * Locks: AccessExclusiveLock on a result table that is mended.  Crash: transactional.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_trigger.h"
#include "commands/trigger.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "parser/parse_func.h"
#include "storage/lmgr.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "owner.h"
#include "mend.h"

#define GUARD "stream_agg_guard"

bool
sa_mend_depends(Oid part, Oid whole)
{
	Relation	depend = table_open(DependRelationId, AccessShareLock);
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		found = false;

	ScanKeyInit(&keys[0], Anum_pg_depend_classid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(RelationRelationId));
	ScanKeyInit(&keys[1], Anum_pg_depend_objid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(part));
	scan = systable_beginscan(depend, DependDependerIndexId, true, NULL, 2, keys);
	while (!found && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_depend form = (Form_pg_depend) GETSTRUCT(tuple);

		found = form->refclassid == RelationRelationId && form->refobjid == whole && form->refobjsubid == 0 &&
			form->deptype != DEPENDENCY_NORMAL;	/* a definition may read the view's own table */
	}
	systable_endscan(scan);
	table_close(depend, AccessShareLock);
	return found;
}

void
sa_mend_depend(Oid part, Oid whole, DependencyType type)
{
	ObjectAddress a;
	ObjectAddress b;

	sa_owner_keep_private(part);	/* a restore makes it under other default privileges */
	if (sa_mend_depends(part, whole))
		return;
	ObjectAddressSet(a, RelationRelationId, part);
	ObjectAddressSet(b, RelationRelationId, whole);
	recordDependencyOn(&a, &b, type);
}

void
sa_mend_attach(const SaViewConfig *config)
{
	sa_mend_depend(config->definition, config->view, DEPENDENCY_INTERNAL);
	if (OidIsValid(config->state))
		sa_mend_depend(config->state, config->view, DEPENDENCY_INTERNAL);
	if (OidIsValid(config->spill))
		sa_mend_depend(config->spill, config->view, DEPENDENCY_INTERNAL);
	if (OidIsValid(config->dedup))
		sa_mend_depend(config->dedup, config->view, DEPENDENCY_INTERNAL);
	if (OidIsValid(config->dedup_spill))
		sa_mend_depend(config->dedup_spill, config->view, DEPENDENCY_INTERNAL);
}

static Oid
guard_function(void)
{
	return LookupFuncName(list_make2(makeString("stream_agg"), makeString("guard")), 0, NULL, false);
}

/*
 * Guards of the view: the OID of the internal one, and of an ordinary trigger as version 1.0 made them, which
 * dumps bring along; InvalidOid where there is none.
 */
static void
find_guards(Oid view, Oid *internal, Oid *ordinary)
{
	Relation	triggers = table_open(TriggerRelationId, AccessShareLock);
	Oid			function = guard_function();
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	*internal = *ordinary = InvalidOid;
	ScanKeyInit(&key, Anum_pg_trigger_tgrelid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(view));
	scan = systable_beginscan(triggers, TriggerRelidNameIndexId, true, NULL, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_trigger form = (Form_pg_trigger) GETSTRUCT(tuple);

		if (form->tgfoid == function)
			*(form->tgisinternal ? internal : ordinary) = form->oid;
	}
	systable_endscan(scan);
	table_close(triggers, AccessShareLock);
}

static bool
is_guarded(Oid view)
{
	Oid			internal;
	Oid			ordinary;

	find_guards(view, &internal, &ordinary);
	return OidIsValid(internal) && !OidIsValid(ordinary);
}

/* A statement trigger: the worker's row writes do not fire it. */
static void
create_guard(Oid view)
{
	CreateTrigStmt *trigger = makeNode(CreateTrigStmt);

	trigger->trigname = GUARD;
	trigger->relation = makeRangeVar(get_namespace_name(get_rel_namespace(view)), get_rel_name(view), -1);
	trigger->timing = TRIGGER_TYPE_BEFORE;
	trigger->events = TRIGGER_TYPE_INSERT | TRIGGER_TYPE_UPDATE | TRIGGER_TYPE_DELETE | TRIGGER_TYPE_TRUNCATE;
	(void) CreateTrigger(trigger, NULL, view, InvalidOid, InvalidOid, InvalidOid, guard_function(), InvalidOid, NULL, true,
						 false);
}

void
sa_mend_guard(Oid view)
{
	Oid			internal;
	Oid			ordinary;

	find_guards(view, &internal, &ordinary);
	if (OidIsValid(ordinary))
	{
		ObjectAddress address;

		ObjectAddressSet(address, TriggerRelationId, ordinary);
		performDeletion(&address, DROP_RESTRICT, PERFORM_DELETION_INTERNAL);
	}
	if (!OidIsValid(internal))
		create_guard(view);
	CommandCounterIncrement();
}

/* --- after pg_upgrade --- */

static bool
is_whole(const SaViewConfig *config)
{
	return sa_mend_depends(config->definition, config->view) &&
		(!OidIsValid(config->state) || sa_mend_depends(config->state, config->view)) &&
		(!OidIsValid(config->spill) || sa_mend_depends(config->spill, config->view)) &&
		(!OidIsValid(config->dedup) || sa_mend_depends(config->dedup, config->view)) &&
		(!OidIsValid(config->dedup_spill) || sa_mend_depends(config->dedup_spill, config->view)) && is_guarded(config->view);
}

void
sa_mend_views(void)
{
	ListCell   *lc;

	foreach(lc, sa_catalog_all_views())
	{
		SaViewConfig *config = lfirst(lc);

		/* Whoever has it locked may be there for long: then it is left as it is, until the next start. */
		if (config->database != MyDatabaseId || is_whole(config) ||
			!ConditionalLockRelationOid(config->view, AccessExclusiveLock))
			continue;
		if (sa_catalog_view(config->view) == NULL)
			continue;			/* dropped meanwhile */
		sa_mend_attach(config);
		sa_mend_guard(config->view);
	}
}
