/*
 * option_view.h
 *		Options of continuous views.
 */
#ifndef SA_OPTION_VIEW_H
#define SA_OPTION_VIEW_H

#include "datatype/timestamp.h"
#include "nodes/pg_list.h"

#define SA_NO_DELAY (-1)		/* no watermark: nothing closes, nothing is late */

/* A place in a stream. */
typedef struct SaPosition
{
	const char *topic;			/* '' for staged streams */
	int32		partition;
	int64		position;
	int64		end;			/* where reading ends; PG_INT64_MAX: never */
} SaPosition;

/* Where a view begins or ends, as its options say. */
typedef enum SaBoundaryKind
{
	SA_BOUNDARY_NONE,
	SA_BOUNDARY_EARLIEST,
	SA_BOUNDARY_LATEST,
	SA_BOUNDARY_TIME,			/* the first record that arrived at this time or later */
	SA_BOUNDARY_EXPLICIT,		/* partitions not named: earliest for a start, none for an end */
	SA_BOUNDARY_VIEW			/* where another view stands */
} SaBoundaryKind;

typedef struct SaBoundary
{
	SaBoundaryKind kind;
	TimestampTz time;
	List	   *positions;		/* of SaPosition */
	const char *view;			/* name of its result table */
} SaBoundary;

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
	int64		allowed_lateness;	/* microseconds that groups stay after their windows have closed */
	int64		idle_timeout;	/* microseconds; -1: the stream's */
	int			max_batch_rows;
	int64		max_batch_bytes;	/* of records, about */
	SaBoundary	start;
	SaBoundary	end;
	List	   *dedup_key;		/* names of columns of the stream; NIL: none */
	bool		go_on;			/* on_idle = 'advance' */
	bool		drop_late;		/* late_events = 'drop' */
	bool		fail_on_error;	/* on_error = 'fail' */
	bool		unlogged;		/* state = 'unlogged' */
} SaViewOptions;

/*
 * Options of a view from a list of DefElem; errors name the valid ones.  In the list itself, times are
 * changed to a text that reads the same ever after.
 */
extern void sa_option_view(List *defs, SaViewOptions *out);

/* Is this an option that may change while the view lives?  Errors say what to do instead, or that there is none such. */
extern void sa_option_view_check_change(const char *name);

/* The same, from what the catalog keeps: an array of 'name=value'. */
extern List *sa_option_untransform(Datum array);
extern Datum sa_option_transform(List *defs);

extern const char *sa_option_mode_name(SaOutputMode mode);

#endif							/* SA_OPTION_VIEW_H */
