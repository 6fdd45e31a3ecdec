/*
 * admin.c
 *		What administrators call: pause, resume, run, explain, and the functions behind the views.
 *
 * Invariant: anyone may call these; they check ownership of the view or stream, or membership in
 * stream_agg_admin, whose members may stop, start and inspect everything (dead letters too), but neither drop
 * it nor read streams and results.  What is the owner's runs as the owner.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/table.h"
#include "catalog/dependency.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "commands/explain.h"
#include "commands/tablecmds.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "storage/lmgr.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/ruleutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "admin.h"
#include "catalog.h"
#include "clock.h"
#include "compat.h"
#include "ddl_guard.h"
#include "ddl_part.h"
#include "mend.h"
#include "option.h"
#include "owner.h"
#include "query.h"
#include "slot.h"
#include "state.h"
#include "stats.h"

PG_FUNCTION_INFO_V1(sa_guard);
PG_FUNCTION_INFO_V1(sa_pause);
PG_FUNCTION_INFO_V1(sa_resume);
PG_FUNCTION_INFO_V1(sa_drop_view);
PG_FUNCTION_INFO_V1(sa_run);
PG_FUNCTION_INFO_V1(sa_explain);
PG_FUNCTION_INFO_V1(sa_may_see);
PG_FUNCTION_INFO_V1(sa_worker_status);
PG_FUNCTION_INFO_V1(sa_retry_reason);
PG_FUNCTION_INFO_V1(sa_progress_list);
PG_FUNCTION_INFO_V1(sa_state_now);
PG_FUNCTION_INFO_V1(sa_partition_end);
PG_FUNCTION_INFO_V1(sa_usecs);
PG_FUNCTION_INFO_V1(sa_forget_database);

/* The trigger that refuses direct changes of a result table. */
Datum
sa_guard(PG_FUNCTION_ARGS)
{
	TriggerData *data = (TriggerData *) fcinfo->context;
	SaViewConfig *config;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("stream_agg.guard() must be called as a trigger")));
	if (sa_ddl_guard_is_open(RelationGetRelid(data->tg_relation)))
		return PointerGetDatum(NULL);
	config = sa_catalog_exists() ? sa_catalog_view(RelationGetRelid(data->tg_relation)) : NULL;
	if (config == NULL || config->database != MyDatabaseId)
		return PointerGetDatum(NULL);	/* restored, without its view or not yet resumed: a restore may write to it */
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("cannot change continuous view \"%s\" directly", RelationGetRelationName(data->tg_relation)),
			 errdetail("Its rows are kept by its worker from the events of its stream."),
			 errhint("Insert into the stream, or drop the view with DROP MATERIALIZED VIEW.")));
}

static bool
owns(Oid relid)
{
	return sa_class_ownercheck(relid, GetUserId());
}

static bool
is_admin(void)
{
	Oid			role = get_role_oid("stream_agg_admin", true);

	return superuser() || (OidIsValid(role) && has_privs_of_role(GetUserId(), role));
}

static bool
may(Oid relid)
{
	return owns(relid) || is_admin();
}

static void
refuse(Oid relid)
{
	aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_TABLE, get_rel_name(relid));
}

void
sa_admin_check_owner(Oid relid)
{
	if (!owns(relid))
		refuse(relid);
}

void
sa_admin_check_stream(Oid relid)
{
	if (!sa_option_is_stream(relid))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a stream", get_rel_name(relid) ? get_rel_name(relid) : "?")));
	if (!may(relid))
		refuse(relid);
}

SaViewConfig *
sa_admin_view(Oid relid)
{
	SaViewConfig *config = sa_catalog_view(relid);

	if (config == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a continuous view", get_rel_name(relid) ? get_rel_name(relid) : "?")));
	if (!may(relid))
		refuse(relid);
	return config;
}

void
sa_admin_check_on_disk(const SaViewConfig *config, const char *what)
{
	if (sa_catalog_steps(config->id) != NIL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot %s continuous view \"%s\" while its state is unlogged", what, get_rel_name(config->view)),
				 errdetail("Its state would not be the same when records are read again."),
				 errhint("Set its option state to 'heap' and wait for its next batch (CALL stream_agg.run()).")));
}

