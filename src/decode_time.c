/*
 * decode_time.c
 *		Times as records write them.
 *
 * Invariant: what is accepted here means the same as it does to the type's input function, whatever the
 * settings TimeZone and DateStyle; in doubt the answer is no.  No locks, no state.
 */
#include "postgres.h"

#include <limits.h>

#include "common/int.h"
#include "datatype/timestamp.h"
#include "utils/datetime.h"

#include "decode_time.h"

#define EPOCH_SHIFT ((int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY)

/* A stray number of a smaller unit lands here: later than this on 1970-01-02, and before 1971. */
#define STRAY_FROM (INT64CONST(100000) * USECS_PER_SEC)
#define STRAY_TO (INT64CONST(31536000) * USECS_PER_SEC)

/* Greater exponents are out of any range anyhow, unless the number is 0. */
#define MAX_EXPONENT 1000

/* ---------- ISO 8601 ---------- */

static inline bool
is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Two digits, or -1. */
static inline int
two_digits(const char *p)
{
	if (!is_digit(p[0]) || !is_digit(p[1]))
		return -1;
	return (p[0] - '0') * 10 + (p[1] - '0');
}

/* Ten bytes as a date of our era. */
static inline bool
read_date(const char *p, int32 *days)
{
	int			century = two_digits(p);
	int			year = two_digits(p + 2);
	int			month = two_digits(p + 5);
	int			day = two_digits(p + 8);

	if (century < 0 || year < 0 || p[4] != '-' || p[7] != '-')
		return false;
	year += century * 100;
	if (year < 1 || month < 1 || month > 12 || day < 1 || day > day_tab[isleap(year)][month - 1])
		return false;
	*days = date2j(year, month, day) - POSTGRES_EPOCH_JDATE;
	return true;
}

/* Eight bytes as a time of day, in seconds. */
static inline bool
read_clock(const char *p, int32 *seconds)
{
	int			hour = two_digits(p);
	int			minute = two_digits(p + 3);
	int			second = two_digits(p + 6);

	if (p[2] != ':' || p[5] != ':' || hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 59)
		return false;
	*seconds = (hour * 60 + minute) * 60 + second;
	return true;
}

/* Up to six digits after a point, in microseconds; moves on behind them. */
static inline bool
read_fraction(const char **p, const char *end, int32 *usecs)
{
	int32		unit = USECS_PER_SEC;

	*usecs = 0;
	if (*p >= end || **p != '.')
		return true;
	for ((*p)++; *p < end && is_digit(**p); (*p)++)
	{
		unit /= 10;
		if (unit == 0)
			return false;
		*usecs += (**p - '0') * unit;
	}
	return unit < USECS_PER_SEC;
}

/* What is left as an offset east of UTC: Z, +hh, +hhmm or +hh:mm. */
static inline bool
read_zone(const char *p, const char *end, int32 *seconds)
{
	bool		west = *p == '-';
	int			hour;
	int			minute = 0;

	*seconds = 0;
	if (*p == 'Z')
		return p + 1 == end;
	if ((*p != '+' && !west) || end - p < 3)
		return false;
	hour = two_digits(p + 1);
	p += 3;
	if (p < end && *p == ':' && end - p == 3)
		p++;
	if (p < end)
	{
		if (end - p != 2)
			return false;
		minute = two_digits(p);
	}
	if (hour < 0 || hour > 14 || minute < 0 || minute > 59)
		return false;
	*seconds = (hour * 60 + minute) * (west ? -SECS_PER_MINUTE : SECS_PER_MINUTE);
	return true;
}

bool
sa_time_from_iso(const char *text, size_t size, bool zoned, int64 *usecs)
{
	const char *p;
	const char *end = text + size;
	int32		days;
	int32		seconds;
	int32		fraction;
	int32		zone = 0;

	if (size < 19 || (text[10] != 'T' && text[10] != ' '))
		return false;
	p = text + 19;
	if (!read_date(text, &days) || !read_clock(text + 11, &seconds) || !read_fraction(&p, end, &fraction))
		return false;
	if (p < end ? !read_zone(p, end, &zone) : zoned)
		return false;
	*usecs = days * USECS_PER_DAY + (seconds - (zoned ? zone : 0)) * USECS_PER_SEC + fraction;
	return true;
}

