/*
 * kafka_parts.c
 *		For the bench: what the parts of a Kafka view's work take by themselves, in the product's own code.
 *
 *	CALL kafka_part(kind, view, statement, result)		reads the view's stream from its beginning to its end
 *		consume		takes records from the client library, no more
 *		decode		and makes batches of events of them
 *		fold		and folds those into the view's groups; nothing is written
 *		write		and writes results and states
 *		statement	instead, a statement that selects from the stream: it finds the batch there
 *
 * One transaction per batch of the view's size.  The result is a line: events, batches, seconds, CPU seconds of
 * the process with the library's threads, and the seconds spent in reading, in folding, in writing, and in
 * committing; then the result rows written.
 *
 * The file stands in for pipeline.o in the library that the bench's server preloads, and takes in pipeline.c
 * whole: rows are folded and written by the very functions that a worker runs.  The view must be paused.
 */
#include "../../../src/pipeline.c"

#include <sys/resource.h>

#include "access/table.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "portability/instr_time.h"
#include "storage/latch.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/wait_event.h"

#include "source.h"
#include "source_kafka_client.h"

#define CONSUMED_AT_ONCE 1024	/* records, as in source_kafka.c */

typedef enum PartKind
{
	PART_CONSUME,
	PART_DECODE,
	PART_FOLD,
	PART_WRITE,
	PART_STATEMENT
} PartKind;

static const char *const kinds[] = {"consume", "decode", "fold", "write", "statement"};

typedef struct Run
{
	MemoryContext cxt;
	PartKind	kind;
	SaViewConfig *config;
	SaStreamOptions *options;
	SaSource   *source;
	List	   *positions;		/* of SaPosition: where the next batch begins */
	SaView	   *view;
	SPIPlanPtr	statement;

	int64		events;
	int64		batches;
	int64		written;
	double		reading;		/* seconds */
	double		folding;
	double		writing;
	double		committing;
} Run;

PG_FUNCTION_INFO_V1(kafka_part);

static double
seconds_now(void)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	return INSTR_TIME_GET_DOUBLE(now);
}