/* The same, with the result table locked before the configuration is read. */
SaViewConfig *
sa_admin_lock_view(Oid relid, LOCKMODE lockmode, const char *what)
{
	if (what)
		PreventCommandDuringRecovery(what);
	(void) sa_admin_view(relid);	/* before waiting for a lock that is not the caller's to have */
	LockRelationOid(relid, lockmode);
	return sa_admin_view(relid);
}

/* pause(view): it stops at its position, within a batch. */
Datum
sa_pause(PG_FUNCTION_ARGS)
{
	/* Waits for the batch at hand, and keeps the next one waiting for this commit. */
	SaViewConfig *config = sa_admin_lock_view(PG_GETARG_OID(0), ShareRowExclusiveLock, "stream_agg.pause()");

	sa_catalog_set_status(config->view, SA_STATUS_PAUSED, NULL);
	sa_slot_want_at_commit(config->stream);
	PG_RETURN_VOID();
}

/* resume(view): goes on from its own position, after pause, failure or restore. */
Datum
sa_resume(PG_FUNCTION_ARGS)
{
	/* Locked, so that the worker is not just writing the status. */
	SaViewConfig *config = sa_admin_lock_view(PG_GETARG_OID(0), ShareRowExclusiveLock, "stream_agg.resume()");

	sa_slot_require();
	sa_mend_attach(config);	/* a restore knows nothing of them */
	sa_mend_guard(config->view);
	sa_catalog_set_status(config->view, SA_STATUS_RUNNING, NULL);
	sa_slot_want_at_commit(config->stream);
	PG_RETURN_VOID();
}

/* drop_view(view): with everything that belongs to it.  To administer is not to own: the table is its owner's. */
Datum
sa_drop_view(PG_FUNCTION_ARGS)
{
	SaViewConfig *config = sa_admin_lock_view(PG_GETARG_OID(0), AccessExclusiveLock, "stream_agg.drop_view()");
	ObjectAddress address;

	sa_admin_check_owner(config->view);
	ObjectAddressSet(address, RelationRelationId, config->view);
	performDeletion(&address, DROP_RESTRICT, 0);
	PG_RETURN_VOID();
}

/* --- run --- */

/*
 * Streams and views that a run concerns: all views of a stream, or one.  Why a view has failed may tell of what it
 * joins, which is not the stream owner's to know.
 */
static void
check_views(Oid relid, Oid stream)
{
	ListCell   *lc;

	foreach(lc, sa_catalog_views(stream))
	{
		SaViewConfig *config = lfirst(lc);

		if (relid != stream && config->view != relid)
			continue;
		if (config->database != MyDatabaseId)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("continuous view \"%s\" has not been resumed after a restore", get_rel_name(config->view)),
					 errhint("Use stream_agg.resume().")));
		if (strcmp(config->status, SA_STATUS_RUNNING) != 0 && strcmp(config->status, SA_STATUS_FINISHED) != 0)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("continuous view \"%s\" is %s", get_rel_name(config->view), config->status),
					 config->message && may(config->view) ? errdetail_internal("%s", config->message) : 0,
					 errhint("Use stream_agg.resume() once the cause is gone.")));
	}
}

static Oid
stream_of_argument(Oid relid)
{
	SaViewConfig *config = sa_catalog_view(relid);

	if (config == NULL && !sa_option_is_stream(relid))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is neither a stream nor a continuous view",
						get_rel_name(relid) ? get_rel_name(relid) : "?")));
	if (!may(relid))
		refuse(relid);
	return config ? config->stream : relid;
}

/* Why views that the caller may know of are trying again; "" when none is. */
static const char *
describe_retries(Oid relid, Oid stream)
{
	StringInfoData text;
	ListCell   *lc;

	initStringInfo(&text);
	foreach(lc, sa_catalog_views(stream))
	{
		Oid			view = ((SaViewConfig *) lfirst(lc))->view;
		char	   *name = relid == stream || relid == view ? get_rel_name(view) : NULL;
		char	   *reason = name && may(view) ? sa_stats_retry(view) : NULL;

		if (reason)
			appendStringInfo(&text, "%scontinuous view \"%s\": %s", text.len > 0 ? "; " : "", name, reason);
	}
	return text.data;
}

