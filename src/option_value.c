/*
 * option_value.c
 *		Reading the values of options.
 *
 * Invariant: a value is read whole or refused with the option's name and what would be right.
 * No locks, no state: nothing to recover after a crash.
 */
#include "postgres.h"

#include <math.h>

#include "common/int.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "compat.h"

#include "option_value.h"

void
sa_option_refuse_value(const char *name, const char *value, const char *expected)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid value for option \"%s\": \"%s\"", name, value),
			 errhint("%s", expected)));
}

void
sa_option_refuse_hidden(const char *name, const char *expected)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid value for option \"%s\"", name),
			 errhint("%s", expected),
			 sa_option_hide_statement()));
}

/* A statement inside a function is in the context. */
int
sa_option_hide_statement(void)
{
	errhidestmt(true);
	errhidecontext(true);
	return 0;
}

void
sa_option_refuse_planned(const char *name, const char *value)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("option \"%s\" with value \"%s\" is not supported yet", name, value)));
}

int
sa_option_read_word(const char *name, const char *value, const char *const *words)
{
	StringInfoData hint;

	for (int i = 0; words[i] != NULL; i++)
	{
		if (pg_strcasecmp(value, words[i]) == 0)
			return i;
	}

	initStringInfo(&hint);
	appendStringInfoString(&hint, "Valid values are: ");
	for (int i = 0; words[i] != NULL; i++)
		appendStringInfo(&hint, "%s%s", i > 0 ? ", " : "", words[i]);
	appendStringInfoChar(&hint, '.');
	sa_option_refuse_value(name, value, hint.data);
	return 0;					/* keep compiler quiet */
}

/* Not interval_in, whose messages would not name the option. */
bool
sa_option_parse_interval(const char *value, Interval *result)
{
	char	   *field[MAXDATEFIELDS];
	int			ftype[MAXDATEFIELDS];
	char		workbuf[256];
	struct pg_itm_in itm;
	int			nfields;
	int			dtype;
	int			error;

	memset(&itm, 0, sizeof(itm));
	error = ParseDateTime(value, workbuf, sizeof(workbuf), field, ftype, MAXDATEFIELDS, &nfields);
	if (error == 0)
		error = DecodeInterval(field, ftype, nfields, INTERVAL_FULL_RANGE, &dtype, &itm);
	if (error == DTERR_BAD_FORMAT)
		error = DecodeISO8601Interval(unconstify(char *, value), &dtype, &itm);
	return error == 0 && dtype == DTK_DELTA && itmin2interval(&itm, result) == 0;
}

int64
sa_option_read_interval(const char *name, const char *value)
{
	Interval	interval;
	int64		days;
	int64		result = 0;

	if (!sa_option_parse_interval(value, &interval))
		sa_option_refuse_value(name, value, "Give an interval such as '10 seconds' or '1 hour'.");
	if (interval.month != 0)
		sa_option_refuse_value(name, value, "Months and years have no fixed length; give days, hours or less.");
	if (pg_mul_s64_overflow((int64) interval.day, USECS_PER_DAY, &days) ||
		pg_add_s64_overflow(days, interval.time, &result))
		sa_option_refuse_value(name, value, "The interval is too long.");
	if (result < 0)
		sa_option_refuse_value(name, value, "The interval must not be negative.");
	return result;
}

int64
sa_option_read_bytes(const char *name, const char *value, int64 min, int64 max, const char *expected)
{
	double		bytes;
	const char *unithint = NULL;

	if (!parse_real(value, &bytes, GUC_UNIT_BYTE, &unithint) || isnan(bytes))
		sa_option_refuse_value(name, value, "Give a number of bytes, or one with a unit: \"kB\", \"MB\", \"GB\" or \"TB\".");
	if (bytes < (double) min || bytes > (double) max)
		sa_option_refuse_value(name, value, expected);
	return (int64) bytes;
}

int
sa_option_read_int(const char *name, const char *value, int min, int max)
{
	int			result = 0;
	const char *unithint = NULL;

	if (!parse_int(value, &result, 0, &unithint) || result < min || result > max)
		sa_option_refuse_value(name, value, psprintf("Give a whole number from %d to %d.", min, max));
	return result;
}

bool
sa_option_read_bool(const char *name, const char *value)
{
	bool		result = false;

	if (!parse_bool(value, &result))
		sa_option_refuse_value(name, value, "Valid values are: true, false.");
	return result;
}
