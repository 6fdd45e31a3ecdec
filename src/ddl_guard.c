/*
 * ddl_guard.c
 *		What may not be done to result tables while their views live.
 *
 * Invariant: a result table keeps the view's own columns (those of its definition, by name), its key and its
 * guard; nobody but the worker changes its rows, by whatever way (inheritance, partitions, BEFORE triggers).
 * An aggregate keeps the type of its state while views use it.
 *
 * No locks of its own, no state: nothing to recover after a crash.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/sysattr.h"
#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_rewrite.h"
#include "catalog/pg_trigger.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "catalog.h"
#include "ddl_guard.h"

#define NAMESPACE "stream_agg"

static Oid	open_view = InvalidOid;

void
sa_ddl_guard_open(Oid view)
{
	open_view = view;
}

bool
sa_ddl_guard_is_open(Oid view)
{
	return open_view == view;
}

SaViewConfig *
sa_ddl_guard_view_of(RangeVar *rel)
{
	Oid			relid = rel ? RangeVarGetRelid(rel, NoLock, true) : InvalidOid;

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

/* The view's own columns are those of its definition; others are users'. */
static bool
is_own_column(const SaViewConfig *config, const char *name)
{
	return name && get_attnum(config->definition, name) != InvalidAttrNumber;
}

/* A primary key or unique constraint over the view's own columns. */
static bool
is_key_constraint(const SaViewConfig *config, const char *name)
{
	Oid			relid = config->view;
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
		if (!is_own_column(config, get_attname(relid, i + FirstLowInvalidHeapAttributeNumber, true)))
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
	if (sa_ddl_guard_view_of(parent))
		refuse_change("inherit from", parent->relname, "Its result table is an ordinary table without children.");
}

/* Rows routed through a partitioned table would pass by the guard. */
static void
check_partition(RangeVar *partition)
{
	if (sa_ddl_guard_view_of(partition))
		refuse_change("change the kind of", partition->relname, "Its result table is an ordinary, logged table.");
}

/* Is this the rule of a view of ours?  Those that use functions of users are definitions. */
static bool
is_definition(Oid rule)
{
	Relation	rewrite = table_open(RewriteRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		result;

	ScanKeyInit(&key, Anum_pg_rewrite_oid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(rule));
	scan = systable_beginscan(rewrite, RewriteOidIndexId, true, NULL, 1, &key);
	tuple = systable_getnext(scan);
	result = HeapTupleIsValid(tuple) &&
		get_rel_namespace(((Form_pg_rewrite) GETSTRUCT(tuple))->ev_class) == get_namespace_oid(NAMESPACE, true);
	systable_endscan(scan);
	table_close(rewrite, AccessShareLock);
	return result;
}

static bool
is_used_by_view(Oid function)
{
	Relation	depend = table_open(DependRelationId, AccessShareLock);
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		result = false;

	ScanKeyInit(&keys[0], Anum_pg_depend_refclassid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(ProcedureRelationId));
	ScanKeyInit(&keys[1], Anum_pg_depend_refobjid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(function));
	scan = systable_beginscan(depend, DependReferenceIndexId, true, NULL, lengthof(keys), keys);
	while (!result && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_depend form = (Form_pg_depend) GETSTRUCT(tuple);

		result = form->classid == RewriteRelationId && is_definition(form->objid);
	}
	systable_endscan(scan);
	table_close(depend, AccessShareLock);
	return result;
}

/*
 * CREATE OR REPLACE of an aggregate, which may give it a state of another type: those that views have kept, in
 * memory and in their logs, would be taken for what they are not.  Called for every new or replaced function.
 */
void
sa_ddl_guard_function(Oid function)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	bool		aggregate = HeapTupleIsValid(tuple) && ((Form_pg_proc) GETSTRUCT(tuple))->prokind == PROKIND_AGGREGATE;

	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	if (aggregate && !creating_extension && sa_catalog_exists() && is_used_by_view(function))
		ereport(ERROR,
				(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
				 errmsg("cannot replace aggregate %s: continuous views keep states that it has made", get_func_name(function)),
				 errhint("Replace the functions that it is made of, or create another aggregate and views that use it.")));
}

void
sa_ddl_guard_create(CreateStmt *create)
{
	ListCell   *lc;

	foreach(lc, create->inhRelations)
		check_parent(lfirst_node(RangeVar, lc));
}

/* DROP TRIGGER of the guard. */
void
sa_ddl_guard_drop_trigger(DropStmt *drop)
{
	ListCell   *lc;

	foreach(lc, drop->objects)
	{
		List	   *name = lfirst(lc);
		RangeVar   *rel = makeRangeVarFromNameList(list_truncate(list_copy(name), list_length(name) - 1));
		SaViewConfig *config = sa_ddl_guard_view_of(rel);

		if (config && is_guard(config->view, strVal(llast(name))))
			refuse_change("drop the guard of", rel->relname, "It refuses direct changes while the view lives.");
	}
}

static void
check_alter_column(SaViewConfig *config, AlterTableCmd *cmd, const char *relname)
{
	switch (cmd->subtype)
	{
		case AT_DropColumn:
		case AT_AlterColumnType:
			if (is_own_column(config, cmd->name))
				refuse_change("change a column of", relname,
							  "The columns of its select list belong to the view; drop it and create another one.");
			break;
		case AT_DropConstraint:
			if (is_key_constraint(config, cmd->name))
				refuse_change("drop the key of", relname, "The worker keeps groups apart by it.");
			break;
		case AT_DisableTrig:
		case AT_EnableReplicaTrig:
			if (is_guard(config->view, cmd->name))
				refuse_change("disable the guard of", relname, "It refuses direct changes while the view lives.");
			break;
		case AT_DisableTrigAll:
		case AT_DisableTrigUser:
			if (config->database != MyDatabaseId)
				break;			/* not yet resumed: pg_restore --disable-triggers */
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

void
sa_ddl_guard_alter(AlterTableStmt *alter)
{
	SaViewConfig *config = sa_ddl_guard_view_of(alter->relation);
	ListCell   *lc;

	foreach(lc, alter->cmds)
	{
		AlterTableCmd *cmd = lfirst(lc);

		if (cmd->subtype == AT_AddInherit)
			check_parent(castNode(RangeVar, cmd->def));
		else if (cmd->subtype == AT_AttachPartition)
			check_partition(castNode(PartitionCmd, cmd->def)->name);
	}
	if (config == NULL || sa_ddl_guard_is_open(config->view))
		return;
	foreach(lc, alter->cmds)
		check_alter_column(config, lfirst_node(AlterTableCmd, lc), alter->relation->relname);
}

void
sa_ddl_guard_trigger(CreateTrigStmt *trigger)
{
	if (trigger->row && (trigger->timing & TRIGGER_TYPE_TIMING_MASK) == TRIGGER_TYPE_BEFORE &&
		sa_ddl_guard_view_of(trigger->relation))
		refuse_change("create a BEFORE ROW trigger on", trigger->relation->relname,
					  "It could change what the view writes; use an AFTER trigger.");
	if (trigger->transitionRels != NIL && sa_ddl_guard_view_of(trigger->relation))
		refuse_change("create a trigger with transition tables on", trigger->relation->relname,
					  "The worker writes row by row; use a row trigger.");
}
