/*
 * source_kafka_client.c
 *		Clients of the Kafka library, and looks at what the brokers have.
 *
 * Invariant: threads that are not the process's own - the library's, and the short-lived ones that make
 * its blocking calls - run with all signals blocked, use memory of malloc, and never call PostgreSQL.  A
 * client and a look are shared with such threads, and freed by whoever lets go of them last.  The file
 * descriptor that those threads write to stays open as long as the process lives, so that a late write
 * cannot reach a file that got its number.
 *
 * No locks of the server's; nothing to recover.  A process that ends while the library still runs leaves
 * without the exit handlers of other libraries (of the TLS library, say), which would pull the ground from
 * under its threads.
 */
#include "postgres.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "libpq/pqsignal.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "utils/builtins.h"

#include "compat.h"

#include "option_kafka.h"
#include "source_kafka_client.h"

#define LOG_LINES 32
#define LOG_LINE 400			/* bytes */
#define TIME_LATEST (-1)		/* what the protocol has for the ends of a partition, in place of a time */
#define TIME_EARLIEST (-2)
#define CLIENT_DESCRIPTORS 8	/* file descriptors that a client is thought to need */

typedef struct LogLine
{
	int			level;			/* of syslog */
	char		text[LOG_LINE];
} LogLine;

struct SaClient
{
	rd_kafka_t *handle;
	rd_kafka_queue_t *queue;
	pg_atomic_uint32 users;

	pthread_mutex_t lock;		/* of what follows */
	LogLine		log[LOG_LINES];
	int			nlog;
	int			dropped;		/* lines that found no room */
	bool		troubled;
	bool		refused;		/* trouble tells that we were connected, and refused, or refused to go on */
	char		trouble[LOG_LINE];
};

static int	wake_fd = -1;
static pg_atomic_uint32 living; /* clients that are not destroyed yet */

/* ---------- threads ---------- */

/* Block all signals, for the threads that are made from here to unblock_signals(). */
static void
block_signals(sigset_t *save)
{
	sigset_t	all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, save);
}

static void
unblock_signals(const sigset_t *save)
{
	pthread_sigmask(SIG_SETMASK, save, NULL);
}

static bool
run_in_background(void *(*function) (void *), void *arg)
{
	pthread_t	thread;
	pthread_attr_t attributes;
	sigset_t	save;
	int			result;

	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	block_signals(&save);
	result = pthread_create(&thread, &attributes, function, arg);
	unblock_signals(&save);
	pthread_attr_destroy(&attributes);
	return result == 0;
}

static void
wake(void)
{
	uint64		one = 1;

	(void) !write(wake_fd, &one, sizeof(one));
}

static void
leave_at_once(int status, void *arg)
{
	if (proc_exit_inprogress && pg_atomic_read_u32(&living) > 0)
		_exit(status);
}

static void
prepare_process(void)
{
	if (wake_fd >= 0)
		return;
	wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (wake_fd < 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not create an event file descriptor: %m")));
	ReserveExternalFD();
	pg_atomic_init_u32(&living, 0);
	on_exit(leave_at_once, NULL);
}

int
sa_client_wake_fd(void)
{
	return wake_fd;
}

bool
sa_client_woken(void)
{
	uint64		count;

	return wake_fd >= 0 && read(wake_fd, &count, sizeof(count)) == sizeof(count);
}

/* ---------- settings ---------- */

/* What the user cannot set: how positions are kept is ours. */
static const char *const fixed_settings[][2] = {
	{"enable.auto.commit", "false"},
	{"enable.auto.offset.store", "false"},
	{"auto.offset.reset", "error"},
	{"enable.partition.eof", "true"},
	{"allow.auto.create.topics", "false"},
	{"log.queue", "false"},
	{"log.connection.close", "false"},
	{"max.poll.interval.ms", "86400000"},
};

/* What the user can set otherwise. */
static const char *const default_settings[][2] = {
	{"client.id", "stream_agg"},
	{"isolation.level", "read_committed"},
	{"fetch.wait.max.ms", "100"},
	{"fetch.error.backoff.ms", "200"},
	{"queued.min.messages", "1000000"},
	{"queued.max.messages.kbytes", "65536"},
	{"reconnect.backoff.max.ms", "5000"},
	{"socket.keepalive.enable", "true"},
};

static void
set_ours(rd_kafka_conf_t *conf, const char *name, const char *value)
{
	char		reason[256];

	if (rd_kafka_conf_set(conf, name, value, reason, sizeof(reason)) != RD_KAFKA_CONF_OK)
		elog(ERROR, "could not set \"%s\" of the Kafka library: %s", name, reason);
}

/* One that only newer versions of the library know. */
static void
set_if_known(rd_kafka_conf_t *conf, const char *name, const char *value)
{
	char		reason[256];

	(void) rd_kafka_conf_set(conf, name, value, reason, sizeof(reason));
}

/* A user's setting; what is wrong with it must not show a secret. */
static void
set_users(rd_kafka_conf_t *conf, DefElem *def, bool secret)
{
	char		reason[256];

	if (rd_kafka_conf_set(conf, sa_option_kafka_name(def->defname), defGetString(def), reason,
						  sizeof(reason)) == RD_KAFKA_CONF_OK)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE),
			 errmsg("invalid value for option \"%s\"", def->defname),
			 secret ? 0 : errdetail_internal("%s", reason)));
}

