/*
 * ddl_alter.h
 *		Commands on continuous views as PostgreSQL knows them for materialized views.
 */
#ifndef SA_DDL_ALTER_H
#define SA_DDL_ALTER_H

#include "nodes/parsenodes.h"
#include "nodes/plannodes.h"

/*
 * The command as it is to be run: on the result table, and without the view's own options, which are changed
 * here.  NULL when nothing is left to run.  A command that is not about a continuous view comes back as it is.
 */
extern PlannedStmt *sa_ddl_alter_translate(PlannedStmt *pstmt);

/* After RENAME COLUMN: the definition keeps the names of the result table. */
extern void sa_ddl_alter_renamed(RenameStmt *rename);

#endif							/* SA_DDL_ALTER_H */
