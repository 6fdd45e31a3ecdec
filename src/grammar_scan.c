/*
 * grammar_scan.c
 *		Finding our statements in a text.
 *
 * Invariant: a statement is ours when its first words are, and none that begins so is one of PostgreSQL's:
 *
 *		CREATE [OR REPLACE] [TEMPORARY | UNLOGGED ...] STREAM
 *		CREATE [OR REPLACE] [TEMPORARY | UNLOGGED ...] CONTINUOUS VIEW
 *		DROP | ALTER | COMMENT ON	STREAM | CONTINUOUS VIEW
 *		EXPLAIN CONTINUOUS VIEW
 *
 * So nothing is looked at but the tokens where a statement begins, as PostgreSQL's own scanner sees them, and
 * no word becomes a keyword: everywhere else STREAM and CONTINUOUS are names like any other.
 *
 * The scan is silent.  What is wrong with the text is for the grammar to say, in the order of the text; the
 * scan then has simply come to its end.
 *
 * No locks, no state: nothing to recover after a crash.
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "parser/scanner.h"
#include "utils/elog.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "grammar_scan.h"

#define IDENT 258				/* scanner.h: the first of the scanner's own tokens */

typedef struct Scan
{
	const char *text;
	MemoryContext context;		/* of what is found; the scan's own is another one */
	core_yyscan_t scanner;
	core_yy_extra_type extra;
	SaFound    *found;
	int			token;			/* the current one; 0: the end */
	YYLTYPE		place;
	core_YYSTYPE value;
} Scan;

/* ---------- whether to look at all ---------- */

/* After white space, one of the words that begin our statements, or a comment, behind which one may be? */
static bool
begins_like_ours(const char *p)
{
	while (*p == ' ' || (*p >= '\t' && *p <= '\r'))
		p++;
	switch (*p)
	{
		case '-':
		case '/':
			return true;
		case 'a':
		case 'A':
			return pg_strncasecmp(p, "alter", 5) == 0;
		case 'c':
		case 'C':
			return pg_strncasecmp(p, "create", 6) == 0 || pg_strncasecmp(p, "comment", 7) == 0;
		case 'd':
		case 'D':
			return pg_strncasecmp(p, "drop", 4) == 0;
		case 'e':
		case 'E':
			return pg_strncasecmp(p, "explain", 7) == 0;
		default:
			return false;
	}
}

static bool
has_our_word(const char *text)
{
	for (const char *p = text; *p; p++)
	{
		if ((*p | 0x20) == 's' && (p[1] | 0x20) == 't' && pg_strncasecmp(p, "stream", 6) == 0)
			return true;
		if ((*p | 0x20) == 'c' && (p[1] | 0x20) == 'o' && pg_strncasecmp(p, "continuous", 10) == 0)
			return true;
	}
	return false;
}

bool
sa_grammar_may_be_in(const char *text)
{
	for (const char *p = text; p; p = strchr(p, ';'))
	{
		p += *p == ';';
		if (begins_like_ours(p))
			return has_our_word(text);
	}
	return false;
}

/* ---------- tokens ---------- */

static void
advance(Scan *scan)
{
	scan->token = core_yylex(&scan->value, &scan->place, scan->scanner);
}

static bool
at_keyword(const Scan *scan, const char *keyword)
{
	int			number = ScanKeywordLookup(keyword, &ScanKeywords);

	return number >= 0 && scan->token == ScanKeywordTokens[number];
}

static bool
skip_keyword(Scan *scan, const char *keyword)
{
	if (!at_keyword(scan, keyword))
		return false;
	advance(scan);
	return true;
}

/* A word that is no keyword, and not quoted. */
static bool
at_word(const Scan *scan, const char *word)
{
	return scan->token == IDENT && scan->text[scan->place] != '"' && strcmp(scan->value.str, word) == 0;
}

static void
skip_parentheses(Scan *scan)
{
	int			depth = 0;

	do
	{
		depth += scan->token == '(' ? 1 : scan->token == ')' ? -1 : 0;
		advance(scan);
	} while (depth > 0 && scan->token != 0 && scan->token != ';');
}

/* ---------- what is found ---------- */

