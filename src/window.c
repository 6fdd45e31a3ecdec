/*
 * window.c
 *		Windows of constant size: pure arithmetic.
 *
 * Invariant: for every ts and size there is exactly one tumbling window, start <= ts < start + size, and
 * starts differ by multiples of size (floor modulo, so before 1970 too).
 */
#include "postgres.h"

#include "common/int.h"

#include "window.h"

#define EPOCH_1970 (-INT64CONST(946684800000000))	/* in microseconds since 2000 */

void
sa_window_out_of_range(void)
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
		sa_window_out_of_range();
	rest = distance % size;
	if (rest < 0)
		rest += size;
	if (pg_sub_s64_overflow(ts, rest, &ts) || !IS_VALID_TIMESTAMP(ts))
		sa_window_out_of_range();
	return ts;
}

bool
sa_window_hop(int64 ts, int64 size, int64 slide, int64 origin, int k, int64 *start)
{
	int64		back;

	*start = sa_window_floor(ts, slide, origin);
	if (pg_mul_s64_overflow(slide, k, &back) || pg_sub_s64_overflow(*start, back, start) ||
		!IS_VALID_TIMESTAMP(*start))
		sa_window_out_of_range();
	return ts - *start < size;
}

int64
sa_window_hop_count(int64 size, int64 slide)
{
	return size / slide + (size % slide != 0);
}

int64
sa_window_hop_last(int64 ts, int64 size, int64 slide, int64 origin)
{
	return sa_window_end_of(sa_window_floor(ts, slide, origin), size);
}

int64
sa_window_hop_after(int64 end, int64 slide, int64 after)
{
	return end > after ? end : end + ((after - end) / slide + 1) * slide;
}

void
sa_window_pane(int64 ts, int64 size, int64 slide, int64 origin, SaPane *pane)
{
	int64		latest;

	pane->last_end = sa_window_hop_last(ts, size, slide, origin);
	pane->first_end = pane->last_end - (pane->last_end - ts - 1) / slide * slide;
	if (!IS_VALID_TIMESTAMP(pane->first_end - size))
		sa_window_out_of_range();
	latest = pane->last_end - size;
	pane->start = Max(latest, pane->first_end - slide);
	pane->stop = Min(latest + slide, pane->first_end);
}

int64
sa_window_default_origin(int64 size)
{
	/* 1970-01-05 was a Monday. */
	return EPOCH_1970 + (size % (7 * USECS_PER_DAY) == 0 ? 4 * USECS_PER_DAY : 0);
}

int64
sa_window_end_of(int64 start, int64 size)
{
	int64		end;

	if (pg_add_s64_overflow(start, size, &end) || !IS_VALID_TIMESTAMP(end))
		sa_window_out_of_range();
	return end;
}
