/*
 * window_group.h
 *		Windows that a query has as grouping expressions, without a window function.
 */
#ifndef SA_WINDOW_GROUP_H
#define SA_WINDOW_GROUP_H

#include "nodes/parsenodes.h"

/*
 * GROUP BY date_bin(...) or date_trunc(...) of the stream's event time: the same query with a window function in FROM, in
 * a copy; of several, the shortest window.  The query itself where there is none, or is a window function already.
 */
extern Query *sa_window_group(Query *query);

/* Has it grouping expressions of the event time, but no window? */
extern bool sa_window_group_missed(Query *query);

#endif							/* SA_WINDOW_GROUP_H */
