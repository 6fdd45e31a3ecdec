/*
 * admin.h
 *		Who may administer what.
 */
#ifndef SA_ADMIN_H
#define SA_ADMIN_H

#include "catalog.h"

/*
 * Configuration of the continuous view with this result table; errors when it is none, or the current user
 * neither owns it nor administers stream_agg.
 */
extern SaViewConfig *sa_admin_view(Oid relid);

#endif							/* SA_ADMIN_H */
