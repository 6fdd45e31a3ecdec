/*
 * dedup.c
 *		The keys that a view has seen.
 *
 * Invariant: a key is seen until the last window of its first event is forgotten (without a window, and in sessions: until
 * an event of that time would be late), and every event is judged by the bound that its lateness is judged by.  When the key
 * goes from here does not matter, so long as it is not before the floor is past that time.
 *
 * Keys are groups of a state (state.c) of their own, with a log of their own: the dedup columns, and the time until which
 * the key is seen as the one aggregate's state.  Their windows are buckets by that time, rounded up, so that forgetting
 * deletes whole chunks.  A key is looked up in every bucket that ends behind the bound; so that there are few, they are
 * the wider the further they are ahead of the floor.
 *
 * Where state is unlogged, keys are, too.  They are seen again by reading again, in any order of partitions, without
 * being judged: which events were duplicates is known (duplicate.c), and all others see their keys.
 *
 * No locks but those of the log; crash: the log commits with the view's batch.
 */
#include "postgres.h"

#include "catalog/pg_aggregate.h"
#include "catalog/pg_type.h"
#include "common/int.h"
#include "executor/executor.h"
#include "nodes/makefuncs.h"
#include "nodes/value.h"
#include "optimizer/optimizer.h"
#include "parser/parse_oper.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "dedup.h"
#include "state_key.h"
#include "state_recover.h"
#include "watermark.h"

#define MIN_WIDTH (INT64CONST(1) << 20) /* of a bucket: about a second */
#define BUCKETS_AHEAD 8			/* at most, of one width */
#define SPAN_BUCKETS 4			/* about so many for the usual span */

struct SaDedup
{
	SaState    *state;
	SaQuery    *keys;			/* the dedup columns as grouping columns; column: of the stream */
	ExprState  *last_end;		/* end of an event's last window, of its time; NULL: no window, or sessions */
	ExprContext *econtext;
	Oid			time_type;
	int64		margin;			/* event times so near to the ends of time have no window */
	int64		lateness;
	int64		width;			/* least, of a bucket */
	TimestampTz floor;
	SaWindow  **buckets;		/* the last first */
	int64		nbuckets;
	int64		maxbuckets;
	Datum	   *values;			/* the event's key */
	bool	   *nulls;
};

/* --- set-up --- */

static void
init_key(Oid stream, const char *column, SaKey *key)
{
	int32		typmod;
	bool		hashable;

	key->column = get_attnum(stream, column);
	if (key->column <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("column \"%s\" of option \"dedup_key\" is not a column of stream \"%s\"", column, get_rel_name(stream))));
	get_atttypetypmodcoll(stream, key->column, &key->type, &typmod, &key->collation);
	get_sort_group_operators(key->type, false, false, false, NULL, &key->eqop, NULL, &hashable);
	if (!OidIsValid(key->eqop) || !hashable)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("column \"%s\" of option \"dedup_key\" is of a type that cannot be hashed: %s", column,
						format_type_be(key->type))));
}

/* The greatest of the times until which a key is seen; of the aggregate, only its state is used. */
static Aggref *
make_until(void)
{
	Aggref	   *ref = makeNode(Aggref);

	ref->aggfnoid = F_MAX_INT8;
	ref->aggtype = ref->aggtranstype = INT8OID;
	ref->aggargtypes = list_make1_oid(INT8OID);
	ref->args = list_make1(makeTargetEntry((Expr *) makeVar(1, 1, INT8OID, -1, InvalidOid, 0), 1, NULL, false));
	ref->aggkind = AGGKIND_NORMAL;
	ref->aggsplit = AGGSPLIT_SIMPLE;
	ref->location = -1;
	return ref;
}

static SaQuery *
make_query(Oid stream, List *columns)
{
	SaQuery    *query = palloc0(sizeof(SaQuery));
	ListCell   *lc;

	query->cxt = CurrentMemoryContext;
	query->stream = stream;
	query->windowed = true;
	query->keys = palloc0(sizeof(SaKey) * list_length(columns));
	foreach(lc, columns)
		init_key(stream, strVal(lfirst(lc)), &query->keys[query->nkeys++]);
	query->naggs = 1;
	query->aggs = palloc0(sizeof(SaAggColumn));
	query->aggs[0].ref = make_until();
	query->aggs[0].columns = list_make1_int(1);
	return query;
}

