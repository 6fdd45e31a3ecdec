/*
 * ddl_view.h
 *		Creating continuous views.
 */
#ifndef SA_DDL_VIEW_H
#define SA_DDL_VIEW_H

#include "nodes/parsenodes.h"

/* Does a list of DefElem have any in the namespace stream_agg? */
extern bool sa_ddl_view_has_options(List *options);

/* CREATE MATERIALIZED VIEW ... WITH (stream_agg.continuous); changes the statement. */
extern void sa_ddl_view_create(CreateTableAsStmt *stmt, const char *query_string);

/* The owner of schema stream_agg, who may create what users may not. */
extern Oid	sa_ddl_extension_owner(void);

#endif							/* SA_DDL_VIEW_H */
