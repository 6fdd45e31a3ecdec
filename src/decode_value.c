/*
 * decode_value.c
 *		From a token to a value of a column's type.
 *
 * Invariant: the value is what the type's input function makes of the token's text; the ways that are
 * quicker only take what they understand beyond doubt, and leave the rest to it.  The text is that of the
 * server's operator ->>: strings without their escapes, all else as it stands in the record.  What differs:
 * columns of type json and jsonb take any JSON value as it is, and array columns take JSON arrays.
 *
 * Locks: those of input functions.  Nothing to recover after a crash.
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "common/int.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "compat.h"

#include "decode_array.h"
#include "decode_json.h"
#include "decode_time.h"
#include "decode_value.h"

/* Numbers of more bytes are left to the input functions. */
#define SHORT_NUMBER 63

/* ---------- columns ---------- */

static SaValueKind
kind_of_type(Oid type, int32 typmod)
{
	switch (type)
	{
		case BOOLOID:
			return SA_VALUE_BOOL;
		case INT2OID:
			return SA_VALUE_INT2;
		case INT4OID:
			return SA_VALUE_INT4;
		case INT8OID:
			return SA_VALUE_INT8;
		case FLOAT4OID:
			return SA_VALUE_FLOAT4;
		case FLOAT8OID:
			return SA_VALUE_FLOAT8;
		case TEXTOID:
			return SA_VALUE_TEXT;
		case VARCHAROID:
			return typmod < 0 ? SA_VALUE_TEXT : SA_VALUE_OTHER;
		case TIMESTAMPTZOID:
			return SA_VALUE_TIMESTAMPTZ;
		case TIMESTAMPOID:
			return SA_VALUE_TIMESTAMP;
		case DATEOID:
			return SA_VALUE_DATE;
		case UUIDOID:
			return SA_VALUE_UUID;
		case JSONOID:
			return SA_VALUE_JSON;
		case JSONBOID:
			return SA_VALUE_JSONB;
		default:
			return OidIsValid(get_element_type(type)) ? SA_VALUE_ARRAY : SA_VALUE_OTHER;
	}
}

/* Input functions that leave nothing behind but their value, when they do not raise. */
static bool
is_tidy(Oid type)
{
	switch (type)
	{
		case NUMERICOID:
		case BYTEAOID:
		case VARCHAROID:
		case BPCHAROID:
		case UUIDOID:
			return true;
		default:
			return false;
	}
}

static void
init_array(SaColumn *column)
{
	Oid			element = getBaseType(get_element_type(column->type));
	int16		typlen;
	bool		typbyval;
	char		typalign;
	Oid			ioparam;
	Oid			function;

	get_type_io_data(get_element_type(column->type), IOFunc_input,
					 &typlen, &typbyval, &typalign, &column->delimiter, &ioparam, &function);
	column->json_elements = element == JSONOID || element == JSONBOID;
}

void
sa_column_init(SaColumn *column, Form_pg_attribute att, SaTimeFormat time_format)
{
	Oid			function;

	memset(column, 0, sizeof(*column));
	column->attnum = att->attnum;
	column->name = pstrdup(NameStr(att->attname));
	column->not_null = att->attnotnull;
	column->typmod = att->atttypmod;
	column->type = getBaseTypeAndTypmod(att->atttypid, &column->typmod);
	column->domain = column->type != att->atttypid ? att->atttypid : InvalidOid;
	column->time_format = time_format;
	column->cxt = CurrentMemoryContext;
	get_typlenbyval(column->type, &column->typlen, &column->typbyval);
	getTypeInputInfo(column->type, &function, &column->ioparam);
	fmgr_info_cxt(function, &column->input, column->cxt);
	column->tidy = is_tidy(column->type);
	column->kind = kind_of_type(column->type, column->typmod);
	if (column->kind == SA_VALUE_ARRAY)
		init_array(column);
}

/* ---------- the input function ---------- */

