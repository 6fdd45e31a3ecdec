/*
 * option.c
 *		Options of streams, servers and user mappings.
 *
 * Invariant: every option is listed once, in a table that says where it belongs and how its value is
 * read (here, or option_kafka.c for the settings of the Kafka client); the validator, the DDL and the
 * workers all go through it.
 *
 * The validator sees the options of one object alone.  What several must agree on (the server's type,
 * what a stream needs) is checked by sa_option_stream, which runs when a stream is made or altered.
 *
 * No locks beyond those of the system caches, no state: nothing to recover after a crash.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/reloptions.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "catalog/pg_foreign_server.h"
#include "catalog/pg_foreign_table.h"
#include "catalog/pg_type.h"
#include "catalog/pg_user_mapping.h"
#include "commands/defrem.h"
#include "fmgr.h"
#include "foreign/fdwapi.h"
#include "foreign/foreign.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "compat.h"

#include "option.h"
#include "option_column.h"
#include "option_kafka.h"
#include "option_value.h"
#include "owner.h"

PG_FUNCTION_INFO_V1(sa_fdw_validator);

#define WRAPPER_NAME "stream_agg"
#define DEFAULT_TIME_COLUMN "event_time"
#define DEFAULT_MAX_FUTURE USECS_PER_HOUR
#define MAX_FUTURE_UNSET (-1)
#define DEFAULT_RECORD_BYTES (INT64CONST(16) * 1024 * 1024)
#define MAX_RECORD_BYTES (INT64CONST(255) * 1024 * 1024)
#define DEFAULT_DISCOVERY (30 * USECS_PER_SEC)

/* Where an option may stand. */
typedef enum OptionPlace
{
	PLACE_STREAM,
	PLACE_SERVER,
	PLACE_MAPPING
} OptionPlace;

/* Sources that an option of a stream is for. */
#define FOR_STAGED 0x01
#define FOR_KAFKA 0x02
#define FOR_ALL (FOR_STAGED | FOR_KAFKA)

static const char *const source_words[] = {"staged", "kafka", NULL};
static const int source_flags[] = {FOR_STAGED, FOR_KAFKA};

/* What is being read into. */
typedef struct OptionTarget
{
	SaStreamOptions *stream;
	const char *time_column;	/* as the option event_time says */
	const char *csv_option;		/* one that only csv has */
} OptionTarget;

typedef struct OptionSpec
{
	const char *name;
	OptionPlace place;
	int			sources;
	void		(*read) (const char *name, const char *value, OptionTarget *target);
} OptionSpec;

/* ---------- options of streams and servers ---------- */

static void
read_event_time(const char *name, const char *value, OptionTarget *target)
{
	if (value[0] == '\0')
		sa_option_refuse_value(name, value, "Give the name of the column that carries the event's own time.");
	target->time_column = value;
}

static void
read_stream_watermark(const char *name, const char *value, OptionTarget *target)
{
	target->stream->watermark = sa_option_read_interval(name, value);
}

static void
read_max_future(const char *name, const char *value, OptionTarget *target)
{
	if (pg_strcasecmp(value, "infinity") == 0)
		target->stream->max_future = PG_INT64_MAX;
	else
		target->stream->max_future = sa_option_read_interval(name, value);
}

static void
read_data_loss(const char *name, const char *value, OptionTarget *target)
{
	static const char *const words[] = {"fail", "skip", NULL};

	target->stream->skip_data_loss = sa_option_read_word(name, value, words) == 1;
}

static void
read_malformed(const char *name, const char *value, OptionTarget *target)
{
	static const char *const words[] = {"dead_letter", "fail", NULL};

	target->stream->fail_malformed = sa_option_read_word(name, value, words) == 1;
}

static void
read_tombstone(const char *name, const char *value, OptionTarget *target)
{
	static const char *const words[] = {"skip", "dead_letter", NULL};

	target->stream->letter_tombstone = sa_option_read_word(name, value, words) == 1;
}

static void
read_staged_limit(const char *name, const char *value, OptionTarget *target)
{
	target->stream->staged_limit = sa_option_read_bytes(name, value, 0, PG_INT64_MAX / 2,
														"The size must be positive, or 0 for no limit.");
}

static void
read_stream_idle_timeout(const char *name, const char *value, OptionTarget *target)
{
	target->stream->idle_timeout = sa_option_read_interval(name, value);
}

static void
read_format(const char *name, const char *value, OptionTarget *target)
{
	static const char *const words[] = {"json", "csv", "raw", NULL};

	target->stream->format = (SaFormat) sa_option_read_word(name, value, words);
}

