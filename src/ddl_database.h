/*
 * ddl_database.h
 *		Commands for which our workers must leave the database first.
 */
#ifndef SA_DDL_DATABASE_H
#define SA_DDL_DATABASE_H

#include "nodes/nodes.h"

/* The database that workers must leave for this command, if its user may give it at all; else InvalidOid. */
extern Oid	sa_ddl_database_to_leave(Node *stmt);

#endif							/* SA_DDL_DATABASE_H */
