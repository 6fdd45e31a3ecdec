/*
 * watermark.c
 *		Watermarks: pure arithmetic.
 *
 * Invariant: all results are monotone in the running maximum, so a watermark moves forward and only
 * forward.  DT_NOBEGIN is less than every time and stands for "not known yet".
 */
#include "postgres.h"

#include "common/int.h"

#include "watermark.h"

TimestampTz
sa_watermark_of(TimestampTz running_max, int64 delay)
{
	TimestampTz result;

	if (TIMESTAMP_IS_NOBEGIN(running_max) || pg_sub_s64_overflow(running_max, delay, &result))
		return DT_NOBEGIN;
	return result < MIN_TIMESTAMP ? DT_NOBEGIN : result;	/* before all time: nobody could show it */
}

TimestampTz
sa_watermark_bound(TimestampTz max_before, int64 delay, TimestampTz floor)
{
	return Max(sa_watermark_of(max_before, delay), floor);
}

bool
sa_watermark_is_late(TimestampTz window_end, int64 allowed_lateness, TimestampTz bound)
{
	TimestampTz forgotten;

	if (pg_add_s64_overflow(window_end, allowed_lateness, &forgotten))
		return false;
	return forgotten <= bound;
}

TimestampTz
sa_watermark_horizon(TimestampTz watermark, int64 allowed_lateness)
{
	return sa_watermark_of(watermark, allowed_lateness);
}

bool
sa_watermark_closes(TimestampTz window_end, TimestampTz watermark)
{
	return window_end <= watermark;
}

bool
sa_watermark_is_late_for_session(TimestampTz time, int64 allowed_lateness, TimestampTz bound)
{
	TimestampTz forgotten;

	if (pg_add_s64_overflow(time, allowed_lateness, &forgotten))
		return false;
	return forgotten < bound;
}

bool
sa_watermark_closes_session(TimestampTz session_end, TimestampTz watermark)
{
	return session_end < watermark;
}
