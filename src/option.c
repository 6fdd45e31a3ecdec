/*
 * option.c
 *		Options of streams, servers and views.
 *
 * Invariant: every option is listed once, in a table that says where it belongs and how its value is
 * read; the validator, the DDL and the workers all go through it.  What is accepted works: an option
 * or value that a later version will bring is refused with "not supported yet".
 *
 * No locks beyond those of the system caches, no state: nothing to recover after a crash.
 */
#include "postgres.h"

#include <math.h>

#include "access/reloptions.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_class.h"
#include "catalog/pg_foreign_server.h"
#include "catalog/pg_foreign_table.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "common/int.h"
#include "fmgr.h"
#include "foreign/fdwapi.h"
#include "foreign/foreign.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "compat.h"

#include "option.h"

PG_FUNCTION_INFO_V1(sa_fdw_validator);

#define WRAPPER_NAME "stream_agg"
#define DEFAULT_TIME_COLUMN "event_time"
#define DEFAULT_MAX_FUTURE USECS_PER_HOUR
#define MAX_FUTURE_UNSET (-1)
#define DEFAULT_BATCH_ROWS 100000
#define MAX_BATCH_ROWS 10000000

/* Where an option may stand; the names in messages are those of the objects. */
typedef enum OptionPlace
{
	PLACE_STREAM,
	PLACE_SERVER,
	PLACE_VIEW
} OptionPlace;

/* What is being read into; only the member that belongs to the place is set. */
typedef struct OptionTarget
{
	SaStreamOptions *stream;
	SaViewOptions *view;
	const char *time_column;	/* as the option event_time says */
} OptionTarget;

typedef struct OptionSpec
{
	const char *name;
	OptionPlace place;
	void		(*read) (const char *name, const char *value, OptionTarget *target);
	bool		planned;		/* known, but only its default works yet: not in hints */
} OptionSpec;

/* ---------- reading values ---------- */

static void
refuse_value(const char *name, const char *value, const char *expected)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid value for option \"%s\": \"%s\"", name, value),
			 errhint("%s", expected)));
}

static void
refuse_planned(const char *name, const char *value)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("option \"%s\" with value \"%s\" is not supported yet", name, value)));
}

/* One of a NULL-terminated list of words; its index. */
static int
read_word(const char *name, const char *value, const char *const *words)
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
	refuse_value(name, value, hint.data);
	return 0;					/* keep compiler quiet */
}

/*
 * The text of an interval; false when it is none.  Not interval_in, whose messages would not name the
 * option.
 */
static bool
parse_interval(const char *value, Interval *result)
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

/* A span of time that is not negative and has no months, in microseconds; days have 24 hours. */
static int64
read_interval(const char *name, const char *value)
{
	Interval	interval;
	int64		days;
	int64		result;

	if (!parse_interval(value, &interval))
		refuse_value(name, value, "Give an interval such as '10 seconds' or '1 hour'.");
	if (interval.month != 0)
		refuse_value(name, value, "Months and years have no fixed length; give days, hours or less.");
	if (pg_mul_s64_overflow((int64) interval.day, USECS_PER_DAY, &days) ||
		pg_add_s64_overflow(days, interval.time, &result))
		refuse_value(name, value, "The interval is too long.");
	if (result < 0)
		refuse_value(name, value, "The interval must not be negative.");
	return result;
}

static int64
read_bytes(const char *name, const char *value)
{
	double		bytes;
	const char *unithint = NULL;

	if (!parse_real(value, &bytes, GUC_UNIT_BYTE, &unithint) || isnan(bytes))
		refuse_value(name, value, "Give a number of bytes, or one with a unit: \"kB\", \"MB\", \"GB\" or \"TB\".");
	if (bytes < 0 || bytes > (double) PG_INT64_MAX / 2)
		refuse_value(name, value, "The size must be positive, or 0 for no limit.");
	return (int64) bytes;
}

