/*
 * mend.h
 *		What belongs to a result table.
 */
#ifndef SA_MEND_H
#define SA_MEND_H

#include "catalog/dependency.h"

#include "catalog.h"

/* Hang a relation on another one, unless it does already. */
extern void sa_mend_depend(Oid part, Oid whole, DependencyType type);
extern bool sa_mend_depends(Oid part, Oid whole);

/* The definition and the state log go and come with the result table. */
extern void sa_mend_attach(const SaViewConfig *config);

/* Refuse direct changes of the result table from now on. */
extern void sa_mend_guard(Oid view);

/* After pg_upgrade: give the views of this database back what a dump does not know of. */
extern void sa_mend_views(void);

#endif							/* SA_MEND_H */
