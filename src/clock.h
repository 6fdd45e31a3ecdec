/*
 * clock.h
 *		The clock by which we wait.  It only goes forward, at its own pace, whatever is done to the time of day:
 *		what is due, retried or quiet is told by it, while what an event or a person says of time is not.
 */
#ifndef SA_CLOCK_H
#define SA_CLOCK_H

#include "datatype/timestamp.h"
#include "portability/instr_time.h"

/* Microseconds since some moment that is the same for all processes of the machine; 0 lies long before any. */
typedef int64 SaClock;

static inline SaClock
sa_clock_now(void)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	return (SaClock) INSTR_TIME_GET_MICROSEC(now);
}

/* For functions that wait so many milliseconds: until then, at least. */
static inline long
sa_clock_ms_until(SaClock now, SaClock until)
{
	return until <= now ? 0 : (long) Min((until - now) / 1000 + 1, PG_INT32_MAX);
}

#endif							/* SA_CLOCK_H */
