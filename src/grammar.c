/*
 * grammar.c
 *		CREATE STREAM, CREATE CONTINUOUS VIEW and their like, as statements.
 *
 * PostgreSQL has no hook before its grammar.  So, where stream_agg.syntax = 'auto' and every check below holds,
 * the server's raw_parser(), a dozen lines around its scanner and grammar, is redirected at start to the same
 * dozen lines here (codepatch.c says how).  Nothing else of the server is changed, and the text never is:
 *
 *		1. A text without CREATE, ALTER, DROP, COMMENT or EXPLAIN where a statement begins, or without either of our
 *		   words, is parsed as ever.
 *		2. In others we look for statements that begin as ours do (grammar_scan.c).  None: parsed as ever.
 *		3. Else the scanner is given its list of keywords through a function of ours, by which the grammar sees
 *		   TABLE for the word STREAM, and MATERIALIZED for CONTINUOUS, at just these places.
 *		4. The nodes that come out are changed to what the statement means (grammar_convert.c): the same that
 *		   CREATE FOREIGN TABLE and CREATE MATERIALIZED VIEW WITH (stream_agg.continuous) give.
 *
 * Invariant: a text that PostgreSQL accepts is parsed to the same tree, and what it refuses and we do not begins
 * with one of our statements.  Without the redirection nothing is lost but the spelling: sa_grammar_parse() does
 * steps 2 to 4 for stream_agg.execute() and DO LANGUAGE stream_sql.
 *
 * No locks.  An error leaves no state behind but `reading`, which is put back.
 */
#include "postgres.h"

#include "common/keywords.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "nodes/nodes.h"
#include "parser/parser.h"
#include "parser/scanner.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "codepatch.h"
#include "compat.h"
#include "grammar.h"
#include "grammar_convert.h"
#include "grammar_scan.h"

/* ---------- what the server's gramparse.h declares, which is not installed since 16 ---------- */

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

/* ---------- our list of keywords ---------- */

/* By SaWord: a word, and the keyword that the grammar sees in its place. */
static const struct
{
	const char *word;
	const char *keyword;
}			replacements[] = {
	[SA_STREAM_AS_TABLE] = {"stream", "table"},
	[SA_CONTINUOUS_AS_MATERIALIZED] = {"continuous", "materialized"},
	[SA_CONTINUOUS_AS_VERBOSE] = {"continuous", "verbose"},
	[SA_VIEW_AS_TABLE] = {"view", "table"},
	[SA_ALTER_AS_CREATE] = {"alter", "create"},
};

/* The text that is being parsed; NULL while none of ours is. */
typedef struct Reading
{
	const char *text;
	const char *scanned;		/* the scanner's copy of it */
	List	   *changes;		/* of SaChange */
	int			next;			/* of these, for the scanner goes forward only */
} Reading;

static Reading *reading = NULL;

/* The server's keywords, and behind them the replacements; made once. */
static ScanKeywordList our_keywords;
static uint16 *our_tokens = NULL;
static int	last_keyword_token;

/* Called by ScanKeywordLookup for every unquoted word; the scanner has put an end to it in its copy. */
static int
keyword_hash(const void *key, size_t length)
{
	SaChange   *change;

	if (reading->next == list_length(reading->changes))
		return ScanKeywords.hash(key, length);
	change = list_nth(reading->changes, reading->next);
	if (key != reading->scanned + change->place)
		return ScanKeywords.hash(key, length);
	if (change->as == SA_REFUSED)
		sa_grammar_refuse(reading->text, change->place, change->message, change->hint);
	reading->next++;
	return ScanKeywords.num_keywords + change->as;
}

static uint16
token_of(const char *keyword)
{
	int			number = ScanKeywordLookup(keyword, &ScanKeywords);

	if (number < 0)
		elog(ERROR, "there is no keyword \"%s\"", keyword);
	return ScanKeywordTokens[number];
}

static void
make_keywords(void)
{
	int			n = ScanKeywords.num_keywords;
	int			length = ScanKeywords.kw_offsets[n - 1] + strlen(GetScanKeyword(n - 1, &ScanKeywords)) + 1;
	char	   *words = MemoryContextAlloc(TopMemoryContext, length + lengthof(replacements) * NAMEDATALEN);
	uint16	   *offsets = MemoryContextAlloc(TopMemoryContext, (n + lengthof(replacements)) * sizeof(uint16));
	uint16	   *tokens = MemoryContextAlloc(TopMemoryContext, (n + lengthof(replacements)) * sizeof(uint16));

	memcpy(words, ScanKeywords.kw_string, length);
	memcpy(offsets, ScanKeywords.kw_offsets, n * sizeof(uint16));
	memcpy(tokens, ScanKeywordTokens, n * sizeof(uint16));
	for (int i = 0; i < n; i++)
		last_keyword_token = Max(last_keyword_token, tokens[i]);
	for (int i = 0; i < lengthof(replacements); i++)
	{
		offsets[n + i] = length;
		tokens[n + i] = token_of(replacements[i].keyword);
		strcpy(words + length, replacements[i].word);
		length += strlen(replacements[i].word) + 1;
	}
	our_keywords = ScanKeywords;
	our_keywords.kw_string = words;
	our_keywords.kw_offsets = offsets;
	our_keywords.hash = keyword_hash;
	our_keywords.num_keywords = n + lengthof(replacements);
	our_tokens = tokens;
}