static double
cpu_seconds(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

/* The time since *since, which begins anew. */
static double
lap(double *since)
{
	double		now = seconds_now();
	double		passed = now - *since;

	*since = now;
	return passed;
}

static void
wait_for_source(Run *run)
{
	int			fd = sa_source_kafka.wake_fd(run->source);

	(void) WaitLatchOrSocket(MyLatch, WL_LATCH_SET | WL_SOCKET_READABLE | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, fd, 1000,
							 PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	bool		news;

	(void) sa_source_kafka.attend(run->source, list_make1(run->positions), &news);
}

/* ---------- opening ---------- */

/* From the earliest records to the latest as of now. */
static List *
resolve(Run *run)
{
	SaBoundary	start = {.kind = SA_BOUNDARY_EARLIEST};
	SaBoundary	end = {.kind = SA_BOUNDARY_LATEST};
	List	   *positions;

	while (!sa_source_kafka.resolve(run->source, &start, &end, &positions))
		wait_for_source(run);
	return positions;
}

static void
open_view(Run *run)
{
	List	   *positions = NIL;
	ListCell   *lc;

	foreach(lc, run->positions)
	{
		SaPosition *from = lfirst(lc);
		SaViewPosition *position = palloc0(sizeof(SaViewPosition));

		position->topic = from->topic;
		position->partition = from->partition;
		position->position = from->position;
		position->end = PG_INT64_MAX;
		position->running_max = position->watermark = DT_NOBEGIN;
		positions = lappend(positions, position);
	}
	run->view = sa_pipeline_open(run->config, run->options, run->cxt);
	adopt_positions(run->view, positions);
	if (run->kind == PART_WRITE)
		sa_commit_save(run->config->id, NIL, positions);
}

static void
open_run(Run *run, Oid view)
{
	Relation	stream;

	run->config = sa_catalog_view(view);
	if (run->config == NULL)
		elog(ERROR, "%u is no continuous view", view);
	if (strcmp(run->config->status, SA_STATUS_RUNNING) == 0)
		elog(ERROR, "the view must be paused");
	stream = table_open(run->config->stream, AccessShareLock);
	run->options = sa_option_stream(stream);
	run->source = sa_source_kafka.open(run->options, run->cxt);
	table_close(stream, NoLock);
	run->positions = resolve(run);
	open_view(run);
}

static void
close_run(Run *run)
{
	sa_pipeline_close(run->view);
	sa_source_kafka.close(run->source);
}

/* ---------- consuming ---------- */

static rd_kafka_topic_partition_list_t *
assignment(Run *run)
{
	rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(list_length(run->positions));
	ListCell   *lc;

	foreach(lc, run->positions)
	{
		SaPosition *position = lfirst(lc);

		rd_kafka_topic_partition_list_add(list, position->topic, position->partition)->offset = position->position;
	}
	return list;
}

/* How many records there are; there are no transactions, so every offset is one. */
static int64
count_records(Run *run)
{
	int64		records = 0;
	ListCell   *lc;

	foreach(lc, run->positions)
		records += ((SaPosition *) lfirst(lc))->end - ((SaPosition *) lfirst(lc))->position;
	return records;
}

static void
consume(Run *run)
{
	int64		records = count_records(run);
	SaClient   *client = sa_client_open(run->options, sa_option_secrets(run->options->relid));
	rd_kafka_topic_partition_list_t *list = assignment(run);
	rd_kafka_message_t *messages[CONSUMED_AT_ONCE];

	rd_kafka_assign(sa_client_handle(client), list);
	rd_kafka_topic_partition_list_destroy(list);
	while (run->events < records)
	{
		ssize_t		n = rd_kafka_consume_batch_queue(sa_client_queue(client), 100, messages, CONSUMED_AT_ONCE);

		for (ssize_t i = 0; i < n; i++)
		{
			run->events += messages[i]->err == RD_KAFKA_RESP_ERR_NO_ERROR;
			rd_kafka_message_destroy(messages[i]);
		}
		CHECK_FOR_INTERRUPTS();
	}
	sa_client_close(client);
}

/* ---------- batches ---------- */

/* The next batch, under this transaction's lock on the stream. */
static SaBatch *
next_batch(Run *run)
{
	SaReadLimits limits = {run->view->options.max_batch_rows, run->view->options.max_batch_bytes};
	Relation	stream = table_open(run->options->relid, AccessShareLock);
	SaBatch    *batch = sa_batch_create(run->cxt, run->options->relid, RelationGetDescr(stream));

	sa_source_kafka.read(run->source, run->positions, &limits, batch);
	sa_batch_seal(batch, run->options);
	table_close(stream, NoLock);
	return batch;
}

static void
fold_and_write(Run *run, SaBatch *batch, double *time)
{
	SaView	   *view = run->view;
	Part		part = {.view = view, .batch = batch, .kind = RUN_ALL, .time = timekeeping(view)};
	SaOwnerSwitch save;

	part.row_cxt = AllocSetContextCreate(batch->cxt, "stream_agg row", ALLOCSET_DEFAULT_SIZES);
	part.outcomes = MemoryContextAllocHuge(batch->cxt, batch->nevents + 1);
	part.late_windows = MemoryContextAllocZero(batch->cxt, sizeof(int64) * (batch->npartitions + 1));
	constraints_immediate();
	sa_owner_enter(&save, sa_owner_of(run->config->view));
	apply_settings(view);
	load_view(view);
	sa_state_begin(view->state, view->floor);
	run_query(&part, 0, batch->nevents);
	view->new_positions = sa_commit_advance(view->positions, batch, part.outcomes, part.late_windows, &part.time);
	run->folding += lap(time);
	if (run->kind == PART_WRITE)
		write_results(view, sa_commit_watermark(view->new_positions));
	else
		close_windows(view, sa_commit_watermark(view->new_positions));	/* in update mode: forgets them */
	sa_owner_leave(&save);
	if (run->kind != PART_WRITE)
		return;
	sa_commit_save(run->config->id, view->positions, view->new_positions);
	run->written += sa_result_written(view->result);
	run->writing += lap(time);
}

static void
run_statement(Run *run, SaBatch *batch)
{
	SaBatchScan scan = {.batch = batch, .lo = 0, .hi = batch->nevents};

	sa_batch_offer(&scan);
	if (SPI_execute_plan(run->statement, NULL, NULL, false, 0) < 0)
		elog(ERROR, "the statement failed");
	sa_batch_offer(NULL);
	run->written += SPI_processed;
}

static void
move_on(Run *run, SaBatch *batch)
{
	ListCell   *lc;

	foreach(lc, run->positions)
	{
		SaPosition *position = lfirst(lc);

		for (int i = 0; i < batch->npartitions; i++)
			if (batch->partitions[i].partition == position->partition)
				position->position = batch->partitions[i].next;
	}
}

static void
take_batch(Run *run, SaBatch *batch, double *time)
{
	MemoryContext old = MemoryContextSwitchTo(batch->cxt);

	PushActiveSnapshot(GetTransactionSnapshot());
	if (run->kind == PART_STATEMENT)
	{
		run_statement(run, batch);
		run->writing += lap(time);
	}
	else if (run->kind >= PART_FOLD)
		fold_and_write(run, batch, time);
	PopActiveSnapshot();
	MemoryContextSwitchTo(old);
	run->events += batch->nevents;
	run->batches++;
	move_on(run, batch);
}

/* Batch by batch, a transaction each, to the end as of the beginning. */
static void
process(Run *run)
{
	double		time = seconds_now();
	int64		records = count_records(run);
	ListCell   *lc;

	foreach(lc, run->positions)
		((SaPosition *) lfirst(lc))->end = PG_INT64_MAX;
	while (run->events < records)
	{
		SaBatch    *batch = next_batch(run);
		bool		empty = batch->nevents == 0;

		run->reading += lap(&time);
		if (!empty)
			take_batch(run, batch, &time);
		SPI_commit();
		if (run->kind == PART_FOLD || run->kind == PART_WRITE)
			sa_pipeline_committed(run->view);
		MemoryContextDelete(batch->cxt);
		run->committing += lap(&time);
		if (empty)
			wait_for_source(run);
	}
}

/* ---------- the call ---------- */

static PartKind
find_kind(const char *name)
{
	for (size_t i = 0; i < lengthof(kinds); i++)
		if (strcmp(name, kinds[i]) == 0)
			return (PartKind) i;
	elog(ERROR, "no part of this name: %s", name);
}

static void
prepare_statement(Run *run, const char *text)
{
	run->statement = SPI_prepare(text, 0, NULL);
	if (run->statement == NULL || SPI_keepplan(run->statement) != 0)
		elog(ERROR, "the statement cannot be prepared");
}

static Datum
make_result(FunctionCallInfo fcinfo, const char *line)
{
	TupleDesc	desc;
	Datum		value = CStringGetTextDatum(line);
	bool		isnull = false;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "kafka_part is a procedure with one result");
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), &value, &isnull));
}

