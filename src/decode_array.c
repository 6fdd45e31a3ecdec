/*
 * decode_array.c
 *		A JSON array as the text that the input functions of array types read.
 *
 * Invariant: what comes in is valid JSON; so a byte outside of strings says what it is.  The array has as
 * many dimensions as it begins with brackets, as json_populate_record counts them; an array further down is
 * an element.  Every element but NULL is quoted, so that it comes out as it went in.  No locks, no state.
 */
#include "postgres.h"

#include "utils/array.h"

#include "decode_array.h"
#include "decode_json.h"

static void
append_element(StringInfo out, const char *text, size_t size)
{
	appendStringInfoChar(out, '"');
	for (size_t i = 0; i < size; i++)
	{
		if (text[i] == '"' || text[i] == '\\')
			appendStringInfoChar(out, '\\');
		appendStringInfoChar(out, text[i]);
	}
	appendStringInfoChar(out, '"');
}

/* Behind the string whose first quote is at p. */
static const char *
string_end(const char *p)
{
	for (p++; *p != '"'; p++)
	{
		if (*p == '\\')
			p++;
	}
	return p + 1;
}

/* Behind the object or array that begins at p. */
static const char *
container_end(const char *p)
{
	int			depth = 0;

	do
	{
		if (*p == '"')
		{
			p = string_end(p);
			continue;
		}
		if (*p == '{' || *p == '[')
			depth++;
		else if (*p == '}' || *p == ']')
			depth--;
		p++;
	} while (depth > 0);
	return p;
}

/* Behind the number or word that begins at p. */
static const char *
word_end(const char *p)
{
	while (strchr(",]} \t\r\n", *p) == NULL)
		p++;
	return p;
}

static bool
append_string(SaDecodeRun *run, StringInfo out, const char *begin, const char *end, bool json)
{
	if (json)
	{
		append_element(out, begin, end - begin);
		return true;
	}
	if (!sa_json_unescape(run, &run->element, begin + 1, end - begin - 2))
		return false;
	append_element(out, run->element.data, run->element.len);
	return true;
}

/* What is not a bracket or comma, and ends at end. */
static bool
append_value(SaDecodeRun *run, StringInfo out, const char *begin, const char *end, bool json)
{
	if (*begin == '"')
		return append_string(run, out, begin, end, json);
	if (*begin == 'n')
		appendStringInfoString(out, "NULL");
	else
		append_element(out, begin, end - begin);
	return true;
}

/* Behind the element that begins at p. */
static const char *
element_end(const char *p)
{
	switch (*p)
	{
		case '"':
			return string_end(p);
		case '{':
		case '[':
			return container_end(p);
		default:
			return word_end(p);
	}
}

static inline bool
is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static int
count_dimensions(const char *p)
{
	int			n = 0;

	for (; *p == '[' || is_space(*p); p++)
		n += *p == '[';
	return n;
}

/* How far an array has been read. */
typedef struct Shape
{
	int			ndims;
	int			depth;
	int			counts[MAXDIM]; /* elements so far of the arrays that are open */
	int			sizes[MAXDIM];	/* those of the arrays that have ended, by depth; -1: none has */
} Shape;

/* An array ends; those at the same depth must have the same size. */
static bool
close_array(Shape *shape)
{
	int			level = --shape->depth;

	if (shape->sizes[level] < 0)
		shape->sizes[level] = shape->counts[level];
	return shape->sizes[level] == shape->counts[level];
}

/* A comma or bracket that belongs to the shape goes into the text. */
static bool
append_punctuation(SaDecodeRun *run, StringInfo out, char c, char delimiter, Shape *shape)
{
	if (c == ',')
	{
		appendStringInfoChar(out, delimiter);
		return true;
	}
	if (c == '[')
	{
		if (shape->depth > 0)
			shape->counts[shape->depth - 1]++;
		shape->counts[shape->depth++] = 0;
		appendStringInfoChar(out, '{');
		return true;
	}
	appendStringInfoChar(out, '}');
	return close_array(shape) || sa_decode_malformed(run, "the arrays in the array have different sizes");
}

static bool
append_array(SaDecodeRun *run, StringInfo out, const SaToken *array, char delimiter, bool json, Shape *shape)
{
	const char *p = array->text;
	const char *end = array->text + array->size;

	while (p < end)
	{
		const char *begin = p;

		if (is_space(*p))
			p++;
		else if (*p == ',' || *p == ']' || (*p == '[' && shape->depth < shape->ndims))
		{
			if (!append_punctuation(run, out, *p, delimiter, shape))
				return false;
			p++;
		}
		else
		{
			if (shape->depth < shape->ndims)
				return sa_decode_malformed(run, "the array has both arrays and other elements");
			shape->counts[shape->depth - 1]++;
			p = element_end(p);
			if (!append_value(run, out, begin, p, json))
				return false;
		}
	}
	return true;
}

bool
sa_array_literal(SaDecodeRun *run, StringInfo out, const SaToken *array, char delimiter, bool json)
{
	Shape		shape = {.ndims = count_dimensions(array->text),.sizes = {-1, -1, -1, -1, -1, -1}};

	if (shape.ndims > MAXDIM)
		return sa_decode_malformed(run, "the array has %d dimensions, more than the %d allowed", shape.ndims, MAXDIM);
	resetStringInfo(out);
	if (!append_array(run, out, array, delimiter, json, &shape))
		return false;

	/* Without elements it has no dimensions either. */
	if (shape.sizes[shape.ndims - 1] == 0)
	{
		resetStringInfo(out);
		appendStringInfoString(out, "{}");
	}
	return true;
}
