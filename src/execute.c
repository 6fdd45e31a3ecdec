/*
 * execute.c
 *		stream_agg.execute() and DO LANGUAGE stream_sql: our statements where the server does not know them.
 *
 * Invariant: what runs has its caller's rights, in its caller's transaction, and gives nothing back.
 *
 * Locks: those that the commands take.  Crash: transactional.
 */
#include "postgres.h"

#include "access/xact.h"
#include "fmgr.h"
#include "nodes/makefuncs.h"
#include "nodes/parsenodes.h"
#include "parser/analyze.h"
#include "tcop/cmdtag.h"
#include "tcop/dest.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "grammar.h"

PG_FUNCTION_INFO_V1(sa_execute);
PG_FUNCTION_INFO_V1(sa_stream_sql_inline);
PG_FUNCTION_INFO_V1(sa_stream_sql_handler);
PG_FUNCTION_INFO_V1(sa_stream_sql_validator);

static void
refuse(const char *what, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("%s is not allowed in stream SQL", what),
			 errhint("%s", hint)));
}

static void
check_statement(Node *stmt)
{
	const char *tag = GetCommandTagName(CreateCommandTag(stmt));

	if (IsA(stmt, TransactionStmt))
		refuse(tag, "Give transaction commands to the server directly.");
	if (IsA(stmt, CopyStmt) && ((CopyStmt *) stmt)->filename == NULL)
		refuse("COPY to or from the client", "Give it to the server directly.");
	if (UtilityReturnsTuples(stmt))
		refuse(tag, "There is nobody to take its rows. Give it to the server directly.");
}

static void
run_statement(RawStmt *raw, const char *text)
{
	Query	   *query;
	PlannedStmt *planned;

	PushActiveSnapshot(GetTransactionSnapshot());
	query = parse_analyze_fixedparams(raw, text, NULL, 0, NULL);
	PopActiveSnapshot();
	if (query->commandType != CMD_UTILITY)
		refuse("a query", "It is for statements such as CREATE STREAM; give queries to the server directly.");
	check_statement(query->utilityStmt);
	planned = makeNode(PlannedStmt);
	planned->commandType = CMD_UTILITY;
	planned->canSetTag = true;
	planned->utilityStmt = query->utilityStmt;
	planned->stmt_location = query->stmt_location;
	planned->stmt_len = query->stmt_len;
	PushActiveSnapshot(GetTransactionSnapshot());
	ProcessUtility(planned, text, false, PROCESS_UTILITY_QUERY, NULL, NULL, None_Receiver, NULL);
	PopActiveSnapshot();
}

static void
point_inside(void *text)
{
	sa_grammar_point_inside(text);
	errcontext("stream SQL");
}

static void
execute(char *text)
{
	ErrorContextCallback callback = {.callback = point_inside, .arg = text, .previous = error_context_stack};
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "stream SQL", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old;
	ListCell   *lc;
	List	   *list;

	error_context_stack = &callback;
	list = sa_grammar_parse(text);
	foreach(lc, list)
	{
		old = MemoryContextSwitchTo(context);
		CommandCounterIncrement();
		run_statement(lfirst_node(RawStmt, lc), text);
		MemoryContextSwitchTo(old);
		MemoryContextReset(context);
	}
	CommandCounterIncrement();
	error_context_stack = callback.previous;
	MemoryContextDelete(context);
}

Datum
sa_execute(PG_FUNCTION_ARGS)
{
	execute(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	PG_RETURN_VOID();
}

/* ---------- the language, which has DO only ---------- */

Datum
sa_stream_sql_inline(PG_FUNCTION_ARGS)
{
	execute(castNode(InlineCodeBlock, PG_GETARG_POINTER(0))->source_text);
	PG_RETURN_VOID();
}

static void
refuse_function(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("language stream_sql has no functions"),
			 errhint("Use DO LANGUAGE stream_sql, or call stream_agg.execute() in a function of another language.")));
}

Datum
sa_stream_sql_validator(PG_FUNCTION_ARGS)
{
	refuse_function();
	PG_RETURN_VOID();
}

Datum
sa_stream_sql_handler(PG_FUNCTION_ARGS)
{
	refuse_function();
	PG_RETURN_VOID();
}