/* The text ends in a zero byte, and lies outside of run->scratch. */
static void
call_input(SaDecodeRun *run, SaColumn *column, char *text, Datum *value)
{
	sa_decode_guard(run);
	if (column->tidy)
	{
		*value = InputFunctionCall(&column->input, text, column->ioparam, column->typmod);
		return;
	}
	MemoryContextSwitchTo(run->scratch);
	*value = InputFunctionCall(&column->input, text, column->ioparam, column->typmod);
	MemoryContextSwitchTo(run->result);
	if (!column->typbyval)
		*value = datumCopy(*value, false, column->typlen);
}

static void
input_value(SaDecodeRun *run, SaColumn *column, const char *text, size_t size, Datum *value)
{
	if (text != run->text.data)
	{
		resetStringInfo(&run->text);
		appendBinaryStringInfo(&run->text, text, size);
	}
	call_input(run, column, run->text.data, value);
}

/* ---------- quicker ways; false: in doubt ---------- */

static inline bool
read_integer(const char *text, size_t size, int64 min, int64 max, int64 *value)
{
	const char *p = text;
	const char *end = text + size;
	bool		negative = size > 0 && *p == '-';
	uint64		magnitude = 0;

	if (negative)
		p++;
	if (p >= end || end - p > 18)
		return false;
	for (; p < end; p++)
	{
		if (*p < '0' || *p > '9')
			return false;
		magnitude = magnitude * 10 + (*p - '0');
	}
	*value = negative ? -(int64) magnitude : (int64) magnitude;
	return *value >= min && *value <= max;
}

/* Digits with at most one point among them, as an integer and a number of decimals. */
static inline bool
read_digits(const char *text, size_t size, int max_digits, uint64 *digits, int *decimals)
{
	bool		point = false;
	int			n = 0;

	*digits = 0;
	*decimals = 0;
	for (size_t i = 0; i < size; i++)
	{
		if (text[i] >= '0' && text[i] <= '9')
		{
			*digits = *digits * 10 + (text[i] - '0');
			*decimals += point;
			n++;
		}
		else if (text[i] == '.' && !point)
			point = true;
		else
			return false;
		if (n > max_digits)
			return false;
	}
	return n > 0;
}

/* Both numbers are exact as float8, so their quotient is what is nearest. */
static inline bool
read_float8(const char *text, size_t size, double *value)
{
	static const double powers[] = {
		1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15
	};
	bool		negative = size > 0 && *text == '-';
	uint64		digits;
	int			decimals;

	if (!read_digits(text + negative, size - negative, 15, &digits, &decimals))
		return false;
	*value = (double) digits / powers[decimals];
	if (negative)
		*value = -*value;
	return true;
}

/* The same for float4. */
static inline bool
read_float4(const char *text, size_t size, float *value)
{
	static const float powers[] = {1e0f, 1e1f, 1e2f, 1e3f, 1e4f, 1e5f, 1e6f, 1e7f};
	bool		negative = size > 0 && *text == '-';
	uint64		digits;
	int			decimals;

	if (!read_digits(text + negative, size - negative, 7, &digits, &decimals))
		return false;
	*value = (float) digits / powers[decimals];
	if (negative)
		*value = -*value;
	return true;
}

/* Numbers of JSON are understood by strtod, which the input functions use too. */
static bool
read_long_float(const char *text, size_t size, bool single, double *value)
{
	char		copy[SHORT_NUMBER + 1];

	if (size > SHORT_NUMBER)
		return false;
	memcpy(copy, text, size);
	copy[size] = '\0';
	errno = 0;
	*value = single ? strtof(copy, NULL) : strtod(copy, NULL);
	return errno == 0 && isfinite(*value);
}

static Datum
make_text(SaDecodeRun *run, const char *text, size_t size)
{
	struct varlena *result = MemoryContextAlloc(run->result, VARHDRSZ + size);

	SET_VARSIZE(result, VARHDRSZ + size);
	memcpy(VARDATA(result), text, size);
	return PointerGetDatum(result);
}

static bool
quick_integer(const SaColumn *column, const char *text, size_t size, Datum *value)
{
	int64		n;

	switch (column->kind)
	{
		case SA_VALUE_INT2:
			if (!read_integer(text, size, PG_INT16_MIN, PG_INT16_MAX, &n))
				return false;
			*value = Int16GetDatum((int16) n);
			return true;
		case SA_VALUE_INT4:
			if (!read_integer(text, size, PG_INT32_MIN, PG_INT32_MAX, &n))
				return false;
			*value = Int32GetDatum((int32) n);
			return true;
		default:
			if (!read_integer(text, size, PG_INT64_MIN, PG_INT64_MAX, &n))
				return false;
			*value = Int64GetDatum(n);
			return true;
	}
}

