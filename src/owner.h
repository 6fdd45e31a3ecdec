/*
 * owner.h
 *		Acting as the owner of a view or stream, or of the extension, and coming back.
 */
#ifndef SA_OWNER_H
#define SA_OWNER_H

#include "nodes/pg_list.h"

typedef struct SaOwnerSwitch
{
	Oid			user;
	int			context;
	int			nest;
} SaOwnerSwitch;

/*
 * From here to sa_owner_leave everything runs with the rights of this role, in a security-restricted
 * operation, with a safe search_path; settings changed on the way are put back.  An error needs no
 * sa_owner_leave: the end of the (sub)transaction does the same.
 */
extern void sa_owner_enter(SaOwnerSwitch *save, Oid owner);
extern void sa_owner_leave(const SaOwnerSwitch *save);

/*
 * The same for making what belongs to the extension's owner, so that its users cannot touch it: the session's
 * settings do not say where and how.  Not a security-restricted operation: no code of a user's may run.
 */
extern void sa_owner_enter_extension(SaOwnerSwitch *save);

/* Take back what ALTER DEFAULT PRIVILEGES has granted on a relation: it holds data of users, not of its owner. */
extern void sa_owner_keep_private(Oid relid);

/* Owner of a relation. */
extern Oid	sa_owner_of(Oid relid);

/* Owner of schema stream_agg, who may create what users may not. */
extern Oid	sa_owner_of_extension(void);

/* Until sa_owner_leave: a setting, which costs nothing when it is as wanted (some read files, or catalogs). */
extern void sa_owner_set(const char *name, const char *value);

/* Likewise: the settings (of DefElem) that were kept when a view was created. */
extern void sa_owner_apply_settings(List *settings);

#endif							/* SA_OWNER_H */