/* The time is what stands for a CASE's value. */
static Expr *
last_end_of(const SaQuery *query)
{
	CaseTestExpr *time = makeNode(CaseTestExpr);

	time->typeId = sa_window_call_type(query->window);
	time->typeMod = -1;
	return sa_window_call_last_end(query->window, (Expr *) time);
}

/* Do windows say until when keys are seen?  Not sessions, by which an event is late as it is without a window. */
static bool
goes_by_windows(const SaQuery *query)
{
	return query->windowed && sa_window_call_kind(query->window) != SA_SESSION;
}

void
sa_dedup_check(const SaQuery *query, List *columns)
{
	(void) make_query(query->stream, columns);
	if (goes_by_windows(query) && last_end_of(query) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("dedup_key needs a window whose size is constant"),
				 errdetail("Keys are kept until the last window of their events is forgotten, which must follow from the time alone."),
				 errhint("Use constants for its size, slide and origin.")));
}

SaDedup *
sa_dedup_create(const SaQuery *query, List *columns, const SaViewOptions *options, int64 delay, Oid view, Oid log,
				Oid spill, MemoryContext parent)
{
	MemoryContext cxt = AllocSetContextCreate(parent, "stream_agg dedup", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(cxt);
	SaDedup    *dedup = palloc0(sizeof(SaDedup));
	int64		span = Max(delay, 0) / SPAN_BUCKETS + options->allowed_lateness / SPAN_BUCKETS;

	dedup->keys = make_query(query->stream, columns);
	dedup->lateness = options->allowed_lateness;
	if (goes_by_windows(query))
	{
		dedup->econtext = CreateStandaloneExprContext();
		dedup->time_type = sa_window_call_type(query->window);
		dedup->last_end = ExecInitExpr(expression_planner(last_end_of(query)), NULL);
		dedup->margin = 2 * Max(query->measures.longest, query->measures.slide);
		span += query->measures.longest / SPAN_BUCKETS;
	}
	for (dedup->width = MIN_WIDTH; dedup->width < span; dedup->width *= 2) ;
	dedup->values = palloc(sizeof(Datum) * dedup->keys->nkeys);
	dedup->nulls = palloc(sizeof(bool) * dedup->keys->nkeys);
	dedup->state = sa_state_create(dedup->keys, SA_APPEND, view, log, spill, cxt);
	MemoryContextSwitchTo(old);
	return dedup;
}

SaState *
sa_dedup_state(SaDedup *dedup)
{
	return dedup->state;
}

/* --- times --- */

static bool
is_near_ends_of_time(const SaDedup *dedup, TimestampTz time)
{
	return time < MIN_TIMESTAMP + dedup->margin || time >= END_TIMESTAMP - dedup->margin;
}

/* Until when the event's key is seen.  False: it has no window. */
static bool
find_until(SaDedup *dedup, TimestampTz time, TimestampTz *until)
{
	bool		isnull;

	if (dedup->last_end == NULL)
	{
		if (pg_add_s64_overflow(time + 1, dedup->lateness, until))
			*until = DT_NOEND;
		return true;
	}
	if (is_near_ends_of_time(dedup, time))
		return false;
	dedup->econtext->caseValue_datum = TimestampTzGetDatum(time);
	dedup->econtext->caseValue_isNull = false;
	*until = DatumGetTimestampTz(ExecEvalExprSwitchContext(dedup->last_end, dedup->econtext, &isnull));
	ResetExprContext(dedup->econtext);
	if (!isnull && pg_add_s64_overflow(*until, dedup->lateness, until))
		*until = DT_NOEND;
	return !isnull;
}

bool
sa_dedup_is_late(const SaEvent *event, TimestampTz bound)
{
	return event->time < bound;
}

/* --- buckets --- */

static void
list_bucket(SaState *state, SaWindow *window, void *arg)
{
	SaDedup    *dedup = arg;

	dedup->buckets[dedup->nbuckets++] = window;
}

static int
compare_buckets(const void *a, const void *b)
{
	int64		x = (*(SaWindow *const *) a)->end;
	int64		y = (*(SaWindow *const *) b)->end;

	return x > y ? -1 : x < y;
}

static void
list_buckets(SaDedup *dedup)
{
	if (dedup->state->nwindows > dedup->maxbuckets)
	{
		dedup->maxbuckets = dedup->state->nwindows * 2;
		if (dedup->buckets)
			pfree(dedup->buckets);
		dedup->buckets = MemoryContextAlloc(dedup->state->cxt, sizeof(SaWindow *) * dedup->maxbuckets);
	}
	dedup->nbuckets = 0;
	sa_state_each_window(dedup->state, list_bucket, dedup);
	if (dedup->nbuckets > 1)
		qsort(dedup->buckets, dedup->nbuckets, sizeof(SaWindow *), compare_buckets);
}

void
sa_dedup_begin(SaDedup *dedup, TimestampTz floor)
{
	dedup->floor = floor;
	list_buckets(dedup);
}

/* The bucket for keys that are seen until then. */
static SaWindow *
bucket_of(SaDedup *dedup, TimestampTz until, TimestampTz bound)
{
	TimestampTz from = TIMESTAMP_IS_NOBEGIN(dedup->floor) ? bound : dedup->floor;
	int64		width = dedup->width;
	int64		nbuckets = dedup->state->nwindows;
	int64		ahead;
	int64		end;
	SaWindow   *bucket;

	if (TIMESTAMP_IS_NOBEGIN(from))
		ahead = 0;
	else if (pg_sub_s64_overflow(until, from, &ahead))
		ahead = PG_INT64_MAX;
	while (ahead / width > BUCKETS_AHEAD)
		width *= 2;
	end = until - until % width;
	if (end < until && pg_add_s64_overflow(end, width, &end))
		end = DT_NOEND;
	bucket = sa_state_window(dedup->state, end - width, end);
	if (dedup->state->nwindows != nbuckets)
		list_buckets(dedup);
	return bucket;
}

/* --- keys --- */

static int64 *
until_of(SaGroup *group)
{
	return (int64 *) &sa_group_states(group)->value;
}

static bool
is_seen(SaDedup *dedup, uint32 hash, TimestampTz bound)
{
	for (int64 i = 0; i < dedup->nbuckets && dedup->buckets[i]->end > bound; i++)
	{
		SaGroup    *group = sa_state_look_up(dedup->state, dedup->buckets[i], hash, dedup->values, dedup->nulls);

		if (group && *until_of(group) > bound)
			return true;
	}
	return false;
}

static void
note_seen(SaDedup *dedup, uint32 hash, TimestampTz until, TimestampTz bound)
{
	SaState    *state = dedup->state;
	SaWindow   *bucket = bucket_of(dedup, until, bound);
	bool		found;
	SaGroup    *group = sa_state_find(state, bucket, hash, dedup->values, dedup->nulls, &found);

	if (found)
		until = Max(until, *until_of(group));	/* which an event of another partition has seen to, read again before */
	if (!group->touched)
		sa_state_touch(state, bucket, group, !found, true);
	*sa_group_states(group) = (SaTrans) {.value = Int64GetDatum(until)};
}

/* False: a part of it is NULL, and the event nobody's duplicate. */
static bool
take_key(SaDedup *dedup, const SaEvent *event)
{
	for (int i = 0; i < dedup->keys->nkeys; i++)
	{
		int			column = dedup->keys->keys[i].column - 1;

		if (event->nulls[column])
			return false;
		dedup->values[i] = event->values[column];
		dedup->nulls[i] = false;
	}
	return true;
}

/* The key is that of the event, which is the first that has it.  False: it is late. */
static bool
see(SaDedup *dedup, const SaEvent *event, uint32 hash, TimestampTz bound)
{
	TimestampTz until;

	if (!find_until(dedup, event->time, &until) || until <= bound)
		return false;
	note_seen(dedup, hash, until, bound);
	return true;
}

bool
sa_dedup_judge(SaDedup *dedup, const SaEvent *event, TimestampTz bound, bool *seen)
{
	uint32		hash;

	*seen = false;
	if (!take_key(dedup, event))
		return false;
	hash = sa_state_hash_keys(dedup->state, dedup->values, dedup->nulls);
	if (is_seen(dedup, hash, bound))
		return true;
	*seen = see(dedup, event, hash, bound);
	return false;
}

void
sa_dedup_see_again(SaDedup *dedup, const SaEvent *event, TimestampTz bound)
{
	if (take_key(dedup, event))
		(void) see(dedup, event, sa_state_hash_keys(dedup->state, dedup->values, dedup->nulls), Max(bound, dedup->floor));
}

void
sa_dedup_write(SaDedup *dedup, TimestampTz watermark)
{
	ListCell   *lc;

	foreach(lc, sa_state_closing(dedup->state, watermark))
		sa_state_forget(dedup->state, lfirst(lc));
	sa_state_write(dedup->state);
}
