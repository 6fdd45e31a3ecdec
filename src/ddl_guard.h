/*
 * ddl_guard.h
 *		What may not be done to result tables while their views live: each errors if the command would.
 */
#ifndef SA_DDL_GUARD_H
#define SA_DDL_GUARD_H

#include "catalog.h"
#include "nodes/parsenodes.h"

/* The continuous view that a name stands for; NULL: it is none. */
extern SaViewConfig *sa_ddl_guard_view_of(RangeVar *rel);

extern void sa_ddl_guard_alter(AlterTableStmt *alter);
extern void sa_ddl_guard_create(CreateStmt *create);
extern void sa_ddl_guard_trigger(CreateTrigStmt *trigger);
extern void sa_ddl_guard_drop_trigger(DropStmt *drop);
extern void sa_ddl_guard_function(Oid function);

/* While a command of our own changes the rows of this result table; InvalidOid: none does. */
extern void sa_ddl_guard_open(Oid view);
extern bool sa_ddl_guard_is_open(Oid view);

#endif							/* SA_DDL_GUARD_H */
