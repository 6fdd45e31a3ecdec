/*
 * ddl_stream.h
 *		What commands do to streams: called by the hook in ddl.c around PostgreSQL's own part.
 */
#ifndef SA_DDL_STREAM_H
#define SA_DDL_STREAM_H

#include "nodes/parsenodes.h"

/* Before and after CREATE STREAM or CREATE FOREIGN TABLE. */
extern void sa_ddl_stream_creating(CreateForeignTableStmt *create);
extern void sa_ddl_stream_created(CreateForeignTableStmt *create);

/* Before and after ALTER TABLE of a stream, or of a table that has streams among its children. */
extern void sa_ddl_stream_check(AlterTableStmt *alter);
extern void sa_ddl_stream_altered(AlterTableStmt *alter);

/* SET (...) and RESET (...) of a stream become OPTIONS (...), in the statement given, which is returned. */
extern AlterTableStmt *sa_ddl_stream_set_options(AlterTableStmt *alter);

extern void sa_ddl_stream_renamed(RenameStmt *rename);

#endif							/* SA_DDL_STREAM_H */
