/*
 * window_calendar.c
 *		Windows that step in months, or in the local time of a zone.
 *
 * Two rules say where windows begin.  Dates (days, weeks, months): the n-th window begins at the first instant at which
 * the local clock shows the n-th date or a later one; so a day on which the clock is put back has 25 hours, whatever it
 * shows twice.  The clock (hours and less): a window begins whenever the clock shows a multiple of the size, and when it
 * is put forward past one; so the two hours from one to two are two windows.
 *
 * Invariant: by both rules every instant is in exactly one window, start <= ts < end, and every window ends where the
 * next one begins.  Time zones know whole seconds; what is less is carried along.
 */
#include "postgres.h"

#include "common/int.h"
#include "parser/scansup.h"
#include "utils/datetime.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "window.h"
#include "window_calendar.h"

#define MAX_MONTHS (300000 * MONTHS_PER_YEAR)	/* as long as timestamps last */
#define MAX_WINDOWS 100000		/* that may hold one event */
#define LOOK_BACK (400 * SECS_PER_DAY)	/* for the latest change of the clock: there may be none */
#define LONGEST_SHIFT (2 * USECS_PER_DAY)	/* more than any clock has ever been put forward or back */
#define EPOCH_SECONDS ((int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * SECS_PER_DAY)

/* A stretch of time without a change of the clock, [from, to); offsets are added to UTC, in microseconds. */
typedef struct Segment
{
	int64		from;
	int64		to;				/* DT_NOEND: none to come */
	int64		before;			/* offset before it */
	int64		offset;
	int64		after;
} Segment;

/* --- zones --- */

pg_tz *
sa_calendar_zone(const char *name)
{
	pg_tz	   *zone = pg_tzset(name);

	if (zone == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("time zone \"%s\" not recognized", name),
				 errhint("Use a full name such as 'Europe/Berlin'; see pg_timezone_names.")));
	if (!pg_tz_acceptable(zone))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("time zone \"%s\" appears to use leap seconds", name),
				 errdetail("PostgreSQL does not support leap seconds.")));
	return zone;
}

static int64
floor_div(int64 a, int64 b)
{
	return a / b - (a % b < 0);
}

static int64
floor_mod(int64 a, int64 b)
{
	return a % b + (a % b < 0 ? b : 0);
}

static pg_time_t
unix_seconds(int64 ts)
{
	return floor_div(ts, USECS_PER_SEC) + EPOCH_SECONDS;
}

/* The next change of the clock after *at, which moves there; false: none that a timestamp could tell. */
static bool
next_change(pg_tz *zone, pg_time_t *at, int64 *change, int64 *before, int64 *after)
{
	pg_time_t	boundary;
	long		before_seconds;
	long		after_seconds;
	int			before_dst;
	int			after_dst;
	int			found = pg_next_dst_boundary(at, &before_seconds, &before_dst, &boundary, &after_seconds, &after_dst, zone);

	if (found < 0)
		elog(ERROR, "time zone \"%s\" is not to be read", pg_get_timezone_name(zone));
	*before = before_seconds * USECS_PER_SEC;
	if (found == 0 || pg_mul_s64_overflow(boundary - EPOCH_SECONDS, USECS_PER_SEC, change))
		return false;
	*after = after_seconds * USECS_PER_SEC;
	*at = boundary;
	return true;
}

static int64
offset_at(pg_tz *zone, int64 ts)
{
	pg_time_t	at = unix_seconds(ts);
	int64		change;
	int64		before;
	int64		after;

	if (zone == NULL)
		return 0;
	(void) next_change(zone, &at, &change, &before, &after);
	return before;
}

/* The first instant at which the clock shows this time or a later one. */
static int64
instant_of(pg_tz *zone, int64 local)
{
	pg_time_t	at;
	int64		from = PG_INT64_MIN;
	int64		change;
	int64		offset;
	int64		after;

	if (!IS_VALID_TIMESTAMP(local))
		sa_window_out_of_range();
	if (zone == NULL)
		return local;
	at = unix_seconds(local - LONGEST_SHIFT);
	while (next_change(zone, &at, &change, &offset, &after) && Max(local - offset, from) >= change)
		from = change;
	local = Max(local - offset, from);
	if (!IS_VALID_TIMESTAMP(local))
		sa_window_out_of_range();
	return local;
}

/* The stretch that holds ts.  Where the clock did not change for long, it has not changed at `from` either. */
static void
find_segment(pg_tz *zone, int64 ts, Segment *segment)
{
	pg_time_t	at = unix_seconds(ts) - LOOK_BACK;
	bool		first = true;

	segment->from = ts - LOOK_BACK * USECS_PER_SEC;
	for (;;)
	{
		bool		found = next_change(zone, &at, &segment->to, &segment->offset, &segment->after);

		if (first)
			segment->before = segment->offset;
		first = false;
		if (!found)
			segment->to = DT_NOEND;
		if (segment->to > ts)
			return;
		segment->from = segment->to;
		segment->before = segment->offset;
	}
}

