/*
 * decode_json.h
 *		Reads JSON objects once, and keeps the values at wanted paths.
 */
#ifndef SA_DECODE_JSON_H
#define SA_DECODE_JSON_H

#include "decode_run.h"
#include "nodes/pg_list.h"

typedef struct SaJsonPaths SaJsonPaths;
typedef struct SaJsonNode SaJsonNode;

/* A set of paths, in CurrentMemoryContext. */
extern SaJsonPaths *sa_json_paths_create(void);

/* One more; the same path gives the same node.  Each step is a key (list of char *). */
extern SaJsonNode *sa_json_paths_add(SaJsonPaths *paths, List *steps);

/*
 * Scans a record, in the server's encoding.  Accepts what the server's type json accepts, as long as it
 * is an object; false with a reason otherwise.
 */
extern bool sa_json_scan(SaJsonPaths *paths, SaDecodeRun *run, const char *text, size_t size);

/*
 * The value at a path of the record last scanned.  Of duplicate keys the last counts, with all that its
 * value holds, as in a chain of the server's operator ->.  Arrays have no keys.
 */
extern SaToken sa_json_token(const SaJsonNode *node);

/* What stands between the quotes of a JSON string, without escapes, into out; false with a reason. */
extern bool sa_json_unescape(SaDecodeRun *run, StringInfo out, const char *text, size_t size);

#endif							/* SA_DECODE_JSON_H */
