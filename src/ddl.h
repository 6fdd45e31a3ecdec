/*
 * ddl.h
 *		Commands that create, change and drop continuous views and streams.
 */
#ifndef SA_DDL_H
#define SA_DDL_H

extern void sa_ddl_init(void);

#endif							/* SA_DDL_H */