/* --- spans --- */

SaSpan
sa_calendar_span(const Interval *interval, const char *what, pg_tz *zone)
{
	SaSpan		span = {.months = interval->month, .clock = zone != NULL && interval->time != 0};

	if (sa_interval_is_infinite(interval))
		sa_window_out_of_range();
	if (span.months != 0 && (interval->day != 0 || interval->time != 0))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s of a window cannot have both months and days or times", what),
				 errhint("Use years and months alone, or weeks, days, hours, minutes and seconds.")));
	if (span.months > MAX_MONTHS || pg_mul_s64_overflow(interval->day, USECS_PER_DAY, &span.usecs) ||
		pg_add_s64_overflow(span.usecs, interval->time, &span.usecs))
		sa_window_out_of_range();
	if (span.months < 0 || span.usecs < 0 || (span.months == 0 && span.usecs == 0))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s of a window must be greater than zero", what)));
	return span;
}

int64
sa_calendar_gap(const Interval *interval)
{
	int64		gap;

	if (sa_interval_is_infinite(interval))
		sa_window_out_of_range();
	if (interval->month != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("gap of a session cannot have months"),
				 errdetail("Months are of different lengths."),
				 errhint("Use weeks, days, hours, minutes and seconds.")));
	if (pg_mul_s64_overflow(interval->day, USECS_PER_DAY, &gap) || pg_add_s64_overflow(gap, interval->time, &gap))
		sa_window_out_of_range();
	return gap;
}

bool
sa_calendar_is_constant(const SaSpan *span, pg_tz *zone)
{
	return span->months == 0 && zone == NULL;
}

int64
sa_calendar_longest(const SaSpan *span, pg_tz *zone)
{
	int64		longest;

	if (pg_add_s64_overflow(span->usecs, span->months * (31 * USECS_PER_DAY) + (zone ? LONGEST_SHIFT : 0), &longest))
		sa_window_out_of_range();
	return longest;
}

static int64
shortest(const SaSpan *span)
{
	return span->months * (28 * USECS_PER_DAY) + span->usecs;
}

int64
sa_calendar_origin(const SaSpan *span, pg_tz *zone, const int64 *origin)
{
	if (origin == NULL)
		return sa_window_default_origin(span->months != 0 ? 1 : span->usecs);
	return *origin + offset_at(zone, *origin);
}

static int64
count_windows(const SaSpan *size, const SaSpan *slide)
{
	return sa_window_hop_count(sa_calendar_longest(size, NULL), shortest(slide));
}

int64
sa_calendar_count(const SaSpan *size, const SaSpan *slide)
{
	int64		count = count_windows(size, slide);

	if (count > MAX_WINDOWS)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("a hopping window of this size and slide would put each event into " INT64_FORMAT " windows",
						count),
				 errhint("Use a longer slide.")));
	return count;
}

void
sa_calendar_check_hop(const SaSpan *size, const SaSpan *slide)
{
	if ((size->clock || slide->clock) && (size->months != 0 || slide->months != 0 || size->usecs % slide->usecs != 0))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("size of a hopping window in a time zone must be a multiple of its slide where one has hours or less"),
				 errhint("The clock may be put forward or back within a window.")));
	(void) sa_calendar_count(size, slide);
}

void
sa_calendar_check_cumulate(const SaSpan *step, const SaSpan *size)
{
	int64		count = count_windows(size, step);

	if (count > MAX_WINDOWS)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("a cumulating window of this size and step would put an event into " INT64_FORMAT " windows",
						count),
				 errhint("Use a longer step.")));
	if (shortest(step) > sa_calendar_longest(size, NULL))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("step of a cumulating window must not be longer than its size")));
}

/* --- dates --- */

/* Where the n-th span begins, as a local time. */
static int64
local_bound(const SaCalendar *calendar, const SaSpan *span, int64 n)
{
	int64		distance;
	int64		local = 0;
	Interval	months = {0};

	if (span->months == 0)
	{
		if (pg_mul_s64_overflow(n, span->usecs, &distance) || pg_add_s64_overflow(calendar->origin, distance, &local))
			sa_window_out_of_range();
		return local;
	}
	if (n * span->months > PG_INT32_MAX || n * span->months < PG_INT32_MIN)
		sa_window_out_of_range();
	months.month = n * span->months;
	return DatumGetTimestamp(DirectFunctionCall2(timestamp_pl_interval, TimestampGetDatum(calendar->origin),
												 IntervalPGetDatum(&months)));
}

