/*
 * source_kafka_client.h
 *		The client library as the files of the Kafka source use it: connections, and looks at what
 *		the brokers have.
 *
 * Nothing here waits for a broker.  What the library's threads have to say sets sa_client_wake_fd();
 * whoever waits for it calls sa_client_woken() first, and then drains what it has.
 */
#ifndef SA_SOURCE_KAFKA_CLIENT_H
#define SA_SOURCE_KAFKA_CLIENT_H

#include <librdkafka/rdkafka.h>

#include "option.h"

typedef struct SaClient SaClient;

/* Errors when a setting cannot be had; connects to nobody. */
extern void sa_client_check(const SaStreamOptions *options, List *secrets);

/* Errors likewise.  A client outlives errors and transactions: its owner must close it. */
extern SaClient *sa_client_open(const SaStreamOptions *options, List *secrets);

/* At once; the library ends in the background. */
extern void sa_client_close(SaClient *client);

extern rd_kafka_t *sa_client_handle(const SaClient *client);
extern rd_kafka_queue_t *sa_client_queue(const SaClient *client);

/* Readable when some client of this process has something for us; -1 when there never was one. */
extern int	sa_client_wake_fd(void);
extern bool sa_client_woken(void);	/* had something */

/*
 * Have the library fetch again at once: versions before 2.2 look up to a second later whether a full queue has
 * been emptied.  They do when anything else is asked of the brokers; so ask for the ends of these partitions
 * (the list is taken over), and forget the answer.  Does nothing for newer versions.
 */
extern bool sa_client_must_nudge(void);
extern void sa_client_nudge(SaClient *client, rd_kafka_topic_partition_list_t *list);

/* Serve errors and the like, where no records are read: those would be thrown away. */
extern void sa_client_serve(SaClient *client);

/*
 * Write what the library logged to the server's log.  True when it reported an error since the last call,
 * which is then in *trouble (in CurrentMemoryContext).
 */
extern bool sa_client_report(SaClient *client, char **trouble);

/* It is over: later trouble is told anew. */
extern void sa_client_forget_trouble(SaClient *client);

/* Do the stream's options name this topic? */
extern bool sa_client_wants(const SaStreamOptions *options, const char *topic);

/* ---------- a look: topics, partitions and their offsets, as of now ---------- */

typedef struct SaLook SaLook;

typedef struct SaLookPartition
{
	const char *topic;
	int32		partition;
	int64		low;			/* the first record that is kept */
	int64		high;			/* behind the last one (the last stable one, with read_committed) */
	int64		at_time[2];		/* the first one that arrived at such a time or later; high: none */
} SaLookPartition;

#define SA_LOOK_NO_TIME (-1)

/*
 * Starts to look at the stream's topics, and for two times (milliseconds since 1970, or SA_LOOK_NO_TIME); each
 * answer may take so long.  The look's own memory is of CurrentMemoryContext.
 */
extern SaLook *sa_look_start(SaClient *client, const SaStreamOptions *options, const int64 *times_ms, int timeout_ms);

/* True when it is over: with a result, or an error. */
extern bool sa_look_done(SaLook *look);

/* Why it failed, or NULL.  Topics that are not there are not in the result, and named here in *missing. */
extern const char *sa_look_error(SaLook *look);
extern const char *sa_look_missing(SaLook *look);
extern int	sa_look_count(SaLook *look);
extern SaLookPartition sa_look_partition(SaLook *look, int i);	/* topic is good until the look is freed */
extern void sa_look_free(SaLook *look);

#endif							/* SA_SOURCE_KAFKA_CLIENT_H */
