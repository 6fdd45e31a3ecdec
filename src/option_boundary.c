/*
 * option_boundary.c
 *		Where a view begins or ends: a word, a time, or explicit positions.
 *
 * Invariant: explicit positions name legal topics, and each partition once, from 0 to the greatest
 * offset there is.  No locks, no state: nothing to recover after a crash.
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "utils/numeric.h"
#include "utils/timestamp.h"

#include "compat.h"

#include "option_boundary.h"
#include "option_kafka.h"
#include "option_value.h"

#define VIEW_PREFIX "view:"
#define EXAMPLES "a time such as '2024-01-02 03:04:05+00', or positions such as '{\"topic\": {\"0\": 42}}'."

/* The option that is being read. */
typedef struct Reading
{
	const char *name;
	const char *value;
	const char *expected;
} Reading;

/* ---------- times ---------- */

/*
 * The value of an input function; false when it refuses the text.  What it raises for a bad text is
 * caught only to be said better: the caller raises an error then, and aborts the transaction.
 */
static bool
try_input(PGFunction input, const char *value, Datum *result)
{
	MemoryContext cxt = CurrentMemoryContext;
	volatile bool good = true;

	PG_TRY();
	{
		*result = DirectFunctionCall3(input, CStringGetDatum(value), ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1));
	}
	PG_CATCH();
	{
		if (ERRCODE_TO_CATEGORY(geterrcode()) != ERRCODE_DATA_EXCEPTION)
			PG_RE_THROW();
		MemoryContextSwitchTo(cxt);
		FlushErrorState();
		good = false;
	}
	PG_END_TRY();
	return good;
}

static TimestampTz
read_time(const Reading *reading)
{
	Datum		time;

	if (!try_input(timestamptz_in, reading->value, &time) || TIMESTAMP_NOT_FINITE(DatumGetTimestampTz(time)))
		sa_option_refuse_value(reading->name, reading->value, reading->expected);
	return DatumGetTimestampTz(time);
}

char *
sa_option_boundary_time(TimestampTz time)
{
	struct pg_tm tm;
	fsec_t		fsec;
	char		buf[MAXDATELEN + 1];

	if (timestamp2tm(time, NULL, &tm, &fsec, NULL, NULL) != 0)
		elog(ERROR, "timestamp out of range");
	tm.tm_isdst = 0;			/* else the zone would be left out */
	EncodeDateTime(&tm, fsec, true, 0, NULL, USE_ISO_DATES, buf);
	return pstrdup(buf);
}

/* ---------- explicit positions ---------- */

static void
refuse_positions(const Reading *reading, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid value for option \"%s\": \"%s\"", reading->name, reading->value),
			 errdetail("%s", detail),
			 errhint("%s", reading->expected)));
}

/* Decimal digits without leading zeros, up to a maximum; false when it is anything else. */
static bool
parse_digits(const char *text, int64 max, int64 *result)
{
	char	   *end;

	if (text[0] == '\0' || strspn(text, "0123456789") != strlen(text) || (text[0] == '0' && text[1] != '\0'))
		return false;
	errno = 0;
	*result = strtoi64(text, &end, 10);
	return errno == 0 && *end == '\0' && *result <= max;
}

static SaPosition *
read_position(const Reading *reading, const char *topic, const char *key, JsonbValue *value)
{
	SaPosition *position = palloc(sizeof(SaPosition));
	int64		partition;

	if (!parse_digits(key, PG_INT32_MAX, &partition))
		refuse_positions(reading, psprintf("\"%s\" is not the number of a partition of topic \"%s\".", key, topic));
	if (value->type != jbvNumeric ||
		!parse_digits(numeric_normalize(value->val.numeric), PG_INT64_MAX, &position->position))
		refuse_positions(reading, psprintf("The position of partition %s of topic \"%s\" is not a whole number from 0 to " INT64_FORMAT ".",
										   key, topic, PG_INT64_MAX));
	position->topic = topic;
	position->partition = (int32) partition;
	return position;
}

static List *
read_topic(const Reading *reading, const char *topic, JsonbValue *value, List *positions)
{
	JsonbIterator *it;
	JsonbIteratorToken token;
	JsonbValue	item;
	char	   *key = NULL;

	if (!sa_option_kafka_is_topic(topic))
		refuse_positions(reading, psprintf("\"%s\" is not the name of a topic.", topic));
	if (value->type != jbvBinary || !JsonContainerIsObject(value->val.binary.data))
		refuse_positions(reading, psprintf("The positions of topic \"%s\" are not an object.", topic));
	it = JsonbIteratorInit(value->val.binary.data);
	while ((token = JsonbIteratorNext(&it, &item, true)) != WJB_DONE)
	{
		if (token == WJB_KEY)
			key = pnstrdup(item.val.string.val, item.val.string.len);
		else if (token == WJB_VALUE)
			positions = lappend(positions, read_position(reading, topic, key, &item));
	}
	return positions;
}

static List *
read_positions(const Reading *reading)
{
	List	   *positions = NIL;
	Datum		json;
	JsonbIterator *it;
	JsonbIteratorToken token;
	JsonbValue	item;
	char	   *topic = NULL;

	if (!try_input(jsonb_in, reading->value, &json))
		refuse_positions(reading, "It is not valid JSON.");
	it = JsonbIteratorInit(&DatumGetJsonbP(json)->root);
	while ((token = JsonbIteratorNext(&it, &item, true)) != WJB_DONE)
	{
		if (token == WJB_KEY)
			topic = pnstrdup(item.val.string.val, item.val.string.len);
		else if (token == WJB_VALUE)
			positions = read_topic(reading, topic, &item, positions);
	}
	if (positions == NIL)
		refuse_positions(reading, "It names no partition.");
	return positions;
}

/* ---------- all together ---------- */

void
sa_option_boundary_read(const char *name, const char *value, bool is_start, SaBoundary *out)
{
	Reading		reading = {name, value, NULL};

	reading.expected = is_start ? "Valid values are: earliest, latest, view:name, " EXAMPLES : "Valid values are: latest, " EXAMPLES;
	memset(out, 0, sizeof(SaBoundary));
	if (is_start && pg_strcasecmp(value, "earliest") == 0)
		out->kind = SA_BOUNDARY_EARLIEST;
	else if (pg_strcasecmp(value, "latest") == 0)
		out->kind = SA_BOUNDARY_LATEST;
	else if (pg_strncasecmp(value, VIEW_PREFIX, strlen(VIEW_PREFIX)) == 0)
	{
		if (!is_start)
			sa_option_refuse_value(name, value, reading.expected);
		out->kind = SA_BOUNDARY_VIEW;
		out->view = pstrdup(value + strlen(VIEW_PREFIX));
	}
	else if (value[strspn(value, " \t\r\n")] == '{')
	{
		out->kind = SA_BOUNDARY_EXPLICIT;
		out->positions = read_positions(&reading);
	}
	else
	{
		out->kind = SA_BOUNDARY_TIME;
		out->time = read_time(&reading);
	}
}
