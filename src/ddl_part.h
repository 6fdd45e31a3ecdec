/*
 * ddl_part.h
 *		The parts of a continuous view besides its result table: definition and state log.
 */
#ifndef SA_DDL_PART_H
#define SA_DDL_PART_H

#include "catalog.h"
#include "lib/stringinfo.h"
#include "nodes/parsenodes.h"

/* The select list as ColumnDefs, under these names (of String) where there are any; they become the query's too. */
extern List *sa_part_columns(Query *query, List *names);

/* A column as CREATE TABLE wants it, appended. */
extern void sa_part_append_column(StringInfo sql, ColumnDef *column);

/*
 * Parts belong to the extension's owner: what is in them is trusted.  The definition, a view with these columns; and an empty state log.  Both are named by the id of view_config.
 * SPI must be connected, and search_path safe.
 */
extern Oid	sa_part_create_definition(int id, List *columns, Query *query);
extern Oid	sa_part_create_state(int id);
extern Oid	sa_part_create_spill(int id);
extern Oid	sa_part_create_dedup(int id);
extern Oid	sa_part_create_dedup_spill(int id);

/* Drop a part, while its result table stays. */
extern void sa_part_drop(Oid part, Oid result);

/* The parts get the names that belong to another id. */
extern void sa_part_rename(const SaViewConfig *config, int id);

/* A column of the result table has been renamed: the definition's has the same name. */
extern void sa_part_rename_column(Oid definition, const char *from, const char *to);

/* Run a utility command through SPI. */
extern void sa_part_run(const char *sql);

#endif							/* SA_DDL_PART_H */
