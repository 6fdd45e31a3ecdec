/*
 * estimate.c
 *		stream_agg.estimate_state(): groups and bytes to expect, at this and at longer delays.
 *
 * Windows are taken to come one after another, each as large as the largest one at hand: of a view, the largest that
 * is open; of a query, the fullest one that a sample of its stream covers from start to end.  Where it covers
 * none, the groups still to come are extrapolated from how many have been seen once and twice (A. Chao, 1984,
 * and R. K. Colwell et al., "Models and estimators linking individual-based and sample-based rarefaction,
 * extrapolation and comparison of assemblages", Journal of Plant Ecology 5, 2012, equation 9).
 *
 * Sessions that are there at a time are those that begin in a time, multiplied by how long each is there (J. D. C. Little,
 * "A proof for the queuing formula L = lambda W", Operations Research 9, 1961).
 *
 * A query's sample is folded like a batch, into a state that is thrown away: as the caller, whose rights and
 * settings hold.  No locks but the query's; nothing to recover after a crash.
 */
#include "postgres.h"

#include <math.h>

#include "access/table.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "parser/analyze.h"
#include "parser/parsetree.h"
#include "parser/scansup.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "admin.h"
#include "compat.h"
#include "grammar.h"
#include "option.h"
#include "owner.h"
#include "query.h"
#include "state.h"
#include "stats.h"
#include "window.h"
#include "window_group.h"

#define MAX_DELAY_DAYS 36500

PG_FUNCTION_INFO_V1(sa_estimate_view);
PG_FUNCTION_INFO_V1(sa_estimate_state);

/* What rows of the answer come from. */
typedef struct Estimate
{
	bool		windowed;
	int64		size;			/* of a window, microseconds; 0: not known */
	int64		slide;			/* from one window to the next */
	bool		panes;			/* windows are kept as panes */
	int64		delay;			/* SA_NO_DELAY: none */
	bool		complete;		/* windows never close */
	int64		lateness;		/* that windows stay after their close */
	bool		sessions;		/* of which the size is the mean length */
	double		session_rate;	/* begun in a microsecond; < 0: not known */
	double		window_groups;	/* of one window, or of all where there are none; < 0: not known */
	double		group_bytes;
	const char *basis;
} Estimate;

/* --- the answer --- */

static Datum
interval_datum(int64 usecs)
{
	Interval   *interval = palloc0(sizeof(Interval));

	interval->time = usecs;
	return IntervalPGetDatum(interval);
}