/* ---------- the dozen lines ---------- */

/* As the server's raw_parser; with changes, in that mode which parses statements. */
static List *
parse(const char *text, RawParseMode mode, Reading *changed)
{
	base_yy_extra_type extra;
	core_yyscan_t scanner = scanner_init(text, &extra.core_yy_extra,
										 changed ? &our_keywords : &ScanKeywords,
										 changed ? our_tokens : ScanKeywordTokens);
	int			failed;

	if (changed)
		changed->scanned = extra.core_yy_extra.scanbuf;
	extra.have_lookahead = mode != RAW_PARSE_DEFAULT;
	if (extra.have_lookahead)
	{
		extra.lookahead_token = last_keyword_token + SA_TOKENS_BEFORE_MODES + (int) mode;
		extra.lookahead_yylloc = 0;
		extra.lookahead_end = NULL;
	}
	parser_init(&extra);
	failed = base_yyparse(scanner);
	scanner_finish(scanner);
	return failed ? NIL : extra.parsetree;
}

static List *
parse_changed(const char *text, SaFound *found)
{
	Reading		changed = {.text = text, .changes = found->changes};
	Reading    *outer = reading;
	List	   *volatile list = NIL;

	reading = &changed;
	PG_TRY();
	{
		list = parse(text, RAW_PARSE_DEFAULT, &changed);
	}
	PG_FINALLY();
	{
		reading = outer;
	}
	PG_END_TRY();
	return list;
}

static bool
contains(const RawStmt *raw, const SaStatement *statement)
{
	return statement->first >= raw->stmt_location &&
		(raw->stmt_len == 0 || statement->first < raw->stmt_location + raw->stmt_len);
}

static void
convert(List *list, SaFound *found, const char *text)
{
	ListCell   *next = list_head(found->statements);
	ListCell   *lc;

	foreach(lc, list)
	{
		RawStmt    *raw = lfirst_node(RawStmt, lc);

		for (; next && contains(raw, lfirst(next)); next = lnext(found->statements, next))
			sa_grammar_convert(raw, lfirst(next), text);
	}
}

static List *
parse_text(const char *text)
{
	SaFound		found;
	List	   *list;

	sa_grammar_find(text, &found);
	if (found.statements == NIL)
		return parse(text, RAW_PARSE_DEFAULT, NULL);
	list = parse_changed(text, &found);
	convert(list, &found, text);
	sa_grammar_forget(&found);
	return list;
}

/* What raw_parser is redirected to. */
static uint64 calls = 0;

static List *
our_raw_parser(const char *text, RawParseMode mode)
{
	calls++;
	if (mode == RAW_PARSE_DEFAULT && sa_grammar_may_be_in(text))
		return parse_text(text);
	return parse(text, mode, NULL);
}

/* ---------- checks ---------- */

static const struct
{
	RawParseMode mode;
	const char *text;
}			samples[] = {
	{RAW_PARSE_DEFAULT, ""},
	{RAW_PARSE_DEFAULT, "SELECT 1 + a.b AS stream, 'x' continuous FROM t WHERE c = $1 AND NOT d IN (1, 2);; INSERT INTO stream VALUES (1)"},
	{RAW_PARSE_DEFAULT, "CREATE TABLE t (a int, b timestamp with time zone) WITH (fillfactor = 70); ALTER TABLE t DROP stream"},
	{RAW_PARSE_DEFAULT, "CREATE MATERIALIZED VIEW v WITH (a.b = 'c') AS SELECT U&'\\0041' x ORDER BY 1 NULLS LAST; DROP VIEW v"},
	{RAW_PARSE_DEFAULT, "CREATE FUNCTION f() RETURNS int LANGUAGE sql BEGIN ATOMIC SELECT 1; SELECT 2; END; SELECT $$a;b$$"},
	{RAW_PARSE_TYPE_NAME, "numeric(10,2)[]"},
	{RAW_PARSE_PLPGSQL_EXPR, "stream + 1"},
	{RAW_PARSE_PLPGSQL_ASSIGN1, "x := 1"},
	{RAW_PARSE_PLPGSQL_ASSIGN2, "r.x := 1 + 2"},
	{RAW_PARSE_PLPGSQL_ASSIGN3, "a.b.c := f(2)"},
};

/* equal() does not compare places. */
static bool
same_places(List *a, List *b)
{
	ListCell   *la;
	ListCell   *lb;

	forboth(la, a, lb, b)
	{
		RawStmt    *ra = lfirst(la);
		RawStmt    *rb = lfirst(lb);

		if (IsA(ra, RawStmt) && (ra->stmt_location != rb->stmt_location || ra->stmt_len != rb->stmt_len))
			return false;
	}
	return true;
}

