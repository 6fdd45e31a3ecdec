/*
 * decode_csv.h
 *		Splits a record into fields.
 */
#ifndef SA_DECODE_CSV_H
#define SA_DECODE_CSV_H

#include "decode_run.h"

typedef struct SaCsv SaCsv;

/* For records of n fields; quote '\0': there are no quotes.  In CurrentMemoryContext. */
extern SaCsv *sa_csv_create(char delimiter, char quote, int n);

/*
 * Splits a record, in the server's encoding, as COPY splits a line: an empty field is NULL, unless it is
 * quoted; within quotes a quote is written twice.  A line break at the end does not count.  What is wrong
 * goes to *trouble, as a phrase, with the index of the field; false then.
 */
extern bool sa_csv_split(SaCsv *csv, const char *text, size_t size, const char **trouble, int *field);

/* A field of the record last split: SA_TOKEN_TEXT or SA_TOKEN_NULL. */
extern SaToken sa_csv_field(const SaCsv *csv, int i);

#endif							/* SA_DECODE_CSV_H */