/* A copy of the item at the end of the list, both of which outlive the scan. */
static List *
append_copy(Scan *scan, List *list, const void *item, size_t size)
{
	MemoryContext old = MemoryContextSwitchTo(scan->context);
	void	   *copy = palloc(size);

	memcpy(copy, item, size);
	list = lappend(list, copy);
	MemoryContextSwitchTo(old);
	return list;
}

static void
change_word(Scan *scan, int place, SaWord as)
{
	SaChange	change = {.place = place, .as = as};

	scan->found->changes = append_copy(scan, scan->found->changes, &change, sizeof(change));
}

static void
refuse_word(Scan *scan, int place, const char *message, const char *hint)
{
	SaChange	change = {.place = place, .as = SA_REFUSED, .message = message, .hint = hint};

	scan->found->changes = append_copy(scan, scan->found->changes, &change, sizeof(change));
}

/* The first words are known, the current token is the last of them. */
static SaStatement *
add_statement(Scan *scan, const SaStatement *statement)
{
	change_word(scan, statement->word,
				statement->explain ? SA_CONTINUOUS_AS_VERBOSE :
				statement->kind == SA_STREAM_STATEMENT ? SA_STREAM_AS_TABLE : SA_CONTINUOUS_AS_MATERIALIZED);
	scan->found->statements = append_copy(scan, scan->found->statements, statement, sizeof(SaStatement));
	return llast(scan->found->statements);
}

/* ---------- statements ---------- */

/* STREAM, or CONTINUOUS VIEW; stays at the last word. */
static bool
read_kind(Scan *scan, SaStatement *statement)
{
	statement->word = scan->place;
	if (at_word(scan, "stream"))
	{
		statement->kind = SA_STREAM_STATEMENT;
		return true;
	}
	if (!at_word(scan, "continuous"))
		return false;
	advance(scan);
	statement->kind = SA_VIEW_STATEMENT;
	return at_keyword(scan, "view");
}

static bool
skip_modifier(Scan *scan)
{
	static const char *const modifiers[] = {"global", "local", "temp", "temporary", "unlogged"};

	for (size_t i = 0; i < lengthof(modifiers); i++)
		if (skip_keyword(scan, modifiers[i]))
			return true;
	return false;
}

/* Another kind of relation, which ours is not, in front of STREAM or CONTINUOUS VIEW. */
static void
refuse_modifiers(Scan *scan, SaStatementKind kind, int place, bool replace)
{
	if (kind == SA_STREAM_STATEMENT && replace)
		refuse_word(scan, place, "CREATE OR REPLACE is not supported for streams",
					"Use CREATE STREAM IF NOT EXISTS, or ALTER STREAM to change the one there is.");
	else if (kind == SA_STREAM_STATEMENT)
		refuse_word(scan, place, "a stream cannot be temporary or unlogged",
					"Use CREATE STREAM, and DROP STREAM when it has served.");
	else if (replace)
		refuse_word(scan, place, "CREATE OR REPLACE is not supported for continuous views",
					"Use ALTER CONTINUOUS VIEW ... AS to change the query of the one there is.");
	else
		refuse_word(scan, place, "a continuous view cannot be temporary or unlogged",
					"Use CREATE CONTINUOUS VIEW, and DROP CONTINUOUS VIEW when it has served.");
}

/* Returns whether it creates a stream. */
static bool
read_create(Scan *scan, SaStatement *statement)
{
	bool		replace = false;
	bool		modified = false;
	int			place;

	advance(scan);
	place = scan->place;
	if (skip_keyword(scan, "or"))
		replace = skip_keyword(scan, "replace");
	while (skip_modifier(scan))
		modified = true;
	if (!read_kind(scan, statement))
		return false;
	if (modified || replace)
		refuse_modifiers(scan, statement->kind, place, replace);
	add_statement(scan, statement);
	return statement->kind == SA_STREAM_STATEMENT;
}

/* From VIEW on: name [(columns)] AS, which gives the view a new query? */
static bool
replaces_query(Scan *scan)
{
	advance(scan);
	advance(scan);
	while (scan->token == '.')
	{
		advance(scan);
		advance(scan);
	}
	if (scan->token == '(')
		skip_parentheses(scan);
	return at_keyword(scan, "as");
}

