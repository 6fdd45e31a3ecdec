/*
 * state_row.h
 *		Rows of the result that are read when their groups are first needed (state_row.c), for the other files of the room.
 */
#ifndef SA_STATE_ROW_H
#define SA_STATE_ROW_H

#include "state_memory.h"

/* States from a group's row in the result; and where group is NULL its keys, too.  Returns the group. */
extern SaGroup *sa_state_load_row(SaState *state, SaWindow *window, const SaColdEntry *entry, SaGroup *group, Datum *keys,
								  bool *nulls);

/* All groups are there: their rows are left unread.  False: they cannot be found one by one. */
extern bool sa_state_leave_rows(SaState *state);

/* The group's row, which is unread; values that are states become the group's.  Ends with the batch, or when closed. */
extern void sa_state_read_row(SaState *state, SaWindow *window, SaGroup *group);
extern void sa_state_close_finder(SaState *state);

#endif							/* SA_STATE_ROW_H */