/* One byte that can stand in a line of text. */
static char
read_csv_byte(const char *name, const char *value, OptionTarget *target, const char *expected)
{
	target->csv_option = name;
	if (strlen(value) != 1 || IS_HIGHBIT_SET(value[0]) || value[0] == '\n' || value[0] == '\r')
		sa_option_refuse_value(name, value, expected);
	return value[0];
}

static void
read_delimiter(const char *name, const char *value, OptionTarget *target)
{
	target->stream->delimiter = read_csv_byte(name, value, target,
											  "Give one character of ASCII, not a line break.");
}

static void
read_quote(const char *name, const char *value, OptionTarget *target)
{
	target->csv_option = name;
	target->stream->quote = value[0] == '\0' ? '\0' :
		read_csv_byte(name, value, target, "Give one character of ASCII, not a line break, or nothing: no quotes.");
}

static void
read_max_record_bytes(const char *name, const char *value, OptionTarget *target)
{
	target->stream->max_record_bytes = sa_option_read_bytes(name, value, 1, MAX_RECORD_BYTES,
															"Give a size from 1 byte to 255 MB.");
}

static void
read_topic(const char *name, const char *value, OptionTarget *target)
{
	target->stream->topics = sa_option_kafka_read_topics(name, value);
}

static void
read_topic_pattern(const char *name, const char *value, OptionTarget *target)
{
	pg_regfree(sa_option_kafka_compile_pattern(name, value));
	target->stream->topic_pattern = value;
}

static void
read_partition_discovery(const char *name, const char *value, OptionTarget *target)
{
	target->stream->partition_discovery = sa_option_read_interval(name, value);
	if (target->stream->partition_discovery == 0)
		sa_option_refuse_value(name, value, "The interval must be positive.");
}

static void
read_group_id(const char *name, const char *value, OptionTarget *target)
{
	if (value[0] == '\0')
		sa_option_refuse_value(name, value, "Give the name of a consumer group.");
	target->stream->group_id = value;
}

static void
read_server_type(const char *name, const char *value, OptionTarget *target)
{
	target->stream->source = source_words[sa_option_read_word(name, value, source_words)];
}

/* ---------- the tables ---------- */

static const OptionSpec option_specs[] =
{
	{"event_time", PLACE_STREAM, FOR_ALL, read_event_time},
	{"watermark", PLACE_STREAM, FOR_ALL, read_stream_watermark},
	{"max_future", PLACE_STREAM, FOR_ALL, read_max_future},
	{"idle_timeout", PLACE_STREAM, FOR_ALL, read_stream_idle_timeout},
	{"on_data_loss", PLACE_STREAM, FOR_ALL, read_data_loss},
	{"on_malformed", PLACE_STREAM, FOR_ALL, read_malformed},
	{"on_tombstone", PLACE_STREAM, FOR_ALL, read_tombstone},
	{"staged_limit", PLACE_STREAM, FOR_STAGED, read_staged_limit},
	{"topic", PLACE_STREAM, FOR_KAFKA, read_topic},
	{"topic_pattern", PLACE_STREAM, FOR_KAFKA, read_topic_pattern},
	{"partition_discovery", PLACE_STREAM, FOR_KAFKA, read_partition_discovery},
	{"group_id", PLACE_STREAM, FOR_KAFKA, read_group_id},
	{"format", PLACE_STREAM, FOR_KAFKA, read_format},
	{"delimiter", PLACE_STREAM, FOR_KAFKA, read_delimiter},
	{"quote", PLACE_STREAM, FOR_KAFKA, read_quote},
	{"max_record_bytes", PLACE_STREAM, FOR_KAFKA, read_max_record_bytes},

	{"type", PLACE_SERVER, FOR_ALL, read_server_type},
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

/* The flag of a source; all flags where it is not known (NULL). */
static int
source_flag(const char *source)
{
	for (int i = 0; source != NULL && source_words[i] != NULL; i++)
	{
		if (strcmp(source_words[i], source) == 0)
			return source_flags[i];
	}
	return FOR_ALL;
}

static SaKafkaPlace
kafka_place(OptionPlace place)
{
	return place == PLACE_MAPPING ? SA_KAFKA_MAPPING : SA_KAFKA_LINK;
}

/* Adds names of options at a place: those that only Kafka has, or the others that a source has. */
static void
list_options(StringInfo names, OptionPlace place, const char *source, bool kafka_only)
{
	for (size_t i = 0; i < lengthof(option_specs); i++)
	{
		const OptionSpec *spec = &option_specs[i];

		if (spec->place == place && (spec->sources == FOR_KAFKA) == kafka_only &&
			(spec->sources & source_flag(source)) != 0)
			appendStringInfo(names, "%s%s", names->len > 0 ? ", " : "", spec->name);
	}
}

/* The names valid at a place, in a sentence for a hint. */
static const char *
describe_options(OptionPlace place, const char *source)
{
	StringInfoData names;
	StringInfoData kafka;

	initStringInfo(&names);
	list_options(&names, place, source, false);
	initStringInfo(&kafka);
	list_options(&kafka, place, source, true);
	if ((source_flag(source) & FOR_KAFKA) != 0)
		appendStringInfo(&kafka, "%s%s", kafka.len > 0 ? ", " : "", sa_option_kafka_names(kafka_place(place)));
	if (names.len > 0 && kafka.len > 0)
		appendStringInfoString(&names, source == NULL ? "; for Kafka also: " : ", ");
	return psprintf("Valid options are: %s%s.", names.data, kafka.data);
}

/* It may be the misspelt name of a secret, or stand beside one: the statement does not go to the log. */
static void
refuse_unknown(OptionPlace place, const char *source, const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
			 errmsg("invalid option \"%s\"", name),
			 errhint("%s", describe_options(place, source)),
			 sa_option_hide_statement()));
}

