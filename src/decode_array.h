/*
 * decode_array.h
 *		A JSON array as the text that the input functions of array types read.
 */
#ifndef SA_DECODE_ARRAY_H
#define SA_DECODE_ARRAY_H

#include "decode_run.h"

/*
 * The array has been scanned.  Arrays in it are further dimensions, objects become their JSON text.  json:
 * the elements are JSON themselves, and strings keep their quotes.  False with a reason.
 */
extern bool sa_array_literal(SaDecodeRun *run, StringInfo out, const SaToken *array, char delimiter, bool json);

#endif							/* SA_DECODE_ARRAY_H */
