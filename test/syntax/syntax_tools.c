/*
 * syntax_tools.c
 *		A test's look at the server's parser, which may be redirected to that of stream_agg.
 *
 * fuzz(text) parses a statement, and every variant of it in which one word is "stream" or "continuous", twice:
 * through the server, and by the stock dozen lines around the server's own scanner and grammar.  bench() times
 * both.  Preloaded before stream_agg, the library redirects the server's parser to these lines, as
 * another extension could.
 */
#include "postgres.h"

#include <time.h>

#include "common/keywords.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "parser/parser.h"
#include "parser/scanner.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "codepatch.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

PG_FUNCTION_INFO_V1(fuzz);
PG_FUNCTION_INFO_V1(bench);

/* ---------- the stock parser ---------- */

typedef struct base_yy_extra_type
{
	core_yy_extra_type core_yy_extra;
	bool		have_lookahead;
	int			lookahead_token;
	core_YYSTYPE lookahead_yylval;
	YYLTYPE		lookahead_yylloc;
	char	   *lookahead_end;
	char		lookahead_hold_char;
	List	   *parsetree;
} base_yy_extra_type;

extern void parser_init(base_yy_extra_type *yyext);
extern int	base_yyparse(core_yyscan_t yyscanner);

static int	last_keyword_token;

static List *
stock_parse(const char *text, RawParseMode mode)
{
	base_yy_extra_type extra;
	core_yyscan_t scanner = scanner_init(text, &extra.core_yy_extra, &ScanKeywords, ScanKeywordTokens);
	int			failed;

	extra.have_lookahead = mode != RAW_PARSE_DEFAULT;
	if (extra.have_lookahead)
	{
		extra.lookahead_token = last_keyword_token + (PG_VERSION_NUM >= 160000 ? 5 : 3) + (int) mode;
		extra.lookahead_yylloc = 0;
		extra.lookahead_end = NULL;
	}
	parser_init(&extra);
	failed = base_yyparse(scanner);
	scanner_finish(scanner);
	return failed ? NIL : extra.parsetree;
}

void
_PG_init(void)
{
	const char *reason;
	size_t		size;

	for (int i = 0; i < ScanKeywords.num_keywords; i++)
		last_keyword_token = Max(last_keyword_token, ScanKeywordTokens[i]);
	if (!process_shared_preload_libraries_in_progress)
		return;
	if ((reason = sa_codepatch_symbol((void *) raw_parser, "raw_parser", &size)) != NULL ||
		(reason = sa_codepatch_redirect((void *) raw_parser, size, (void *) stock_parse)) != NULL)
		elog(FATAL, "syntax_tools: %s", reason);
}

/* ---------- fuzz ---------- */

typedef struct Outcome
{
	List	   *list;
	ErrorData  *error;			/* NULL: parsed */
} Outcome;

static Outcome
try(List *(*parser) (const char *, RawParseMode), const char *text)
{
	MemoryContext context = CurrentMemoryContext;
	Outcome		outcome = {NIL, NULL};

	PG_TRY();
	{
		outcome.list = parser(text, RAW_PARSE_DEFAULT);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		outcome.error = CopyErrorData();
		FlushErrorState();
	}
	PG_END_TRY();
	return outcome;
}

static bool
same_trees(List *a, List *b)
{
	ListCell   *la;
	ListCell   *lb;

	if (!equal(a, b))
		return false;
	forboth(la, a, lb, b)
	{
		RawStmt    *ra = lfirst_node(RawStmt, la);
		RawStmt    *rb = lfirst_node(RawStmt, lb);

		if (ra->stmt_location != rb->stmt_location || ra->stmt_len != rb->stmt_len)
			return false;
	}
	return true;
}

static bool
same_errors(ErrorData *a, ErrorData *b)
{
	return a->sqlerrcode == b->sqlerrcode && a->cursorpos == b->cursorpos && strcmp(a->message, b->message) == 0;
}

/* Had the stock grammar nothing against the text but the word STREAM or CONTINUOUS? */
static bool
refused_our_word(const ErrorData *error)
{
	return pg_strcasecmp(error->message, "syntax error at or near \"stream\"") == 0 ||
		pg_strcasecmp(error->message, "syntax error at or near \"continuous\"") == 0;
}

typedef struct Counts
{
	int			tried;
	int			accepted;		/* by the stock parser */
	int			lost;			/* of these, refused by the server */
	int			different;		/* or parsed to another tree */
	int			told;			/* refused by both, with another error, and not for our words */
	int			taken;			/* refused by the stock parser for our words, accepted or told otherwise by the server */
	char	   *sample;			/* a bad one */
} Counts;

