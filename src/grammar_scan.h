/*
 * grammar_scan.h
 *		Finding our statements in a text.
 */
#ifndef SA_GRAMMAR_SCAN_H
#define SA_GRAMMAR_SCAN_H

#include "nodes/pg_list.h"

typedef enum SaStatementKind
{
	SA_STREAM_STATEMENT,
	SA_VIEW_STATEMENT
} SaStatementKind;

/* One of our statements.  Places are byte offsets in the text. */
typedef struct SaStatement
{
	SaStatementKind kind;
	int			first;			/* of the statement's first word */
	int			word;			/* of STREAM or CONTINUOUS */
	bool		replace;		/* ALTER CONTINUOUS VIEW ... AS */
	bool		explain;		/* EXPLAIN CONTINUOUS VIEW */
} SaStatement;

/* What the grammar is to see in the place of a word. */
typedef enum SaWord
{
	SA_STREAM_AS_TABLE,
	SA_CONTINUOUS_AS_MATERIALIZED,
	SA_CONTINUOUS_AS_VERBOSE,
	SA_VIEW_AS_TABLE,
	SA_ALTER_AS_CREATE,
	SA_REFUSED					/* an error, once the grammar has come so far */
} SaWord;

typedef struct SaChange
{
	int			place;			/* of the word */
	SaWord		as;
	const char *message;		/* of SA_REFUSED */
	const char *hint;
} SaChange;

typedef struct SaFound
{
	List	   *statements;		/* of SaStatement, in the order of the text, as are */
	List	   *changes;		/* of SaChange */
} SaFound;

/* A quick look: false where no statement of ours can be. */
extern bool sa_grammar_may_be_in(const char *text);

extern void sa_grammar_find(const char *text, SaFound *found);
extern void sa_grammar_forget(SaFound *found);

/* A syntax error with a caret. */
extern void sa_grammar_refuse(const char *text, int place, const char *message, const char *hint);

#endif							/* SA_GRAMMAR_SCAN_H */