Datum
kafka_part(PG_FUNCTION_ARGS)
{
	Run		   *run = MemoryContextAllocZero(TopMemoryContext, sizeof(Run));
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext old;
	double		start;
	double		cpu;
	char		line[256];

	run->cxt = AllocSetContextCreate(TopMemoryContext, "kafka_part", ALLOCSET_DEFAULT_SIZES);
	run->kind = find_kind(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	SPI_connect_ext(SPI_OPT_NONATOMIC);
	old = MemoryContextSwitchTo(run->cxt);
	open_run(run, PG_GETARG_OID(1));
	if (run->kind == PART_STATEMENT)
		prepare_statement(run, text_to_cstring(PG_GETARG_TEXT_PP(2)));
	start = seconds_now();
	cpu = cpu_seconds();
	if (run->kind == PART_CONSUME)
		consume(run);
	else
		process(run);
	snprintf(line, sizeof(line), INT64_FORMAT " " INT64_FORMAT " %.6f %.6f %.6f %.6f %.6f %.6f " INT64_FORMAT,
			 run->events, run->batches, seconds_now() - start, cpu_seconds() - cpu, run->reading, run->folding,
			 run->writing, run->committing, run->written);
	close_run(run);
	MemoryContextSwitchTo(old);
	SPI_finish();
	MemoryContextDelete(run->cxt);
	MemoryContextSwitchTo(caller);
	pfree(run);
	return make_result(fcinfo, line);
}
