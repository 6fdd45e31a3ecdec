/*
 * option_view.c
 *		Options of continuous views.
 *
 * Invariant: every option is listed once, in a table that says how its value is read; the DDL and the
 * workers go through it.  What is accepted works: an option or value that a later version will bring is
 * refused with "not supported yet".
 *
 * No locks, no state: nothing to recover after a crash.
 */
#include "postgres.h"

#include "access/reloptions.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "lib/stringinfo.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/varlena.h"

#include "compat.h"

#include "option.h"
#include "option_boundary.h"
#include "option_value.h"

#define DEFAULT_BATCH_ROWS 100000
#define MAX_BATCH_ROWS 10000000
#define DEFAULT_BATCH_BYTES (INT64CONST(64) * 1024 * 1024)
#define MIN_BATCH_BYTES 1024
#define MAX_BATCH_BYTES (INT64CONST(1024) * 1024 * 1024)
#define IDLE_TIMEOUT_UNSET (-1)

typedef struct ViewOption
{
	const char *name;
	void		(*read) (const char *name, const char *value, SaViewOptions *view);
	bool		planned;		/* known, but only its default works yet: not in hints */
	const char *instead;		/* it cannot change while the view lives: what to do instead */
} ViewOption;

#define MAKE_ANOTHER "Create another view with start = 'view:...' and the name of this one, let it catch up, and exchange their names with stream_agg.swap()."

/* ---------- reading values ---------- */

static const char *const mode_words[] = {"update", "append", "complete", NULL};

static void
read_output_mode(const char *name, const char *value, SaViewOptions *view)
{
	view->output_mode = (SaOutputMode) sa_option_read_word(name, value, mode_words);
}

static void
read_trigger(const char *name, const char *value, SaViewOptions *view)
{
	Interval	interval;

	if (pg_strcasecmp(value, "immediate") == 0)
		view->trigger = SA_TRIGGER_IMMEDIATE;
	else if (pg_strcasecmp(value, "manual") == 0)
		view->trigger = SA_TRIGGER_MANUAL;
	else
	{
		if (!sa_option_parse_interval(value, &interval))
			sa_option_refuse_value(name, value, "Valid values are: immediate, manual, or an interval such as '30 seconds'.");
		view->trigger = sa_option_read_interval(name, value);
		if (view->trigger == 0)
			sa_option_refuse_value(name, value, "The interval must be positive; say 'immediate' to read as soon as rows are committed.");
	}
}

static void
read_watermark(const char *name, const char *value, SaViewOptions *view)
{
	view->watermark = sa_option_read_interval(name, value);
}

static void
read_max_batch_rows(const char *name, const char *value, SaViewOptions *view)
{
	int			rows;
	const char *unithint = NULL;

	if (!parse_int(value, &rows, 0, &unithint) || rows < 1 || rows > MAX_BATCH_ROWS)
		sa_option_refuse_value(name, value, "Give a number of rows between 1 and 10000000.");
	view->max_batch_rows = rows;
}

static void
read_max_batch_bytes(const char *name, const char *value, SaViewOptions *view)
{
	view->max_batch_bytes = sa_option_read_bytes(name, value, MIN_BATCH_BYTES, MAX_BATCH_BYTES,
														 "Give a size from 1 kB to 1 GB.");
}

static void
read_idle_timeout(const char *name, const char *value, SaViewOptions *view)
{
	view->idle_timeout = sa_option_read_interval(name, value);
}

static void
read_start(const char *name, const char *value, SaViewOptions *view)
{
	sa_option_boundary_read(name, value, true, &view->start);
}

static void
read_end(const char *name, const char *value, SaViewOptions *view)
{
	sa_option_boundary_read(name, value, false, &view->end);
}

static void
read_late_events(const char *name, const char *value, SaViewOptions *view)
{
	static const char *const words[] = {"dead_letter", "drop", NULL};

	view->drop_late = sa_option_read_word(name, value, words) == 1;
}

static void
read_on_error(const char *name, const char *value, SaViewOptions *view)
{
	static const char *const words[] = {"dead_letter", "fail", NULL};

	view->fail_on_error = sa_option_read_word(name, value, words) == 1;
}

static void
read_allowed_lateness(const char *name, const char *value, SaViewOptions *view)
{
	view->allowed_lateness = sa_option_read_interval(name, value);
}

static void
read_on_idle(const char *name, const char *value, SaViewOptions *view)
{
	static const char *const words[] = {"hold", "advance", NULL};

	view->go_on = sa_option_read_word(name, value, words) == 1;
}

static void
read_state(const char *name, const char *value, SaViewOptions *view)
{
	static const char *const words[] = {"heap", "unlogged", NULL};

	view->unlogged = sa_option_read_word(name, value, words) == 1;
}

