/*
 * change.c
 *		Functions by which administrators have a view begin anew, stand elsewhere, or take another's name.
 *
 * Invariant: what a view's worker holds in memory is never older than what is on disk: a view that begins
 * anew, or elsewhere, gets a new id, by which its worker knows.
 *
 * Locks: AccessExclusiveLock on the result table, which waits for the batch at hand.  Crash: transactional.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "commands/tablecmds.h"
#include "fmgr.h"
#include "nodes/makefuncs.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "admin.h"
#include "advance.h"
#include "catalog.h"
#include "commit.h"
#include "compat.h"
#include "ddl_guard.h"
#include "ddl_part.h"
#include "deadletter.h"
#include "lateness.h"
#include "option_boundary.h"
#include "replay.h"
#include "owner.h"
#include "slot.h"
#include "source_staged_catalog.h"

PG_FUNCTION_INFO_V1(sa_advance_watermark);
PG_FUNCTION_INFO_V1(sa_reset);
PG_FUNCTION_INFO_V1(sa_seek);
PG_FUNCTION_INFO_V1(sa_swap);

/* Under a new id, what workers hold of the view in memory is out of date. */
static void
renew(SaViewConfig *config)
{
	config->id = sa_catalog_next_id();
	sa_part_rename(config, config->id);
	sa_catalog_change_view(config);
	sa_slot_want_at_commit(config->stream);
}

/* --- advance_watermark --- */

static bool
has_watermark(const SaViewConfig *config)
{
	SaViewOptions options;
	Relation	rel = table_open(config->stream, AccessShareLock);
	SaStreamOptions *stream = sa_option_stream(rel);

	sa_option_view(copyObject(config->options), &options);
	table_close(rel, NoLock);
	return options.watermark != SA_NO_DELAY || stream->watermark != SA_NO_DELAY;
}

/* An event of that time would not be believed; whoever has mistyped it is told while he can still take it back. */
static void
warn_of_future(const SaViewConfig *config, TimestampTz watermark)
{
	Relation	rel = table_open(config->stream, AccessShareLock);
	int64		max_future = sa_option_stream(rel)->max_future;
	TimestampTz now = GetCurrentTimestamp();

	table_close(rel, NoLock);
	if (watermark > now && watermark - now > max_future)
		ereport(WARNING,
				(errmsg("the watermark of continuous view \"%s\" will be far ahead of the clock", get_rel_name(config->view)),
				 errdetail("Events of windows that end by %s will be late, for a watermark does not go back.", timestamptz_to_str(watermark)),
				 errhint("If that is not meant, roll back; later, only stream_agg.reset() begins anew.")));
}

/*
 * advance_watermark(view, time): as if all of its partitions had come so far.  The worker does it, under its own lock
 * on the view.
 */
Datum
sa_advance_watermark(PG_FUNCTION_ARGS)
{
	SaViewConfig *config = sa_admin_lock_view(PG_GETARG_OID(0), AccessShareLock, "stream_agg.advance_watermark()");
	TimestampTz watermark = PG_GETARG_TIMESTAMPTZ(1);

	sa_slot_require();
	if (TIMESTAMP_NOT_FINITE(watermark))
		ereport(ERROR,
				(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
				 errmsg("a watermark must be finite")));
	if (!has_watermark(config))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("continuous view \"%s\" has no watermark", get_rel_name(config->view)),
				 errhint("Set the option watermark of the view or of its stream.")));
	warn_of_future(config, watermark);
	sa_advance_ask(config->view, watermark);
	sa_slot_want_at_commit(config->stream);
	PG_RETURN_VOID();
}

/* --- reset --- */

static void
empty(Oid relid)
{
	Relation	rel;

	if (!OidIsValid(relid))
		return;
	rel = table_open(relid, AccessExclusiveLock);
	sa_truncate_relation(rel);
	table_close(rel, NoLock);
}

