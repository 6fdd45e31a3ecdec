/*
 * decode.h
 *		From a record's bytes to an event's values.
 *
 * A decoder is made once for a stream's columns and options.  Records are decoded in runs: what input
 * functions and domain checks raise is caught, and makes one record malformed.
 */
#ifndef SA_DECODE_H
#define SA_DECODE_H

#include "datatype/timestamp.h"
#include "option.h"
#include "owner.h"
#include "utils/relcache.h"

typedef struct SaRecordHeader
{
	const char *name;
	const char *value;			/* NULL: a header without value */
	size_t		size;
} SaRecordHeader;

/* A record as a source holds it; nothing is copied, and nothing ends in a zero byte but topic and names. */
typedef struct SaRecord
{
	const char *topic;
	int32		partition;
	int64		position;
	TimestampTz timestamp;		/* DT_NOBEGIN: none */
	const char *timestamp_type; /* "create", "append", or NULL: none */
	const char *key;			/* NULL: none */
	size_t		key_size;
	const char *value;			/* NULL: a tombstone, which is not to be decoded */
	size_t		value_size;
	const SaRecordHeader *headers;
	int			nheaders;
} SaRecord;

typedef struct SaDecoder SaDecoder;

/*
 * From here to sa_owner_leave with the rights of the stream's owner, under the settings that records are
 * decoded under (UTC above all), whatever database, role and session say.
 */
extern void sa_decode_enter(SaOwnerSwitch *save, Oid stream);

/*
 * A decoder for the stream's columns, in a new child of cxt.  Errors for columns that the format cannot
 * fill (metadata into a type it does not fit, raw with several columns ...), naming column and remedy.
 */
extern SaDecoder *sa_decode_create(Relation stream, const SaStreamOptions *options, MemoryContext cxt);
extern void sa_decode_free(SaDecoder *decoder);

/* Does any column want the records' headers? */
extern bool sa_decode_wants_headers(const SaDecoder *decoder);

/* Where a decoded record goes; a column's value is at its attribute number minus one. */
typedef struct SaDecoded
{
	Datum	   *values;
	bool	   *nulls;
	const char *error;			/* NULL: good; else why the record is malformed (its values are then void) */
} SaDecoded;

/*
 * Decode n records; values and errors in CurrentMemoryContext.  Never raises for what a record holds.
 * To be called between sa_decode_enter and sa_owner_leave: input functions and domain constraints run here.  In a transaction, with or without a snapshot, but not
 * in a parallel operation: it opens subtransactions.  Errors that may pass, or are no record's fault, are
 * raised (cancelled, out of memory, deadlock, no permission ...).
 */
extern void sa_decode_records(SaDecoder *decoder, const SaRecord *records, int n, SaDecoded *out);

#endif							/* SA_DECODE_H */
