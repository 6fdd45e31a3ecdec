/*
 * decode_csv.c
 *		Splits a record into fields.
 *
 * Invariant: reads what COPY ... (FORMAT csv) reads from one line, with the quote as its own escape.
 * Fields without quotes lie in the record itself, others in csv->text.
 *
 * No locks; nothing to recover after a crash.
 */
#include "postgres.h"

#include "lib/stringinfo.h"

#include "decode_csv.h"

typedef struct Field
{
	bool		quoted;			/* in text, at begin; else in the record */
	size_t		begin;
	size_t		size;
} Field;

struct SaCsv
{
	char		delimiter;
	char		quote;
	int			n;
	Field	   *fields;
	const char *record;
	StringInfoData text;
};

SaCsv *
sa_csv_create(char delimiter, char quote, int n)
{
	SaCsv	   *csv = palloc0(sizeof(SaCsv));

	csv->delimiter = delimiter;
	csv->quote = quote;
	csv->n = n;
	csv->fields = palloc0(sizeof(Field) * Max(n, 1));
	initStringInfo(&csv->text);
	return csv;
}

/* Without one line break at the end. */
static size_t
strip_line_break(const char *text, size_t size)
{
	if (size > 0 && text[size - 1] == '\n')
		size--;
	if (size > 0 && text[size - 1] == '\r')
		size--;
	return size;
}

/* From behind a quote to behind the one that ends it, copying what stands between; 0: there is none. */
static size_t
read_quoted(SaCsv *csv, const char *text, size_t size, size_t at)
{
	for (;;)
	{
		const char *quote = memchr(text + at, csv->quote, size - at);
		size_t		end;

		if (quote == NULL)
			return 0;
		end = quote - text;
		appendBinaryStringInfo(&csv->text, text + at, end - at);
		if (end + 1 >= size || text[end + 1] != csv->quote)
			return end + 1;
		appendStringInfoChar(&csv->text, csv->quote);
		at = end + 2;
	}
}

/* A field that has a quote somewhere, which is at; what stood before it is copied too. */
static bool
read_mixed_field(SaCsv *csv, Field *field, const char *text, size_t size, size_t *at, const char **trouble)
{
	size_t		begin = csv->text.len;

	appendBinaryStringInfo(&csv->text, text + field->begin, *at - field->begin);
	while (*at < size && text[*at] != csv->delimiter)
	{
		if (text[*at] == csv->quote)
		{
			*at = read_quoted(csv, text, size, *at + 1);
			if (*at == 0)
			{
				*trouble = "the quoted field does not end";
				return false;
			}
			continue;
		}
		if (text[*at] == '\n' || text[*at] == '\r')
		{
			*trouble = "the record has more than one line";
			return false;
		}
		appendStringInfoChar(&csv->text, text[(*at)++]);
	}
	field->quoted = true;
	field->begin = begin;
	field->size = csv->text.len - begin;
	return true;
}

/* The field that begins at *at, to the delimiter or the end of the record. */
static bool
read_field(SaCsv *csv, Field *field, const char *text, size_t size, size_t *at, const char **trouble)
{
	field->quoted = false;
	field->begin = *at;
	for (; *at < size && text[*at] != csv->delimiter; (*at)++)
	{
		if (text[*at] == csv->quote && csv->quote != '\0')
			return read_mixed_field(csv, field, text, size, at, trouble);
		if (text[*at] == '\n' || text[*at] == '\r')
		{
			*trouble = "the record has more than one line";
			return false;
		}
	}
	field->size = *at - field->begin;
	return true;
}

bool
sa_csv_split(SaCsv *csv, const char *text, size_t size, const char **trouble, int *field)
{
	size_t		at = 0;

	csv->record = text;
	resetStringInfo(&csv->text);
	size = strip_line_break(text, size);
	for (*field = 0; *field < csv->n; (*field)++)
	{
		if (*field > 0)
		{
			if (at >= size)
			{
				*trouble = "the record has too few fields";
				return false;
			}
			at++;				/* the delimiter */
		}
		if (!read_field(csv, &csv->fields[*field], text, size, &at, trouble))
			return false;
	}
	if (at < size)
	{
		*trouble = "the record has too many fields";
		return false;
	}
	return true;
}

SaToken
sa_csv_field(const SaCsv *csv, int i)
{
	const Field *field = &csv->fields[i];
	SaToken		token;

	token.kind = field->quoted || field->size > 0 ? SA_TOKEN_TEXT : SA_TOKEN_NULL;
	token.text = (field->quoted ? csv->text.data : csv->record) + field->begin;
	token.size = field->size;
	return token;
}