/* What the library says of a setting that is a secret may quote it. */
static bool
quotes_secret(const char *text)
{
	return strstr(text, "sasl.oauthbearer.config") != NULL;
}

static void
write_log(const rd_kafka_t *handle, int level, const char *facility, const char *text)
{
	SaClient   *client = rd_kafka_opaque(handle);

	if (client == NULL)
		return;
	pthread_mutex_lock(&client->lock);
	if (client->nlog < LOG_LINES)
	{
		client->log[client->nlog].level = level;
		snprintf(client->log[client->nlog].text, LOG_LINE, "%s: %s", facility,
				 quotes_secret(text) ? "invalid sasl.oauthbearer.config" : text);
		client->nlog++;
	}
	else
		client->dropped++;
	pthread_mutex_unlock(&client->lock);
}

/* Offsets are told to the group for monitoring only, so it does not matter whether we may. */
static bool
is_groups_trouble(rd_kafka_resp_err_t error)
{
	switch (error)
	{
		case RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED:
		case RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE:
		case RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS:
		case RD_KAFKA_RESP_ERR_NOT_COORDINATOR:
			return true;
		default:
			return false;
	}
}

static void
take_error(rd_kafka_t *handle, int error, const char *reason, void *opaque)
{
	SaClient   *client = opaque;

	if (is_groups_trouble(error))
		return;
	pthread_mutex_lock(&client->lock);
	/* "all brokers are down" says less than why the last of them is, and that another address is dead less still */
	if (client->trouble[0] == '\0' || (error != RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN &&
										!(client->refused && error == RD_KAFKA_RESP_ERR__TRANSPORT)))
	{
		client->refused = error == RD_KAFKA_RESP_ERR__AUTHENTICATION || error == RD_KAFKA_RESP_ERR__SSL;
		snprintf(client->trouble, LOG_LINE, "%s", quotes_secret(reason) ? "invalid sasl_oauthbearer_config" : reason);
	}
	client->troubled = true;
	pthread_mutex_unlock(&client->lock);
}

static int
take_statistics(rd_kafka_t *handle, char *json, size_t size, void *opaque)
{
	write_log(handle, 6, "STATS", json);
	return 0;
}

static void
set_all(rd_kafka_conf_t *conf, const SaStreamOptions *options, List *secrets)
{
	ListCell   *lc;

	for (size_t i = 0; i < lengthof(default_settings); i++)
		set_ours(conf, default_settings[i][0], default_settings[i][1]);
	set_if_known(conf, "fetch.queue.backoff.ms", "20");
	foreach(lc, options->connection)
		set_users(conf, lfirst_node(DefElem, lc), false);
	foreach(lc, secrets)
		set_users(conf, lfirst_node(DefElem, lc), true);
	for (size_t i = 0; i < lengthof(fixed_settings); i++)
		set_ours(conf, fixed_settings[i][0], fixed_settings[i][1]);

	/* assign() wants a group; without one of the user's nothing is ever committed to it */
	set_ours(conf, "group.id", options->group_id ? options->group_id :
			 psprintf("stream_agg.%u.%u", MyDatabaseId, options->relid));
}

static rd_kafka_conf_t *
make_settings(const SaStreamOptions *options, List *secrets)
{
	rd_kafka_conf_t *conf = rd_kafka_conf_new();

	PG_TRY();
	{
		set_all(conf, options, secrets);
	}
	PG_CATCH();
	{
		rd_kafka_conf_destroy(conf);
		PG_RE_THROW();
	}
	PG_END_TRY();
	rd_kafka_conf_set_log_cb(conf, write_log);
	rd_kafka_conf_set_error_cb(conf, take_error);
	rd_kafka_conf_set_stats_cb(conf, take_statistics);
	return conf;
}

