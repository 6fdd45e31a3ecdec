/*
 * ddl_kind.h
 *		Relations are what the statement calls them.
 */
#ifndef SA_DDL_KIND_H
#define SA_DDL_KIND_H

#include "nodes/parsenodes.h"

/* ALTER STREAM of streams, ALTER CONTINUOUS VIEW of continuous views; anything for PostgreSQL's own statements. */
extern void sa_ddl_kind_check(Node *stmt);

/*
 * The same for DROP.  The statement becomes PostgreSQL's own, without the relations that IF EXISTS is about;
 * returns whether any are left.
 */
extern bool sa_ddl_kind_check_drop(DropStmt *drop);

#endif							/* SA_DDL_KIND_H */
