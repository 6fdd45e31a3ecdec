/*
 * window_sql.c
 *		Windows: the SQL functions on top of the arithmetic.
 *
 * tumble(), hop() and cumulate() are SQL functions over these, which give NULL or nothing where there is no window.  What was
 * looked up last, zone and window, stays with the expression (fn_extra).
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "window.h"
#include "window_calendar.h"

PG_FUNCTION_INFO_V1(sa_window_start);
PG_FUNCTION_INFO_V1(sa_window_end);
PG_FUNCTION_INFO_V1(sa_hop_start);
PG_FUNCTION_INFO_V1(sa_hop_end);
PG_FUNCTION_INFO_V1(sa_hop_count);
PG_FUNCTION_INFO_V1(sa_cumulate_ends);
PG_FUNCTION_INFO_V1(sa_trunc_start);
PG_FUNCTION_INFO_V1(sa_trunc_end);
PG_FUNCTION_INFO_V1(sa_session_end);

/* What an expression has looked up. */
typedef struct Memory
{
	char	   *name;			/* of the zone; NULL: none yet */
	pg_tz	   *zone;
	Interval	size;			/* of the window that was found last, with its origin */
	int64		origin;
	bool		has_origin;
	int64		start;
	int64		end;			/* 0 and 0: none yet */
} Memory;

static Memory *
memory_of(FunctionCallInfo fcinfo)
{
	if (fcinfo->flinfo->fn_extra == NULL)
		fcinfo->flinfo->fn_extra = MemoryContextAllocZero(fcinfo->flinfo->fn_mcxt, sizeof(Memory));
	return fcinfo->flinfo->fn_extra;
}

/* A zone argument; NULL: there is none. */
static pg_tz *
zone_argument(FunctionCallInfo fcinfo, int arg)
{
	Memory	   *memory;
	text	   *name;
	int			len;

	if (PG_NARGS() <= arg || PG_ARGISNULL(arg))
		return NULL;
	memory = memory_of(fcinfo);
	name = PG_GETARG_TEXT_PP(arg);
	len = VARSIZE_ANY_EXHDR(name);
	if (memory->name == NULL || strncmp(memory->name, VARDATA_ANY(name), len) != 0 || memory->name[len] != '\0')
	{
		char	   *string = text_to_cstring(name);

		memory->zone = sa_calendar_zone(string);
		if (memory->name)
			pfree(memory->name);
		memory->name = MemoryContextStrdup(fcinfo->flinfo->fn_mcxt, string);
		memory->start = memory->end = 0;
	}
	return memory->zone;
}

static int64
time_argument(FunctionCallInfo fcinfo, int arg)
{
	int64		ts = PG_GETARG_INT64(arg);

	if (TIMESTAMP_NOT_FINITE(ts))
		ereport(ERROR,
				(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
				 errmsg("an infinite timestamp has no window")));
	return ts;
}

/* Where windows are counted from, as a local time. */
static int64
origin_argument(FunctionCallInfo fcinfo, int arg, const SaSpan *span, pg_tz *zone)
{
	int64		origin;

	if (PG_ARGISNULL(arg))
		return sa_calendar_origin(span, zone, NULL);
	origin = time_argument(fcinfo, arg);
	return sa_calendar_origin(span, zone, &origin);
}

/* --- tumble --- */

static bool
is_same_interval(const Interval *a, const Interval *b)
{
	return a->month == b->month && a->day == b->day && a->time == b->time;
}

/* The window of tumble()'s arguments, where it is not of constant size. */
static void
find_calendar_window(FunctionCallInfo fcinfo, int64 ts, const SaSpan *size, pg_tz *zone, int64 *start, int64 *end)
{
	Memory	   *memory = memory_of(fcinfo);
	const Interval *interval = PG_GETARG_INTERVAL_P(1);
	bool		has_origin = !PG_ARGISNULL(2);
	int64		origin = has_origin ? time_argument(fcinfo, 2) : 0;

	if (ts < memory->start || ts >= memory->end || !is_same_interval(interval, &memory->size) ||
		has_origin != memory->has_origin || origin != memory->origin)
	{
		SaCalendar	calendar = {.zone = zone, .origin = sa_calendar_origin(size, zone, has_origin ? &origin : NULL)};

		sa_calendar_tumble(&calendar, size, ts, &memory->start, &memory->end);
		memory->size = *interval;
		memory->has_origin = has_origin;
		memory->origin = origin;
	}
	*start = memory->start;
	*end = memory->end;
}