static void
run_timed_out(Oid relid, Oid stream)
{
	SaSlot		slot;
	bool		known = sa_slot_lookup(stream, &slot);
	const char *reason = !known ? "" : slot.trouble[0] ? slot.trouble : slot.message;

	PushActiveSnapshot(GetTransactionSnapshot());
	if (reason[0] == '\0')
		reason = describe_retries(relid, stream);
	ereport(ERROR,
			(errcode(ERRCODE_QUERY_CANCELED),
			 errmsg("stream \"%s\" was not read to its end in time", get_rel_name(stream)),
			 reason[0] ? errdetail_internal("%s", reason) : 0));
}

static SaClock
end_of_timeout(Datum timeout)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz end = DatumGetTimestampTz(DirectFunctionCall2(timestamptz_pl_interval, TimestampTzGetDatum(now), timeout));

	return sa_clock_now() + (Max(end, now) - now);
}

/* CALL run(stream or view, timeout) */
Datum
sa_run(PG_FUNCTION_ARGS)
{
	Oid			relid;
	SaClock		until;
	bool		atomic = !IsA(fcinfo->context, CallContext) || castNode(CallContext, fcinfo->context)->atomic;
	Oid			stream;
	uint64		request;

	if (atomic)
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("stream_agg.run() cannot run inside a transaction block"),
				 errdetail("It waits for other transactions, whose results a transaction block might not see.")));
	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("arguments of stream_agg.run() cannot be null")));
	relid = PG_GETARG_OID(0);
	until = end_of_timeout(PG_GETARG_DATUM(1));
	PreventCommandDuringRecovery("stream_agg.run()");
	sa_slot_require();
	stream = stream_of_argument(relid);
	check_views(relid, stream);
	if (sa_catalog_views(stream) == NIL)
		PG_RETURN_VOID();
	request = sa_slot_request(stream, relid == stream ? InvalidOid : relid);

	/* Wait without a snapshot, which would hold back what the worker wants to give back. */
	SPI_connect_ext(SPI_OPT_NONATOMIC);
	SPI_commit();
	if (!sa_slot_wait(stream, request, until))
		run_timed_out(relid, stream);
	SPI_commit();
	SPI_finish();
	PushActiveSnapshot(GetTransactionSnapshot());
	check_views(relid, stream);
	PopActiveSnapshot();
	PG_RETURN_VOID();
}

/* --- explain --- */

static void
put_line(ReturnSetInfo *rsinfo, const char *line)
{
	Datum		value = CStringGetTextDatum(line);
	bool		isnull = false;

	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, &value, &isnull);
}

