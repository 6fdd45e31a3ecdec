/*
 * decode_run.c
 *		Decoding records in runs: errors of input functions are caught, and belong to one record.
 *
 * Invariant: a subtransaction is opened at the first call of a run that may raise, and one more after each
 * that did; none is open between runs.  What input functions leave behind lies in run->scratch, which is
 * older than the subtransaction, and is emptied after each record.
 *
 * Locks: those that input functions take; they are kept to the end of the transaction, or given back with
 * the record that failed.  Nothing to recover after a crash.
 */
#include "postgres.h"

#include "access/xact.h"
#include "mb/pg_wchar.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "decode_run.h"

/* Bytes of a message of an input function, which may quote the record, that are kept. */
#define MESSAGE_LIMIT 200

/* A buffer that a large value has made larger is not kept. */
#define KEPT_BUFFER (64 * 1024)

void
sa_decode_run_init(SaDecodeRun *run, MemoryContext cxt)
{
	MemoryContext oldcxt = MemoryContextSwitchTo(cxt);

	memset(run, 0, sizeof(*run));
	run->scratch = AllocSetContextCreate(cxt, "stream_agg decode scratch", ALLOCSET_DEFAULT_SIZES);
	run->utf8 = GetDatabaseEncoding() == PG_UTF8 || GetDatabaseEncoding() == PG_SQL_ASCII;
	initStringInfo(&run->reason);
	initStringInfo(&run->text);
	initStringInfo(&run->element);
	MemoryContextSwitchTo(oldcxt);
}

/* Values go to CurrentMemoryContext. */
void
sa_decode_run_begin(SaDecodeRun *run)
{
	run->result = CurrentMemoryContext;
	run->guarded = false;
	run->pushed_snapshot = false;
	run->outer_nest = GetCurrentTransactionNestLevel();
	run->outer_owner = CurrentResourceOwner;
	run->column = NULL;
}

static void
trim(StringInfo buffer)
{
	MemoryContext oldcxt;

	if (buffer->maxlen <= KEPT_BUFFER)
		return;
	oldcxt = MemoryContextSwitchTo(GetMemoryChunkContext(buffer->data));
	pfree(buffer->data);
	initStringInfo(buffer);
	MemoryContextSwitchTo(oldcxt);
}

void
sa_decode_run_trim(SaDecodeRun *run)
{
	trim(&run->reason);
	trim(&run->text);
	trim(&run->element);
}

/* ---------- the guard ---------- */

void
sa_decode_guard(SaDecodeRun *run)
{
	MemoryContext oldcxt = CurrentMemoryContext;

	if (run->guarded)
		return;
	if (IsInParallelMode())
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TRANSACTION_STATE),
				 errmsg("cannot decode records during a parallel operation"),
				 errhint("Set max_parallel_workers_per_gather to 0.")));
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(oldcxt);
	run->guarded = true;

	/* Constraints of domains may be functions in SQL, which want one. */
	if (!ActiveSnapshotSet())
	{
		PushActiveSnapshot(GetTransactionSnapshot());
		run->pushed_snapshot = true;
	}
}

static void
leave_subtransaction(SaDecodeRun *run)
{
	MemoryContextSwitchTo(run->result);
	CurrentResourceOwner = run->outer_owner;
	run->guarded = false;
	run->pushed_snapshot = false;
}

void
sa_decode_guard_end(SaDecodeRun *run)
{
	if (!run->guarded)
		return;
	if (run->pushed_snapshot)
		PopActiveSnapshot();
	ReleaseCurrentSubTransaction();
	leave_subtransaction(run);
}

/* Is an error due to what the record holds?  Not when it would strike other records too, or may pass. */
static bool
is_records_fault(const ErrorData *error)
{
	switch (ERRCODE_TO_CATEGORY(error->sqlerrcode))
	{
		case ERRCODE_TRANSACTION_ROLLBACK:	/* serialization, deadlock */
		case ERRCODE_INVALID_TRANSACTION_STATE:
		case ERRCODE_INSUFFICIENT_RESOURCES:	/* out of memory, disk full */
		case ERRCODE_OPERATOR_INTERVENTION: /* cancelled, shutting down */
		case ERRCODE_SYSTEM_ERROR:
			return false;
		default:
			return error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE &&
				error->sqlerrcode != ERRCODE_INSUFFICIENT_PRIVILEGE &&
				error->sqlerrcode != ERRCODE_DATA_CORRUPTED &&
				error->sqlerrcode != ERRCODE_INDEX_CORRUPTED;
	}
}

void
sa_decode_guard_abort(SaDecodeRun *run)
{
	bool		guarded = run->guarded;
	ErrorData  *error;

	MemoryContextSwitchTo(run->result);
	error = CopyErrorData();
	FlushErrorState();
	if (GetCurrentTransactionNestLevel() > run->outer_nest)
		RollbackAndReleaseCurrentSubTransaction();
	leave_subtransaction(run);

	if (!guarded || !is_records_fault(error))
		ReThrowError(error);
	sa_decode_malformed(run, "%s", sa_decode_excerpt(error->message, strlen(error->message), MESSAGE_LIMIT));
	FreeErrorData(error);
}

/* ---------- reasons ---------- */

bool
sa_decode_malformed(SaDecodeRun *run, const char *format,...)
{
	resetStringInfo(&run->reason);
	if (run->column != NULL)
		appendStringInfo(&run->reason, "column \"%s\": ", run->column);
	for (;;)
	{
		va_list		args;
		int			needed;

		va_start(args, format);
		needed = appendStringInfoVA(&run->reason, format, args);
		va_end(args);
		if (needed == 0)
			return false;
		enlargeStringInfo(&run->reason, needed);
	}
}

char *
sa_decode_excerpt(const char *text, size_t size, size_t limit)
{
	size_t		kept = size;
	char	   *result;

	if (size > limit)
		kept = pg_mbcliplen(text, size, limit);
	result = palloc(kept + 4);
	for (size_t i = 0; i < kept; i++)
		result[i] = (unsigned char) text[i] < ' ' || text[i] == 0x7f ? ' ' : text[i];
	strcpy(result + kept, kept < size ? "..." : "");
	return result;
}

/* ---------- text from outside ---------- */

static bool
is_ascii(const char *text, size_t size)
{
	unsigned char all = 0;

	for (size_t i = 0; i < size; i++)
		all |= (unsigned char) text[i];
	return (all & 0x80) == 0;
}

bool
sa_decode_text(SaDecodeRun *run, const char *what, const char **text, size_t *size)
{
	size_t		valid = pg_encoding_verifymbstr(PG_UTF8, *text, *size);
	MemoryContext oldcxt;

	if (valid < *size)
	{
		if ((*text)[valid] == '\0')
			return sa_decode_malformed(run, "zero byte in %s at byte %zu", what, valid + 1);
		return sa_decode_malformed(run, "invalid UTF-8 in %s at byte %zu", what, valid + 1);
	}
	if (run->utf8 || is_ascii(*text, *size))
		return true;

	sa_decode_guard(run);
	oldcxt = MemoryContextSwitchTo(run->scratch);
	*text = pg_any_to_server(*text, *size, PG_UTF8);
	*size = strlen(*text);
	MemoryContextSwitchTo(oldcxt);
	return true;
}