/* ---------- options of streams and servers ---------- */

static void
read_event_time(const char *name, const char *value, OptionTarget *target)
{
	if (value[0] == '\0')
		refuse_value(name, value, "Give the name of the column that carries the event's own time.");
	target->time_column = value;
}

static void
read_stream_watermark(const char *name, const char *value, OptionTarget *target)
{
	target->stream->watermark = read_interval(name, value);
}

static void
read_max_future(const char *name, const char *value, OptionTarget *target)
{
	if (pg_strcasecmp(value, "infinity") == 0)
		target->stream->max_future = PG_INT64_MAX;
	else
		target->stream->max_future = read_interval(name, value);
}

static void
read_zero_interval(const char *name, const char *value, OptionTarget *target)
{
	if (read_interval(name, value) != 0)
		refuse_planned(name, value);
}

static void
read_data_loss(const char *name, const char *value, OptionTarget *target)
{
	static const char *const words[] = {"fail", "skip", NULL};

	target->stream->skip_data_loss = read_word(name, value, words) == 1;
}

/*
 * Staged rows are neither malformed nor tombstones: the writer was refused, or there is a row.  So
 * these two need no place in SaStreamOptions until a source that reads bytes comes.
 */
static void
read_malformed(const char *name, const char *value, OptionTarget *target)
{
	static const char *const words[] = {"dead_letter", "fail", NULL};

	(void) read_word(name, value, words);
}

static void
read_tombstone(const char *name, const char *value, OptionTarget *target)
{
	static const char *const words[] = {"skip", "dead_letter", NULL};

	(void) read_word(name, value, words);
}

static void
read_staged_limit(const char *name, const char *value, OptionTarget *target)
{
	target->stream->staged_limit = read_bytes(name, value);
}

static void
read_server_type(const char *name, const char *value, OptionTarget *target)
{
	static const char *const words[] = {"staged", NULL};

	target->stream->source = words[read_word(name, value, words)];
}

/* ---------- options of views ---------- */

static const char *const mode_words[] = {"update", "append", "complete", NULL};

static void
read_output_mode(const char *name, const char *value, OptionTarget *target)
{
	target->view->output_mode = (SaOutputMode) read_word(name, value, mode_words);
}

static void
read_trigger(const char *name, const char *value, OptionTarget *target)
{
	Interval	interval;

	if (pg_strcasecmp(value, "immediate") == 0)
		target->view->trigger = SA_TRIGGER_IMMEDIATE;
	else if (pg_strcasecmp(value, "manual") == 0)
		target->view->trigger = SA_TRIGGER_MANUAL;
	else
	{
		if (!parse_interval(value, &interval))
			refuse_value(name, value, "Valid values are: immediate, manual, or an interval such as '30 seconds'.");
		target->view->trigger = read_interval(name, value);
		if (target->view->trigger == 0)
			refuse_value(name, value, "The interval must be positive; say 'immediate' to read as soon as rows are committed.");
	}
}

static void
read_view_watermark(const char *name, const char *value, OptionTarget *target)
{
	target->view->watermark = read_interval(name, value);
}

static void
read_max_batch_rows(const char *name, const char *value, OptionTarget *target)
{
	int			rows;
	const char *unithint = NULL;

	if (!parse_int(value, &rows, 0, &unithint) || rows < 1 || rows > MAX_BATCH_ROWS)
		refuse_value(name, value, "Give a number of rows between 1 and 10000000.");
	target->view->max_batch_rows = rows;
}

static void
read_start(const char *name, const char *value, OptionTarget *target)
{
	if (pg_strcasecmp(value, "earliest") == 0)
		target->view->start_latest = false;
	else if (pg_strcasecmp(value, "latest") == 0)
		target->view->start_latest = true;
	else
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("option \"%s\" with value \"%s\" is not supported yet", name, value),
				 errhint("Valid values are: earliest, latest.")));
}