static bool
quick_float(const SaColumn *column, SaTokenKind kind, const char *text, size_t size, Datum *value)
{
	double		n;
	float		single;

	if (column->kind == SA_VALUE_FLOAT4)
	{
		if (!read_float4(text, size, &single))
		{
			if (kind != SA_TOKEN_NUMBER || !read_long_float(text, size, true, &n))
				return false;
			single = (float) n;
		}
		*value = Float4GetDatum(single);
		return true;
	}
	if (!read_float8(text, size, &n) && (kind != SA_TOKEN_NUMBER || !read_long_float(text, size, false, &n)))
		return false;
	*value = Float8GetDatum(n);
	return true;
}

static bool
quick_time(const SaColumn *column, const char *text, size_t size, Datum *value)
{
	int64		usecs;
	int32		days;

	if (column->typmod >= 0)
		return false;
	if (column->kind == SA_VALUE_DATE)
	{
		if (!sa_date_from_iso(text, size, &days))
			return false;
		*value = DateADTGetDatum(days);
		return true;
	}
	if (!sa_time_from_iso(text, size, column->kind == SA_VALUE_TIMESTAMPTZ, &usecs))
		return false;
	*value = TimestampTzGetDatum(usecs);
	return true;
}

/* Value of a hexadecimal digit, or more than 15; without branches that depend on the digit. */
static inline uint8
hex_value(char c)
{
	static const uint8 values['f' - '0' + 1] = {
		0, 1, 2, 3, 4, 5, 6, 7, 8, 9,
		255, 255, 255, 255, 255, 255, 255,
		10, 11, 12, 13, 14, 15,
		255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
		255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
		10, 11, 12, 13, 14, 15
	};
	uint8		place = (uint8) c - '0';

	return place < lengthof(values) ? values[place] : 255;
}

/* Groups of 8, 4, 4, 4 and 12 digits. */
static bool
quick_uuid(SaDecodeRun *run, const char *text, size_t size, Datum *value)
{
	pg_uuid_t	uuid;
	int			n = 0;

	if (size != 36 || text[8] != '-' || text[13] != '-' || text[18] != '-' || text[23] != '-')
		return false;
	for (int i = 0; i < 36; i += 2)
	{
		unsigned char high;
		unsigned char low;

		if (text[i] == '-')
			i++;
		high = hex_value(text[i]);
		low = hex_value(text[i + 1]);
		if ((high | low) > 15)
			return false;
		uuid.data[n++] = high << 4 | low;
	}
	*value = PointerGetDatum(MemoryContextAlloc(run->result, sizeof(uuid)));
	memcpy(DatumGetPointer(*value), &uuid, sizeof(uuid));
	return true;
}

/* JSON as it stands in the record.  What is deep is read once more, with an eye on the stack. */
static bool
quick_json(SaDecodeRun *run, SaTokenKind kind, const char *text, size_t size, Datum *value)
{
	if (kind == SA_TOKEN_TEXT || run->deep)
		return false;
	*value = make_text(run, text, size);
	return true;
}

static inline bool
quick_value(SaDecodeRun *run, const SaColumn *column, SaTokenKind kind, const char *text, size_t size, Datum *value)
{
	bool		truth;

	switch (column->kind)
	{
		case SA_VALUE_TEXT:
			*value = make_text(run, text, size);
			return true;
		case SA_VALUE_INT2:
		case SA_VALUE_INT4:
		case SA_VALUE_INT8:
			return quick_integer(column, text, size, value);
		case SA_VALUE_FLOAT4:
		case SA_VALUE_FLOAT8:
			return quick_float(column, kind, text, size, value);
		case SA_VALUE_BOOL:
			if (!parse_bool_with_len(text, size, &truth))
				return false;
			*value = BoolGetDatum(truth);
			return true;
		case SA_VALUE_TIMESTAMPTZ:
		case SA_VALUE_TIMESTAMP:
		case SA_VALUE_DATE:
			return quick_time(column, text, size, value);
		case SA_VALUE_UUID:
			return quick_uuid(run, text, size, value);
		case SA_VALUE_JSON:
			return quick_json(run, kind, text, size, value);
		case SA_VALUE_JSONB:
		case SA_VALUE_ARRAY:
		case SA_VALUE_OTHER:
			break;
	}
	return false;
}

