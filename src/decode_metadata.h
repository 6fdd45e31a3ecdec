/*
 * decode_metadata.h
 *		Columns that hold what a source knows of a record beside its value.
 */
#ifndef SA_DECODE_METADATA_H
#define SA_DECODE_METADATA_H

#include "decode.h"
#include "decode_value.h"

/* Errors unless the column's type fits what it is to hold. */
extern void sa_metadata_check(Relation stream, const SaColumn *column, SaColumnOrigin origin);

/* The column's value from a record; false with a reason. */
extern bool sa_metadata_value(SaDecodeRun *run, SaColumn *column, SaColumnOrigin origin, const SaRecord *record,
							  Datum *value, bool *isnull);

/* Bytes from outside, as bytea or as text; false with a reason, which says what the text is. */
extern bool sa_metadata_bytes(SaDecodeRun *run, SaColumn *column, const char *what, const char *bytes, size_t size,
							  Datum *value);

#endif							/* SA_DECODE_METADATA_H */
