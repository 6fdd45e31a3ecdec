/*
 * ddl_alter.c
 *		Commands on continuous views as PostgreSQL knows them for materialized views: ALTER, COMMENT, REFRESH.
 *
 * Invariant: what is accepted takes effect with the next batch, whole; what cannot change in place says what
 * to do instead.  A command on the name of a continuous view is run on its result table.
 *
 * Locks: ShareRowExclusiveLock on the result table for the view's options, which waits for the batch at hand;
 * else those of the commands.  Crash: transactional.
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "storage/lmgr.h"
#include "utils/lsyscache.h"

#include "admin.h"
#include "catalog.h"
#include "compat.h"
#include "ddl_alter.h"
#include "ddl_guard.h"
#include "ddl_part.h"
#include "ddl_view.h"
#include "mend.h"
#include "owner.h"
#include "query.h"
#include "slot.h"

/* --- options --- */

static bool
is_named(List *options, const char *name)
{
	ListCell   *lc;

	foreach(lc, options)
		if (strcmp(lfirst_node(DefElem, lc)->defname, name) == 0)
			return true;
	return false;
}

/* The view's options after SET and RESET of these. */
static List *
changed_options(List *options, List *set, List *reset)
{
	List	   *result = NIL;
	ListCell   *lc;

	foreach(lc, list_concat_copy(set, reset))
		sa_option_view_check_change(lfirst_node(DefElem, lc)->defname);
	foreach(lc, options)
	{
		DefElem    *def = lfirst_node(DefElem, lc);

		if (!is_named(set, def->defname) && !is_named(reset, def->defname))
			result = lappend(result, def);
	}
	return list_concat(result, set);
}

/* Loading a query may call the owner's functions. */
static void
check_options(const SaViewConfig *config, const SaViewOptions *options)
{
	SaOwnerSwitch save;
	SaQuery    *query;

	sa_owner_enter(&save, sa_owner_of(config->view));
	query = sa_query_load(config->definition, config->view, GetUserId());
	sa_ddl_view_check_options(query, options);
	sa_query_free(query);
	sa_owner_leave(&save);
}

/* A view that has not been unlogged before gets its spill tables. */
static void
make_spills(SaViewConfig *config)
{
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	if (OidIsValid(config->state) && !OidIsValid(config->spill))
		config->spill = sa_part_create_spill(config->id);
	if (OidIsValid(config->dedup) && !OidIsValid(config->dedup_spill))
		config->dedup_spill = sa_part_create_dedup_spill(config->id);
	SPI_finish();
	sa_mend_attach(config);
}

static void
change_options(SaViewConfig *config, List *set, List *reset)
{
	SaViewOptions options;

	sa_admin_check_owner(config->view);
	LockRelationOid(config->view, ShareRowExclusiveLock);
	config = sa_catalog_view(config->view);
	if (config == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("continuous view was dropped concurrently")));
	sa_admin_check_owner(config->view);	/* it may have got another one while we waited */
	if (is_named(set, "watermark") || is_named(reset, "watermark"))
		sa_admin_check_on_disk(config, "change the watermark of");
	config->options = changed_options(config->options, set, reset);
	sa_option_view(config->options, &options);
	check_options(config, &options);
	if (options.unlogged)
		make_spills(config);
	sa_catalog_change_view(config);
	sa_slot_want_at_commit(config->stream);
}

/* Takes the options of ours out of SET (...) or RESET (...). */
static List *
take_options(AlterTableCmd *cmd)
{
	List	   *ours = NIL;
	List	   *others = NIL;
	ListCell   *lc;

	foreach(lc, castNode(List, cmd->def))
	{
		DefElem    *def = lfirst_node(DefElem, lc);

		if (!sa_ddl_view_has_options(list_make1(def)))
			others = lappend(others, def);
		else if (def->defname[0] != '\0')
			ours = lappend(ours, makeDefElem(def->defname, def->arg, def->location));
	}
	cmd->def = (Node *) others;
	return ours;
}