/* The window for the two functions of tumble(); false for NULL. */
static bool
find_window(FunctionCallInfo fcinfo, int64 *start, int64 *end)
{
	pg_tz	   *zone;
	SaSpan		size;
	int64		ts;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		return false;
	zone = zone_argument(fcinfo, 3);
	size = sa_calendar_span(PG_GETARG_INTERVAL_P(1), "size", zone);
	ts = time_argument(fcinfo, 0);
	if (!sa_calendar_is_constant(&size, zone))
	{
		find_calendar_window(fcinfo, ts, &size, zone, start, end);
		return true;
	}
	*start = sa_window_floor(ts, size.usecs, origin_argument(fcinfo, 2, &size, NULL));
	*end = sa_window_end_of(*start, size.usecs);
	return true;
}

/* window_start(ts, size, origin [, timezone]): start of the tumbling window that holds ts. */
Datum
sa_window_start(PG_FUNCTION_ARGS)
{
	int64		start;
	int64		end;

	if (!find_window(fcinfo, &start, &end))
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMP(start);
}

/* window_end(ts, size, origin [, timezone]): its end, exclusive. */
Datum
sa_window_end(PG_FUNCTION_ARGS)
{
	int64		start;
	int64		end;

	if (!find_window(fcinfo, &start, &end))
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMP(end);
}

/* --- hop --- */

/* The k-th window for the two hop functions; false for NULL, and when it does not hold ts. */
static bool
find_hop(FunctionCallInfo fcinfo, int64 *start, int64 *end)
{
	SaCalendar	calendar;
	SaSpan		size;
	SaSpan		slide;
	int64		ts;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1) || PG_ARGISNULL(2) || PG_ARGISNULL(4))
		return false;
	calendar.zone = zone_argument(fcinfo, 5);
	size = sa_calendar_span(PG_GETARG_INTERVAL_P(1), "size", calendar.zone);
	slide = sa_calendar_span(PG_GETARG_INTERVAL_P(2), "slide", calendar.zone);
	ts = time_argument(fcinfo, 0);
	calendar.origin = origin_argument(fcinfo, 3, &slide, calendar.zone);
	if (!sa_calendar_is_constant(&size, calendar.zone) || !sa_calendar_is_constant(&slide, calendar.zone))
		return sa_calendar_hop(&calendar, &size, &slide, ts, PG_GETARG_INT32(4), start, end);
	if (!sa_window_hop(ts, size.usecs, slide.usecs, calendar.origin, PG_GETARG_INT32(4), start))
		return false;
	*end = sa_window_end_of(*start, size.usecs);
	return true;
}

/* hop_start(ts, size, slide, origin, k [, timezone]): start of the k-th hopping window that holds ts, or NULL. */
Datum
sa_hop_start(PG_FUNCTION_ARGS)
{
	int64		start;
	int64		end;

	if (!find_hop(fcinfo, &start, &end))
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMP(start);
}

Datum
sa_hop_end(PG_FUNCTION_ARGS)
{
	int64		start;
	int64		end;

	if (!find_hop(fcinfo, &start, &end))
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMP(end);
}

/* hop_count(size, slide): how many windows can hold one instant, at most. */
Datum
sa_hop_count(PG_FUNCTION_ARGS)
{
	SaSpan		size;
	SaSpan		slide;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		PG_RETURN_NULL();
	size = sa_calendar_span(PG_GETARG_INTERVAL_P(0), "size", NULL);
	slide = sa_calendar_span(PG_GETARG_INTERVAL_P(1), "slide", NULL);
	PG_RETURN_INT32((int32) sa_calendar_count(&size, &slide));
}

/* --- cumulate --- */

typedef struct Cumulation
{
	SaCalendar	calendar;
	SaSpan		step;
	SaSpan		size;
	int64		ts;
} Cumulation;

static Cumulation *
begin_cumulation(FunctionCallInfo fcinfo, FuncCallContext *context)
{
	Cumulation *cumulation;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1) || PG_ARGISNULL(2))
		return NULL;
	cumulation = MemoryContextAlloc(context->multi_call_memory_ctx, sizeof(Cumulation));
	cumulation->calendar.zone = PG_NARGS() <= 4 || PG_ARGISNULL(4) ? NULL :
		sa_calendar_zone(text_to_cstring(PG_GETARG_TEXT_PP(4)));
	cumulation->step = sa_calendar_span(PG_GETARG_INTERVAL_P(1), "step", cumulation->calendar.zone);
	cumulation->size = sa_calendar_span(PG_GETARG_INTERVAL_P(2), "size", cumulation->calendar.zone);
	cumulation->ts = time_argument(fcinfo, 0);
	cumulation->calendar.origin = origin_argument(fcinfo, 3, &cumulation->size, cumulation->calendar.zone);
	sa_calendar_check_cumulate(&cumulation->step, &cumulation->size);
	return cumulation;
}