static void
explain_plan(ReturnSetInfo *rsinfo, SaQuery *query)
{
	ExplainState *es = NewExplainState();
	QueryDesc  *desc = CreateQueryDesc(sa_query_plan(query), "stream_agg batch", GetActiveSnapshot(), InvalidSnapshot,
									   None_Receiver, NULL, NULL, 0);
	char	   *line;
	char	   *rest = NULL;

	es->costs = false;
	ExplainBeginOutput(es);
	ExecutorStart(desc, EXEC_FLAG_EXPLAIN_ONLY);
	ExplainPrintPlan(es, desc);
	ExecutorEnd(desc);
	FreeQueryDesc(desc);
	ExplainEndOutput(es);
	for (line = strtok_r(es->str->data, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
		put_line(rsinfo, psprintf("  %s", line));
}

static void
explain_state(ReturnSetInfo *rsinfo, SaQuery *query, const SaViewOptions *options)
{
	for (int i = 0; i < query->naggs; i++)
	{
		SaAgg	   *agg = sa_agg_create(query->aggs[i].ref, query->aggs[i].columns, query->aggs[i].filter);

		put_line(rsinfo, psprintf("State of aggregate %d (%s): %s", i + 1, get_func_name(query->aggs[i].ref->aggfnoid),
								  sa_query_agg_in_result(query, agg, i, options->output_mode) ? "the result row" :
								  options->unlogged ? "memory, made again by reading again" : "state log"));
	}
}

static const char *
explain_window(const SaQuery *query, const SaViewOptions *options)
{
	if (!query->windowed)
		return "none";
	if (options->allowed_lateness == 0 && sa_query_has_panes(query, options->output_mode))
		return "yes, put together from panes";
	return options->output_mode == SA_COMPLETE ? "yes, never closed" : "yes";
}

static void
explain_view(ReturnSetInfo *rsinfo, SaViewConfig *config)
{
	SaViewOptions options;
	SaQuery    *query = sa_query_load(config->definition, config->view, GetUserId());

	sa_option_view(config->options, &options);
	put_line(rsinfo, psprintf("Continuous view \"%s\" on stream \"%s\"", get_rel_name(config->view),
							  get_rel_name(config->stream)));
	put_line(rsinfo, psprintf("Output mode: %s", query->transform ? "append (transform)" :
							  sa_option_mode_name(options.output_mode)));
	put_line(rsinfo, psprintf("Window: %s", explain_window(query, &options)));
	if (!query->transform)
		explain_state(rsinfo, query, &options);
	put_line(rsinfo, "Each batch:");
	explain_plan(rsinfo, query);
	sa_query_free(query);
}

/*
 * explain(view): how its batches run and where its state is kept.  Planning may call the owner's functions,
 * so it is done as in the worker: as the owner, with a safe search_path.
 */
Datum
sa_explain(PG_FUNCTION_ARGS)
{
	SaViewConfig *config = sa_admin_lock_view(PG_GETARG_OID(0), AccessShareLock, NULL);
	SaOwnerSwitch save;

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	sa_owner_enter(&save, sa_owner_of(config->view));
	explain_view((ReturnSetInfo *) fcinfo->resultinfo, config);
	sa_owner_leave(&save);
	return (Datum) 0;
}

/* --- behind the views --- */

/* may_see(relation): his own, or everything for administrators; NULL for what is not there. */
Datum
sa_may_see(PG_FUNCTION_ARGS)
{
	Oid			relid = PG_GETARG_OID(0);

	if (is_admin())
		PG_RETURN_BOOL(true);
	if (!SearchSysCacheExists1(RELOID, ObjectIdGetDatum(relid)))
		PG_RETURN_NULL();
	PG_RETURN_BOOL(owns(relid));
}

/* worker_status(stream): pid, message, trouble, since when; no row when the stream has no slot, or is not the caller's. */
Datum
sa_worker_status(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	SaSlot		slot;
	Datum		values[4];
	bool		nulls[4];

	InitMaterializedSRF(fcinfo, 0);
	if (!SearchSysCacheExists1(RELOID, PG_GETARG_DATUM(0)) || !may(PG_GETARG_OID(0)) ||
		!sa_slot_lookup(PG_GETARG_OID(0), &slot))
		return (Datum) 0;
	values[0] = Int32GetDatum(slot.pid);
	nulls[0] = slot.pid <= 0;
	values[1] = CStringGetTextDatum(slot.message);
	nulls[1] = slot.message[0] == '\0';
	values[2] = CStringGetTextDatum(slot.trouble);
	nulls[2] = nulls[3] = slot.trouble[0] == '\0';
	values[3] = TimestampTzGetDatum(slot.trouble_since);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	return (Datum) 0;
}

/* retry_reason(view): why it is trying a batch again; NULL when it is not, or is not the caller's. */
Datum
sa_retry_reason(PG_FUNCTION_ARGS)
{
	Oid			view = PG_GETARG_OID(0);
	char	   *reason = SearchSysCacheExists1(RELOID, ObjectIdGetDatum(view)) && may(view) ? sa_stats_retry(view) : NULL;

	if (reason == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(reason));
}

/* partition_end(stream, topic, partition): as the stream's worker knows it; NULL when nobody has told. */
Datum
sa_partition_end(PG_FUNCTION_ARGS)
{
	Oid			stream = PG_GETARG_OID(0);
	int64		end;

	if (!SearchSysCacheExists1(RELOID, ObjectIdGetDatum(stream)) ||
		!(may(stream) || pg_class_aclcheck(stream, GetUserId(), ACL_SELECT) == ACLCHECK_OK) ||
		!sa_stats_end(stream, text_to_cstring(PG_GETARG_TEXT_PP(1)), PG_GETARG_INT32(2), &end))
		PG_RETURN_NULL();
	PG_RETURN_INT64(end);
}

static void
put_progress(ReturnSetInfo *rsinfo, SaProgress *progress)
{
	Datum		values[10 + SA_NCOUNTERS];
	bool		nulls[10 + SA_NCOUNTERS] = {0};
	Interval   *duration = palloc0(sizeof(Interval));
	int			n = 0;

	duration->time = progress->duration;
	values[n++] = ObjectIdGetDatum(progress->view);
	values[n++] = TimestampTzGetDatum(progress->finished_at);
	values[n++] = IntervalPGetDatum(duration);
	for (int i = 0; i < SA_NCOUNTERS; i++)
		values[n++] = Int64GetDatum(progress->counters[i]);
	values[n++] = Int64GetDatum(progress->written);
	nulls[n] = progress->lag < 0;
	values[n++] = Int64GetDatum(progress->lag);
	nulls[n] = TIMESTAMP_NOT_FINITE(progress->watermark);
	values[n++] = TimestampTzGetDatum(progress->watermark);
	values[n++] = Int64GetDatum(progress->groups);
	values[n++] = Int64GetDatum(progress->windows);
	values[n++] = Int64GetDatum(progress->state_bytes);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/* progress_list(): the last batches of the views of this database that the caller may see. */
Datum
sa_progress_list(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	ListCell   *lc;

	InitMaterializedSRF(fcinfo, 0);
	foreach(lc, sa_stats_list())
	{
		SaProgress *progress = lfirst(lc);

		if (SearchSysCacheExists1(RELOID, ObjectIdGetDatum(progress->view)) && may(progress->view))
			put_progress(rsinfo, progress);
	}
	return (Datum) 0;
}

/* state_now(view): what the last batch left open, where the caller may see it; NULLs when nothing is known. */
Datum
sa_state_now(PG_FUNCTION_ARGS)
{
	Oid			view = PG_GETARG_OID(0);
	SaProgress	last;
	Datum		values[4];
	bool		nulls[4] = {0};
	TupleDesc	desc;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	if (!SearchSysCacheExists1(RELOID, ObjectIdGetDatum(view)) || !may(view) || !sa_stats_last(view, &last))
		PG_RETURN_NULL();
	values[0] = Int64GetDatum(last.groups);
	values[1] = Int64GetDatum(last.windows);
	values[2] = Int64GetDatum(last.state_bytes);
	values[3] = TimestampTzGetDatum(last.oldest_window_end);
	nulls[3] = TIMESTAMP_NOT_FINITE(last.oldest_window_end);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(desc, values, nulls)));
}

/* usecs(time): microseconds since 2000, whatever the time zone; and to_time(usecs), the way back. */
Datum
sa_usecs(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(PG_GETARG_INT64(0));
}

/* What a row of view_config that is being inserted says, as far as its parts go. */
static void
attach_restored_parts(TriggerData *data)
{
	TupleDesc	desc = RelationGetDescr(data->tg_relation);
	SaViewConfig config = {0};
	bool		isnull;

	config.view = DatumGetObjectId(SPI_getbinval(data->tg_trigtuple, desc, SPI_fnumber(desc, "view"), &isnull));
	config.definition = DatumGetObjectId(SPI_getbinval(data->tg_trigtuple, desc, SPI_fnumber(desc, "definition"), &isnull));
	config.state = DatumGetObjectId(SPI_getbinval(data->tg_trigtuple, desc, SPI_fnumber(desc, "state"), &isnull));
	config.spill = DatumGetObjectId(SPI_getbinval(data->tg_trigtuple, desc, SPI_fnumber(desc, "spill"), &isnull));
	config.dedup = DatumGetObjectId(SPI_getbinval(data->tg_trigtuple, desc, SPI_fnumber(desc, "dedup"), &isnull));
	config.dedup_spill = DatumGetObjectId(SPI_getbinval(data->tg_trigtuple, desc, SPI_fnumber(desc, "dedup_spill"), &isnull));
	sa_mend_attach(&config);
}

/*
 * BEFORE INSERT on view_config: what came in through COPY belongs to another database, until resumed; so that it
 * can be dropped before, its parts are attached.
 */
Datum
sa_forget_database(PG_FUNCTION_ARGS)
{
	TriggerData *data = (TriggerData *) fcinfo->context;
	int			column;
	Datum		value = (Datum) 0;
	bool		isnull = true;

	if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_FOR_ROW(data->tg_event) ||
		!TRIGGER_FIRED_BEFORE(data->tg_event) || !TRIGGER_FIRED_BY_INSERT(data->tg_event) ||
		RelationGetRelid(data->tg_relation) != sa_catalog_relation("view_config"))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("stream_agg.forget_database() must be called as a trigger of view_config")));
	attach_restored_parts(data);
	column = SPI_fnumber(data->tg_relation->rd_att, "database");
	return PointerGetDatum(heap_modify_tuple_by_cols(data->tg_trigtuple, data->tg_relation->rd_att, 1, &column, &value,
													 &isnull));
}
