/*
 * window.c
 *		Windows: pure arithmetic, and the SQL functions on top of it.
 *
 * Invariant: for every ts and size there is exactly one tumbling window, start <= ts < start + size, and
 * starts differ by multiples of size (floor modulo, so before 1970 too).
 */
#include "postgres.h"

#include "common/int.h"
#include "fmgr.h"
#include "utils/timestamp.h"

#include "window.h"

PG_FUNCTION_INFO_V1(sa_window_start);
PG_FUNCTION_INFO_V1(sa_window_end);
PG_FUNCTION_INFO_V1(sa_hop_start);
PG_FUNCTION_INFO_V1(sa_hop_end);
PG_FUNCTION_INFO_V1(sa_hop_count);

#define EPOCH_1970 (-INT64CONST(946684800000000))	/* in microseconds since 2000 */

static void
out_of_range(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
			 errmsg("window out of range")));
}

int64
sa_window_floor(int64 ts, int64 size, int64 origin)
{
	int64		phase = origin % size;
	int64		distance;
	int64		rest;

	if (pg_sub_s64_overflow(ts, phase, &distance))
		out_of_range();
	rest = distance % size;
	if (rest < 0)
		rest += size;
	if (pg_sub_s64_overflow(ts, rest, &ts) || !IS_VALID_TIMESTAMP(ts))
		out_of_range();
	return ts;
}

bool
sa_window_hop(int64 ts, int64 size, int64 slide, int64 origin, int k, int64 *start)
{
	int64		back;

	*start = sa_window_floor(ts, slide, origin);
	if (pg_mul_s64_overflow(slide, k, &back) || pg_sub_s64_overflow(*start, back, start) ||
		!IS_VALID_TIMESTAMP(*start))
		out_of_range();
	return ts - *start < size;
}

int64
sa_window_hop_count(int64 size, int64 slide)
{
	return size / slide + (size % slide != 0);
}

int64
sa_window_default_origin(int64 size)
{
	/* 1970-01-05 was a Monday. */
	return EPOCH_1970 + (size % (7 * USECS_PER_DAY) == 0 ? 4 * USECS_PER_DAY : 0);
}

/* A window's size or slide in microseconds. */
static int64
interval_usecs(const Interval *interval, const char *what)
{
	int64		usecs;

	if (interval->month != 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("%s of a window cannot contain months or years", what),
				 errhint("Use days, hours, minutes or seconds.")));
	if (pg_mul_s64_overflow(interval->day, USECS_PER_DAY, &usecs) ||
		pg_add_s64_overflow(usecs, interval->time, &usecs))
		out_of_range();
	if (usecs <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s of a window must be greater than zero", what)));
	return usecs;
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

static int64
origin_argument(FunctionCallInfo fcinfo, int arg, int64 size)
{
	return PG_ARGISNULL(arg) ? sa_window_default_origin(size) : time_argument(fcinfo, arg);
}

int64
sa_window_end_of(int64 start, int64 size)
{
	int64		end;

	if (pg_add_s64_overflow(start, size, &end) || !IS_VALID_TIMESTAMP(end))
		out_of_range();
	return end;
}

/* window_start(ts, size, origin): start of the tumbling window that holds ts. */
Datum
sa_window_start(PG_FUNCTION_ARGS)
{
	int64		size;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		PG_RETURN_NULL();
	size = interval_usecs(PG_GETARG_INTERVAL_P(1), "size");
	PG_RETURN_TIMESTAMP(sa_window_floor(time_argument(fcinfo, 0), size,
										origin_argument(fcinfo, 2, size)));
}

/* window_end(ts, size, origin): its end, exclusive. */
Datum
sa_window_end(PG_FUNCTION_ARGS)
{
	int64		size;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		PG_RETURN_NULL();
	size = interval_usecs(PG_GETARG_INTERVAL_P(1), "size");
	PG_RETURN_TIMESTAMP(sa_window_end_of(sa_window_floor(time_argument(fcinfo, 0), size,
									  origin_argument(fcinfo, 2, size)), size));
}

/* Start and size of the k-th window for the two hop functions; false for NULL. */
static bool
hop_arguments(FunctionCallInfo fcinfo, int64 *start, int64 *size)
{
	int64		slide;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1) || PG_ARGISNULL(2) || PG_ARGISNULL(4))
		return false;
	*size = interval_usecs(PG_GETARG_INTERVAL_P(1), "size");
	slide = interval_usecs(PG_GETARG_INTERVAL_P(2), "slide");
	return sa_window_hop(time_argument(fcinfo, 0), *size, slide, origin_argument(fcinfo, 3, slide),
						 PG_GETARG_INT32(4), start);
}

/* hop_start(ts, size, slide, origin, k): start of the k-th hopping window that holds ts, or NULL. */
Datum
sa_hop_start(PG_FUNCTION_ARGS)
{
	int64		start;
	int64		size;

	if (!hop_arguments(fcinfo, &start, &size))
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMP(start);
}

Datum
sa_hop_end(PG_FUNCTION_ARGS)
{
	int64		start;
	int64		size;

	if (!hop_arguments(fcinfo, &start, &size))
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMP(sa_window_end_of(start, size));
}

static int64
checked_hop_count(int64 size, int64 slide)
{
	int64		count = sa_window_hop_count(size, slide);

	if (count > 100000)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("a hopping window of this size and slide would put each event into " INT64_FORMAT " windows",
						count),
				 errhint("Use a longer slide.")));
	return count;
}

void
sa_window_check(const Interval *size, const Interval *slide)
{
	int64		usecs = interval_usecs(size, "size");

	if (slide)
		(void) checked_hop_count(usecs, interval_usecs(slide, "slide"));
}

/* hop_count(size, slide): how many windows can hold one instant. */
Datum
sa_hop_count(PG_FUNCTION_ARGS)
{
	int64		size;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		PG_RETURN_NULL();
	size = interval_usecs(PG_GETARG_INTERVAL_P(0), "size");
	PG_RETURN_INT32((int32) checked_hop_count(size, interval_usecs(PG_GETARG_INTERVAL_P(1), "slide")));
}
