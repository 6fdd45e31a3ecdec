/*
 * ddl_view.h
 *		Creating continuous views.
 */
#ifndef SA_DDL_VIEW_H
#define SA_DDL_VIEW_H

#include "query.h"

/* Does a list of DefElem have any in the namespace stream_agg? */
extern bool sa_ddl_view_has_options(List *options);

/* Is stream_agg.replace among them: another SELECT for a view that is there? */
extern bool sa_ddl_view_is_replacement(List *options);

/* CREATE MATERIALIZED VIEW ... WITH (stream_agg.continuous); changes the statement. */
extern void sa_ddl_view_create(CreateTableAsStmt *stmt, const char *query_string);

/* Has the current user the rights on every table that the query reads?  Errors if not. */
extern void sa_ddl_view_check_permissions(Query *query);

/* Do the options of a view fit its query and its stream?  Errors if not. */
extern void sa_ddl_view_check_options(const SaQuery *query, const SaViewOptions *options);

#endif							/* SA_DDL_VIEW_H */