static void
read_late_events(const char *name, const char *value, OptionTarget *target)
{
	static const char *const words[] = {"dead_letter", "drop", NULL};

	target->view->drop_late = read_word(name, value, words) == 1;
}

static void
read_on_error(const char *name, const char *value, OptionTarget *target)
{
	static const char *const words[] = {"dead_letter", "fail", NULL};

	target->view->fail_on_error = read_word(name, value, words) == 1;
}

static void
read_on_idle(const char *name, const char *value, OptionTarget *target)
{
	static const char *const words[] = {"hold", "advance", NULL};

	if (read_word(name, value, words) != 0)
		refuse_planned(name, value);
}

static void
read_state(const char *name, const char *value, OptionTarget *target)
{
	static const char *const words[] = {"heap", "unlogged", NULL};

	if (read_word(name, value, words) != 0)
		refuse_planned(name, value);
}

static void
read_planned(const char *name, const char *value, OptionTarget *target)
{
	refuse_planned(name, value);
}

/* ---------- the tables ---------- */

static const OptionSpec option_specs[] =
{
	{"event_time", PLACE_STREAM, read_event_time, false},
	{"watermark", PLACE_STREAM, read_stream_watermark, false},
	{"max_future", PLACE_STREAM, read_max_future, false},
	{"idle_timeout", PLACE_STREAM, read_zero_interval, false},
	{"on_data_loss", PLACE_STREAM, read_data_loss, false},
	{"on_malformed", PLACE_STREAM, read_malformed, false},
	{"on_tombstone", PLACE_STREAM, read_tombstone, false},
	{"staged_limit", PLACE_STREAM, read_staged_limit, false},

	{"type", PLACE_SERVER, read_server_type, false},

	{"output_mode", PLACE_VIEW, read_output_mode, false},
	{"trigger", PLACE_VIEW, read_trigger, false},
	{"watermark", PLACE_VIEW, read_view_watermark, false},
	{"max_batch_rows", PLACE_VIEW, read_max_batch_rows, false},
	{"start", PLACE_VIEW, read_start, false},
	{"late_events", PLACE_VIEW, read_late_events, false},
	{"on_error", PLACE_VIEW, read_on_error, false},
	{"allowed_lateness", PLACE_VIEW, read_zero_interval, true},
	{"idle_timeout", PLACE_VIEW, read_zero_interval, true},
	{"on_idle", PLACE_VIEW, read_on_idle, true},
	{"state", PLACE_VIEW, read_state, true},
	{"dedup_key", PLACE_VIEW, read_planned, true},
	{"end", PLACE_VIEW, read_planned, true},
	{"retention", PLACE_VIEW, read_planned, true},
};

static const OptionSpec *
find_option(OptionPlace place, const char *name)
{
	for (size_t i = 0; i < lengthof(option_specs); i++)
	{
		if (option_specs[i].place == place && strcmp(option_specs[i].name, name) == 0)
			return &option_specs[i];
	}
	return NULL;
}

/* The names valid at a place, for a hint. */
static const char *
option_names(OptionPlace place)
{
	StringInfoData names;

	initStringInfo(&names);
	for (size_t i = 0; i < lengthof(option_specs); i++)
	{
		if (option_specs[i].place == place && !option_specs[i].planned)
			appendStringInfo(&names, "%s%s", names.len > 0 ? ", " : "", option_specs[i].name);
	}
	return names.data;
}

static int
unknown_option_code(OptionPlace place)
{
	return place == PLACE_VIEW ? ERRCODE_INVALID_PARAMETER_VALUE : ERRCODE_FDW_INVALID_OPTION_NAME;
}

static void
read_option(OptionPlace place, DefElem *def, OptionTarget *target)
{
	const OptionSpec *spec = find_option(place, def->defname);

	if (spec == NULL)
		ereport(ERROR,
				(errcode(unknown_option_code(place)),
				 errmsg("invalid option \"%s\"", def->defname),
				 errhint("Valid options are: %s.", option_names(place))));
	spec->read(def->defname, defGetString(def), target);
}