static void
require_source(const char *source, int flags, OptionPlace place, const char *name)
{
	if (source == NULL || (source_flag(source) & flags) != 0)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
			 errmsg("option \"%s\" is not valid for a %s of type \"%s\"",
					name, place == PLACE_SERVER ? "server" : "stream", source),
			 errhint("%s", describe_options(place, source))));
}

/* Adds a setting of the Kafka client, or changes it. */
static void
set_connection(SaStreamOptions *options, const char *name, const char *value)
{
	Node	   *arg = (Node *) makeString(pstrdup(value));
	ListCell   *lc;

	foreach(lc, options->connection)
	{
		DefElem    *def = lfirst_node(DefElem, lc);

		if (strcmp(def->defname, name) == 0)
		{
			def->arg = arg;
			return;
		}
	}
	options->connection = lappend(options->connection, makeDefElem(pstrdup(name), arg, -1));
}

static const char *
get_connection(const SaStreamOptions *options, const char *name)
{
	ListCell   *lc;

	foreach(lc, options->connection)
	{
		DefElem    *def = lfirst_node(DefElem, lc);

		if (strcmp(def->defname, name) == 0)
			return strVal(def->arg);
	}
	return NULL;
}

/* Source NULL: that of the stream is not known. */
static void
read_option(OptionPlace place, const char *source, DefElem *def, OptionTarget *target)
{
	const char *name = def->defname;
	const OptionSpec *spec = find_option(place, name);

	if (spec != NULL)
	{
		require_source(source, spec->sources, place, name);
		spec->read(name, defGetString(def), target);
	}
	else if (sa_option_kafka_valid(kafka_place(place), name))
	{
		require_source(source, FOR_KAFKA, place, name);
		set_connection(target->stream, name, sa_option_kafka_read(name, defGetString(def)));
	}
	else
		refuse_unknown(place, source, name);
}

static void
read_options(OptionPlace place, const char *source, List *defs, OptionTarget *target)
{
	ListCell   *lc;

	foreach(lc, defs)
		read_option(place, source, lfirst_node(DefElem, lc), target);
}

static void
default_stream_options(SaStreamOptions *options)
{
	memset(options, 0, sizeof(SaStreamOptions));
	options->source = source_words[0];
	options->watermark = SA_NO_DELAY;
	options->max_future = MAX_FUTURE_UNSET;
	options->format = SA_FORMAT_JSON;
	options->delimiter = ',';
	options->quote = '"';
	options->max_record_bytes = DEFAULT_RECORD_BYTES;
	options->partition_discovery = DEFAULT_DISCOVERY;
}

/* ---------- the validator ---------- */

static DefElem *
find_def(List *defs, const char *name)
{
	ListCell   *lc;

	foreach(lc, defs)
	{
		if (strcmp(lfirst_node(DefElem, lc)->defname, name) == 0)
			return lfirst_node(DefElem, lc);
	}
	return NULL;
}

/* The type of the source, from the options of a server. */
static const char *
server_source(List *defs)
{
	DefElem    *def = find_def(defs, "type");

	if (def == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_DYNAMIC_PARAMETER_VALUE_NEEDED),
				 errmsg("option \"type\" is required for a server of wrapper \"%s\"", WRAPPER_NAME),
				 errhint("Valid types are: staged, kafka.")));
	return source_words[sa_option_read_word(def->defname, defGetString(def), source_words)];
}