/* cumulate_ends(ts, step, size, origin [, timezone]): ends of the cumulating windows that hold ts. */
Datum
sa_cumulate_ends(PG_FUNCTION_ARGS)
{
	FuncCallContext *context;
	Cumulation *cumulation;
	int64		last_step;
	int64		end;

	if (SRF_IS_FIRSTCALL())
	{
		context = SRF_FIRSTCALL_INIT();
		context->user_fctx = begin_cumulation(fcinfo, context);
	}
	context = SRF_PERCALL_SETUP();
	cumulation = context->user_fctx;
	if (cumulation == NULL ||
		!sa_calendar_cumulate(&cumulation->calendar, &cumulation->step, &cumulation->size, cumulation->ts,
							  (int) context->call_cntr, &last_step, &end))
		SRF_RETURN_DONE(context);
	SRF_RETURN_NEXT(context, TimestampTzGetDatum(end));
}

/* --- date_trunc --- */

/* What an expression has looked up of date_trunc(). */
typedef struct TruncMemory
{
	Memory		base;			/* zone, and the window of what is in [from, to) */
	char	   *unit;			/* NULL: none yet */
	SaSpan		span;
	int64		origin;
	int64		from;
	int64		to;
} TruncMemory;

static void
read_unit(FunctionCallInfo fcinfo, TruncMemory *memory)
{
	text	   *unit = PG_GETARG_TEXT_PP(1);
	int			len = VARSIZE_ANY_EXHDR(unit);

	if (memory->unit && strncmp(memory->unit, VARDATA_ANY(unit), len) == 0 && memory->unit[len] == '\0')
		return;
	if (!sa_calendar_unit(text_to_cstring(unit), &memory->span, &memory->origin))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unit \"%s\" not recognized", text_to_cstring(unit))));
	memory->unit = MemoryContextStrdup(fcinfo->flinfo->fn_mcxt, text_to_cstring(unit));
	memory->base.start = memory->base.end = 0;
}

/* The window for the two functions of date_trunc(); NULL for NULL. */
static const Memory *
find_trunc(FunctionCallInfo fcinfo)
{
	TruncMemory *memory = fcinfo->flinfo->fn_extra;
	int64		ts;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1) || (PG_NARGS() > 2 && PG_ARGISNULL(2)))
		return NULL;
	if (memory == NULL)
		memory = fcinfo->flinfo->fn_extra = MemoryContextAllocZero(fcinfo->flinfo->fn_mcxt, sizeof(TruncMemory));
	ts = time_argument(fcinfo, 0);
	read_unit(fcinfo, memory);
	(void) zone_argument(fcinfo, 2);
	if (memory->base.start == memory->base.end || ts < memory->from || ts >= memory->to)
	{
		SaCalendar	calendar = {.zone = memory->base.zone, .origin = memory->origin};

		sa_calendar_trunc(&calendar, &memory->span, ts, &memory->base.start, &memory->base.end, &memory->from, &memory->to);
	}
	return &memory->base;
}

/* trunc_start(ts, unit [, timezone]): date_trunc(), and immutable. */
Datum
sa_trunc_start(PG_FUNCTION_ARGS)
{
	const Memory *window = find_trunc(fcinfo);

	if (window == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMP(window->start);
}

/* trunc_end(ts, unit [, timezone]): no time with that start is as late. */
Datum
sa_trunc_end(PG_FUNCTION_ARGS)
{
	const Memory *window = find_trunc(fcinfo);

	if (window == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMP(window->end);
}

/* --- session --- */

/* session_end(ts, gap): when a session ends if no other event comes; NULL: the gap is not greater than zero. */
Datum
sa_session_end(PG_FUNCTION_ARGS)
{
	int64		gap;
	int64		end;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		PG_RETURN_NULL();
	gap = sa_calendar_gap(PG_GETARG_INTERVAL_P(1));
	if (gap <= 0)
		PG_RETURN_NULL();
	end = sa_window_end_of(time_argument(fcinfo, 0), gap);
	PG_RETURN_TIMESTAMP(end);
}
