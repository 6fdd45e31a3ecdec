/*
 * option_kafka.h
 *		What Kafka streams, their servers and user mappings may say to the client library.
 */
#ifndef SA_OPTION_KAFKA_H
#define SA_OPTION_KAFKA_H

#include "nodes/pg_list.h"
#include "regex/regex.h"

/* Where settings stand. */
typedef enum SaKafkaPlace
{
	SA_KAFKA_LINK,				/* servers and streams */
	SA_KAFKA_MAPPING			/* user mappings */
} SaKafkaPlace;

extern bool sa_option_kafka_valid(SaKafkaPlace place, const char *option);
extern bool sa_option_kafka_is_secret(const char *option);

/* It names a file, which a role must be allowed to have read. */
extern bool sa_option_kafka_is_file(const char *option);

/* It decides who is sent the secrets, or how well they are kept on the way. */
extern bool sa_option_kafka_is_guarded(const char *option);

/* The settings valid at a place, for a hint. */
extern const char *sa_option_kafka_names(SaKafkaPlace place);

/* A setting's value as the library reads it; errors do not show what might be secret. */
extern const char *sa_option_kafka_read(const char *option, const char *value);

/* --- topics --- */

extern bool sa_option_kafka_is_topic(const char *name);

/* A comma-separated list of topics, as a list of char *. */
extern List *sa_option_kafka_read_topics(const char *name, const char *value);

/* The regular expression, in CurrentMemoryContext, for pg_regfree and pfree; errors when it is none. */
extern regex_t *sa_option_kafka_compile_pattern(const char *name, const char *value);

#endif							/* SA_OPTION_KAFKA_H */