/* Neither its value nor the statement is to be seen in messages. */
static void
refuse_secrets(List *defs)
{
	ListCell   *lc;

	foreach(lc, defs)
	{
		DefElem    *def = lfirst_node(DefElem, lc);

		if (sa_option_kafka_is_secret(def->defname))
			ereport(ERROR,
					(errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
					 errmsg("option \"%s\" is valid only in user mappings", def->defname),
					 errdetail("Options of servers and streams can be read by everybody."),
					 errhint("Use CREATE USER MAPPING."),
					 sa_option_hide_statement()));
	}
}

/* Files are read with the rights of the server's operating system user. */
static void
require_file_privilege(List *defs)
{
	ListCell   *lc;

	foreach(lc, defs)
	{
		DefElem    *def = lfirst_node(DefElem, lc);

		if (sa_option_kafka_is_file(def->defname) && !has_privs_of_role(GetUserId(), ROLE_PG_READ_SERVER_FILES))
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					 errmsg("permission denied to set option \"%s\"", def->defname),
					 errdetail("Only roles with privileges of the \"%s\" role may name files of the server.",
							   "pg_read_server_files"),
					 sa_option_hide_statement()));
	}
}

static void
validate(OptionPlace place, List *defs)
{
	SaStreamOptions stream;
	OptionTarget target = {.stream = &stream};

	default_stream_options(&stream);
	if (place != PLACE_MAPPING)
		refuse_secrets(defs);
	read_options(place, place == PLACE_SERVER ? server_source(defs) : NULL, defs, &target);
	require_file_privilege(stream.connection);
}

/* Checks the options of a server, stream, column, wrapper or user mapping. */
Datum
sa_fdw_validator(PG_FUNCTION_ARGS)
{
	List	   *defs = untransformRelOptions(PG_GETARG_DATUM(0));
	Oid			catalog = PG_GETARG_OID(1);

	if (catalog == ForeignServerRelationId)
		validate(PLACE_SERVER, defs);
	else if (catalog == ForeignTableRelationId)
		validate(PLACE_STREAM, defs);
	else if (catalog == UserMappingRelationId)
		validate(PLACE_MAPPING, defs);
	else if (catalog == AttributeRelationId)
		sa_option_column_validate(defs);
	else if (defs != NIL)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
				 errmsg("invalid option \"%s\"", linitial_node(DefElem, defs)->defname),
				 errhint("There are no valid options for a foreign-data wrapper of this kind.")));
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

/* What a Kafka stream needs, and what does not go together. */
static void
check_topics(Relation stream, const SaStreamOptions *options)
{
	if (options->topics != NIL && options->topic_pattern != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
				 errmsg("options \"topic\" and \"topic_pattern\" of stream \"%s\" exclude each other",
						RelationGetRelationName(stream))));
	if (options->topics == NIL && options->topic_pattern == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_DYNAMIC_PARAMETER_VALUE_NEEDED),
				 errmsg("stream \"%s\" has no topic", RelationGetRelationName(stream)),
				 errhint("Name one or several in the option \"topic\", or give a regular expression in \"topic_pattern\".")));
}

static void
check_csv(Relation stream, const SaStreamOptions *options, const char *csv_option)
{
	if (csv_option != NULL && options->format != SA_FORMAT_CSV)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
				 errmsg("option \"%s\" of stream \"%s\" needs the format csv",
						csv_option, RelationGetRelationName(stream))));
	if (options->delimiter == options->quote)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("delimiter and quote of stream \"%s\" are the same", RelationGetRelationName(stream))));
}

static void
check_connection(Relation stream, const SaStreamOptions *options)
{
	const char *protocol = get_connection(options, "security_protocol");

	if (get_connection(options, "bootstrap_servers") == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_DYNAMIC_PARAMETER_VALUE_NEEDED),
				 errmsg("stream \"%s\" has no brokers", RelationGetRelationName(stream)),
				 errhint("Name them in the option \"bootstrap_servers\" of its server, or of the stream.")));
	if (protocol != NULL && strncmp(protocol, "sasl_", 5) == 0 && get_connection(options, "sasl_mechanism") == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_DYNAMIC_PARAMETER_VALUE_NEEDED),
				 errmsg("stream \"%s\" has no SASL mechanism", RelationGetRelationName(stream)),
				 errdetail("The security protocol \"%s\" needs one.", protocol),
				 errhint("Name it in the option \"sasl_mechanism\" of its server, or of the stream.")));
}

