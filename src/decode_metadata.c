/*
 * decode_metadata.c
 *		Columns that hold what a source knows of a record beside its value.
 *
 * Invariant: a column's type has been checked when the decoder was made, so that nothing here is converted
 * but text from UTF-8.  Headers are one jsonb object: a name that comes more than once counts with its last
 * value, as the clients of Kafka have it; a value that is no text is written as bytea is ('\x...'), and one
 * that is not there is null.  A record without headers has an empty object.
 *
 * No locks; nothing to recover after a crash.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/jsonb.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "decode_metadata.h"

/* ---------- types ---------- */

/* The name of the metadata, and the types that fit. */
typedef struct MetadataTypes
{
	const char *name;
	const char *hint;
	Oid			types[3];
} MetadataTypes;

static const MetadataTypes metadata_types[] = {
	[SA_FROM_TOPIC] = {"topic", "Make the column text or varchar.", {TEXTOID, VARCHAROID}},
	[SA_FROM_PARTITION] = {"partition", "Make the column integer or bigint.", {INT4OID, INT8OID}},
	[SA_FROM_OFFSET] = {"offset", "Make the column bigint.", {INT8OID}},
	[SA_FROM_TIMESTAMP] = {"timestamp", "Make the column timestamp with time zone.", {TIMESTAMPTZOID}},
	[SA_FROM_TIMESTAMP_TYPE] = {"timestamp_type", "Make the column text or varchar.", {TEXTOID, VARCHAROID}},
	[SA_FROM_KEY] = {"key", "Make the column text, varchar or bytea.", {TEXTOID, VARCHAROID, BYTEAOID}},
	[SA_FROM_HEADERS] = {"headers", "Make the column jsonb.", {JSONBOID}},
};

void
sa_metadata_check(Relation stream, const SaColumn *column, SaColumnOrigin origin)
{
	const MetadataTypes *wanted = &metadata_types[origin];

	for (size_t i = 0; i < lengthof(wanted->types); i++)
	{
		if (OidIsValid(wanted->types[i]) && column->type == wanted->types[i])
			return;
	}
	ereport(ERROR,
			(errcode(ERRCODE_DATATYPE_MISMATCH),
			 errmsg("column \"%s\" of stream \"%s\" has type %s, which does not fit metadata \"%s\"",
					column->name, RelationGetRelationName(stream), format_type_be(column->type), wanted->name),
			 errhint("%s", wanted->hint)));
}

/* ---------- text and bytes ---------- */

/* Through the column's way of reading, which may be varchar(n). */
static bool
text_value(SaDecodeRun *run, SaColumn *column, const char *what, const char *text, size_t size, Datum *value)
{
	SaToken		token = {SA_TOKEN_TEXT, text, size};
	bool		isnull;

	run->column = column->name;
	if (!sa_decode_text(run, what, &token.text, &token.size))
		return false;
	return sa_column_value(run, column, &token, value, &isnull);
}

bool
sa_metadata_bytes(SaDecodeRun *run, SaColumn *column, const char *what, const char *bytes, size_t size, Datum *value)
{
	struct varlena *result;

	if (column->type != BYTEAOID)
		return text_value(run, column, what, bytes, size, value);
	result = MemoryContextAlloc(run->result, VARHDRSZ + size);
	SET_VARSIZE(result, VARHDRSZ + size);
	memcpy(VARDATA(result), bytes, size);
	*value = PointerGetDatum(result);
	return sa_column_accept(run, column, *value, false);
}

/* ---------- headers ---------- */

static char *
as_bytea_text(const char *bytes, size_t size)
{
	char	   *text = palloc(size * 2 + 3);

	text[0] = '\\';
	text[1] = 'x';
	hex_encode(bytes, size, text + 2);
	text[size * 2 + 2] = '\0';
	return text;
}

/* Text in the server's encoding as a string of jsonb; it is not copied. */
static JsonbValue
jsonb_string(const char *text)
{
	JsonbValue	result;

	result.type = jbvString;
	result.val.string.val = unconstify(char *, text);
	result.val.string.len = strlen(text);
	return result;
}

static JsonbValue
header_value(const SaRecordHeader *header)
{
	JsonbValue	null = {.type = jbvNull};
	size_t		size = header->size;

	if (header->value == NULL)
		return null;
	if (pg_encoding_verifymbstr(PG_UTF8, header->value, size) < size)
		return jsonb_string(as_bytea_text(header->value, size));
	return jsonb_string(pg_any_to_server(pnstrdup(header->value, size), size, PG_UTF8));
}

static bool
headers_value(SaDecodeRun *run, SaColumn *column, const SaRecord *record, Datum *value)
{
	JsonbParseState *state = NULL;

	sa_decode_guard(run);
	MemoryContextSwitchTo(run->scratch);
	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	for (int i = 0; i < record->nheaders; i++)
	{
		const SaRecordHeader *header = &record->headers[i];
		const char *name = header->name;
		size_t		size = strlen(name);
		JsonbValue	item;

		if (!sa_decode_text(run, "the name of a header", &name, &size))
		{
			MemoryContextSwitchTo(run->result);
			return false;
		}
		item = jsonb_string(name);
		pushJsonbValue(&state, WJB_KEY, &item);
		item = header_value(header);
		pushJsonbValue(&state, WJB_VALUE, &item);
	}
	*value = JsonbPGetDatum(JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL)));
	MemoryContextSwitchTo(run->result);
	*value = datumCopy(*value, false, -1);
	return sa_column_accept(run, column, *value, false);
}

/* ---------- values ---------- */

/* What may be missing: no value, which the domain may have something to say about. */
static bool
null_value(SaDecodeRun *run, SaColumn *column, Datum *value, bool *isnull)
{
	*value = (Datum) 0;
	*isnull = true;
	return sa_column_accept(run, column, *value, true);
}

bool
sa_metadata_value(SaDecodeRun *run, SaColumn *column, SaColumnOrigin origin, const SaRecord *record,
				  Datum *value, bool *isnull)
{
	run->column = column->name;
	*isnull = false;
	switch (origin)
	{
		case SA_FROM_VALUE:
			break;
		case SA_FROM_TOPIC:
			return text_value(run, column, "the topic", record->topic, strlen(record->topic), value);
		case SA_FROM_PARTITION:
			*value = column->type == INT4OID ? Int32GetDatum(record->partition) : Int64GetDatum(record->partition);
			return sa_column_accept(run, column, *value, false);
		case SA_FROM_OFFSET:
			*value = Int64GetDatum(record->position);
			return sa_column_accept(run, column, *value, false);
		case SA_FROM_TIMESTAMP:
			if (record->timestamp == DT_NOBEGIN)
				return null_value(run, column, value, isnull);
			*value = TimestampTzGetDatum(record->timestamp);
			return sa_column_accept(run, column, *value, false);
		case SA_FROM_TIMESTAMP_TYPE:
			if (record->timestamp_type == NULL)
				return null_value(run, column, value, isnull);
			return text_value(run, column, "the timestamp type", record->timestamp_type,
							  strlen(record->timestamp_type), value);
		case SA_FROM_KEY:
			if (record->key == NULL)
				return null_value(run, column, value, isnull);
			return sa_metadata_bytes(run, column, "the key", record->key, record->key_size, value);
		case SA_FROM_HEADERS:
			return headers_value(run, column, record, value);
	}
	elog(ERROR, "column \"%s\" holds no metadata", column->name);
}
