/*
 * source_kafka.h
 *		What the files of the Kafka source offer each other: records, times, SELECT.
 */
#ifndef SA_SOURCE_KAFKA_H
#define SA_SOURCE_KAFKA_H

#include <librdkafka/rdkafka.h>

#include "decode.h"
#include "owner.h"
#include "source.h"
#include "utils/timestamp.h"

#define SA_EPOCH_OFFSET_MS \
	((POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * (USECS_PER_DAY / INT64CONST(1000)))

/* Kafka's milliseconds since 1970; -1 and what no timestamp can hold: none. */
static inline TimestampTz
sa_kafka_from_ms(int64 ms)
{
	int64		shifted = ms - SA_EPOCH_OFFSET_MS;

	if (ms < 0 || shifted >= END_TIMESTAMP / 1000)
		return DT_NOBEGIN;
	return shifted * 1000;
}

/* Rounded up: the first millisecond that is not before the time. */
static inline int64
sa_kafka_to_ms(TimestampTz time)
{
	int64		ms = time / 1000;

	if (time % 1000 > 0)
		ms++;
	return ms + SA_EPOCH_OFFSET_MS;
}

/* The record that a message holds; headers in CurrentMemoryContext. */
extern void sa_kafka_describe(const rd_kafka_message_t *message, const char *topic, bool with_headers,
							  SaRecord *record);

/* SELECT: _peek */
extern SaPeek *sa_kafka_peek_begin(Relation stream, Snapshot snapshot, List *restrictions);
extern bool sa_kafka_peek_next(SaPeek *peek, TupleTableSlot *slot);
extern void sa_kafka_peek_rewind(SaPeek *peek);
extern void sa_kafka_peek_end(SaPeek *peek);

#endif							/* SA_SOURCE_KAFKA_H */