static void
check_kafka(Relation stream, const SaStreamOptions *options, const char *csv_option)
{
	check_topics(stream, options);
	check_csv(stream, options, csv_option);
	check_connection(stream, options);
	(void) sa_option_secrets(options->relid);
}

static void
check_watermark(Relation stream, const SaStreamOptions *options)
{
	if (options->watermark != SA_NO_DELAY && options->time_attr == InvalidAttrNumber)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("stream \"%s\" has a watermark but no event time column",
						RelationGetRelationName(stream)),
				 errhint("Name a column of type timestamp with time zone, timestamp or date in the option \"event_time\".")));
}

SaStreamOptions *
sa_option_stream(Relation stream)
{
	SaStreamOptions *options = palloc(sizeof(SaStreamOptions));
	ForeignTable *table = GetForeignTable(RelationGetRelid(stream));
	ForeignServer *server = GetForeignServer(table->serverid);
	OptionTarget target = {.stream = options};
	const char *source = server_source(server->options);

	default_stream_options(options);
	options->relid = RelationGetRelid(stream);
	if (strcmp(source, "kafka") == 0)
		set_connection(options, "isolation_level", "read_committed");
	read_options(PLACE_SERVER, source, server->options, &target);
	read_options(PLACE_STREAM, source, table->options, &target);

	resolve_event_time(stream, target.time_column, options);

	/* A time without zone cannot be held against the clock, unless somebody says that it is UTC. */
	if (options->max_future == MAX_FUTURE_UNSET)
		options->max_future = options->time_type == TIMESTAMPTZOID ? DEFAULT_MAX_FUTURE : PG_INT64_MAX;
	check_watermark(stream, options);
	if (strcmp(source, "kafka") == 0)
		check_kafka(stream, options, target.csv_option);
	sa_option_column_check(stream, options);
	return options;
}

const char *
sa_option_source(Oid relid)
{
	return server_source(GetForeignServer(GetForeignServerIdByRelId(relid))->options);
}

static bool
is_ours(ForeignServer *server)
{
	return server->fdwid == get_foreign_data_wrapper_oid(WRAPPER_NAME, true);
}

bool
sa_option_is_stream(Oid relid)
{
	return get_rel_relkind(relid) == RELKIND_FOREIGN_TABLE &&
		is_ours(GetForeignServer(GetForeignServerIdByRelId(relid)));
}

/* ---------- secrets ---------- */

/* The options of the user mapping of a role (InvalidOid: PUBLIC); false when there is none. */
static bool
read_mapping(Oid role, Oid server, List **defs)
{
	HeapTuple	tuple = SearchSysCache2(USERMAPPINGUSERSERVER, ObjectIdGetDatum(role), ObjectIdGetDatum(server));
	Datum		array;
	bool		isnull;

	if (!HeapTupleIsValid(tuple))
		return false;
	array = SysCacheGetAttr(USERMAPPINGUSERSERVER, tuple, Anum_pg_user_mapping_umoptions, &isnull);
	*defs = isnull ? NIL : untransformRelOptions(array);
	ReleaseSysCache(tuple);
	return true;
}

/*
 * The secrets of PUBLIC's mapping are the server owner's to keep: they go where the server says, as the
 * server says, or nowhere.
 */
static void
guard_public_mapping(ForeignTable *table)
{
	ListCell   *lc;

	foreach(lc, table->options)
	{
		DefElem    *def = lfirst_node(DefElem, lc);

		if (sa_option_kafka_is_guarded(def->defname))
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					 errmsg("stream \"%s\" may not use the user mapping for PUBLIC", get_rel_name(table->relid)),
					 errdetail("With the option \"%s\" of its own it could send the secrets elsewhere.", def->defname),
					 errhint("Set the option on the server, or create a user mapping for the stream's owner.")));
	}
}

List *
sa_option_secrets(Oid stream)
{
	ForeignTable *table = GetForeignTable(stream);
	List	   *defs = NIL;

	if (read_mapping(sa_owner_of(stream), table->serverid, &defs))
		return defs;
	if (read_mapping(InvalidOid, table->serverid, &defs) && defs != NIL)
		guard_public_mapping(table);
	return defs;
}

void
sa_option_check_mapping(const char *servername, List *defs)
{
	ForeignServer *server = GetForeignServerByName(servername, true);

	if (server == NULL || defs == NIL || !is_ours(server) || source_flag(server_source(server->options)) != FOR_STAGED)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
			 errmsg("invalid option \"%s\"", linitial_node(DefElem, defs)->defname),
			 errhint("There are no valid options for a user mapping of a staged server."),
			 sa_option_hide_statement()));
}