/* ALTER ... SET and RESET of our options; the other commands are left.  False when none is. */
static bool
alter_options(AlterTableStmt *alter, SaViewConfig *config)
{
	List	   *set = NIL;
	List	   *reset = NIL;
	List	   *others = NIL;
	ListCell   *lc;

	foreach(lc, alter->cmds)
	{
		AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);

		if (cmd->subtype == AT_SetRelOptions)
			set = list_concat(set, take_options(cmd));
		else if (cmd->subtype == AT_ResetRelOptions)
			reset = list_concat(reset, take_options(cmd));
		if ((cmd->subtype != AT_SetRelOptions && cmd->subtype != AT_ResetRelOptions) || cmd->def != NULL)
			others = lappend(others, cmd);
	}
	if (set != NIL || reset != NIL)
		change_options(config, set, reset);
	alter->cmds = others;
	return others != NIL;
}

/* --- the commands --- */

static bool
translate_alter(AlterTableStmt *alter)
{
	SaViewConfig *config = alter->objtype == OBJECT_MATVIEW || alter->objtype == OBJECT_TABLE ?
		sa_ddl_guard_view_of(alter->relation) : NULL;

	if (config == NULL)
		return true;
	alter->objtype = OBJECT_TABLE;
	return alter_options(alter, config);
}

static void
translate_rename(RenameStmt *rename)
{
	ObjectType *type = rename->renameType == OBJECT_COLUMN ? &rename->relationType : &rename->renameType;

	if (*type == OBJECT_MATVIEW && sa_ddl_guard_view_of(rename->relation))
		*type = OBJECT_TABLE;
}

static void
translate_comment(CommentStmt *comment)
{
	if (comment->objtype == OBJECT_MATVIEW &&
		sa_ddl_guard_view_of(makeRangeVarFromNameList(castNode(List, comment->object))))
		comment->objtype = OBJECT_TABLE;
}

static void
refuse_refresh(RefreshMatViewStmt *refresh)
{
	if (sa_ddl_guard_view_of(refresh->relation))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("cannot refresh continuous view \"%s\"", refresh->relation->relname),
				 errdetail("Its worker keeps it up to date."),
				 errhint("Use CALL stream_agg.run() to wait until it has read everything, or stream_agg.reset() to have it read from its start again.")));
}

PlannedStmt *
sa_ddl_alter_translate(PlannedStmt *pstmt)
{
	Node	   *stmt = pstmt->utilityStmt;

	if (!IsA(stmt, AlterTableStmt) && !IsA(stmt, RenameStmt) && !IsA(stmt, AlterObjectSchemaStmt) &&
		!IsA(stmt, CommentStmt) && !IsA(stmt, RefreshMatViewStmt))
		return pstmt;
	pstmt = copyObject(pstmt);	/* it may be a cached plan's */
	stmt = pstmt->utilityStmt;
	switch (nodeTag(stmt))
	{
		case T_AlterTableStmt:
			return translate_alter((AlterTableStmt *) stmt) ? pstmt : NULL;
		case T_RenameStmt:
			translate_rename((RenameStmt *) stmt);
			break;
		case T_AlterObjectSchemaStmt:
			if (((AlterObjectSchemaStmt *) stmt)->objectType == OBJECT_MATVIEW &&
				sa_ddl_guard_view_of(((AlterObjectSchemaStmt *) stmt)->relation))
				((AlterObjectSchemaStmt *) stmt)->objectType = OBJECT_TABLE;
			break;
		case T_CommentStmt:
			translate_comment((CommentStmt *) stmt);
			break;
		case T_RefreshMatViewStmt:
			refuse_refresh((RefreshMatViewStmt *) stmt);
			break;
		default:
			break;
	}
	return pstmt;
}

void
sa_ddl_alter_renamed(RenameStmt *rename)
{
	SaViewConfig *config;

	if (rename->renameType != OBJECT_COLUMN || rename->relationType != OBJECT_TABLE)
		return;
	config = sa_ddl_guard_view_of(rename->relation);
	if (config && get_attnum(config->definition, rename->subname) != InvalidAttrNumber)
		sa_part_rename_column(config->definition, rename->subname, rename->newname);
}