bool
sa_date_from_iso(const char *text, size_t size, int32 *days)
{
	return size == 10 && read_date(text, days);
}

/* ---------- numbers of seconds ---------- */

/* A number in parts: its digits, of which so many stand before the point, and the exponent is in it. */
typedef struct Decimal
{
	bool		negative;
	const char *whole;
	int			nwhole;
	const char *fraction;
	int			nfraction;
	int64		point;			/* of all digits, those that stand before the point; may be anything */
} Decimal;

static int
count_digits(const char *p, const char *end)
{
	int			n = 0;

	while (p + n < end && is_digit(p[n]))
		n++;
	return n;
}

static bool
read_exponent(const char *p, const char *end, int64 *exponent)
{
	bool		negative = p < end && *p == '-';

	if (p < end && (*p == '-' || *p == '+'))
		p++;
	if (p >= end || count_digits(p, end) != end - p)
		return false;
	for (*exponent = 0; p < end; p++)
		*exponent = Min(*exponent * 10 + (*p - '0'), MAX_EXPONENT);
	if (negative)
		*exponent = -*exponent;
	return true;
}

/* As numbers are written in JSON; leading zeros do no harm. */
static bool
read_decimal(const char *p, const char *end, Decimal *number)
{
	int64		exponent = 0;

	memset(number, 0, sizeof(*number));
	number->negative = p < end && *p == '-';
	if (number->negative)
		p++;
	number->whole = p;
	number->nwhole = count_digits(p, end);
	p += number->nwhole;
	if (number->nwhole == 0)
		return false;
	if (p < end && *p == '.')
	{
		number->fraction = ++p;
		number->nfraction = count_digits(p, end);
		p += number->nfraction;
		if (number->nfraction == 0)
			return false;
	}
	if (p < end && (*p == 'e' || *p == 'E'))
	{
		if (!read_exponent(p + 1, end, &exponent))
			return false;
		p = end;
	}
	number->point = number->nwhole + exponent;
	return p == end;
}

static int
digit_at(const Decimal *number, int i)
{
	if (i < number->nwhole)
		return number->whole[i] - '0';
	if (i < number->nwhole + number->nfraction)
		return number->fraction[i - number->nwhole] - '0';
	return 0;
}

/* The number as an integer, rounded half away from zero; false when it is out of range. */
static bool
round_decimal(const Decimal *number, int64 *result)
{
	int			ndigits = number->nwhole + number->nfraction;
	int64		value = 0;

	for (int i = 0; i < number->point && (i < ndigits || value != 0); i++)
	{
		if (pg_mul_s64_overflow(value, 10, &value) || pg_add_s64_overflow(value, digit_at(number, i), &value))
			return false;
	}
	if (number->point >= 0 && number->point < ndigits && digit_at(number, number->point) >= 5 &&
		pg_add_s64_overflow(value, 1, &value))
		return false;
	*result = number->negative ? -value : value;
	return true;
}

const char *
sa_time_from_epoch(const char *text, size_t size, SaTimeFormat format, int64 *usecs)
{
	static const struct
	{
		int			digits;		/* to microseconds */
		const char *not_a_number;
		const char *stray;
	}			units[] =
	{
		[SA_TIME_EPOCH_S] = {6, "is not a number of seconds", NULL},
		[SA_TIME_EPOCH_MS] = {3, "is not a number of milliseconds",
		"looks like seconds, not milliseconds: see the option \"timestamp_format\""},
		[SA_TIME_EPOCH_US] = {0, "is not a number of microseconds",
		"looks like milliseconds, not microseconds: see the option \"timestamp_format\""},
	};
	Decimal		number;
	int64		value;

	if (size > INT_MAX / 2 || !read_decimal(text, text + size, &number))
		return units[format].not_a_number;
	number.point += units[format].digits;
	if (!round_decimal(&number, &value))
		return "is out of the range of timestamps";
	if (units[format].stray != NULL && value >= STRAY_FROM && value < STRAY_TO)
		return units[format].stray;
	if (pg_sub_s64_overflow(value, EPOCH_SHIFT, usecs) || !IS_VALID_TIMESTAMP(*usecs))
		return "is out of the range of timestamps";
	return NULL;
}