static void
read_alter(Scan *scan, SaStatement *statement)
{
	advance(scan);
	if (!read_kind(scan, statement))
		return;
	statement = add_statement(scan, statement);
	if (statement->kind == SA_VIEW_STATEMENT && replaces_query(scan))
	{
		SaChange   *change = llast(scan->found->changes);

		/* in the order of the text */
		statement->replace = true;
		change->place = statement->first;
		change->as = SA_ALTER_AS_CREATE;
		change_word(scan, statement->word, SA_CONTINUOUS_AS_MATERIALIZED);
	}
}

static void
read_explain(Scan *scan, SaStatement *statement)
{
	advance(scan);
	if (!read_kind(scan, statement) || statement->kind == SA_STREAM_STATEMENT)
		return;
	statement->explain = true;
	add_statement(scan, statement);
	change_word(scan, scan->place, SA_VIEW_AS_TABLE);
}

static void
read_drop(Scan *scan, SaStatement *statement)
{
	advance(scan);
	if (read_kind(scan, statement))
		add_statement(scan, statement);
}

static void
read_comment(Scan *scan, SaStatement *statement)
{
	advance(scan);
	if (skip_keyword(scan, "on") && read_kind(scan, statement))
		add_statement(scan, statement);
}

/* What CREATE FOREIGN TABLE says behind its columns. */
static void
refuse_server(Scan *scan)
{
	if (at_keyword(scan, "server"))
		refuse_word(scan, scan->place, "CREATE STREAM has no SERVER clause",
					"Name the server in the options: WITH (server = '...', ...).");
	else if (at_keyword(scan, "options"))
		refuse_word(scan, scan->place, "CREATE STREAM has no OPTIONS clause",
					"Write the options as WITH (name = 'value', ...).");
}

/* To the end of the statement. */
static void
skip_rest(Scan *scan, bool create_stream)
{
	int			depth = 0;

	while (scan->token != 0 && scan->token != ';')
	{
		bool		closed = scan->token == ')' && --depth == 0;

		depth += scan->token == '(';
		advance(scan);
		if (closed && create_stream)
			refuse_server(scan);
	}
}

static void
read_statement(Scan *scan)
{
	SaStatement statement = {.first = scan->place};
	bool		create_stream = false;

	if (at_keyword(scan, "create"))
		create_stream = read_create(scan, &statement);
	else if (at_keyword(scan, "alter"))
		read_alter(scan, &statement);
	else if (at_keyword(scan, "drop"))
		read_drop(scan, &statement);
	else if (at_keyword(scan, "comment"))
		read_comment(scan, &statement);
	else if (at_keyword(scan, "explain"))
		read_explain(scan, &statement);
	skip_rest(scan, create_stream);
}

static void
read_text(Scan *scan)
{
	scan->scanner = scanner_init(scan->text, &scan->extra, &ScanKeywords, ScanKeywordTokens);
	scan->extra.escape_string_warning = false;
	advance(scan);
	while (scan->token != 0)
	{
		if (scan->token == ';')
			advance(scan);
		else
			read_statement(scan);
	}
}

/* Without a word to client or log, be it of an error or of an identifier too long. */
void
sa_grammar_find(const char *text, SaFound *found)
{
	Scan		scan = {.text = text, .found = found, .context = CurrentMemoryContext};
	MemoryContext own = AllocSetContextCreate(CurrentMemoryContext, "stream_agg scan", ALLOCSET_DEFAULT_SIZES);
	int			save_client_min = client_min_messages;
	int			save_log_min = log_min_messages;

	memset(found, 0, sizeof(SaFound));
	MemoryContextSwitchTo(own);
	client_min_messages = ERROR;
	log_min_messages = ERROR;
	PG_TRY();
	{
		read_text(&scan);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(own);
		FlushErrorState();
	}
	PG_END_TRY();
	client_min_messages = save_client_min;
	log_min_messages = save_log_min;
	MemoryContextSwitchTo(scan.context);
	MemoryContextDelete(own);
}

void
sa_grammar_forget(SaFound *found)
{
	list_free_deep(found->statements);
	list_free_deep(found->changes);
}

void
sa_grammar_refuse(const char *text, int place, const char *message, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_SYNTAX_ERROR),
			 errmsg("%s", message),
			 hint ? errhint("%s", hint) : 0,
			 errposition(pg_mbstrlen_with_len(text, place) + 1)));
}