static void
compare(const char *text, Counts *counts, MemoryContext keep)
{
	Outcome		stock = try(stock_parse, text);
	Outcome		server = try(raw_parser, text);
	bool		good = false;

	counts->tried++;
	counts->accepted += stock.error == NULL;
	if (stock.error == NULL && server.error)
		counts->lost++;
	else if (stock.error == NULL && !same_trees(stock.list, server.list))
		counts->different++;
	else if (stock.error && (server.error == NULL || !same_errors(stock.error, server.error)))
	{
		good = refused_our_word(stock.error);
		*(good ? &counts->taken : &counts->told) += 1;
	}
	else
		good = true;
	if (!good && counts->sample == NULL)
		counts->sample = MemoryContextStrdup(keep, text);
}

static bool
is_word_char(char c)
{
	return isalnum((unsigned char) c) || c == '_' || c == '$' || (c & 0x80);
}

typedef struct Word
{
	int			start;
	int			end;
} Word;

/* Unquoted words, as far as the scanner gets. */
static List *
words_of(const char *text)
{
	MemoryContext context = CurrentMemoryContext;
	core_yy_extra_type extra;
	core_yyscan_t scanner = scanner_init(text, &extra, &ScanKeywords, ScanKeywordTokens);
	List	   *volatile words = NIL;
	core_YYSTYPE value;
	YYLTYPE		place;

	extra.escape_string_warning = false;
	PG_TRY();
	{
		while (core_yylex(&value, &place, scanner) != 0)
		{
			Word	   *word;

			if (!(isalpha((unsigned char) text[place]) || text[place] == '_' || (text[place] & 0x80)))
				continue;
			word = palloc(sizeof(Word));
			word->start = word->end = place;
			while (is_word_char(text[word->end]))
				word->end++;
			if (text[word->end] != '\'' && text[word->end] != '&')
				words = lappend(words, word);
		}
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		FlushErrorState();
	}
	PG_END_TRY();
	return words;
}

Datum
fuzz(PG_FUNCTION_ARGS)
{
	static const char *const ours[] = {"stream", "CONTINUOUS"};
	char	   *statement = text_to_cstring(PG_GETARG_TEXT_PP(0));
	Counts		counts = {0};
	MemoryContext keep = CurrentMemoryContext;
	MemoryContext context = AllocSetContextCreate(keep, "fuzz", ALLOCSET_DEFAULT_SIZES);
	List	   *words = words_of(statement);
	ListCell   *lc;
	TupleDesc	desc;
	Datum		values[7];
	bool		nulls[7] = {false};

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "fuzz returns a row");
	MemoryContextSwitchTo(context);
	compare(statement, &counts, keep);
	foreach(lc, words)
		for (int i = 0; i < lengthof(ours); i++)
		{
			Word	   *word = lfirst(lc);

			CHECK_FOR_INTERRUPTS();
			MemoryContextReset(context);
			compare(psprintf("%.*s%s%s", word->start, statement, ours[i], statement + word->end), &counts, keep);
		}
	MemoryContextSwitchTo(keep);
	MemoryContextDelete(context);
	values[0] = Int32GetDatum(counts.tried);
	values[1] = Int32GetDatum(counts.accepted);
	values[2] = Int32GetDatum(counts.lost);
	values[3] = Int32GetDatum(counts.different);
	values[4] = Int32GetDatum(counts.told);
	values[5] = Int32GetDatum(counts.taken);
	nulls[6] = counts.sample == NULL;
	values[6] = nulls[6] ? (Datum) 0 : CStringGetTextDatum(counts.sample);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls)));
}

/* ---------- bench ---------- */

/* Of this process alone: others may be busy. */
static double
cpu_time(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return now.tv_sec * 1e9 + now.tv_nsec;
}

/* Nanoseconds of CPU for one of: 'stock', 'server': raw parsing. 'plan': parsing by the server, analysis and planning. */
Datum
bench(PG_FUNCTION_ARGS)
{
	char	   *what = text_to_cstring(PG_GETARG_TEXT_PP(0));
	char	   *statement = text_to_cstring(PG_GETARG_TEXT_PP(1));
	int			n = PG_GETARG_INT32(2);
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "bench", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	double		start = cpu_time();
	double		used;

	for (int i = 0; i < n; i++)
	{
		if (strcmp(what, "stock") == 0)
			stock_parse(statement, RAW_PARSE_DEFAULT);
		else if (strcmp(what, "server") == 0)
			raw_parser(statement, RAW_PARSE_DEFAULT);
		else
		{
			RawStmt    *raw = linitial_node(RawStmt, pg_parse_query(statement));

			(void) pg_plan_queries(pg_analyze_and_rewrite_fixedparams(raw, statement, NULL, 0, NULL), statement, 0, NULL);
		}
		MemoryContextReset(context);
	}
	used = cpu_time() - start;
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	PG_RETURN_FLOAT8(used / n);
}
