/*
 * decode_run.h
 *		What the parts of the decoder share while they decode a run of records.
 */
#ifndef SA_DECODE_RUN_H
#define SA_DECODE_RUN_H

#include "lib/stringinfo.h"
#include "utils/palloc.h"
#include "utils/resowner.h"

/* How a value stands in the record. */
typedef enum SaTokenKind
{
	SA_TOKEN_NONE,				/* it does not */
	SA_TOKEN_NULL,
	SA_TOKEN_TEXT,				/* these bytes: a field of csv, a key */
	SA_TOKEN_STRING,			/* a JSON string; these bytes between its quotes, without escapes */
	SA_TOKEN_ESCAPED,			/* a JSON string with escapes, likewise */
	SA_TOKEN_NUMBER,			/* these, and those below, as they stand in the JSON */
	SA_TOKEN_TRUE,
	SA_TOKEN_FALSE,
	SA_TOKEN_OBJECT,
	SA_TOKEN_ARRAY
} SaTokenKind;

typedef struct SaToken
{
	SaTokenKind kind;
	const char *text;			/* in the server's encoding, without zero bytes */
	size_t		size;
} SaToken;

typedef struct SaDecodeRun
{
	MemoryContext result;		/* where values go */
	MemoryContext scratch;		/* for functions that leave things behind; emptied after the record */
	bool		utf8;			/* the server's encoding is UTF8 (or SQL_ASCII) */
	bool		deep;			/* the record at hand is nested deeply */
	const char *column;			/* name of the one being filled; NULL: none */
	StringInfoData reason;		/* why the record at hand is malformed */
	StringInfoData text;		/* a string without its escapes; an argument of an input function */
	StringInfoData element;		/* likewise, of an array */

	/* the subtransaction that is open while input functions run */
	bool		guarded;
	bool		pushed_snapshot;
	int			outer_nest;
	ResourceOwner outer_owner;
} SaDecodeRun;

extern void sa_decode_run_init(SaDecodeRun *run, MemoryContext cxt);
extern void sa_decode_run_begin(SaDecodeRun *run);

/* Give back what large records have made large. */
extern void sa_decode_run_trim(SaDecodeRun *run);

/*
 * From here to the end of the run an error is caught, and makes the record at hand malformed.  To be
 * called before anything that may raise for what a record holds; cheap when it has been called.
 */
extern void sa_decode_guard(SaDecodeRun *run);
extern void sa_decode_guard_end(SaDecodeRun *run);

/* In PG_CATCH: undo what was done under guard, and keep the reason; raises again what is no fault of the record. */
extern void sa_decode_guard_abort(SaDecodeRun *run);

/* Keeps why the record at hand is malformed, with the column at hand; always false. */
extern bool sa_decode_malformed(SaDecodeRun *run, const char *format,...) pg_attribute_printf(2, 3);

/* A string from a record as one line of at most so many bytes, for messages; in CurrentMemoryContext. */
extern char *sa_decode_excerpt(const char *text, size_t size, size_t limit);

/*
 * UTF-8 from outside in the server's encoding, as it is where the encoding is the same; false when it is
 * no valid UTF-8, or has zero bytes (what says in the reason what the text is).
 */
extern bool sa_decode_text(SaDecodeRun *run, const char *what, const char **text, size_t *size);

#endif							/* SA_DECODE_RUN_H */