static void
read_dedup_key(const char *name, const char *value, SaViewOptions *view)
{
	List	   *columns;
	ListCell   *lc;

	if (!SplitIdentifierString(pstrdup(value), ',', &columns) || columns == NIL)
		sa_option_refuse_value(name, value, "Give a column of the stream, or several with commas between them.");
	view->dedup_key = NIL;
	foreach(lc, columns)
	{
		String	   *column = makeString(pstrdup(lfirst(lc)));

		if (list_member(view->dedup_key, column))
			sa_option_refuse_value(name, value, "Name every column once.");
		view->dedup_key = lappend(view->dedup_key, column);
	}
}

static void
read_planned(const char *name, const char *value, SaViewOptions *view)
{
	sa_option_refuse_planned(name, value);
}

/* ---------- the table ---------- */

static const ViewOption view_options[] =
{
	{"output_mode", read_output_mode, false, MAKE_ANOTHER},
	{"trigger", read_trigger, false},
	{"watermark", read_watermark, false},
	{"idle_timeout", read_idle_timeout, false},
	{"max_batch_rows", read_max_batch_rows, false},
	{"max_batch_bytes", read_max_batch_bytes, false},
	{"start", read_start, false, "Use stream_agg.reset() or stream_agg.seek() to have it read again, or drop it and create another one."},
	{"end", read_end, false, MAKE_ANOTHER},
	{"late_events", read_late_events, false},
	{"on_error", read_on_error, false},
	{"allowed_lateness", read_allowed_lateness, false, MAKE_ANOTHER},
	{"on_idle", read_on_idle, false},
	{"state", read_state, false},
	{"dedup_key", read_dedup_key, false, MAKE_ANOTHER},
	{"retention", read_planned, true},
};

static void
refuse_unknown(const char *name)
{
	StringInfoData names;

	initStringInfo(&names);
	for (size_t i = 0; i < lengthof(view_options); i++)
	{
		if (!view_options[i].planned)
			appendStringInfo(&names, "%s%s", names.len > 0 ? ", " : "", view_options[i].name);
	}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid option \"%s\"", name),
			 errhint("Valid options are: %s.", names.data)));
}

static const ViewOption *
get_option(const char *name)
{
	for (size_t i = 0; i < lengthof(view_options); i++)
	{
		if (strcmp(view_options[i].name, name) == 0)
			return &view_options[i];
	}
	refuse_unknown(name);
	return NULL;				/* keep compiler quiet */
}

void
sa_option_view_check_change(const char *name)
{
	const ViewOption *option = get_option(name);

	if (option->instead)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("option \"%s\" of a continuous view cannot be changed", name),
				 errhint("%s", option->instead)));
}

static void
refuse_duplicates(List *defs, ListCell *from)
{
	const char *name = lfirst_node(DefElem, from)->defname;
	ListCell   *lc;

	for_each_cell(lc, defs, lnext(defs, from))
	{
		if (strcmp(lfirst_node(DefElem, lc)->defname, name) == 0)
			ereport(ERROR,
					(errcode(ERRCODE_SYNTAX_ERROR),
					 errmsg("option \"%s\" is given more than once", name)));
	}
}

/*
 * What the catalog will keep of a time is a text that says the same at any time and under any setting:
 * 'yesterday' is the day before the view was made.
 */
static void
settle_time(DefElem *def, const SaBoundary *boundary)
{
	if (boundary->kind == SA_BOUNDARY_TIME)
		def->arg = (Node *) makeString(sa_option_boundary_time(boundary->time));
}

/* ---------- views ---------- */

void
sa_option_view(List *defs, SaViewOptions *out)
{
	ListCell   *lc;

	memset(out, 0, sizeof(SaViewOptions));
	out->output_mode = SA_UPDATE;
	out->trigger = SA_TRIGGER_IMMEDIATE;
	out->watermark = SA_NO_DELAY;
	out->idle_timeout = IDLE_TIMEOUT_UNSET;
	out->max_batch_rows = DEFAULT_BATCH_ROWS;
	out->max_batch_bytes = DEFAULT_BATCH_BYTES;
	out->start.kind = SA_BOUNDARY_EARLIEST;

	foreach(lc, defs)
	{
		DefElem    *def = lfirst_node(DefElem, lc);

		refuse_duplicates(defs, lc);
		get_option(def->defname)->read(def->defname, defGetString(def), out);
		if (strcmp(def->defname, "start") == 0)
			settle_time(def, &out->start);
		else if (strcmp(def->defname, "end") == 0)
			settle_time(def, &out->end);
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
