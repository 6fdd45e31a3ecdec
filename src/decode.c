/*
 * decode.c
 *		From a record's bytes to an event's values.
 *
 * Invariant: whatever a record holds, it becomes an event or has a reason why not, and the records beside
 * it are none the worse for it.  Columns that the record says nothing about are NULL: neither the defaults
 * of a foreign table nor its generated columns are worked out when it is read, as core has it.  Text has
 * been verified before it gets into a value.
 *
 * Locks: none of its own.  Nothing to recover after a crash: a decoder is gone with its process.
 */
#include "postgres.h"

#include "access/tupdesc.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "decode.h"
#include "decode_csv.h"
#include "decode_json.h"
#include "decode_metadata.h"
#include "decode_value.h"

/* Whatever the stream's options say: what is made of a larger record would not fit into an allocation. */
#define MAX_RECORD_BYTES (MaxAllocSize / 4)

#define MAX_STEPS 100

/* A column that gets a value, and where from. */
typedef struct Wanted
{
	SaColumn	column;
	SaColumnOrigin origin;
	SaJsonNode *node;			/* json */
	int			field;			/* csv */
	const char *path;			/* for messages */
} Wanted;

struct SaDecoder
{
	MemoryContext cxt;
	SaFormat	format;
	size_t		max_bytes;
	int			natts;
	int			ncolumns;
	Wanted	   *columns;		/* by attribute number */
	int			nvalues;		/* of them, those from the record's value */
	SaJsonPaths *paths;			/* json */
	SaCsv	   *csv;
	SaDecodeRun run;
};

/* ---------- making ---------- */

static const char *
path_text(List *path)
{
	StringInfoData text;
	ListCell   *lc;

	initStringInfo(&text);
	foreach(lc, path)
		appendStringInfo(&text, "%s%s", text.len > 0 ? "." : "", (char *) lfirst(lc));
	return text.data;
}

static void
check_raw(Relation stream, const SaDecoder *decoder, const SaColumn *column)
{
	if (decoder->nvalues > 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TABLE_DEFINITION),
				 errmsg("stream \"%s\" of format \"raw\" has more than one column for the record's value",
						RelationGetRelationName(stream)),
				 errhint("Give the other columns the option \"metadata\", or the stream the format \"json\" or \"csv\".")));
	if (column->type != BYTEAOID && column->type != TEXTOID && column->type != VARCHAROID &&
		column->type != JSONOID && column->type != JSONBOID)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" of stream \"%s\" has type %s, which does not fit format \"raw\"",
						column->name, RelationGetRelationName(stream), format_type_be(column->type)),
				 errhint("Make the column text, varchar, bytea, json or jsonb.")));
}

/* A column whose value is in the record's value. */
static void
add_value(SaDecoder *decoder, Relation stream, Wanted *wanted, const SaColumnOptions *options)
{
	wanted->field = decoder->nvalues++;
	if (decoder->format == SA_FORMAT_RAW)
		check_raw(stream, decoder, &wanted->column);
	if (decoder->format != SA_FORMAT_JSON)
		return;
	if (list_length(options->path) > MAX_STEPS)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("path of column \"%s\" of stream \"%s\" has more than %d steps",
						wanted->column.name, RelationGetRelationName(stream), MAX_STEPS)));
	wanted->node = sa_json_paths_add(decoder->paths, options->path);
	wanted->path = path_text(options->path);
}

static void
add_column(SaDecoder *decoder, Relation stream, Form_pg_attribute att)
{
	Wanted	   *wanted = &decoder->columns[decoder->ncolumns];
	SaColumnOptions options;

	sa_option_column(stream, att->attnum, &options);
	sa_column_init(&wanted->column, att, options.time_format);
	wanted->origin = options.origin;
	if (options.origin == SA_FROM_VALUE)
		add_value(decoder, stream, wanted, &options);
	else
		sa_metadata_check(stream, &wanted->column, options.origin);
	decoder->ncolumns++;
}

static void
add_columns(SaDecoder *decoder, Relation stream)
{
	TupleDesc	desc = RelationGetDescr(stream);

	decoder->natts = desc->natts;
	decoder->columns = palloc0(sizeof(Wanted) * Max(desc->natts, 1));
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (!att->attisdropped && att->attgenerated == '\0')
			add_column(decoder, stream, att);
	}
}

SaDecoder *
sa_decode_create(Relation stream, const SaStreamOptions *options, MemoryContext cxt)
{
	MemoryContext own = AllocSetContextCreate(cxt, "stream_agg decoder", ALLOCSET_DEFAULT_SIZES);
	MemoryContext oldcxt = MemoryContextSwitchTo(own);
	SaDecoder  *decoder = palloc0(sizeof(SaDecoder));

	decoder->cxt = own;
	decoder->format = options->format;
	decoder->max_bytes = MAX_RECORD_BYTES;
	if (options->max_record_bytes > 0)
		decoder->max_bytes = Min(options->max_record_bytes, MAX_RECORD_BYTES);
	if (decoder->format == SA_FORMAT_JSON)
		decoder->paths = sa_json_paths_create();
	add_columns(decoder, stream);
	if (decoder->format == SA_FORMAT_CSV)
		decoder->csv = sa_csv_create(options->delimiter, options->quote, decoder->nvalues);
	sa_decode_run_init(&decoder->run, own);
	MemoryContextSwitchTo(oldcxt);
	return decoder;
}

void
sa_decode_free(SaDecoder *decoder)
{
	MemoryContextDelete(decoder->cxt);
}

bool
sa_decode_wants_headers(const SaDecoder *decoder)
{
	for (int i = 0; i < decoder->ncolumns; i++)
	{
		if (decoder->columns[i].origin == SA_FROM_HEADERS)
			return true;
	}
	return false;
}