/* ---------- numbers that are times ---------- */

static int64
floor_days(int64 usecs)
{
	return usecs / USECS_PER_DAY - (usecs % USECS_PER_DAY < 0);
}

static bool
epoch_value(SaDecodeRun *run, SaColumn *column, const char *text, size_t size, Datum *value)
{
	int64		usecs;
	const char *trouble = sa_time_from_epoch(text, size, column->time_format, &usecs);

	if (trouble != NULL)
		return sa_decode_malformed(run, "\"%s\" %s", sa_decode_excerpt(text, size, 50), trouble);
	if (column->kind == SA_VALUE_DATE)
		*value = DateADTGetDatum((DateADT) floor_days(usecs));
	else if (column->typmod < 0)
		*value = TimestampTzGetDatum(usecs);
	else
	{
		/* Rounding may go beyond the range, though hardly. */
		sa_decode_guard(run);
		*value = DirectFunctionCall2(column->kind == SA_VALUE_TIMESTAMPTZ ? timestamptz_scale : timestamp_scale,
									 TimestampTzGetDatum(usecs), Int32GetDatum(column->typmod));
	}
	return true;
}

/* ---------- values ---------- */

static inline bool
takes_json(const SaColumn *column)
{
	return column->kind == SA_VALUE_JSON || column->kind == SA_VALUE_JSONB;
}

static inline bool
is_string(SaTokenKind kind)
{
	return kind == SA_TOKEN_STRING || kind == SA_TOKEN_ESCAPED;
}

/* The bytes that the column reads: without escapes, or with their quotes. */
static inline bool
token_text(SaDecodeRun *run, const SaColumn *column, const SaToken *token, const char **text, size_t *size)
{
	*text = token->text;
	*size = token->size;
	if (takes_json(column))
	{
		if (is_string(token->kind))
		{
			*text -= 1;
			*size += 2;
		}
		return true;
	}
	if (token->kind == SA_TOKEN_ESCAPED)
	{
		if (!sa_json_unescape(run, &run->text, token->text, token->size))
			return false;
		*text = run->text.data;
		*size = run->text.len;
	}
	else if (token->kind == SA_TOKEN_OBJECT && column->kind == SA_VALUE_ARRAY)
		return sa_decode_malformed(run, "a JSON object is not an array");	/* {} would pass for an empty one */
	else if (token->kind == SA_TOKEN_ARRAY && column->kind == SA_VALUE_ARRAY)
	{
		sa_decode_guard(run);	/* the text may become too long */
		if (!sa_array_literal(run, &run->text, token, column->delimiter, column->json_elements))
			return false;
		*text = run->text.data;
		*size = run->text.len;
	}
	return true;
}

bool
sa_column_accept(SaDecodeRun *run, SaColumn *column, Datum value, bool isnull)
{
	if (!OidIsValid(column->domain))
		return true;
	run->column = column->name;
	sa_decode_guard(run);
	MemoryContextSwitchTo(run->scratch);
	domain_check(value, isnull, column->domain, &column->domain_cache, column->cxt);
	MemoryContextSwitchTo(run->result);
	return true;
}

bool
sa_column_value(SaDecodeRun *run, SaColumn *column, const SaToken *token, Datum *value, bool *isnull)
{
	const char *text;
	size_t		size;

	*isnull = token->kind == SA_TOKEN_NONE || token->kind == SA_TOKEN_NULL;
	if (!*isnull)
	{
		run->column = column->name;
		if (!token_text(run, column, token, &text, &size))
			return false;
		if (column->time_format != SA_TIME_ISO8601)
		{
			if (!epoch_value(run, column, text, size, value))
				return false;
		}
		else if (!quick_value(run, column, token->kind, text, size, value))
			input_value(run, column, text, size, value);
	}
	return sa_column_accept(run, column, *value, *isnull);
}
