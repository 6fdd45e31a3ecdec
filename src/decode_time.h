/*
 * decode_time.h
 *		Times as records write them, in microseconds since 2000-01-01 00:00 UTC: arithmetic only.
 */
#ifndef SA_DECODE_TIME_H
#define SA_DECODE_TIME_H

#include "option.h"

/*
 * 2026-01-02T03:04:05.678Z, or with a space, or an offset from UTC; zoned: a zone must be given, else one
 * that is given does not count.  False: something else, which the type's input function may know.
 */
extern bool sa_time_from_iso(const char *text, size_t size, bool zoned, int64 *usecs);

/* 2026-01-02, in days since 2000-01-01; false likewise. */
extern bool sa_date_from_iso(const char *text, size_t size, int32 *days);

/*
 * A number of seconds, milliseconds or microseconds since 1970-01-01 00:00 UTC: exact, what is less than a
 * microsecond rounded, up to the end of the type timestamp.  NULL, or what is wrong: a phrase
 * of which the text is the subject.
 */
extern const char *sa_time_from_epoch(const char *text, size_t size, SaTimeFormat format, int64 *usecs);

#endif							/* SA_DECODE_TIME_H */
