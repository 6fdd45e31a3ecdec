/*
 * grammar_convert.c
 *		From what the grammar made of our statements to what they mean.
 *
 * Invariant: after conversion a statement is one that PostgreSQL has (a "native" one), which says the same.
 * A form that means nothing for a stream or continuous view is refused here, with a caret; whether the
 * relations are what the statement calls them is checked when it is run, by the kind noted in it.
 *
 * No catalog access: statements are parsed in failed transactions, too.
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "commands/defrem.h"
#include "nodes/makefuncs.h"
#include "parser/parser.h"
#include "utils/builtins.h"

#include "grammar.h"
#include "grammar_convert.h"

#define NAMESPACE "stream_agg"

/* ---------- the kind that the user named ---------- */

/* A relation named in a command has no alias; PostgreSQL does not look for one. */
static void
note_kind(RangeVar *relation, SaStatementKind kind)
{
	relation->alias = makeAlias(kind == SA_STREAM_STATEMENT ? SA_GRAMMAR_STREAM : SA_GRAMMAR_VIEW, NIL);
}

const char *
sa_grammar_kind(const RangeVar *relation)
{
	return relation && relation->alias ? relation->alias->aliasname : NULL;
}

/* DROP has names only; but of its CONCURRENTLY, which is for indexes, its nodes of other kinds know nothing. */
static void
note_dropped_kind(DropStmt *drop)
{
	drop->concurrent = true;
}

const char *
sa_grammar_dropped_kind(const DropStmt *drop)
{
	if (!drop->concurrent)
		return NULL;
	return drop->removeType == OBJECT_FOREIGN_TABLE ? SA_GRAMMAR_STREAM :
		drop->removeType == OBJECT_MATVIEW ? SA_GRAMMAR_VIEW : NULL;
}

/* ---------- CREATE STREAM ---------- */

static void
refuse_clauses(const CreateStmt *create, const SaStatement *statement, const char *text)
{
	const char *as_child = "For a stream below another table, use CREATE FOREIGN TABLE ... SERVER stream_staged.";
	const char *no_storage = "A stream is not stored like a table. Leave the clause out.";

	if (create->partbound)
		sa_grammar_refuse(text, create->partbound->location, "PARTITION OF is not supported in CREATE STREAM", as_child);
	if (create->inhRelations != NIL)
		sa_grammar_refuse(text, linitial_node(RangeVar, create->inhRelations)->location,
						  "INHERITS is not supported in CREATE STREAM", as_child);
	if (create->partspec)
		sa_grammar_refuse(text, create->partspec->location, "PARTITION BY is not supported in CREATE STREAM", no_storage);
	if (create->ofTypename)
		sa_grammar_refuse(text, create->ofTypename->location, "OF is not supported in CREATE STREAM",
						  "List the stream's columns.");
	if (create->oncommit != ONCOMMIT_NOOP)
		sa_grammar_refuse(text, statement->word, "ON COMMIT is not supported in CREATE STREAM", no_storage);
	if (create->accessMethod)
		sa_grammar_refuse(text, statement->word, "USING is not supported in CREATE STREAM", no_storage);
	if (create->tablespacename)
		sa_grammar_refuse(text, statement->word, "TABLESPACE is not supported in CREATE STREAM", no_storage);
}

static void
refuse_namespace(const DefElem *def, const char *text)
{
	if (def->defnamespace)
		sa_grammar_refuse(text, def->location, psprintf("invalid option \"%s.%s\"", def->defnamespace, def->defname),
						  "Options of a stream are written without a prefix.");
}

static char *
string_value(DefElem *def)
{
	return def->arg ? defGetString(def) : pstrdup("true");
}

/* source = 'x' is the server stream_x, server = 'k' the server k. */
static Node *
convert_create_stream(CreateStmt *create, const SaStatement *statement, const char *text)
{
	CreateForeignTableStmt *foreign = makeNode(CreateForeignTableStmt);
	ListCell   *lc;

	refuse_clauses(create, statement, text);
	memcpy(&foreign->base, create, sizeof(CreateStmt));
	foreign->base.type = T_CreateForeignTableStmt;
	foreign->base.options = NIL;
	note_kind(foreign->base.relation, statement->kind);
	foreach(lc, create->options)
	{
		DefElem    *def = lfirst_node(DefElem, lc);
		bool		server = strcmp(def->defname, "server") == 0;

		refuse_namespace(def, text);
		if (!server && strcmp(def->defname, "source") != 0)
		{
			foreign->options = lappend(foreign->options,
									   makeDefElem(def->defname, (Node *) makeString(string_value(def)), def->location));
			continue;
		}
		if (foreign->servername)
			sa_grammar_refuse(text, def->location, "the stream's source is given more than once",
							  "Give one of the options \"source\" and \"server\".");
		foreign->servername = server ? string_value(def) : psprintf("stream_%s", string_value(def));
	}
	if (foreign->servername == NULL)
		foreign->servername = pstrdup("stream_staged");
	return (Node *) foreign;
}

/* ---------- options of continuous views ---------- */

/* Is this an option of PostgreSQL's tables? */
static bool
is_storage_option(const char *name)
{
	static const char *const names[] = {"fillfactor", "parallel_workers", "user_catalog_table"};
	static const char *const prefixes[] = {"autovacuum_", "log_autovacuum_", "toast_", "vacuum_"};

	for (size_t i = 0; i < lengthof(names); i++)
		if (strcmp(name, names[i]) == 0)
			return true;
	for (size_t i = 0; i < lengthof(prefixes); i++)
		if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
			return true;
	return false;
}

