/*
 * option_boundary.h
 *		Where a view begins or ends: the options start and end.
 */
#ifndef SA_OPTION_BOUNDARY_H
#define SA_OPTION_BOUNDARY_H

#include "option.h"

/* A start may be the earliest position; an end may not. */
extern void sa_option_boundary_read(const char *name, const char *value, bool is_start, SaBoundary *out);

/* A time as text that reads the same under any setting and at any time. */
extern char *sa_option_boundary_time(TimestampTz time);

#endif							/* SA_OPTION_BOUNDARY_H */
