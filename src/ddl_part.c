/*
 * ddl_part.c
 *		The parts of a continuous view besides its result table.
 *
 * Invariant: definition and state log belong to the owner of the extension and depend internally on the
 * result table.  The definition's columns have the names of the result's: that is how they are found.
 *
 * Locks: those of the commands.  Crash: transactional.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "commands/tablecmds.h"
#include "commands/view.h"
#include "executor/spi.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/ruleutils.h"

#include "compat.h"
#include "ddl_part.h"
#include "owner.h"

#define NAMESPACE "stream_agg"

void
sa_part_run(const char *sql)
{
	int			result = SPI_execute(sql, false, 0);

	if (result != SPI_OK_UTILITY)
		elog(ERROR, "SPI_execute failed: %s", SPI_result_code_string(result));
}

/* --- columns --- */

List *
sa_part_columns(Query *query, List *names)
{
	List	   *columns = NIL;
	ListCell   *name = list_head(names);
	ListCell   *lc;

	foreach(lc, query->targetList)
	{
		TargetEntry *tle = lfirst(lc);

		if (tle->resjunk)
			continue;
		if (name)
		{
			tle->resname = pstrdup(strVal(lfirst(name)));
			name = lnext(names, name);
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

void
sa_part_append_column(StringInfo sql, ColumnDef *column)
{
	Oid			collation = column->collOid;

	appendStringInfo(sql, "%s %s", quote_identifier(column->colname),
					 format_type_extended(column->typeName->typeOid, column->typeName->typemod,
										  FORMAT_TYPE_TYPEMOD_GIVEN | FORMAT_TYPE_FORCE_QUALIFY));
	if (OidIsValid(collation) && collation != get_typcollation(column->typeName->typeOid))
		appendStringInfo(sql, " COLLATE %s", generate_collation_name(collation));
}

/* --- making --- */

static char *
definition_name(int id)
{
	return psprintf("definition_%d", id);
}

static char *
state_name(int id)
{
	return psprintf("state_%d", id);
}

static char *
spill_name(int id)
{
	return psprintf("spill_%d", id);
}

static char *
dedup_name(int id)
{
	return psprintf("dedup_%d", id);
}

static char *
dedup_spill_name(int id)
{
	return psprintf("dedup_spill_%d", id);
}

/* A real view, so that PostgreSQL tracks what it depends on. */
Oid
sa_part_create_definition(int id, List *columns, Query *query)
{
	CreateStmt *create = makeNode(CreateStmt);
	SaOwnerSwitch save;
	Oid			definition;

	sa_owner_enter_extension(&save);
	create->relation = makeRangeVar(NAMESPACE, definition_name(id), -1);
	create->relation->relpersistence = RELPERSISTENCE_PERMANENT;
	create->tableElts = copyObject(columns);
	create->oncommit = ONCOMMIT_NOOP;
	definition = DefineRelation(create, RELKIND_VIEW, InvalidOid, NULL, NULL).objectId;
	CommandCounterIncrement();
	StoreViewQuery(definition, copyObject(query), false);
	CommandCounterIncrement();
	sa_owner_keep_private(definition);
	sa_owner_leave(&save);
	return definition;
}

static Oid
create_log(const char *kind, const char *name)
{
	SaOwnerSwitch save;
	Oid			log;

	sa_owner_enter_extension(&save);
	sa_part_run(psprintf("CREATE %s stream_agg.%s (seq bigint NOT NULL, window_start bigint NOT NULL,"
						 " window_end bigint NOT NULL, data bytea NOT NULL)"
						 " WITH (toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0.2)", kind, name));
	sa_part_run(psprintf("ALTER TABLE stream_agg.%s ALTER data SET STORAGE EXTERNAL", name));
	log = get_relname_relid(name, get_namespace_oid(NAMESPACE, false));
	sa_owner_keep_private(log);
	sa_owner_leave(&save);
	return log;
}

Oid
sa_part_create_state(int id)
{
	return create_log("TABLE", state_name(id));
}

Oid
sa_part_create_spill(int id)
{
	return create_log("UNLOGGED TABLE", spill_name(id));
}

Oid
sa_part_create_dedup(int id)
{
	return create_log("TABLE", dedup_name(id));
}

Oid
sa_part_create_dedup_spill(int id)
{
	return create_log("UNLOGGED TABLE", dedup_spill_name(id));
}

/* --- belonging, dropping, renaming --- */

static void
unbind(Oid part, Oid result)
{
	deleteDependencyRecordsForSpecific(RelationRelationId, part, DEPENDENCY_INTERNAL, RelationRelationId, result);
}

void
sa_part_drop(Oid part, Oid result)
{
	ObjectAddress address;

	if (!OidIsValid(part))
		return;
	unbind(part, result);
	CommandCounterIncrement();
	ObjectAddressSet(address, RelationRelationId, part);
	performDeletion(&address, DROP_RESTRICT, PERFORM_DELETION_INTERNAL);
	CommandCounterIncrement();
}

static void
rename_part(Oid part, const char *name)
{
	if (!OidIsValid(part) || strcmp(get_rel_name(part), name) == 0)
		return;
	RenameRelationInternal(part, name, true, false);
	CommandCounterIncrement();
}

void
sa_part_rename(const SaViewConfig *config, int id)
{
	rename_part(config->definition, definition_name(id));
	rename_part(config->state, state_name(id));
	rename_part(config->spill, spill_name(id));
	rename_part(config->dedup, dedup_name(id));
	rename_part(config->dedup_spill, dedup_spill_name(id));
}

void
sa_part_rename_column(Oid definition, const char *from, const char *to)
{
	RenameStmt *rename = makeNode(RenameStmt);
	SaOwnerSwitch save;

	sa_owner_enter_extension(&save);
	rename->renameType = OBJECT_COLUMN;
	rename->relationType = OBJECT_VIEW;
	rename->relation = makeRangeVar(NAMESPACE, get_rel_name(definition), -1);
	rename->subname = pstrdup(from);
	rename->newname = pstrdup(to);
	rename->behavior = DROP_RESTRICT;
	(void) renameatt(rename);
	CommandCounterIncrement();
	sa_owner_leave(&save);
}
