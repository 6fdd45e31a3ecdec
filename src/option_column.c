/*
 * option_column.c
 *		Options of a stream's columns: where in the record a value comes from, and how it is written.
 *
 * Invariant: a column has either a path or a metadata field, and at least one step in its path.
 * No locks beyond those of the system caches, no state: nothing to recover after a crash.
 */
#include "postgres.h"

#include "access/tupdesc.h"
#include "commands/defrem.h"
#include "foreign/foreign.h"
#include "utils/builtins.h"
#include "utils/rel.h"

#include "compat.h"

#include "option_column.h"
#include "option_value.h"

#define VALID_OPTIONS "Valid options are: path, metadata, timestamp_format."

/* Which options were given, and what they say. */
typedef struct ColumnReading
{
	SaColumnOptions options;
	bool		has_metadata;
	bool		has_time_format;
} ColumnReading;

static void
refuse_path(const char *value)
{
	sa_option_refuse_value("path", value,
						   "Give the keys from the top level on, separated by dots; one that holds dots or quotes in double quotes: 'address.\"zip.code\"'.");
}

/* One step in double quotes, a double quote in it doubled; returns what follows. */
static const char *
read_quoted_step(const char *value, const char *at, StringInfo step)
{
	for (at++;; at++)
	{
		if (*at == '\0')
			refuse_path(value);
		if (*at == '"')
		{
			at++;
			if (*at != '"')
				return at;
		}
		appendStringInfoChar(step, *at);
	}
}

static const char *
read_plain_step(const char *value, const char *at, StringInfo step)
{
	for (; *at != '.' && *at != '\0'; at++)
	{
		if (*at == '"')
			refuse_path(value);
		appendStringInfoChar(step, *at);
	}
	return at;
}

static List *
read_path(const char *value)
{
	List	   *path = NIL;
	const char *at = value;

	for (;;)
	{
		StringInfoData step;

		initStringInfo(&step);
		at = *at == '"' ? read_quoted_step(value, at, &step) : read_plain_step(value, at, &step);
		if (step.len == 0 || (*at != '.' && *at != '\0'))
			refuse_path(value);
		path = lappend(path, step.data);
		if (*at == '\0')
			return path;
		at++;
	}
}

static SaColumnOrigin
read_metadata(const char *value)
{
	static const char *const words[] = {
		"topic", "partition", "offset", "timestamp", "timestamp_type", "key", "headers", NULL
	};

	return SA_FROM_TOPIC + sa_option_read_word("metadata", value, words);
}

static SaTimeFormat
read_time_format(const char *value)
{
	static const char *const words[] = {"iso8601", "epoch_s", "epoch_ms", "epoch_us", NULL};

	return (SaTimeFormat) sa_option_read_word("timestamp_format", value, words);
}

static void
refuse_together(const char *one, const char *other)
{
	ereport(ERROR,
			(errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
			 errmsg("options \"%s\" and \"%s\" of a column exclude each other", one, other),
			 errdetail("Metadata are not in the record's value.")));
}

static void
read_column(List *defs, ColumnReading *reading)
{
	ListCell   *lc;

	memset(reading, 0, sizeof(ColumnReading));
	foreach(lc, defs)
	{
		DefElem    *def = lfirst_node(DefElem, lc);

		if (strcmp(def->defname, "path") == 0)
			reading->options.path = read_path(defGetString(def));
		else if (strcmp(def->defname, "metadata") == 0)
		{
			reading->has_metadata = true;
			reading->options.origin = read_metadata(defGetString(def));
		}
		else if (strcmp(def->defname, "timestamp_format") == 0)
		{
			reading->has_time_format = true;
			reading->options.time_format = read_time_format(defGetString(def));
		}
		else
			ereport(ERROR,
					(errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
					 errmsg("invalid option \"%s\"", def->defname),
					 errhint(VALID_OPTIONS)));
	}
	if (reading->has_metadata && reading->options.path != NIL)
		refuse_together("path", "metadata");
	if (reading->has_metadata && reading->has_time_format)
		refuse_together("timestamp_format", "metadata");
}

void
sa_option_column_validate(List *defs)
{
	ColumnReading reading;

	read_column(defs, &reading);
}

void
sa_option_column(Relation stream, AttrNumber attnum, SaColumnOptions *out)
{
	Form_pg_attribute att = TupleDescAttr(RelationGetDescr(stream), attnum - 1);
	ColumnReading reading;

	read_column(GetForeignColumnOptions(RelationGetRelid(stream), attnum), &reading);
	if (reading.has_time_format && !sa_option_is_time(att->atttypid))
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" of stream \"%s\" has the option \"timestamp_format\", but type %s",
						NameStr(att->attname), RelationGetRelationName(stream), format_type_be(att->atttypid)),
				 errhint("The option is for columns of type timestamp with time zone, timestamp or date.")));
	*out = reading.options;
	if (out->path == NIL)
		out->path = list_make1(pstrdup(NameStr(att->attname)));
}

/* ---------- against the stream's options ---------- */

/* Streams that are not decoded from bytes have nothing to say about their columns. */
static void
refuse_options(Relation stream, const SaStreamOptions *options, AttrNumber attnum)
{
	List	   *defs = GetForeignColumnOptions(RelationGetRelid(stream), attnum);

	if (defs != NIL)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
				 errmsg("invalid option \"%s\"", linitial_node(DefElem, defs)->defname),
				 errhint("There are no valid options for a column of a %s stream.", options->source)));
}

static void
check_path_format(Relation stream, const SaStreamOptions *options, AttrNumber attnum)
{
	ListCell   *lc;

	foreach(lc, GetForeignColumnOptions(RelationGetRelid(stream), attnum))
	{
		if (strcmp(lfirst_node(DefElem, lc)->defname, "path") == 0)
			ereport(ERROR,
					(errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
					 errmsg("column \"%s\" of stream \"%s\" has the option \"path\", but the stream's format is not json",
							NameStr(TupleDescAttr(RelationGetDescr(stream), attnum - 1)->attname),
							RelationGetRelationName(stream)),
					 errhint(options->format == SA_FORMAT_CSV ?
							 "Columns take the fields of a csv record in their order." :
							 "A column takes a raw record whole.")));
	}
}

void
sa_option_column_check(Relation stream, const SaStreamOptions *options)
{
	TupleDesc	desc = RelationGetDescr(stream);

	for (AttrNumber attnum = 1; attnum <= desc->natts; attnum++)
	{
		SaColumnOptions column;

		if (TupleDescAttr(desc, attnum - 1)->attisdropped)
			continue;
		if (strcmp(options->source, "staged") == 0)
		{
			refuse_options(stream, options, attnum);
			continue;
		}
		sa_option_column(stream, attnum, &column);
		if (options->format != SA_FORMAT_JSON)
			check_path_format(stream, options, attnum);
	}
}
