/*
 * ddl_replace.h
 *		ALTER CONTINUOUS VIEW v AS select: another SELECT for a view that goes on.
 */
#ifndef SA_DDL_REPLACE_H
#define SA_DDL_REPLACE_H

#include "nodes/parsenodes.h"

/*
 * CREATE MATERIALIZED VIEW ... WITH (stream_agg.continuous, stream_agg.replace) AS select, of an existing
 * view; changes the statement.  Errors where existing groups could not go on.
 */
extern void sa_ddl_replace(CreateTableAsStmt *stmt, const char *query_string);

#endif							/* SA_DDL_REPLACE_H */