static void
default_stream_options(SaStreamOptions *options)
{
	memset(options, 0, sizeof(SaStreamOptions));
	options->source = "staged";
	options->watermark = SA_NO_DELAY;
	options->max_future = MAX_FUTURE_UNSET;
}

/* ---------- the validator ---------- */

static void
refuse_any_option(List *defs, const char *kind)
{
	if (defs != NIL)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
				 errmsg("invalid option \"%s\"", linitial_node(DefElem, defs)->defname),
				 errhint("There are no valid options for a %s.", kind)));
}

static void
require_server_type(List *defs)
{
	ListCell   *lc;

	foreach(lc, defs)
	{
		if (strcmp(lfirst_node(DefElem, lc)->defname, "type") == 0)
			return;
	}
	ereport(ERROR,
			(errcode(ERRCODE_FDW_DYNAMIC_PARAMETER_VALUE_NEEDED),
			 errmsg("option \"type\" is required for a server of wrapper \"%s\"", WRAPPER_NAME),
			 errhint("Valid types are: staged.")));
}

/* Checks the options of a server, stream, column, wrapper or user mapping. */
Datum
sa_fdw_validator(PG_FUNCTION_ARGS)
{
	List	   *defs = untransformRelOptions(PG_GETARG_DATUM(0));
	Oid			catalog = PG_GETARG_OID(1);
	SaStreamOptions stream;
	OptionTarget target = {&stream, NULL, NULL};
	OptionPlace place = PLACE_STREAM;
	ListCell   *lc;

	default_stream_options(&stream);
	if (catalog == ForeignServerRelationId)
	{
		place = PLACE_SERVER;
		require_server_type(defs);
	}
	else if (catalog == AttributeRelationId)
		refuse_any_option(defs, "column of a staged stream");
	else if (catalog != ForeignTableRelationId)
		refuse_any_option(defs, "foreign-data wrapper or user mapping of this kind");

	foreach(lc, defs)
		read_option(place, lfirst_node(DefElem, lc), &target);

	PG_RETURN_VOID();
}

/* ---------- streams ---------- */

bool
sa_option_is_time(Oid type)
{
	type = getBaseType(type);
	return type == TIMESTAMPTZOID || type == TIMESTAMPOID || type == DATEOID;
}

/* The column of that name; InvalidAttrNumber when there is none. */
static AttrNumber
find_column(TupleDesc desc, const char *name)
{
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (!att->attisdropped && namestrcmp(&att->attname, name) == 0)
			return att->attnum;
	}
	return InvalidAttrNumber;
}

/* The column of the event time: as the option says, else the one called event_time, if it is one. */
static void
resolve_event_time(Relation stream, const char *name, SaStreamOptions *options)
{
	TupleDesc	desc = RelationGetDescr(stream);
	AttrNumber	attnum = find_column(desc, name ? name : DEFAULT_TIME_COLUMN);
	Oid			type;

	if (attnum == InvalidAttrNumber)
	{
		if (name == NULL)
			return;
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("column \"%s\" does not exist in stream \"%s\"",
						name, RelationGetRelationName(stream)),
				 errdetail("The option \"event_time\" of the stream names it."),
				 errhint("Use ALTER FOREIGN TABLE ... OPTIONS (SET event_time '...').")));
	}

	type = getBaseType(TupleDescAttr(desc, attnum - 1)->atttypid);
	if (sa_option_is_time(type))
	{
		options->time_attr = attnum;
		options->time_type = type;
	}
	else if (name != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("event time column \"%s\" of stream \"%s\" has type %s",
						name, RelationGetRelationName(stream), format_type_be(type)),
				 errhint("The event time is of type timestamp with time zone, timestamp or date.")));
}

