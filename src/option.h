/*
 * option.h
 *		Options of streams (and, in option_view.h, of views): tables that the validator, the DDL and the
 *		workers read.
 */
#ifndef SA_OPTION_H
#define SA_OPTION_H

#include "datatype/timestamp.h"
#include "nodes/pg_list.h"
#include "option_view.h"
#include "postgres_ext.h"
#include "utils/relcache.h"

typedef enum SaFormat
{
	SA_FORMAT_JSON,
	SA_FORMAT_CSV,
	SA_FORMAT_RAW
} SaFormat;

/* What the options of a foreign table and of its server say, all defaults filled in. */
typedef struct SaStreamOptions
{
	Oid			relid;			/* the foreign table */
	const char *source;			/* 'staged', 'kafka' */
	AttrNumber	time_attr;		/* column of the event time; 0: none */
	Oid			time_type;		/* its type: timestamptz, timestamp or date */
	int64		watermark;		/* delay in microseconds, or SA_NO_DELAY */
	int64		max_future;		/* microseconds against arrival; PG_INT64_MAX: no check */
	int64		idle_timeout;	/* microseconds; 0: no partition is ever idle */
	int64		staged_limit;	/* bytes; 0: none */
	bool		skip_data_loss; /* on_data_loss = 'skip' */

	/* sources that read bytes */
	SaFormat	format;
	char		delimiter;		/* csv */
	char		quote;			/* csv; '\0': none */
	int64		max_record_bytes;
	bool		fail_malformed; /* on_malformed = 'fail' */
	bool		letter_tombstone;	/* on_tombstone = 'dead_letter' */

	/* kafka */
	List	   *topics;			/* of char *; NIL: topic_pattern */
	const char *topic_pattern;
	int64		partition_discovery;	/* microseconds between looks for new partitions */
	const char *group_id;		/* NULL: offsets are not told to the brokers */
	List	   *connection;		/* of DefElem: settings of the client library, underscores for dots; no secrets */
} SaStreamOptions;

/* Where a column's value comes from. */
typedef enum SaColumnOrigin
{
	SA_FROM_VALUE,				/* the record's value: at path (json), by its place (csv), all of it (raw) */
	SA_FROM_TOPIC,
	SA_FROM_PARTITION,
	SA_FROM_OFFSET,
	SA_FROM_TIMESTAMP,
	SA_FROM_TIMESTAMP_TYPE,
	SA_FROM_KEY,
	SA_FROM_HEADERS
} SaColumnOrigin;

typedef enum SaTimeFormat
{
	SA_TIME_ISO8601,			/* as the type reads it */
	SA_TIME_EPOCH_S,
	SA_TIME_EPOCH_MS,
	SA_TIME_EPOCH_US
} SaTimeFormat;

typedef struct SaColumnOptions
{
	SaColumnOrigin origin;
	List	   *path;			/* of char *, at least one */
	SaTimeFormat time_format;
} SaColumnOptions;

/* Options of a stream; errors with ERRCODE_FDW_INVALID_OPTION_NAME and friends. */
extern SaStreamOptions *sa_option_stream(Relation stream);

/* Options of one of its columns, in CurrentMemoryContext. */
extern void sa_option_column(Relation stream, AttrNumber attnum, SaColumnOptions *out);

/*
 * The secrets of the user mapping that the stream's owner has on its server (list of DefElem, like
 * connection); NIL when there is none.  They must not reach messages, views or logs.
 */
extern List *sa_option_secrets(Oid stream);

/* The options of a user mapping against its server, which the validator does not see. */
extern void sa_option_check_mapping(const char *servername, List *defs);

/* The client library's name of a setting in one of these lists. */
extern const char *sa_option_kafka_name(const char *option);

/* The source type of a stream, without looking at its other options. */
extern const char *sa_option_source(Oid relid);

/* A type that event times may have, or a domain over one. */
extern bool sa_option_is_time(Oid type);

/* True when the foreign table belongs to the stream_agg wrapper. */
extern bool sa_option_is_stream(Oid relid);

#endif							/* SA_OPTION_H */