/* Triggers and the like run as the owner, as they do in the worker. */
static void
empty_result(Oid view)
{
	SaOwnerSwitch save;

	sa_owner_enter(&save, sa_owner_of(view));
	sa_ddl_guard_open(view);
	PG_TRY();
	{
		empty(view);
	}
	PG_FINALLY();
	{
		sa_ddl_guard_open(InvalidOid);
	}
	PG_END_TRY();
	sa_owner_leave(&save);
}

/*
 * Back to where the view began: where that is a place that its start still names, the worker looks it up again,
 * since the source may no longer have what it had; else it is the place that was found at first contact.
 */
static void
reset_positions(const SaViewConfig *config)
{
	SaViewOptions options;
	ListCell   *lc;

	sa_option_view(copyObject(config->options), &options);
	if (sa_catalog_steps(config->id) != NIL)
		sa_catalog_replace_steps(config->id, NIL);
	if (options.start.kind != SA_BOUNDARY_LATEST && options.start.kind != SA_BOUNDARY_VIEW)
	{
		sa_catalog_delete_positions(config->id);
		return;
	}
	foreach(lc, sa_catalog_positions(config->id))
	{
		SaViewPosition *pos = lfirst(lc);

		pos->position = Max(pos->start, 0);
		pos->running_max = pos->watermark = DT_NOBEGIN;
		memset(pos->counters, 0, sizeof(pos->counters));
		pos->replayed = pos->corrections = 0;
		sa_catalog_save_position(config->id, pos);
	}
}

/* reset(view): empty, at its start. */
Datum
sa_reset(PG_FUNCTION_ARGS)
{
	SaViewConfig *config = sa_admin_lock_view(PG_GETARG_OID(0), AccessExclusiveLock, "stream_agg.reset()");

	empty_result(config->view);
	empty(config->state);
	empty(config->spill);
	empty(config->dedup);
	empty(config->dedup_spill);
	sa_deadletter_delete(config->stream, config->view);
	sa_advance_forget(config->view, false);
	sa_lateness_forget(config->view);
	sa_replay_forget(config->view);
	reset_positions(config);
	CommandCounterIncrement();
	renew(config);
	if (strcmp(config->status, SA_STATUS_FINISHED) == 0)
		sa_catalog_set_status(config->view, SA_STATUS_RUNNING, NULL);
	PG_RETURN_VOID();
}

/* --- seek --- */

/*
 * The keys that the view has seen stay.  What has been accepted and is read again is a duplicate while its key is kept, and
 * late after that.
 */
static void
tell(const SaViewPosition *pos, int64 to, bool dedup)
{
	const char *place = pos->topic[0] == '\0' ? "the stream" :
		psprintf("partition %d of topic \"%s\"", pos->partition, pos->topic);

	if (to < pos->position)
		ereport(NOTICE,
				(errmsg("records of %s from position " INT64_FORMAT " to " INT64_FORMAT " will be read again",
						place, to, pos->position - 1),
				 dedup ? errdetail("Those whose keys have been seen are duplicates, or late where the keys are forgotten; those without a key may count twice.") :
				 errdetail("Results that hold them already will hold them twice; for windows that are closed they are late.")));
	else if (to > pos->position)
		ereport(NOTICE,
				(errmsg("records of %s from position " INT64_FORMAT " to " INT64_FORMAT " will not be read",
						place, pos->position, to - 1),
				 errdetail("They will be missing from the results, and no counter counts them.")));
}

static SaViewPosition *
find_position(List *positions, const SaPosition *place)
{
	SaViewPosition *pos = sa_commit_find(positions, place->topic, place->partition);

	if (pos == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("the view does not read partition %d of topic \"%s\"", place->partition, place->topic),
				 errhint("See stream_agg.partitions.")));
	return pos;
}

static void
check_seekable(const SaViewConfig *config, List *positions)
{
	if (strcmp(config->status, SA_STATUS_PAUSED) != 0 && strcmp(config->status, SA_STATUS_FAILED) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("continuous view \"%s\" is %s", get_rel_name(config->view), config->status),
				 errhint("Pause it first, with stream_agg.pause().")));
	if (positions == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("continuous view \"%s\" has no position yet", get_rel_name(config->view)),
				 errhint("Drop it and create it with another start.")));
}