void
sa_client_check(const SaStreamOptions *options, List *secrets)
{
	rd_kafka_conf_destroy(make_settings(options, secrets));
}

/* ---------- opening and closing ---------- */

static void
refuse_connection(const char *reason)
{
	ereport(ERROR,
			(errcode(ERRCODE_FDW_UNABLE_TO_ESTABLISH_CONNECTION),
			 errmsg("could not set up the Kafka client"),
			 errdetail_internal("%s", reason)));
}

SaClient *
sa_client_open(const SaStreamOptions *options, List *secrets)
{
	char		reason[LOG_LINE];
	uint64		one = 1;
	SaClient   *client;
	rd_kafka_conf_t *conf;
	sigset_t	save;

	prepare_process();
	conf = make_settings(options, secrets);
	client = calloc(1, sizeof(SaClient));
	if (client == NULL)
	{
		rd_kafka_conf_destroy(conf);
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
	}
	pthread_mutex_init(&client->lock, NULL);
	pg_atomic_init_u32(&client->users, 1);
	rd_kafka_conf_set_opaque(conf, client);
	block_signals(&save);
	client->handle = rd_kafka_new(RD_KAFKA_CONSUMER, conf, reason, sizeof(reason));
	unblock_signals(&save);
	if (client->handle == NULL)
	{
		rd_kafka_conf_destroy(conf);
		free(client);
		refuse_connection(reason);
	}
	pg_atomic_fetch_add_u32(&living, 1);
	for (int i = 0; i < CLIENT_DESCRIPTORS; i++)
		ReserveExternalFD();
	rd_kafka_poll_set_consumer(client->handle);
	client->queue = rd_kafka_queue_get_consumer(client->handle);
	rd_kafka_queue_io_event_enable(client->queue, wake_fd, &one, sizeof(one));
	return client;
}

