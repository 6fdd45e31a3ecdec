/*
 * admin.h
 *		Who may administer what.
 */
#ifndef SA_ADMIN_H
#define SA_ADMIN_H

#include "catalog.h"
#include "storage/lockdefs.h"

/*
 * Configuration of the continuous view with this result table; errors when it is none, or the current user
 * neither owns it nor administers stream_agg.
 */
extern SaViewConfig *sa_admin_view(Oid relid);

/*
 * The same, locked for the function of this name, which is not for standbys (NULL: it is); the configuration is read under the lock,
 * so that the caller had still the right to it then.
 */
extern SaViewConfig *sa_admin_lock_view(Oid relid, LOCKMODE lockmode, const char *what);

/* Errors unless it is a stream that the current user owns or administers. */
extern void sa_admin_check_stream(Oid relid);

/* Errors unless the current user owns the relation: to administer is not to own. */
extern void sa_admin_check_owner(Oid relid);

/*
 * An error when part of the view's state is in its worker's memory alone, from where it is made again by reading
 * as was read before: then this (what: "seek in", say) cannot be done.  The result table is locked.
 */
extern void sa_admin_check_on_disk(const SaViewConfig *config, const char *what);

#endif							/* SA_ADMIN_H */
