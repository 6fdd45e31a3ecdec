/*
 * watermark.h
 *		Watermarks as pure arithmetic on microseconds.  DT_NOBEGIN: not known yet.
 */
#ifndef SA_WATERMARK_H
#define SA_WATERMARK_H

#include "datatype/timestamp.h"

/* Running maximum minus delay; not known while there is no event. */
extern TimestampTz sa_watermark_of(TimestampTz running_max, int64 delay);

/*
 * The bound that decides lateness (DESIGN.md 6): the greater of the event's own partition's watermark
 * before it and the floor, the view's watermark as committed before the batch.
 */
extern TimestampTz sa_watermark_bound(TimestampTz max_before, int64 delay, TimestampTz floor);

/* Late for a window that ends at window_end. */
extern bool sa_watermark_is_late(TimestampTz window_end, int64 allowed_lateness, TimestampTz bound);

/* Windows that end by here are forgotten, under this watermark. */
extern TimestampTz sa_watermark_horizon(TimestampTz watermark, int64 allowed_lateness);

/* A window closes when the watermark passes its end. */
extern bool sa_watermark_closes(TimestampTz window_end, TimestampTz watermark);

/*
 * Sessions, which an event may still join that is exactly at their end: it is judged by its own time, whatever sessions
 * there are, and a session closes when the watermark is behind its end.
 */
extern bool sa_watermark_is_late_for_session(TimestampTz time, int64 allowed_lateness, TimestampTz bound);
extern bool sa_watermark_closes_session(TimestampTz session_end, TimestampTz watermark);

#endif							/* SA_WATERMARK_H */