/* The last one to let go of a client; takes as long as the library's threads do. */
static void *
destroy(void *arg)
{
	SaClient   *client = arg;

	rd_kafka_queue_destroy(client->queue);
	rd_kafka_destroy_flags(client->handle, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
	pthread_mutex_destroy(&client->lock);
	free(client);
	pg_atomic_fetch_sub_u32(&living, 1);
	return NULL;
}

/* In a thread of its own. */
static void
let_go_here(SaClient *client)
{
	if (pg_atomic_sub_fetch_u32(&client->users, 1) == 0)
		destroy(client);
}

void
sa_client_close(SaClient *client)
{
	for (int i = 0; i < CLIENT_DESCRIPTORS; i++)
		ReleaseExternalFD();
	rd_kafka_queue_io_event_enable(client->queue, -1, NULL, 0);
	if (pg_atomic_sub_fetch_u32(&client->users, 1) == 0 && !run_in_background(destroy, client))
		destroy(client);
}

rd_kafka_t *
sa_client_handle(const SaClient *client)
{
	return client->handle;
}

rd_kafka_queue_t *
sa_client_queue(const SaClient *client)
{
	return client->queue;
}

#define NUDGE_TIMEOUT_MS 1000

typedef struct Nudge
{
	SaClient   *client;
	rd_kafka_topic_partition_list_t *list;
} Nudge;

static void *
nudge(void *arg)
{
	Nudge	   *nudge = arg;

	(void) rd_kafka_offsets_for_times(nudge->client->handle, nudge->list, NUDGE_TIMEOUT_MS);
	rd_kafka_topic_partition_list_destroy(nudge->list);
	let_go_here(nudge->client);
	free(nudge);
	return NULL;
}

bool
sa_client_must_nudge(void)
{
	return rd_kafka_version() < 0x02020000;
}

void
sa_client_nudge(SaClient *client, rd_kafka_topic_partition_list_t *list)
{
	Nudge	   *asked = malloc(sizeof(Nudge));

	if (asked == NULL)
	{
		rd_kafka_topic_partition_list_destroy(list);
		return;
	}
	asked->client = client;
	asked->list = list;
	for (int i = 0; i < list->cnt; i++)
		list->elems[i].offset = TIME_LATEST;
	pg_atomic_fetch_add_u32(&client->users, 1);
	if (!run_in_background(nudge, asked))
	{
		pg_atomic_fetch_sub_u32(&client->users, 1);
		rd_kafka_topic_partition_list_destroy(list);
		free(asked);
	}
}

void
sa_client_serve(SaClient *client)
{
	rd_kafka_message_t *messages[16];
	ssize_t		n;

	do
	{
		n = rd_kafka_consume_batch_queue(client->queue, 0, messages, lengthof(messages));
		for (ssize_t i = 0; i < n; i++)
			rd_kafka_message_destroy(messages[i]);
	} while (n == lengthof(messages));
}

void
sa_client_forget_trouble(SaClient *client)
{
	pthread_mutex_lock(&client->lock);
	client->trouble[0] = '\0';
	client->troubled = client->refused = false;
	pthread_mutex_unlock(&client->lock);
}

static int
server_level(int level)
{
	return level <= 6 ? LOG : DEBUG1;
}

/* Asked with every batch, and the answer is nearly always no. */
static bool
has_something_to_say(SaClient *client)
{
	bool		result;

	pthread_mutex_lock(&client->lock);
	result = client->nlog > 0 || client->dropped > 0 || client->troubled;
	pthread_mutex_unlock(&client->lock);
	return result;
}

bool
sa_client_report(SaClient *client, char **trouble)
{
	LogLine    *lines;
	int			nlines;
	int			dropped;
	bool		troubled;

	if (!has_something_to_say(client))
		return false;
	lines = palloc(sizeof(client->log));
	*trouble = palloc(LOG_LINE);
	pthread_mutex_lock(&client->lock);
	nlines = client->nlog;
	dropped = client->dropped;
	troubled = client->troubled;
	memcpy(lines, client->log, sizeof(LogLine) * nlines);
	memcpy(*trouble, client->trouble, LOG_LINE);
	client->nlog = client->dropped = 0;
	client->troubled = false;
	pthread_mutex_unlock(&client->lock);

	for (int i = 0; i < nlines; i++)
		ereport(server_level(lines[i].level), (errmsg_internal("Kafka client: %s", lines[i].text)));
	if (dropped > 0)
		ereport(LOG, (errmsg_internal("Kafka client: %d more messages", dropped)));
	pfree(lines);
	return troubled;
}

/* ---------- looks ---------- */

typedef enum LookStep
{
	LOOK_TOPICS,				/* asking for metadata */
	LOOK_OFFSETS,				/* asking for offsets of the partitions found */
	LOOK_OVER
} LookStep;

struct SaLook
{
	SaClient   *client;
	pg_atomic_uint32 users;
	pg_atomic_uint32 step_over; /* the thread has done its step */
	LookStep	step;
	int			timeout_ms;
	int64		times_ms[2];

	/* by LOOK_TOPICS; ntopics = 0: all topics */
	int			ntopics;
	char	  **topics;
	const struct rd_kafka_metadata **found; /* one for every topic, or one for all */
	regex_t    *pattern;		/* of palloc, used by the process's own thread alone */

	/* by LOOK_OFFSETS */
	rd_kafka_topic_partition_list_t *low;
	rd_kafka_topic_partition_list_t *high;
	rd_kafka_topic_partition_list_t *at_time[2];

	rd_kafka_resp_err_t error;
	char		reason[LOG_LINE];
	char		missing[LOG_LINE];
};

static void
destroy_look(SaLook *look)
{
	for (int i = 0; look->found != NULL && i < Max(look->ntopics, 1); i++)
		if (look->found[i] != NULL)
			rd_kafka_metadata_destroy(look->found[i]);
	for (int i = 0; i < look->ntopics; i++)
		free(look->topics[i]);
	if (look->low)
		rd_kafka_topic_partition_list_destroy(look->low);
	if (look->high)
		rd_kafka_topic_partition_list_destroy(look->high);
	for (int i = 0; i < lengthof(look->at_time); i++)
		if (look->at_time[i])
			rd_kafka_topic_partition_list_destroy(look->at_time[i]);
	free(look->found);
	free(look->topics);
	free(look);
}

/* By the thread. */
static void *
end_step(SaLook *look)
{
	SaClient   *client = look->client;

	pg_atomic_fetch_add_u32(&look->step_over, 1);	/* with a memory barrier */
	wake();
	if (pg_atomic_sub_fetch_u32(&look->users, 1) == 0)
		destroy_look(look);
	let_go_here(client);
	return NULL;
}

static rd_kafka_resp_err_t
ask_for_topic(SaLook *look, int i)
{
	rd_kafka_topic_t *topic = rd_kafka_topic_new(look->client->handle, look->topics[i], NULL);
	rd_kafka_resp_err_t error;

	if (topic == NULL)
		return rd_kafka_last_error();
	error = rd_kafka_metadata(look->client->handle, 0, topic, &look->found[i], look->timeout_ms);
	rd_kafka_topic_destroy(topic);
	return error;
}

static void *
ask_for_topics(void *arg)
{
	SaLook	   *look = arg;

	if (look->ntopics == 0)
		look->error = rd_kafka_metadata(look->client->handle, 1, NULL, &look->found[0], look->timeout_ms);
	for (int i = 0; i < look->ntopics && look->error == RD_KAFKA_RESP_ERR_NO_ERROR; i++)
		look->error = ask_for_topic(look, i);
	return end_step(look);
}

static rd_kafka_resp_err_t
ask_at(SaLook *look, rd_kafka_topic_partition_list_t *list, int64 time)
{
	rd_kafka_resp_err_t error;

	for (int i = 0; i < list->cnt; i++)
		list->elems[i].offset = time;
	error = rd_kafka_offsets_for_times(look->client->handle, list, look->timeout_ms);
	for (int i = 0; i < list->cnt && error == RD_KAFKA_RESP_ERR_NO_ERROR; i++)
		error = list->elems[i].err;
	return error;
}

static void *
ask_for_offsets(void *arg)
{
	SaLook	   *look = arg;

	look->error = ask_at(look, look->low, TIME_EARLIEST);
	if (look->error == RD_KAFKA_RESP_ERR_NO_ERROR)
		look->error = ask_at(look, look->high, TIME_LATEST);
	for (int i = 0; i < lengthof(look->at_time); i++)
		if (look->error == RD_KAFKA_RESP_ERR_NO_ERROR && look->at_time[i] != NULL)
			look->error = ask_at(look, look->at_time[i], look->times_ms[i]);
	return end_step(look);
}

/* False: there is no thread to be had, and the look has failed. */
static bool
start_step(SaLook *look, LookStep step, void *(*function) (void *))
{
	look->step = step;
	pg_atomic_write_u32(&look->step_over, 0);
	pg_atomic_fetch_add_u32(&look->users, 1);
	pg_atomic_fetch_add_u32(&look->client->users, 1);
	if (run_in_background(function, look))
		return true;
	pg_atomic_fetch_sub_u32(&look->users, 1);
	pg_atomic_fetch_sub_u32(&look->client->users, 1);
	look->error = RD_KAFKA_RESP_ERR__CRIT_SYS_RESOURCE;
	look->step = LOOK_OVER;
	return false;
}

static bool
matches(regex_t *regex, const char *name)
{
	pg_wchar   *wide = palloc(sizeof(pg_wchar) * (strlen(name) + 1));
	int			length = pg_mb2wchar(name, wide);
	int			result = pg_regexec(regex, wide, length, 0, NULL, 0, NULL, 0);

	pfree(wide);
	if (result != REG_OKAY && result != REG_NOMATCH)
	{
		CHECK_FOR_INTERRUPTS();
		elog(ERROR, "could not match topic \"%s\" (%d)", name, result);
	}
	return result == REG_OKAY;
}

bool
sa_client_wants(const SaStreamOptions *options, const char *topic)
{
	regex_t    *regex;
	bool		result = false;
	ListCell   *lc;

	foreach(lc, options->topics)
		result |= strcmp(lfirst(lc), topic) == 0;
	if (options->topics != NIL)
		return result;
	regex = sa_option_kafka_compile_pattern("topic_pattern", options->topic_pattern);
	result = matches(regex, topic);
	pg_regfree(regex);
	pfree(regex);
	return result;
}

SaLook *
sa_look_start(SaClient *client, const SaStreamOptions *options, const int64 *times_ms, int timeout_ms)
{
	SaLook	   *look = calloc(1, sizeof(SaLook));
	ListCell   *lc;

	if (look == NULL)
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
	look->client = client;
	memcpy(look->times_ms, times_ms, sizeof(look->times_ms));
	look->timeout_ms = timeout_ms;
	pg_atomic_init_u32(&look->users, 1);
	pg_atomic_init_u32(&look->step_over, 0);
	look->topics = calloc(list_length(options->topics) + 1, sizeof(char *));
	look->found = calloc(list_length(options->topics) + 1, sizeof(void *));
	foreach(lc, options->topics)
		look->topics[look->ntopics++] = strdup(lfirst(lc));
	if (options->topics == NIL)
		look->pattern = sa_option_kafka_compile_pattern("topic_pattern", options->topic_pattern);
	(void) start_step(look, LOOK_TOPICS, ask_for_topics);
	return look;
}

static bool
is_wanted(SaLook *look, const struct rd_kafka_metadata_topic *topic)
{
	return look->ntopics > 0 || (strncmp(topic->topic, "__", 2) != 0 && matches(look->pattern, topic->topic));
}

static void
note_topic_error(SaLook *look, const struct rd_kafka_metadata_topic *topic)
{
	size_t		used = strlen(look->missing);

	snprintf(look->missing + used, LOG_LINE - used, "%stopic \"%s\": %s", used > 0 ? "; " : "", topic->topic,
			 topic->err == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART ? "does not exist" : rd_kafka_err2str(topic->err));
}

static void
list_partitions(SaLook *look, const struct rd_kafka_metadata_topic *topic)
{
	if (topic->err != RD_KAFKA_RESP_ERR_NO_ERROR)
	{
		note_topic_error(look, topic);
		return;
	}
	for (int i = 0; i < topic->partition_cnt; i++)
		(void) rd_kafka_topic_partition_list_add(look->low, topic->topic, topic->partitions[i].id);
}

/* By our own thread: the topics are known, ask for their offsets. */
static void
go_on_to_offsets(SaLook *look)
{
	look->low = rd_kafka_topic_partition_list_new(16);
	for (int i = 0; i < Max(look->ntopics, 1); i++)
		for (int j = 0; j < look->found[i]->topic_cnt; j++)
			if (is_wanted(look, &look->found[i]->topics[j]))
				list_partitions(look, &look->found[i]->topics[j]);
	rd_kafka_topic_partition_list_sort(look->low, NULL, NULL);
	if (look->low->cnt == 0)
	{
		look->step = LOOK_OVER;
		return;
	}
	look->high = rd_kafka_topic_partition_list_copy(look->low);
	for (int i = 0; i < lengthof(look->at_time); i++)
		if (look->times_ms[i] != SA_LOOK_NO_TIME)
			look->at_time[i] = rd_kafka_topic_partition_list_copy(look->low);
	(void) start_step(look, LOOK_OFFSETS, ask_for_offsets);
}

bool
sa_look_done(SaLook *look)
{
	if (look->step != LOOK_OVER && pg_atomic_read_u32(&look->step_over) == 0)
		return false;
	pg_read_barrier();
	if (look->error != RD_KAFKA_RESP_ERR_NO_ERROR || look->step == LOOK_OFFSETS)
		look->step = LOOK_OVER;
	else if (look->step == LOOK_TOPICS)
		go_on_to_offsets(look);
	return look->step == LOOK_OVER;
}

const char *
sa_look_error(SaLook *look)
{
	return look->error == RD_KAFKA_RESP_ERR_NO_ERROR ? NULL : rd_kafka_err2str(look->error);
}

const char *
sa_look_missing(SaLook *look)
{
	return look->missing[0] == '\0' ? NULL : look->missing;
}

int
sa_look_count(SaLook *look)
{
	return look->error == RD_KAFKA_RESP_ERR_NO_ERROR && look->high != NULL ? look->high->cnt : 0;
}

SaLookPartition
sa_look_partition(SaLook *look, int i)
{
	SaLookPartition result;

	/* the lists are in the same order */
	result.topic = look->low->elems[i].topic;
	result.partition = look->low->elems[i].partition;
	result.low = look->low->elems[i].offset;
	result.high = look->high->elems[i].offset;
	for (int k = 0; k < lengthof(look->at_time); k++)
	{
		result.at_time[k] = look->at_time[k] ? look->at_time[k]->elems[i].offset : -1;
		if (result.at_time[k] < 0)
			result.at_time[k] = result.high;
	}
	return result;
}

void
sa_look_free(SaLook *look)
{
	if (look->pattern)
	{
		pg_regfree(look->pattern);
		pfree(look->pattern);
		look->pattern = NULL;
	}
	if (pg_atomic_sub_fetch_u32(&look->users, 1) == 0)
		destroy_look(look);
}
