/*
 * window_calendar.h
 *		Windows that step in months, or in the local time of a zone: arithmetic, too.
 */
#ifndef SA_WINDOW_CALENDAR_H
#define SA_WINDOW_CALENDAR_H

#include "datatype/timestamp.h"
#include "pgtime.h"

/* A window's size, slide or step: months, or microseconds; a day is 24 hours by the local clock. */
typedef struct SaSpan
{
	int32		months;
	int64		usecs;
	bool		clock;			/* hours and less in a zone: the clock shows them twice when it is put back */
} SaSpan;

typedef struct SaCalendar
{
	pg_tz	   *zone;			/* NULL: UTC, or none */
	int64		origin;			/* a local time */
} SaCalendar;

/* The zone of this name; an error if there is none. */
extern pg_tz *sa_calendar_zone(const char *name);

/* Errors unless it is positive, and either months or days and less; what: "size" ... */
extern SaSpan sa_calendar_span(const Interval *interval, const char *what, pg_tz *zone);
extern bool sa_calendar_is_constant(const SaSpan *span, pg_tz *zone);	/* all windows are as long as that */
extern int64 sa_calendar_longest(const SaSpan *span, pg_tz *zone);	/* at most, in microseconds */

/* Where windows of this span begin to be counted: at origin (an instant), or at the default (NULL). */
extern int64 sa_calendar_origin(const SaSpan *span, pg_tz *zone, const int64 *origin);

/* The one window of this span that holds ts. */
extern void sa_calendar_tumble(const SaCalendar *calendar, const SaSpan *span, int64 ts, int64 *start, int64 *end);

/*
 * The k-th window of this size, one beginning at every slide, that may hold ts (0: the latest); false when it ends too
 * early to hold it.
 */
extern bool sa_calendar_hop(const SaCalendar *calendar, const SaSpan *size, const SaSpan *slide, int64 ts, int k,
							int64 *start, int64 *end);

/*
 * End of the k-th window (0: the shortest) that holds ts and grows by step up to size, and the beginning of its last step;
 * false when there are not so many.
 */
extern bool sa_calendar_cumulate(const SaCalendar *calendar, const SaSpan *step, const SaSpan *size, int64 ts, int k,
								 int64 *last_step, int64 *end);

/*
 * date_trunc(): the size of a unit's windows and what they are counted from; false: there is no such unit.  The window
 * of ts, as the server has it: where midnight comes twice, it starts at the second one, also for what was before.
 * Every time in [from, to) has the same one.
 */
extern bool sa_calendar_unit(const char *unit, SaSpan *span, int64 *origin);
extern void sa_calendar_trunc(const SaCalendar *calendar, const SaSpan *unit, int64 ts, int64 *start, int64 *end,
							  int64 *from, int64 *to);

/* How many windows of this size, one beginning every slide, may hold one instant; an error where they are too many. */
extern int64 sa_calendar_count(const SaSpan *size, const SaSpan *slide);

/* Errors unless there can be windows of these spans. */
extern void sa_calendar_check_hop(const SaSpan *size, const SaSpan *slide);
/* The gap of a session in microseconds, which may be zero and less; complains of months. */
extern int64 sa_calendar_gap(const Interval *interval);
extern void sa_calendar_check_cumulate(const SaSpan *step, const SaSpan *size);

#endif							/* SA_WINDOW_CALENDAR_H */