static int64
months_of(int64 local)
{
	struct pg_tm tm;
	fsec_t		fsec;

	if (timestamp2tm(local, NULL, &tm, &fsec, NULL, NULL) != 0)
		sa_window_out_of_range();
	return tm.tm_year * INT64CONST(12) + tm.tm_mon;
}

/* About which span holds a local time: right, or too great by one where months do not begin on the first. */
static int64
local_index(const SaCalendar *calendar, const SaSpan *span, int64 local)
{
	int64		distance;

	if (span->months != 0)
		return floor_div(months_of(local) - months_of(calendar->origin), span->months);
	if (pg_sub_s64_overflow(local, calendar->origin, &distance))
		sa_window_out_of_range();
	return floor_div(distance, span->usecs);
}

static int64
bound(const SaCalendar *calendar, const SaSpan *span, int64 n)
{
	return instant_of(calendar->zone, local_bound(calendar, span, n));
}

/* The span that holds ts: its number. */
static int64
date_window(const SaCalendar *calendar, const SaSpan *span, int64 ts, int64 *start, int64 *end)
{
	int64		n = local_index(calendar, span, ts + offset_at(calendar->zone, ts));

	*start = bound(calendar, span, n);
	while (ts < *start)
		*start = bound(calendar, span, --n);
	*end = bound(calendar, span, n + 1);
	while (ts >= *end)
	{
		*start = *end;
		*end = bound(calendar, span, ++n + 1);
	}
	return n;
}

/* --- the clock --- */

/* Does a window begin where the clock changes from one offset to another? */
static bool
begins_at_change(const SaCalendar *calendar, int64 usecs, int64 change, int64 before, int64 after)
{
	int64		shown = change + after - calendar->origin;
	int64		last = change + before - 1 - calendar->origin;

	return floor_mod(shown, usecs) == 0 || (shown > last && floor_div(shown, usecs) != floor_div(last, usecs));
}

static int64
clock_start(const SaCalendar *calendar, int64 usecs, int64 ts)
{
	for (;;)
	{
		Segment		segment;
		int64		start;

		find_segment(calendar->zone, ts, &segment);
		start = ts - floor_mod(ts + segment.offset - calendar->origin, usecs);
		if (start >= segment.from)
			return start;
		if (begins_at_change(calendar, usecs, segment.from, segment.before, segment.offset))
			return segment.from;
		ts = segment.from - 1;
	}
}

/* The beginning of the window after the one that holds ts. */
static int64
clock_end(const SaCalendar *calendar, int64 usecs, int64 ts)
{
	for (;;)
	{
		Segment		segment;
		int64		end;

		find_segment(calendar->zone, ts, &segment);
		if (pg_add_s64_overflow(ts - floor_mod(ts + segment.offset - calendar->origin, usecs), usecs, &end))
			sa_window_out_of_range();
		if (end < segment.to)
			return end;
		if (begins_at_change(calendar, usecs, segment.to, segment.offset, segment.after))
			return segment.to;
		ts = segment.to;
	}
}

/* From the beginning of one window to that of the n-th before or after it: in one go where the clock does not change. */
static int64
clock_move(const SaCalendar *calendar, int64 usecs, int64 start, int64 n)
{
	while (n != 0)
	{
		Segment		segment;
		int64		steps;
		bool		even;

		find_segment(calendar->zone, start, &segment);
		even = floor_mod(start + segment.offset - calendar->origin, usecs) == 0;
		if (n > 0)
			steps = Min((uint64) n, ((uint64) segment.to - 1 - (uint64) start) / usecs);
		else
			steps = -Min(-n, (start - segment.from) / usecs);
		if (even && steps != 0)
		{
			start += steps * usecs;
			n -= steps;
		}
		else if (n > 0)
		{
			start = clock_end(calendar, usecs, start);
			n--;
		}
		else
		{
			start = clock_start(calendar, usecs, start - 1);
			n++;
		}
	}
	return start;
}

/* --- windows --- */

void
sa_calendar_tumble(const SaCalendar *calendar, const SaSpan *span, int64 ts, int64 *start, int64 *end)
{
	if (!span->clock)
	{
		(void) date_window(calendar, span, ts, start, end);
		return;
	}
	*start = clock_start(calendar, span->usecs, ts);
	*end = clock_end(calendar, span->usecs, ts);
	if (!IS_VALID_TIMESTAMP(*start) || !IS_VALID_TIMESTAMP(*end))
		sa_window_out_of_range();
}

