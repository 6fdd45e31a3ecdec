/*
 * option_value.h
 *		Reading the values of options: what is wrong with one is said with the option's name.
 */
#ifndef SA_OPTION_VALUE_H
#define SA_OPTION_VALUE_H

#include "datatype/timestamp.h"

/* The value is not what was expected (a full sentence, for the hint). */
extern void sa_option_refuse_value(const char *name, const char *value, const char *expected);

/* The same without showing the value. */
extern void sa_option_refuse_hidden(const char *name, const char *expected);

/* Part of an ereport() about a statement that may hold secrets: keeps it out of the server's log. */
extern int	sa_option_hide_statement(void);

/* What a later version will bring. */
extern void sa_option_refuse_planned(const char *name, const char *value);

/* One of a NULL-terminated list of words, in any case; its index. */
extern int	sa_option_read_word(const char *name, const char *value, const char *const *words);

/* The text of an interval; false when it is none. */
extern bool sa_option_parse_interval(const char *value, Interval *result);

/* A span of time that is not negative and has no months, in microseconds; days have 24 hours. */
extern int64 sa_option_read_interval(const char *name, const char *value);

/* A number of bytes, with or without a unit; expected says what lies between min and max. */
extern int64 sa_option_read_bytes(const char *name, const char *value, int64 min, int64 max, const char *expected);

extern int	sa_option_read_int(const char *name, const char *value, int min, int max);
extern bool sa_option_read_bool(const char *name, const char *value);

#endif							/* SA_OPTION_VALUE_H */
