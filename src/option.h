/*
 * option.h
 *		Options of streams and views: one table each, read by the validator, the DDL and the workers.
 */
#ifndef SA_OPTION_H
#define SA_OPTION_H

#include "datatype/timestamp.h"
#include "nodes/pg_list.h"
#include "postgres_ext.h"
#include "utils/relcache.h"

#define SA_NO_DELAY (-1)		/* no watermark: nothing closes, nothing is late */

/* What the options of a foreign table and of its server say, all defaults filled in. */
typedef struct SaStreamOptions
{
	Oid			relid;			/* the foreign table */
	const char *source;			/* 'staged', later 'kafka' ... */
	AttrNumber	time_attr;		/* column of the event time; 0: none */
	Oid			time_type;		/* its type: timestamptz, timestamp or date */
	int64		watermark;		/* delay in microseconds, or SA_NO_DELAY */
	int64		max_future;		/* microseconds against arrival; PG_INT64_MAX: no check */
	int64		staged_limit;	/* bytes; 0: none */
	bool		skip_data_loss; /* on_data_loss = 'skip' */
} SaStreamOptions;

typedef enum SaOutputMode
{
	SA_UPDATE,
	SA_APPEND,
	SA_COMPLETE
} SaOutputMode;

#define SA_TRIGGER_IMMEDIATE	0
#define SA_TRIGGER_MANUAL		(-1)

typedef struct SaViewOptions
{
	SaOutputMode output_mode;
	int64		trigger;		/* microseconds between reads, or one of SA_TRIGGER_* */
	int64		watermark;		/* delay in microseconds; SA_NO_DELAY: the stream's */
	int			max_batch_rows;
	bool		start_latest;	/* else earliest */
	bool		drop_late;		/* late_events = 'drop' */
	bool		fail_on_error;	/* on_error = 'fail' */
} SaViewOptions;

/* Options of a stream; errors with ERRCODE_FDW_INVALID_OPTION_NAME and friends. */
extern SaStreamOptions *sa_option_stream(Relation stream);

/* Options of a view from a list of DefElem; errors name the valid ones. */
extern void sa_option_view(List *defs, SaViewOptions *out);

/* The same, from what the catalog keeps: an array of 'name=value'. */
extern List *sa_option_untransform(Datum array);
extern Datum sa_option_transform(List *defs);

extern const char *sa_option_mode_name(SaOutputMode mode);

/* The source type of a stream, without looking at its other options. */
extern const char *sa_option_source(Oid relid);

/* A type that event times may have, or a domain over one. */
extern bool sa_option_is_time(Oid type);

/* True when the foreign table belongs to the stream_agg wrapper. */
extern bool sa_option_is_stream(Oid relid);

#endif							/* SA_OPTION_H */