bool
sa_calendar_hop(const SaCalendar *calendar, const SaSpan *size, const SaSpan *slide, int64 ts, int k, int64 *start,
				int64 *end)
{
	int64		n;

	sa_calendar_check_hop(size, slide);
	if (slide->clock || size->clock)
	{
		*start = clock_move(calendar, slide->usecs, clock_start(calendar, slide->usecs, ts), -(int64) k);
		*end = clock_move(calendar, slide->usecs, *start, size->usecs / slide->usecs);
	}
	else
	{
		SaCalendar	from = *calendar;

		n = date_window(calendar, slide, ts, start, end) - k;
		from.origin = local_bound(calendar, slide, n);
		*start = instant_of(calendar->zone, from.origin);
		*end = bound(&from, size, 1);
	}
	if (!IS_VALID_TIMESTAMP(*start) || !IS_VALID_TIMESTAMP(*end))
		sa_window_out_of_range();
	return ts < *end;
}

bool
sa_calendar_cumulate(const SaCalendar *calendar, const SaSpan *step, const SaSpan *size, int64 ts, int k, int64 *last_step,
					 int64 *end)
{
	SaCalendar	from = *calendar;
	int64		start;
	int64		last;
	int64		n;

	if (size->clock)
		sa_calendar_tumble(calendar, size, ts, &start, &last);
	else
		from.origin = local_bound(calendar, size, date_window(calendar, size, ts, &start, &last));
	if (step->clock)
	{
		*last_step = clock_move(&from, step->usecs, clock_start(&from, step->usecs, ts), k);
		*end = clock_end(&from, step->usecs, *last_step);
	}
	else
	{
		n = date_window(&from, step, ts, last_step, end) + k;
		*last_step = bound(&from, step, n);
		*end = bound(&from, step, n + 1);
	}
	*last_step = Max(*last_step, start);
	*end = Min(*end, last);
	return *last_step < last;
}

/* --- date_trunc() --- */

bool
sa_calendar_unit(const char *unit, SaSpan *span, int64 *origin)
{
	static const struct
	{
		int			unit;
		int32		months;
		int64		usecs;
	}			units[] = {
		{DTK_MICROSEC, 0, 1}, {DTK_MILLISEC, 0, 1000}, {DTK_SECOND, 0, USECS_PER_SEC}, {DTK_MINUTE, 0, USECS_PER_MINUTE},
		{DTK_HOUR, 0, USECS_PER_HOUR}, {DTK_DAY, 0, USECS_PER_DAY}, {DTK_WEEK, 0, 7 * USECS_PER_DAY}, {DTK_MONTH, 1, 0},
		{DTK_QUARTER, 3, 0}, {DTK_YEAR, 12, 0}, {DTK_DECADE, 120, 0}, {DTK_CENTURY, 1200, 0}, {DTK_MILLENNIUM, 12000, 0}
	};
	char	   *name = downcase_truncate_identifier(unit, strlen(unit), false);
	int			which;

	if (DecodeUnits(0, name, &which) != UNITS)
		return false;
	for (int i = 0; i < lengthof(units); i++)
		if (units[i].unit == which)
		{
			*span = (SaSpan) {.months = units[i].months, .usecs = units[i].usecs};
			*origin = sa_calendar_origin(span, NULL, NULL);
			if (span->months >= 1200)	/* they begin in 2001 */
				*origin = (date2j(2001, 1, 1) - POSTGRES_EPOCH_JDATE) * USECS_PER_DAY;
			return true;
		}
	return false;
}

/* A local time as the server reads it. */
static int64
server_instant(pg_tz *zone, int64 local)
{
	struct pg_tm tm;
	fsec_t		fsec;

	if (zone == NULL)
		return local;
	if (timestamp2tm(local, NULL, &tm, &fsec, NULL, NULL) != 0)
		sa_window_out_of_range();
	return local + DetermineTimeZoneOffset(&tm, zone) * USECS_PER_SEC;
}

void
sa_calendar_trunc(const SaCalendar *calendar, const SaSpan *unit, int64 ts, int64 *start, int64 *end, int64 *from, int64 *to)
{
	Segment		segment = {.from = PG_INT64_MIN, .to = PG_INT64_MAX};
	int64		n;
	int64		next;

	if (calendar->zone)
		find_segment(calendar->zone, ts, &segment);
	n = local_index(calendar, unit, ts + segment.offset);
	*start = local_bound(calendar, unit, n);
	next = local_bound(calendar, unit, n + 1);
	*from = Max(segment.from, *start - segment.offset);
	*to = Min(segment.to, next - segment.offset);
	if (unit->months == 0 && unit->usecs < USECS_PER_DAY)
	{
		*start -= segment.offset;
		*end = *start + unit->usecs;
	}
	else
	{
		*start = server_instant(calendar->zone, *start);
		*end = server_instant(calendar->zone, next);
	}
	if (!IS_VALID_TIMESTAMP(*start) || !IS_VALID_TIMESTAMP(*end))
		sa_window_out_of_range();
}