SaStreamOptions *
sa_option_stream(Relation stream)
{
	SaStreamOptions *options = palloc(sizeof(SaStreamOptions));
	ForeignTable *table = GetForeignTable(RelationGetRelid(stream));
	ForeignServer *server = GetForeignServer(table->serverid);
	OptionTarget target = {options, NULL, NULL};
	ListCell   *lc;

	default_stream_options(options);
	options->relid = RelationGetRelid(stream);
	foreach(lc, server->options)
		read_option(PLACE_SERVER, lfirst_node(DefElem, lc), &target);
	foreach(lc, table->options)
		read_option(PLACE_STREAM, lfirst_node(DefElem, lc), &target);

	resolve_event_time(stream, target.time_column, options);

	/* A time without zone cannot be held against the clock, unless somebody says that it is UTC. */
	if (options->max_future == MAX_FUTURE_UNSET)
		options->max_future = options->time_type == TIMESTAMPTZOID ? DEFAULT_MAX_FUTURE : PG_INT64_MAX;
	if (options->watermark != SA_NO_DELAY && options->time_attr == InvalidAttrNumber)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("stream \"%s\" has a watermark but no event time column",
						RelationGetRelationName(stream)),
				 errhint("Name a column of type timestamp with time zone, timestamp or date in the option \"event_time\".")));
	return options;
}

const char *
sa_option_source(Oid relid)
{
	ForeignServer *server = GetForeignServer(GetForeignServerIdByRelId(relid));
	SaStreamOptions options;
	OptionTarget target = {&options, NULL, NULL};
	ListCell   *lc;

	default_stream_options(&options);
	foreach(lc, server->options)
		read_option(PLACE_SERVER, lfirst_node(DefElem, lc), &target);
	return options.source;
}

bool
sa_option_is_stream(Oid relid)
{
	ForeignServer *server;

	if (get_rel_relkind(relid) != RELKIND_FOREIGN_TABLE)
		return false;
	server = GetForeignServer(GetForeignServerIdByRelId(relid));
	return server->fdwid == get_foreign_data_wrapper_oid(WRAPPER_NAME, true);
}

/* ---------- views ---------- */

void
sa_option_view(List *defs, SaViewOptions *out)
{
	OptionTarget target = {NULL, out, NULL};
	ListCell   *lc;

	memset(out, 0, sizeof(SaViewOptions));
	out->output_mode = SA_UPDATE;
	out->trigger = SA_TRIGGER_IMMEDIATE;
	out->watermark = SA_NO_DELAY;
	out->max_batch_rows = DEFAULT_BATCH_ROWS;

	foreach(lc, defs)
	{
		DefElem    *def = lfirst_node(DefElem, lc);
		ListCell   *other;

		for_each_cell(other, defs, lnext(defs, lc))
		{
			if (strcmp(lfirst_node(DefElem, other)->defname, def->defname) == 0)
				ereport(ERROR,
						(errcode(ERRCODE_SYNTAX_ERROR),
						 errmsg("option \"%s\" is given more than once", def->defname)));
		}
		read_option(PLACE_VIEW, def, &target);
	}
}

List *
sa_option_untransform(Datum array)
{
	return untransformRelOptions(array);
}

Datum
sa_option_transform(List *defs)
{
	Datum	   *elements = palloc(sizeof(Datum) * (list_length(defs) + 1));
	int			nelements = 0;
	ListCell   *lc;

	foreach(lc, defs)
	{
		DefElem    *def = lfirst_node(DefElem, lc);

		elements[nelements++] = CStringGetTextDatum(psprintf("%s=%s", def->defname, defGetString(def)));
	}
	return PointerGetDatum(construct_array(elements, nelements, TEXTOID, -1, false, TYPALIGN_INT));
}

const char *
sa_option_mode_name(SaOutputMode mode)
{
	return mode_words[mode];
}
