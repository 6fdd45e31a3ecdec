/*
 * window_call.h
 *		The window function in a query's FROM list: which one it is, and what its arguments tell.
 */
#ifndef SA_WINDOW_CALL_H
#define SA_WINDOW_CALL_H

#include "nodes/parsenodes.h"
#include "parser/parse_node.h"
#include "window_calendar.h"

typedef enum SaWindowKind
{
	SA_TUMBLE,
	SA_HOP,
	SA_CUMULATE,
	SA_TRUNC,
	SA_SESSION
} SaWindowKind;

/* What holds for all windows of a call. */
typedef struct SaWindowMeasures
{
	int64		size;			/* microseconds; 0: not constant */
	int64		longest;		/* no window is longer; 0: not known */
	int64		usual;			/* about as long as this; 0: not known */
	int64		slide;			/* from one to the next, about; 0: not known */
	bool		start_decides;	/* windows that start together end together, and the end can be computed */
	bool		end_decides;
} SaWindowMeasures;

/* Windows of a call with constant arguments, and those that hold every time in [from, to). */
typedef struct SaWindowSet
{
	SaWindowKind kind;
	SaCalendar	calendar;
	SaSpan		size;
	SaSpan		slide;
	int64		from;			/* from = to: none yet */
	int64		to;
	int			nwindows;
	int			max;
	int64		(*windows)[2];	/* start, end */
} SaWindowSet;

/* The call, with all arguments in the order of the parameters, the time first; NULL: no window function. */
extern FuncExpr *sa_window_call_of(RangeTblEntry *rte);

/* One that would not be taken for the query's window: in a sub-query, among ROWS FROM, WITH ORDINALITY; NULL: none. */
extern FuncExpr *sa_window_call_hidden(RangeTblEntry *rte);
extern SaWindowKind sa_window_call_kind(const FuncExpr *call);
extern bool sa_window_call_equal(const FuncExpr *a, const FuncExpr *b);

/* The time itself: a date's midnight is as good as the date. */
extern Node *sa_window_call_time(Node *time);

/* Type of a window's start and end: that of the time it is over, a date counting as its midnight. */
extern Oid	sa_window_call_type(const FuncExpr *call);

/* Complain of constant arguments that no event could have. */
extern void sa_window_call_check(const FuncExpr *call, ParseState *pstate);
extern void sa_window_call_check_new(const FuncExpr *call, ParseState *pstate);	/* of what views that are there may have */
extern void sa_window_call_measure(const FuncExpr *call, SaWindowMeasures *measures);

/*
 * Start or end of the one window, as an expression of the event; NULL: there may be several windows.  For a session they
 * are those of the event alone, and the end is NULL where it belongs to none.
 */
extern Expr *sa_window_call_bound(const FuncExpr *call, bool end);

/* The end (or start) of the window that starts (or ends) at a time, where that decides it. */
extern Expr *sa_window_call_other(const FuncExpr *call, Expr *known, bool end);

/* The end of the last window that holds a time (for hop() NULL where none does); NULL: arguments are not constant. */
extern Expr *sa_window_call_last_end(const FuncExpr *call, Expr *time);

/* Hopping windows whose arguments are constant, as microseconds. */
extern bool sa_window_call_hop(const FuncExpr *call, int64 *size, int64 *slide, int64 *origin);

/* What puts a time to its hopping or cumulating windows; NULL where arguments are not constant.  Fills {windows}. */
extern SaWindowSet *sa_window_call_set(const FuncExpr *call);
extern void sa_window_set_find(SaWindowSet *set, int64 ts);

#endif							/* SA_WINDOW_CALL_H */