/* Our dozen lines do what the server's do. */
static const char *
parses_alike(void)
{
	for (size_t i = 0; i < lengthof(samples); i++)
	{
		List	   *theirs = raw_parser(samples[i].text, samples[i].mode);
		List	   *ours = parse(samples[i].text, samples[i].mode, NULL);

		if (!equal(theirs, ours) || !same_places(theirs, ours))
			return psprintf("the server parses \"%s\" in another way", samples[i].text);
	}
	return NULL;
}

/* The server's own callers come to us now. */
static const char *
is_reached(void)
{
	uint64		before = calls;
	List	   *list = pg_parse_query("CREATE STREAM s (a int); DROP CONTINUOUS VIEW v");

	if (calls == before || list_length(list) != 2 ||
		!IsA(linitial_node(RawStmt, list)->stmt, CreateForeignTableStmt) ||
		!IsA(lsecond_node(RawStmt, list)->stmt, DropStmt))
		return "the server does not go through the redirection";
	return NULL;
}

/* NULL, or the reason why our dozen lines cannot stand for the server's. */
static const char *
check_parser(void)
{
	if (!SA_GRAMMAR_KNOWN)
		return "this version of PostgreSQL is not known";
	if (our_tokens == NULL)
		make_keywords();
	return parses_alike();
}

/* NULL: the server knows our statements from now on.  Else the reason why not, and nothing has changed. */
static const char *
redirect(void)
{
	void	   *callees[] = {(void *) scanner_init, (void *) base_yyparse};
	void	   *parser = (void *) raw_parser;
	const char *reason;
	size_t		size;

	if ((reason = sa_codepatch_symbol(parser, "raw_parser", &size)) != NULL ||
		(reason = sa_codepatch_calls(parser, size, callees, lengthof(callees))) != NULL ||
		(reason = sa_codepatch_only_caller(parser, size, (void *) base_yyparse)) != NULL ||
		(reason = check_parser()) != NULL ||
		(reason = sa_codepatch_redirect(parser, size, (void *) our_raw_parser)) != NULL)
		return reason;
	return is_reached();
}

/* ---------- start ---------- */

typedef enum Syntax
{
	SYNTAX_AUTO,
	SYNTAX_OFF
} Syntax;

static const struct config_enum_entry syntax_options[] = {
	{"auto", SYNTAX_AUTO, false},
	{"off", SYNTAX_OFF, false},
	{NULL, 0, false}
};

static int	syntax = SYNTAX_AUTO;

/* With errors turned into reasons; they are in the current memory context. */
static const char *
try(const char *(*step) (void))
{
	MemoryContext context = CurrentMemoryContext;
	const char *volatile reason = NULL;

	PG_TRY();
	{
		reason = step();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		reason = CopyErrorData()->message;
		FlushErrorState();
	}
	PG_END_TRY();
	return reason;
}

/* All or nothing; says so once, where the server's start is logged. */
static void
teach_server(void)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "stream_agg grammar", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	const char *reason = try(redirect);
	const char *failure = reason ? sa_codepatch_restore() : NULL;

	if (failure)
		elog(FATAL, "the server's parser cannot be put back: %s", failure);
	if (reason)
	{
		ereport(WARNING,
				(errmsg("CREATE STREAM and CREATE CONTINUOUS VIEW are not available as statements: %s", reason),
				 errhint("Use stream_agg.execute(), DO LANGUAGE stream_sql, or CREATE FOREIGN TABLE and CREATE MATERIALIZED VIEW. "
						 "Setting \"stream_agg.syntax\" to \"off\" silences this warning.")));
		SetConfigOption("stream_agg.syntax", "off", PGC_POSTMASTER, PGC_S_OVERRIDE);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}

void
sa_grammar_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
		return;
	DefineCustomEnumVariable("stream_agg.syntax",
							 "Whether the server accepts CREATE STREAM and CREATE CONTINUOUS VIEW as statements.",
							 "off: only stream_agg.execute() and DO LANGUAGE stream_sql do. It is off, too, where auto was not possible.",
							 &syntax, SYNTAX_AUTO, syntax_options, PGC_POSTMASTER, 0, NULL, NULL, NULL);
	if (syntax == SYNTAX_AUTO)
		teach_server();
}

List *
sa_grammar_parse(const char *text)
{
	static bool checked = false;

	if (!checked)
	{
		const char *reason = check_parser();

		if (reason)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("statements about streams cannot be parsed: %s", reason),
					 errhint("Use CREATE FOREIGN TABLE and CREATE MATERIALIZED VIEW.")));
		checked = true;
	}
	return parse_text(text);
}

void
sa_grammar_point_inside(void *text)
{
	int			position = geterrposition();

	if (position <= 0)
		return;
	errposition(0);
	internalerrposition(position);
	internalerrquery(text);
}