/* The only partition of a staged stream; a record that is still kept. */
static SaPosition *
staged_place(Oid stream, const char *text)
{
	SaPosition *place = palloc0(sizeof(SaPosition));
	SaStagedStream staged;

	place->topic = "";
	place->position = DatumGetInt64(DirectFunctionCall1(int8in, CStringGetDatum(text)));
	if (!sa_staged_get(stream, &staged))
		elog(ERROR, "no staged stream %u", stream);
	if (place->position < staged.first_position || place->position > staged.next_position)
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("position " INT64_FORMAT " is not in stream \"%s\"", place->position, get_rel_name(stream)),
				 errdetail("It holds positions " INT64_FORMAT " to before " INT64_FORMAT ".",
						   staged.first_position, staged.next_position)));
	return place;
}

/* Positions as text: {"topic": {"0": 42}}, or a number for a staged stream. */
static List *
read_places(const SaViewConfig *config, const char *text, List *positions)
{
	const SaViewPosition *first = linitial(positions);
	SaBoundary	boundary;

	if (first->topic[0] == '\0')
		return list_make1(staged_place(config->stream, text));
	sa_option_boundary_read("position", text, true, &boundary);
	if (boundary.kind != SA_BOUNDARY_EXPLICIT)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid position: \"%s\"", text),
				 errhint("Give positions such as '{\"topic\": {\"0\": 42}}'.")));
	return boundary.positions;
}

/* seek(view, position): a paused view goes on elsewhere when it is resumed. */
Datum
sa_seek(PG_FUNCTION_ARGS)
{
	SaViewConfig *config = sa_admin_lock_view(PG_GETARG_OID(0), AccessExclusiveLock, "stream_agg.seek()");
	List	   *positions = sa_catalog_positions(config->id);
	ListCell   *lc;

	check_seekable(config, positions);
	sa_admin_check_on_disk(config, "seek in");
	foreach(lc, read_places(config, text_to_cstring(PG_GETARG_TEXT_PP(1)), positions))
	{
		SaPosition *place = lfirst(lc);
		SaViewPosition *pos = find_position(positions, place);

		tell(pos, place->position, OidIsValid(config->dedup));
		pos->position = place->position;
		sa_catalog_save_position(config->id, pos);
	}
	CommandCounterIncrement();
	renew(config);
	PG_RETURN_VOID();
}

/* --- swap --- */

static void
rename_to(Oid view, const char *name)
{
	RenameRelationInternal(view, name, false, false);
	CommandCounterIncrement();
}

/* Views of one schema only: names of indexes may meet otherwise. */
static void
check_same_schema(Oid a, Oid b)
{
	if (get_rel_namespace(a) != get_rel_namespace(b))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot exchange the names of continuous views in different schemas"),
				 errhint("Use ALTER CONTINUOUS VIEW ... SET SCHEMA first.")));
}

/* swap(a, b): each takes the other's name. */
Datum
sa_swap(PG_FUNCTION_ARGS)
{
	Oid			a = PG_GETARG_OID(0);
	Oid			b = PG_GETARG_OID(1);
	int			id_a = sa_admin_view(a)->id;
	int			id_b = sa_admin_view(b)->id;
	char	   *name_a;
	char	   *name_b;

	sa_admin_check_owner(a);
	sa_admin_check_owner(b);
	/* in the order in which workers lock them */
	(void) sa_admin_lock_view(id_a < id_b ? a : b, AccessExclusiveLock, "stream_agg.swap()");
	(void) sa_admin_lock_view(id_a < id_b ? b : a, AccessExclusiveLock, "stream_agg.swap()");
	sa_admin_check_owner(a);
	sa_admin_check_owner(b);
	check_same_schema(a, b);
	if (a == b)
		PG_RETURN_VOID();
	name_a = get_rel_name(a);
	name_b = get_rel_name(b);
	rename_to(a, psprintf("stream_agg_swap_%u", a));
	rename_to(b, name_a);
	rename_to(a, name_b);
	PG_RETURN_VOID();
}