void
sa_decode_enter(SaOwnerSwitch *save, Oid stream)
{
	static const char *const settings[][2] = {
		{"TimeZone", "UTC"}, {"timezone_abbreviations", "Default"}, {"DateStyle", "ISO, MDY"},
		{"IntervalStyle", "postgres"}, {"extra_float_digits", "1"}, {"bytea_output", "hex"},
		{"xmloption", "content"}, {"array_nulls", "on"}
	};

	sa_owner_enter(save, sa_owner_of(stream));
	for (size_t i = 0; i < lengthof(settings); i++)
		sa_owner_set(settings[i][0], settings[i][1]);
}

/* ---------- one record ---------- */

/* The name of the column of a field, for messages. */
static const char *
field_name(const SaDecoder *decoder, int field)
{
	for (int i = 0; i < decoder->ncolumns; i++)
	{
		if (decoder->columns[i].origin == SA_FROM_VALUE && decoder->columns[i].field == field)
			return decoder->columns[i].column.name;
	}
	return NULL;
}

static bool
split_csv(SaDecoder *decoder, const char *text, size_t size)
{
	SaDecodeRun *run = &decoder->run;
	const char *trouble;
	int			field;

	if (sa_csv_split(decoder->csv, text, size, &trouble, &field))
		return true;
	run->column = field_name(decoder, field);
	return sa_decode_malformed(run, "%s", trouble);
}

/* Takes the record's value apart, without looking at what its parts mean. */
static bool
scan_record(SaDecoder *decoder, const SaRecord *record)
{
	SaDecodeRun *run = &decoder->run;
	const char *text = record->value;
	size_t		size = record->value_size;

	if (text == NULL)
		return sa_decode_malformed(run, "the record has no value");
	if (size > decoder->max_bytes)
		return sa_decode_malformed(run, "the record has %zu bytes, more than the %zu allowed", size, decoder->max_bytes);
	if (decoder->format == SA_FORMAT_RAW)
		return true;
	if (!sa_decode_text(run, "the record", &text, &size))
		return false;
	if (decoder->format == SA_FORMAT_CSV)
		return split_csv(decoder, text, size);
	return sa_json_scan(decoder->paths, run, text, size);
}

/* Why a column that must not be NULL would be. */
static bool
refuse_null(SaDecoder *decoder, const Wanted *wanted, SaTokenKind kind)
{
	SaDecodeRun *run = &decoder->run;

	run->column = wanted->column.name;
	if (wanted->origin == SA_FROM_VALUE && decoder->format == SA_FORMAT_JSON && kind == SA_TOKEN_NONE)
		return sa_decode_malformed(run, "must not be null, and the record has no \"%s\"", wanted->path);
	return sa_decode_malformed(run, "must not be null");
}

static inline bool
fill_column(SaDecoder *decoder, Wanted *wanted, const SaRecord *record, Datum *value, bool *isnull)
{
	SaDecodeRun *run = &decoder->run;
	SaToken		token = {SA_TOKEN_NONE, NULL, 0};
	bool		ok;

	if (wanted->origin != SA_FROM_VALUE)
		ok = sa_metadata_value(run, &wanted->column, wanted->origin, record, value, isnull);
	else if (decoder->format == SA_FORMAT_RAW)
	{
		*isnull = false;
		ok = sa_metadata_bytes(run, &wanted->column, "the record", record->value, record->value_size, value);
	}
	else
	{
		token = decoder->format == SA_FORMAT_JSON ? sa_json_token(wanted->node) : sa_csv_field(decoder->csv, wanted->field);
		ok = sa_column_value(run, &wanted->column, &token, value, isnull);
	}
	if (ok && *isnull && wanted->column.not_null)
		return refuse_null(decoder, wanted, token.kind);
	return ok;
}

static bool
decode_record(SaDecoder *decoder, const SaRecord *record, SaDecoded *out)
{
	SaDecodeRun *run = &decoder->run;

	memset(out->values, 0, sizeof(Datum) * decoder->natts);
	memset(out->nulls, true, sizeof(bool) * decoder->natts);
	run->column = NULL;
	if (!scan_record(decoder, record))
		return false;
	for (int i = 0; i < decoder->ncolumns; i++)
	{
		Wanted	   *wanted = &decoder->columns[i];
		int			place = wanted->column.attnum - 1;

		if (!fill_column(decoder, wanted, record, &out->values[place], &out->nulls[place]))
			return false;
	}
	return true;
}

/* ---------- runs ---------- */

/* From *at on, as far as nothing is raised; *at is then the record that is malformed for it. */
static void
decode_some(SaDecoder *decoder, const SaRecord *records, int n, SaDecoded *out, volatile int *at)
{
	SaDecodeRun *run = &decoder->run;

	PG_TRY();
	{
		for (; *at < n; (*at)++)
		{
			SaDecoded  *decoded = &out[*at];

			CHECK_FOR_INTERRUPTS();
			decoded->error = decode_record(decoder, &records[*at], decoded) ? NULL : pstrdup(run->reason.data);
			if (run->guarded)
				MemoryContextReset(run->scratch);
		}
		sa_decode_guard_end(run);
	}
	PG_CATCH();
	{
		sa_decode_guard_abort(run);
		out[*at].error = pstrdup(run->reason.data);
		MemoryContextReset(run->scratch);
		(*at)++;
	}
	PG_END_TRY();
}

void
sa_decode_records(SaDecoder *decoder, const SaRecord *records, int n, SaDecoded *out)
{
	volatile int at = 0;

	while (at < n)
	{
		sa_decode_run_begin(&decoder->run);
		decode_some(decoder, records, n, out, &at);
	}
	sa_decode_run_trim(&decoder->run);
}