/* Negative: NULL. */
static void
put_row(ReturnSetInfo *rsinfo, int64 delay, double windows, double groups, double bytes, const char *basis)
{
	double		numbers[] = {windows, groups, bytes};
	Datum		values[5];
	bool		nulls[5] = {0};

	values[0] = interval_datum(delay);
	nulls[0] = delay < 0;
	for (int i = 0; i < 3; i++)
	{
		values[i + 1] = Int64GetDatum((int64) Min(rint(numbers[i]), (double) (PG_INT64_MAX / 2)));
		nulls[i + 1] = numbers[i] < 0;
	}
	values[4] = CStringGetTextDatum(basis);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

static void
put_sessions(ReturnSetInfo *rsinfo, const Estimate *estimate, int64 delay)
{
	double		stay = (double) delay + estimate->lateness + estimate->size;
	double		groups = estimate->session_rate < 0 ? -1 : estimate->session_rate * stay;

	put_row(rsinfo, delay, groups, groups, groups < 0 ? -1 : groups * estimate->group_bytes, estimate->basis);
}

/*
 * Windows that have begun and are not forgotten: those of `delay`, of allowed lateness, and of one more size.  As many panes begin in
 * that time where windows start, and as many again where they end, if that is elsewhere.
 */
static void
put_delay(ReturnSetInfo *rsinfo, const Estimate *estimate, int64 delay)
{
	int			kinds = estimate->panes && estimate->size % estimate->slide != 0 ? 2 : 1;
	double		windows = kinds * ceil(((double) delay + estimate->lateness + estimate->size) / estimate->slide);
	double		groups = estimate->window_groups < 0 ? -1 : windows * estimate->window_groups;

	put_row(rsinfo, delay, windows, groups, groups < 0 ? -1 : groups * estimate->group_bytes, estimate->basis);
}

/* The delay there is, and the one asked for; or, when none is, some that are longer. */
static void
put_estimate(ReturnSetInfo *rsinfo, const Estimate *estimate, int64 asked)
{
	static const int longer[] = {2, 5, 10};
	int64		unit = Min(Max(estimate->delay, estimate->size), MAX_DELAY_DAYS * USECS_PER_DAY);
	void		(*put) (ReturnSetInfo *, const Estimate *, int64) = estimate->sessions ? put_sessions : put_delay;

	if (!estimate->windowed)
	{
		put_row(rsinfo, -1, -1, estimate->window_groups,
				estimate->window_groups < 0 ? -1 : estimate->window_groups * estimate->group_bytes, estimate->basis);
		return;
	}
	if (estimate->complete)
	{
		put_row(rsinfo, -1, -1, -1, -1, "in output mode complete no window is ever forgotten");
		return;
	}
	if (!estimate->sessions && (estimate->size <= 0 || estimate->slide <= 0))
		return;					/* not constant */
	if (estimate->delay == SA_NO_DELAY)
		put_row(rsinfo, -1, -1, -1, -1, "without a watermark no window is ever forgotten");
	else
		put(rsinfo, estimate, estimate->delay);
	if (asked >= 0)
		put(rsinfo, estimate, asked);
	else
		for (int i = 0; i < lengthof(longer); i++)
			put(rsinfo, estimate, unit * longer[i]);
}

/* --- of a view --- */

static int64
delay_of(Oid stream, int64 own)
{
	Relation	rel;

	if (own != SA_NO_DELAY)
		return own;
	rel = table_open(stream, AccessShareLock);
	own = sa_option_stream(rel)->watermark;
	table_close(rel, NoLock);
	return own;
}

/* The gap of a session's window, microseconds; 0: it is not constant. */
static int64
constant_gap(const SaQuery *query)
{
	Const	   *gap = lsecond(query->window->args);
	Interval   *interval;

	if (!IsA(gap, Const) || gap->constisnull)
		return 0;
	interval = DatumGetIntervalP(gap->constvalue);
	return interval->day * USECS_PER_DAY + interval->time;
}

/* Read as the owner, for the caller's rights do not matter here; explain() does the same. */
static void
look_at_definition(SaViewConfig *config, Estimate *estimate, bool *transform)
{
	SaOwnerSwitch save;
	SaViewOptions options;
	SaQuery    *query;

	sa_owner_enter(&save, sa_owner_of(config->view));
	query = sa_query_load(config->definition, config->view, GetUserId());
	sa_option_view(config->options, &options);
	estimate->windowed = query->windowed;
	estimate->size = query->sessions ? constant_gap(query) : query->measures.usual;
	estimate->slide = query->measures.slide;
	estimate->sessions = query->sessions;
	estimate->delay = delay_of(config->stream, options.watermark);
	estimate->panes = options.allowed_lateness == 0 && sa_query_has_panes(query, options.output_mode);
	estimate->complete = options.output_mode == SA_COMPLETE;
	estimate->lateness = options.allowed_lateness;
	*transform = query->transform;
	sa_query_free(query);
	sa_owner_leave(&save);
}

/*
 * Most groups there can be, those at hand taken to stay as briefly as they may.  The watermark says of a session how long it
 * stays after its end.
 */
static void
take_session_rate(Estimate *estimate, int64 groups)
{
	double		stay = (double) estimate->delay + estimate->lateness + estimate->size;

	estimate->session_rate = estimate->delay != SA_NO_DELAY && stay > 0 ? groups / stay : -1;
	estimate->basis = estimate->session_rate < 0 ? "how long sessions stay is not known" :
		"at most, as if no session at hand were longer than the gap";
}

static void
estimate_view(ReturnSetInfo *rsinfo, Oid view, int64 asked)
{
	SaViewConfig *config = sa_admin_lock_view(view, AccessShareLock, NULL);
	Estimate	estimate = {.basis = "as in the largest open window"};
	SaProgress	last;
	bool		transform;

	look_at_definition(config, &estimate, &transform);
	if (transform)
		return;
	if (!sa_stats_last(view, &last))
	{
		estimate.window_groups = estimate.session_rate = -1;
		estimate.basis = "no batch since the server started";
	}
	else
	{
		put_row(rsinfo, estimate.windowed ? estimate.delay : -1, estimate.windowed ? last.windows : -1, last.groups,
				last.state_bytes, "now");
		if (!estimate.windowed)
			return;
		if (estimate.panes)
			estimate.basis = "as in the largest open pane";
		if (estimate.sessions)
			take_session_rate(&estimate, last.groups);
		estimate.window_groups = last.largest_window;
		estimate.group_bytes = (double) last.state_bytes / Max(last.groups, 1);
		if (last.windows == 0)
		{
			estimate.window_groups = estimate.session_rate = -1;
			estimate.basis = "no window is open";
		}
	}
	put_estimate(rsinfo, &estimate, asked);
}

/* --- a sample of a stream --- */

/* How often a group was seen. */
typedef struct GroupCount
{
	SaGroup    *group;
	int64		rows;
} GroupCount;

typedef struct WindowCount
{
	SaWindow   *window;
	int64		start;
	int64		end;
	int64		rows;
	int64		groups;
	int64		once;			/* groups seen so often */
	int64		twice;
	int64		first;			/* event times */
	int64		last;
} WindowCount;

typedef struct Sample
{
	SaQuery    *query;
	SaState    *state;
	MemoryContext row_cxt;
	HTAB	   *groups;
	HTAB	   *windows;
	int64		rows;
	int64		first;
	int64		last;
	double		length;			/* of all sessions */
} Sample;

static void
count_row(Sample *sample, SaWindow *window, SaGroup *group, int64 start, int64 end, int64 time)
{
	bool		found;
	GroupCount *count = hash_search(sample->groups, &group, HASH_ENTER, &found);
	WindowCount *in;

	count->rows = found ? count->rows + 1 : 1;
	in = hash_search(sample->windows, &window, HASH_ENTER, &found);
	if (!found)
		*in = (WindowCount) {.window = window, .start = start, .end = end, .first = time, .last = time};
	in->rows++;
	in->groups += count->rows == 1;
	in->once += (count->rows == 1) - (count->rows == 2);
	in->twice += (count->rows == 2) - (count->rows == 3);
	in->first = Min(in->first, time);
	in->last = Max(in->last, time);
}

static void
fold_row(Sample *sample, TupleTableSlot *slot, int64 start, int64 end, int64 time)
{
	SaState    *state = sample->state;
	SaWindow   *window = sa_state_window(state, start, end);
	uint32		hash = sa_state_hash(state, slot->tts_values, slot->tts_isnull);
	SaGroup    *group = sa_state_group(state, window, hash, slot->tts_values, slot->tts_isnull);

	sa_state_advance(state, window, group, slot->tts_values, slot->tts_isnull);
	count_row(sample, window, group, start, end, time);
}

static void
fold_session(Sample *sample, TupleTableSlot *slot)
{
	SaState    *state = sample->state;
	SaWindow   *window = sa_state_window(state, SA_NO_WINDOW_START, SA_NO_WINDOW_END);
	uint32		hash = sa_state_hash(state, slot->tts_values, slot->tts_isnull);

	sa_state_advance(state, window, sa_state_group(state, window, hash, slot->tts_values, slot->tts_isnull),
					 slot->tts_values, slot->tts_isnull);
}

static void
fold_hops(Sample *sample, TupleTableSlot *slot, int64 time)
{
	SaQuery    *query = sample->query;
	int64		start;

	for (int k = 0; k < query->hop_count; k++)
		if (sa_window_hop(time, query->window_size, query->hop_slide, query->hop_origin, k, &start))
			fold_row(sample, slot, start, sa_window_end_of(start, query->window_size), time);
}

static void
fold_windows(Sample *sample, TupleTableSlot *slot, int64 time)
{
	SaWindowSet *set = sample->query->window_set;

	sa_window_set_find(set, time);
	for (int i = 0; i < set->nwindows; i++)
		fold_row(sample, slot, set->windows[i][0], set->windows[i][1], time);
}

/* One row from below, of a query with windows; behind its columns is the event's time. */
static void
take_windowed(Sample *sample, TupleTableSlot *slot)
{
	SaQuery    *query = sample->query;
	int			column = query->ncolumns;
	int64		time;

	if (slot->tts_isnull[column] || slot->tts_isnull[query->start_column - 1] || slot->tts_isnull[query->end_column - 1])
		return;
	time = DatumGetInt64(slot->tts_values[column]);
	if (TupleDescAttr(slot->tts_tupleDescriptor, column)->atttypid == DATEOID)
		time = DatumGetDateADT(slot->tts_values[column]) * USECS_PER_DAY;
	sample->first = sample->rows == 0 ? time : Min(sample->first, time);
	sample->last = sample->rows == 0 ? time : Max(sample->last, time);
	sample->rows++;
	if (query->sessions)
		fold_session(sample, slot);
	else if (query->hop_count > 0)
		fold_hops(sample, slot, time);
	else if (query->window_set)
		fold_windows(sample, slot, time);
	else
		fold_row(sample, slot, DatumGetInt64(slot->tts_values[query->start_column - 1]),
				 DatumGetInt64(slot->tts_values[query->end_column - 1]), time);
}

static void
take_row(TupleTableSlot *slot, void *arg)
{
	Sample	   *sample = arg;
	MemoryContext old = MemoryContextSwitchTo(sample->row_cxt);

	if (sample->query->windowed)
		take_windowed(sample, slot);
	else
	{
		sample->rows++;
		fold_row(sample, slot, SA_NO_WINDOW_START, SA_NO_WINDOW_END, 0);
	}
	MemoryContextSwitchTo(old);
	MemoryContextReset(sample->row_cxt);
	CHECK_FOR_INTERRUPTS();
}

/* The stream's event time as one more column of the rows from below; a window is always over it. */
static void
add_event_time(SaQuery *query)
{
	Query	   *below = query->below;
	Relation	rel = table_open(query->stream, AccessShareLock);
	SaStreamOptions *stream = sa_option_stream(rel);
	Var		   *time;
	Index		rti = 1;

	while (rt_fetch(rti, below->rtable)->rtekind != RTE_RELATION || rt_fetch(rti, below->rtable)->relid != query->stream)
		rti++;
	time = makeVar(rti, stream->time_attr, stream->time_type, -1, InvalidOid, 0);
	below->targetList = lappend(below->targetList,
								makeTargetEntry((Expr *) time, list_length(below->targetList) + 1, pstrdup("event_time"), false));
	table_close(rel, NoLock);
}

static HTAB *
create_counts(const char *name, Size size, MemoryContext cxt)
{
	HASHCTL		ctl = {.keysize = sizeof(void *), .entrysize = size, .hcxt = cxt};

	return hash_create(name, 1024, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

/* Fold so many rows that pass WHERE, or all there are. */
static void
take_sample(Sample *sample, SaQuery *query, int rows)
{
	MemoryContext cxt = CurrentMemoryContext;

	sample->query = query;
	sample->row_cxt = AllocSetContextCreate(cxt, "stream_agg sample row", ALLOCSET_DEFAULT_SIZES);
	sample->state = sa_state_create(query, SA_APPEND, InvalidOid, InvalidOid, InvalidOid, cxt);
	sample->groups = create_counts("stream_agg sample groups", sizeof(GroupCount), cxt);
	sample->windows = create_counts("stream_agg sample windows", sizeof(WindowCount), cxt);
	if (query->windowed)
		add_event_time(query);
	query->below->sortClause = NIL;
	query->below->limitCount = (Node *) makeConst(INT8OID, -1, InvalidOid, sizeof(int64), Int64GetDatum(rows), false, true);
	query->below->limitOption = LIMIT_OPTION_COUNT;
	sa_query_run(query, take_row, sample);
}

/* --- of a query --- */

/* Groups not seen yet, at least: Chao's estimate, in the form without bias where none was seen twice. */
static double
unseen(const WindowCount *in)
{
	double		once = in->once;
	double		part = (in->rows - 1.0) / Max(in->rows, 1);

	return in->twice > 0 ? part * once * once / (2.0 * in->twice) : part * once * (once - 1) / 2;
}

/* Groups to expect in times as many rows. */
static double
extrapolate(const WindowCount *in, double times)
{
	double		more = unseen(in);

	if (more <= 0 || times <= 1)
		return in->groups;
	return in->groups + more * (1 - pow(1 - in->once / (in->rows * more + in->once), (times - 1) * in->rows));
}

/* Does the sample hold the window from its start to its end? */
static bool
is_whole(const Sample *sample, const WindowCount *in)
{
	return in->start >= sample->first && in->end <= sample->last;
}

/* The one with most groups of those held whole; or else that with most rows. */
static WindowCount *
fullest_window(const Sample *sample, int *nwhole)
{
	HASH_SEQ_STATUS status;
	WindowCount *best = NULL;
	WindowCount *in;

	*nwhole = 0;
	hash_seq_init(&status, sample->windows);
	while ((in = hash_seq_search(&status)) != NULL)
	{
		if (sample->query->windowed && is_whole(sample, in))
		{
			if (++*nwhole == 1 || in->groups > best->groups)
				best = in;
		}
		else if (*nwhole == 0 && (best == NULL || in->rows > best->rows))
			best = in;
	}
	return best;
}

static void
estimate_windows(const Sample *sample, Estimate *estimate)
{
	int			nwhole;
	WindowCount *in = fullest_window(sample, &nwhole);
	double		seen;

	if (estimate->size <= 0 || estimate->slide <= 0)	/* not constant: take those of the fullest window */
		estimate->size = estimate->slide = in->end - in->start;
	if (nwhole > 0)
	{
		estimate->window_groups = in->groups;
		estimate->basis = psprintf("the fullest of %d whole windows in " INT64_FORMAT " rows", nwhole, sample->rows);
		return;
	}
	seen = Min(1.0, ((double) in->last - in->first) / (in->end - in->start));
	estimate->window_groups = seen > 0 ? extrapolate(in, 1 / seen) : in->groups + unseen(in);
	estimate->basis = psprintf("extrapolated from %.0f %% of a window, " INT64_FORMAT " rows", 100 * seen, in->rows);
}

/* The groups of a query without windows are never forgotten: those not seen yet count at least, where that can be told. */
static void
estimate_all(const Sample *sample, Estimate *estimate)
{
	int			nwhole;
	WindowCount *in = fullest_window(sample, &nwhole);

	estimate->basis = psprintf("at least, from " INT64_FORMAT " rows", in->rows);
	if (in->groups < in->rows || in->rows == 1)
		estimate->window_groups = in->groups + unseen(in);
	else
		estimate->basis = psprintf("no group was seen twice in " INT64_FORMAT " rows", in->rows);
}

/* The lengths of sessions, microseconds. */
static void
add_lengths(SaTouched *groups, int n, void *arg)
{
	Sample	   *sample = arg;
	int			nkeys = sample->query->nkeys;
	Datum	   *keys = palloc(sizeof(Datum) * (nkeys + 2));
	bool	   *nulls = palloc(sizeof(bool) * (nkeys + 2));

	for (int i = 0; i < n; i++)
	{
		sa_state_key_values(sample->state, groups[i].group, keys, nulls);
		sample->length += DatumGetInt64(keys[nkeys + 1]) - DatumGetInt64(keys[nkeys]);
	}
}

static void
estimate_sessions(Sample *sample, Estimate *estimate, int64 groups)
{
	double		span = (double) sample->last - sample->first;

	sa_state_close_sessions(sample->state, DT_NOEND, add_lengths, sample);
	estimate->size = sample->length / groups;
	if (span > 0)
	{
		estimate->session_rate = groups / span;
		estimate->basis = psprintf(INT64_FORMAT " sessions in " INT64_FORMAT " rows", groups, sample->rows);
	}
	else
		estimate->basis = "all events are of one time";
}

static void
estimate_sample(ReturnSetInfo *rsinfo, SaQuery *query, int64 asked, int rows)
{
	Sample		sample = {0};
	SaStateSize size;
	Estimate	estimate = {
		.windowed = query->windowed,
		.size = query->sessions ? constant_gap(query) : query->measures.usual,
		.slide = query->measures.slide,
		.delay = delay_of(query->stream, SA_NO_DELAY),
		.window_groups = -1,
		.sessions = query->sessions,
		.session_rate = -1,
		.basis = "the stream holds no event for this query"
	};

	take_sample(&sample, query, rows);
	sa_state_size(sample.state, &size);
	estimate.group_bytes = (double) size.bytes / Max(size.groups, 1);
	if (size.groups > 0 && query->sessions)
		estimate_sessions(&sample, &estimate, size.groups);
	else if (size.groups > 0 && query->windowed)
		estimate_windows(&sample, &estimate);
	else if (size.groups > 0)
		estimate_all(&sample, &estimate);
	put_estimate(rsinfo, &estimate, asked);
}

static SaQuery *
split_text(char *text)
{
	ErrorContextCallback callback = {.callback = sa_grammar_point_inside, .arg = text, .previous = error_context_stack};
	ParseState *pstate = make_parsestate(NULL);
	List	   *list;
	Query	   *query;
	SaQuery    *result;

	error_context_stack = &callback;
	list = pg_parse_query(text);
	pstate->p_sourcetext = text;
	if (list_length(list) != 1 || !IsA(linitial_node(RawStmt, list)->stmt, SelectStmt))
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("one SELECT is needed, as in CREATE CONTINUOUS VIEW")));
	query = parse_analyze_fixedparams(linitial(list), text, NULL, 0, NULL);
	sa_query_check_new(query, pstate);
	result = sa_query_split(sa_window_group(query), pstate);
	error_context_stack = callback.previous;
	free_parsestate(pstate);
	return result;
}

static void
estimate_query(ReturnSetInfo *rsinfo, char *text, int64 asked, int rows)
{
	MemoryContext cxt = AllocSetContextCreate(CurrentMemoryContext, "stream_agg estimate", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(cxt);
	SaQuery    *query = split_text(text);

	if (!query->transform)
		estimate_sample(rsinfo, query, asked, rows);
	sa_query_free(query);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(cxt);
}

/* --- the functions --- */

/* A query begins with SELECT or WITH, which no name does; a comment or a parenthesis comes before one, too. */
static bool
is_query(const char *text)
{
	static const char *const words[] = {"select", "with", "(", "--", "/*"};

	while (scanner_isspace(*text))
		text++;
	for (int i = 0; i < lengthof(words); i++)
	{
		int			len = strlen(words[i]);

		if (pg_strncasecmp(text, words[i], len) == 0 && (i > 1 || text[len] == '\0' || strchr(" \t\n\r\f(*'\"-+/$", text[len])))
			return true;
	}
	return false;
}

/* A delay in microseconds; -1: NULL. */
static int64
asked_delay(FunctionCallInfo fcinfo, int n)
{
	Interval   *delay;

	if (PG_ARGISNULL(n))
		return -1;
	delay = PG_GETARG_INTERVAL_P(n);
	if (delay->month != 0 || delay->day < 0 || delay->time < 0 || delay->day > MAX_DELAY_DAYS ||
		delay->time > MAX_DELAY_DAYS * USECS_PER_DAY)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a watermark's delay must be between 0 and %d days, without months", MAX_DELAY_DAYS)));
	return delay->day * USECS_PER_DAY + delay->time;
}

/* estimate_state(view [, watermark]) */
Datum
sa_estimate_view(PG_FUNCTION_ARGS)
{
	InitMaterializedSRF(fcinfo, 0);
	if (!PG_ARGISNULL(0))
		estimate_view((ReturnSetInfo *) fcinfo->resultinfo, PG_GETARG_OID(0), asked_delay(fcinfo, 1));
	return (Datum) 0;
}

/* estimate_state(view_or_query [, watermark [, sample_rows]]) */
Datum
sa_estimate_state(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	int64		asked;
	char	   *what;

	InitMaterializedSRF(fcinfo, 0);
	if (PG_ARGISNULL(0) || PG_ARGISNULL(2))
		return (Datum) 0;
	asked = asked_delay(fcinfo, 1);
	what = text_to_cstring(PG_GETARG_TEXT_PP(0));
	if (PG_GETARG_INT32(2) <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a sample needs at least one row")));
	if (is_query(what))
		estimate_query(rsinfo, what, asked, PG_GETARG_INT32(2));
	else
		estimate_view(rsinfo, DatumGetObjectId(DirectFunctionCall1(regclassin, CStringGetDatum(what))), asked);
	return (Datum) 0;
}