/* All others are the view's own, so that a misspelt one is told which there are. */
static void
claim_options(List *options)
{
	ListCell   *lc;

	foreach(lc, options)
	{
		DefElem    *def = lfirst_node(DefElem, lc);

		if (def->defnamespace == NULL && !is_storage_option(def->defname))
			def->defnamespace = pstrdup(NAMESPACE);
	}
}

static DefElem *
flag(const char *name)
{
	return makeDefElemExtended(pstrdup(NAMESPACE), pstrdup(name), NULL, DEFELEM_UNSPEC, -1);
}

static void
convert_create_view(CreateTableAsStmt *create, const SaStatement *statement)
{
	IntoClause *into = create->into;

	claim_options(into->options);
	into->options = lappend(into->options, flag("continuous"));
	if (statement->replace)
		into->options = lappend(into->options, flag("replace"));
}

/* ---------- ALTER, COMMENT ON ---------- */

static void
convert_alter(AlterTableStmt *alter, const SaStatement *statement)
{
	ListCell   *lc;

	note_kind(alter->relation, statement->kind);
	if (statement->kind == SA_STREAM_STATEMENT)
	{
		alter->objtype = OBJECT_FOREIGN_TABLE;
		return;
	}
	foreach(lc, alter->cmds)
	{
		AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);

		if (cmd->subtype == AT_SetRelOptions || cmd->subtype == AT_ResetRelOptions)
			claim_options((List *) cmd->def);
	}
}

/* The grammar has read TABLE where STREAM stands. */
static void
correct_type(ObjectType *type)
{
	if (*type == OBJECT_TABLE)
		*type = OBJECT_FOREIGN_TABLE;
}

static void
convert_rename(RenameStmt *rename, const SaStatement *statement)
{
	note_kind(rename->relation, statement->kind);
	correct_type(&rename->renameType);
	correct_type(&rename->relationType);
}

/* ---------- EXPLAIN CONTINUOUS VIEW ---------- */

/* The name in EXPLAIN VERBOSE TABLE name, of which no more may be said; else NULL. */
static RangeVar *
explained_name(const ExplainStmt *explain)
{
	SelectStmt *select = (SelectStmt *) explain->query;
	SelectStmt *bare = makeNode(SelectStmt);

	if (!IsA(select, SelectStmt) || list_length(select->fromClause) != 1 || !IsA(linitial(select->fromClause), RangeVar))
		return NULL;
	bare->targetList = select->targetList;
	bare->fromClause = select->fromClause;
	return equal(select, bare) ? linitial(select->fromClause) : NULL;
}

/* SELECT stream_agg.explain('name'::regclass) AS "QUERY PLAN" */
static Node *
convert_explain(ExplainStmt *explain, const SaStatement *statement, const char *text)
{
	RangeVar   *name = explained_name(explain);
	SelectStmt *select = makeNode(SelectStmt);
	TypeCast   *view = makeNode(TypeCast);
	A_Const    *constant = makeNode(A_Const);
	ResTarget  *target = makeNode(ResTarget);

	if (name == NULL)
		sa_grammar_refuse(text, statement->word, "EXPLAIN CONTINUOUS VIEW takes one name and nothing else", NULL);
	constant->val.sval.type = T_String;
	constant->val.sval.sval = quote_qualified_identifier(name->schemaname, name->relname);
	constant->location = name->location;
	view->arg = (Node *) constant;
	view->typeName = SystemTypeName("regclass");
	view->location = name->location;
	target->name = pstrdup("QUERY PLAN");
	target->val = (Node *) makeFuncCall(list_make2(makeString(pstrdup(NAMESPACE)), makeString(pstrdup("explain"))),
										list_make1(view), COERCE_EXPLICIT_CALL, statement->word);
	target->location = statement->word;
	select->targetList = list_make1(target);
	return (Node *) select;
}

/* ---------- all of them ---------- */

/* Something that PostgreSQL has for tables, or inside another statement. */
static void
refuse_statement(const SaStatement *statement, const char *text)
{
	int			length = strlen(statement->kind == SA_STREAM_STATEMENT ? "STREAM" : "CONTINUOUS");

	sa_grammar_refuse(text, statement->word, psprintf("syntax error at or near \"%.*s\"", length, text + statement->word),
					  NULL);
}

void
sa_grammar_convert(RawStmt *raw, const SaStatement *statement, const char *text)
{
	bool		stream = statement->kind == SA_STREAM_STATEMENT;
	Node	   *stmt = raw->stmt;

	switch (nodeTag(stmt))
	{
		case T_CreateStmt:
			raw->stmt = convert_create_stream((CreateStmt *) stmt, statement, text);
			break;
		case T_CreateTableAsStmt:
			if (stream)
				sa_grammar_refuse(text, statement->word, "CREATE STREAM ... AS is not supported",
								  "Create the stream with its columns, and insert the query's rows into it.");
			convert_create_view((CreateTableAsStmt *) stmt, statement);
			break;
		case T_AlterTableStmt:
			convert_alter((AlterTableStmt *) stmt, statement);
			break;
		case T_RenameStmt:
			convert_rename((RenameStmt *) stmt, statement);
			break;
		case T_AlterObjectSchemaStmt:
			note_kind(((AlterObjectSchemaStmt *) stmt)->relation, statement->kind);
			correct_type(&((AlterObjectSchemaStmt *) stmt)->objectType);
			break;
		case T_DropStmt:
			correct_type(&((DropStmt *) stmt)->removeType);
			note_dropped_kind((DropStmt *) stmt);
			break;
		case T_CommentStmt:
			correct_type(&((CommentStmt *) stmt)->objtype);
			break;
		case T_ExplainStmt:
			raw->stmt = convert_explain((ExplainStmt *) stmt, statement, text);
			break;
		default:
			refuse_statement(statement, text);
	}
}
