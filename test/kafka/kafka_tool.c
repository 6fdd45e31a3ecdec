/*
 * kafka_tool.c
 *		Does to a Kafka broker what the tests ask for on standard input, in one long-lived process.
 *
 *	kafka_tool BOOTSTRAP [NAME=VALUE...]		settings are librdkafka's, for all connections
 *
 * One command a line, one reply for each: "ok ..." or "error NAME text", NAME as librdkafka calls it
 * (TOPIC_ALREADY_EXISTS, _TIMED_OUT; BAD_COMMAND for what is not understood).  Words are divided by blanks; in a
 * word %XX stands for the byte, so a blank is %20, a new line %0A and a percent sign %25.
 *
 *	create TOPIC PARTITIONS [NAME=VALUE...]		a new topic with these settings; waits until it can be used
 *	delete TOPIC								waits until it is gone
 *	partitions TOPIC [COUNT]					ok COUNT; with a count: adds partitions up to it
 *	alter TOPIC [NAME=VALUE...]					all settings that the topic has from now on
 *	delete_records TOPIC PARTITION BEFORE		ok LOW; BEFORE -1 is the end
 *	acl allow|deny USER topic|group literal|prefixed NAME all|read|write|describe
 *
 *	send TOPIC PARTITION [OPTION...]			ok OFFSET, once the broker has it
 *		key=K value=V			without value=, a tombstone
 *		header=NAME[:VALUE]		any number of them; without a colon, a null
 *		timestamp=MS
 *	lines TOPIC PARTITION COUNT|all [OPTION...]	ok COUNT; the lines that follow are the values, as they are
 *		separator=S				what stands before the first S of a line is its key
 *		timestamp=MS step=MS	the first record's, and how much later each next one is (default 0)
 *	file TOPIC PARTITION PATH [OPTION...]		the same, lines from a file
 *		PARTITION: a number, `any` (by the key's hash), or for lines `spread` (line by line in turn)
 *		codec=none|gzip|snappy|lz4|zstd			for the three above, outside of transactions
 *		tx=ID									for the three above: in that open transaction
 *
 *	begin ID [codec=C] [timeout=MS]				a transaction; stays open until one of these:
 *	commit ID | abort ID						returns when readers can tell
 *	leave ID									leaves it open on the broker, until its timeout or the next begin
 *
 *	watermarks TOPIC PARTITION					ok LOW HIGH STABLE; STABLE: first offset of an open transaction
 *	offset TOPIC PARTITION TIMESTAMP			ok OFFSET of the first record at or after it, -1 if none
 *	committed GROUP TOPIC PARTITION				ok OFFSET that the group committed, -1 if none
 *	read TOPIC PARTITION [from=OFFSET] [isolation=committed]
 *		ok COUNT, then COUNT lines: OFFSET TIMESTAMP [key=K] [value=V] [header=NAME[:VALUE]...]; up to the end as of now
 *	quit										so does the end of the input; open transactions are left
 *
 * On librdkafka's mock cluster, which has no administration, the first block answers with an error.
 */
#include <ctype.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <librdkafka/rdkafka.h>

#define LIMIT_MS 60000			/* for a command, each of its steps */
#define NEW_PARTITION_MS 3000	/* for a partition that a producer does not know to show */
#define POLL_MS 5
#define MAX_WORDS 64
#define SPREAD -2				/* a partition: the next one */

typedef struct
{
	char	   *data;			/* ends with a zero byte that size does not count */
	size_t		size;
} Word;

typedef struct
{
	int			count;
	Word		word[MAX_WORDS];
} Command;

typedef struct Touched
{
	char	   *topic;
	int			partition;
	int64_t		high;
	struct Touched *next;
} Touched;

/* A producer for each codec, and for each transactional id. */
typedef struct Producer
{
	char	   *name;
	rd_kafka_t *rk;
	bool		open;			/* in a transaction */
	Touched    *touched;		/* by this transaction */
	struct Producer *next;
} Producer;

/* What became of the records of one command. */
typedef struct
{
	long		delivered;
	int64_t		offset;			/* of the last one */
	rd_kafka_resp_err_t error;	/* the first one */
} Outcome;

static int	setting_count;
static char **settings;			/* name=value of the command line */
static char *bootstrap;
static Producer *producers;
static rd_kafka_t *readers[2];	/* by isolation: uncommitted, committed */

/* ---- words and replies */

static int
hex_digit(char c)
{
	return isdigit((unsigned char) c) ? c - '0' : tolower((unsigned char) c) - 'a' + 10;
}

static size_t
decode(char *text)
{
	char	   *to = text;

	for (char *from = text; *from; from++)
	{
		if (*from == '%' && isxdigit((unsigned char) from[1]) && isxdigit((unsigned char) from[2]))
		{
			*to++ = (char) (hex_digit(from[1]) * 16 + hex_digit(from[2]));
			from += 2;
		}
		else
			*to++ = *from;
	}
	*to = '\0';
	return (size_t) (to - text);
}

static void
print_encoded(const char *data, size_t size)
{
	for (size_t i = 0; i < size; i++)
	{
		unsigned char c = (unsigned char) data[i];

		if (c <= ' ' || c == '%' || c >= 127)
			printf("%%%02X", c);
		else
			putchar(c);
	}
}

static void
split(char *line, Command *command)
{
	char	   *rest = line,
			   *word;

	command->count = 0;
	while ((word = strtok_r(rest, " \t\n", &rest)) != NULL && command->count < MAX_WORDS)
	{
		command->word[command->count].size = decode(word);
		command->word[command->count++].data = word;
	}
}

static bool
is(const Command *command, int i, const char *text)
{
	return i < command->count && strcmp(command->word[i].data, text) == 0;
}

/* The value of the n'th option of this name; data is NULL when there is none. */
static Word
nth_option(const Command *command, const char *name, int n)
{
	size_t		length = strlen(name);

	for (int i = 1; i < command->count; i++)
	{
		Word		word = command->word[i];

		if (word.size > length && word.data[length] == '=' && memcmp(word.data, name, length) == 0 && n-- == 0)
			return (Word){word.data + length + 1, word.size - length - 1};
	}
	return (Word){NULL, 0};
}

static Word
option(const Command *command, const char *name)
{
	return nth_option(command, name, 0);
}

static long long
number_option(const Command *command, const char *name, long long otherwise)
{
	Word		value = option(command, name);

	return value.data ? atoll(value.data) : otherwise;
}

__attribute__((format(printf, 1, 2)))
static void
ok(const char *format,...)
{
	va_list		args;

	printf("ok");
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
}

static void
error(const char *name, const char *text)
{
	printf("error %s ", name);
	for (; *text; text++)
		putchar(*text == '\n' ? ' ' : *text);
	putchar('\n');
}

static void
answer(rd_kafka_resp_err_t err, const char *text)
{
	if (err)
		error(rd_kafka_err2name(err), text ? text : rd_kafka_err2str(err));
	else
		ok("%s", "");
}

static long long
now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

/* ---- connections */

static void
set(rd_kafka_conf_t *conf, const char *name, const char *value)
{
	char		text[512];

	if (rd_kafka_conf_set(conf, name, value, text, sizeof(text)) == RD_KAFKA_CONF_OK)
		return;
	fprintf(stderr, "kafka_tool: %s\n", text);
	exit(2);
}

static rd_kafka_conf_t *
common_settings(void)
{
	rd_kafka_conf_t *conf = rd_kafka_conf_new();

	set(conf, "bootstrap.servers", bootstrap);
	set(conf, "log_level", "2");
	set(conf, "reconnect.backoff.max.ms", "200");	/* brokers are restarted all the time */
	for (int i = 0; i < setting_count; i++)
	{
		char	   *value = strchr(settings[i], '=');

		if (value == NULL)
			continue;
		*value = '\0';
		set(conf, settings[i], value + 1);
		*value = '=';
	}
	return conf;
}

static rd_kafka_t *
connect_as(rd_kafka_type_t type, rd_kafka_conf_t *conf)
{
	char		text[512];
	rd_kafka_t *rk = rd_kafka_new(type, conf, text, sizeof(text));

	if (rk != NULL)
		return rk;
	fprintf(stderr, "kafka_tool: %s\n", text);
	exit(2);
}

static void
delivered(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque)
{
	Outcome    *outcome = message->_private;

	(void) rk;
	(void) opaque;
	if (message->err && !outcome->error)
		outcome->error = message->err;
	if (!message->err)
	{
		outcome->delivered++;
		outcome->offset = message->offset;
	}
}

static Producer *
find_producer(const char *name)
{
	for (Producer *producer = producers; producer; producer = producer->next)
		if (strcmp(producer->name, name) == 0)
			return producer;
	return NULL;
}

/* transaction: its id, or NULL. */
static Producer *
add_producer(const char *name, const char *codec, const char *transaction, const char *timeout)
{
	rd_kafka_conf_t *conf = common_settings();
	Producer   *producer = calloc(1, sizeof(Producer));

	rd_kafka_conf_set_dr_msg_cb(conf, delivered);
	set(conf, "enable.idempotence", "true");
	set(conf, "message.max.bytes", "20000000");
	set(conf, "message.timeout.ms", "60000");
	set(conf, "queue.buffering.max.messages", "500000");
	set(conf, "topic.metadata.propagation.max.ms", "3000");
	set(conf, "compression.codec", codec);
	if (transaction)
		set(conf, "transactional.id", transaction);
	if (transaction)
		set(conf, "transaction.timeout.ms", timeout);
	producer->rk = connect_as(RD_KAFKA_PRODUCER, conf);
	producer->name = strdup(name);
	producer->next = producers;
	producers = producer;
	return producer;
}

static void
forget_touched(Producer *producer)
{
	for (Touched *next, *t = producer->touched; t; t = next)
	{
		next = t->next;
		free(t->topic);
		free(t);
	}
	producer->touched = NULL;
}

static void
remove_producer(Producer *producer)
{
	Producer  **place = &producers;

	while (*place != producer)
		place = &(*place)->next;
	*place = producer->next;
	rd_kafka_purge(producer->rk, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
	rd_kafka_destroy(producer->rk);
	forget_touched(producer);
	free(producer->name);
	free(producer);
}

/* The one without a transaction, for this codec; a producer that is beyond help makes way for a new one. */
static Producer *
plain_producer(const char *codec)
{
	char		name[64];
	Producer   *producer;

	snprintf(name, sizeof(name), " %s", codec);	/* no id has a blank in front */
	producer = find_producer(name);
	if (producer && rd_kafka_fatal_error(producer->rk, NULL, 0))
	{
		remove_producer(producer);
		producer = NULL;
	}
	return producer ? producer : add_producer(name, codec, NULL, NULL);
}

static rd_kafka_t *
client(void)
{
	return plain_producer("none")->rk;
}

/* Is it librdkafka's mock cluster?  Its id says so. */
static bool
on_mock(void)
{
	static int	answer = -1;

	if (answer < 0)
	{
		char	   *id = rd_kafka_clusterid(client(), LIMIT_MS);

		if (id == NULL)
			return false;
		answer = strncmp(id, "mockCluster", 11) == 0;
		rd_kafka_mem_free(client(), id);
	}
	return answer == 1;
}

static rd_kafka_t *
new_reader(const char *group, bool committed)
{
	rd_kafka_conf_t *conf = common_settings();

	set(conf, "group.id", group);
	set(conf, "enable.auto.commit", "false");
	set(conf, "enable.partition.eof", "true");
	set(conf, "fetch.wait.max.ms", "10");
	set(conf, "auto.offset.reset", "error");
	set(conf, "isolation.level", committed ? "read_committed" : "read_uncommitted");
	return connect_as(RD_KAFKA_CONSUMER, conf);
}

static rd_kafka_t *
reader(bool committed)
{
	if (readers[committed] == NULL)
		readers[committed] = new_reader("kafka_tool", committed);
	return readers[committed];
}

/* ---- topics */

/* How many partitions have a leader; -1 when there is no such topic, -2 when the broker does not answer. */
static int
ready_partitions(const char *topic)
{
	rd_kafka_t *rk = client();
	rd_kafka_topic_t *handle = rd_kafka_topic_new(rk, topic, NULL);
	const struct rd_kafka_metadata *metadata;
	int			count = -2;

	if (rd_kafka_metadata(rk, 0, handle, &metadata, LIMIT_MS) == RD_KAFKA_RESP_ERR_NO_ERROR)
	{
		const struct rd_kafka_metadata_topic *found = &metadata->topics[0];

		count = found->err || found->partition_cnt == 0 ? -1 : 0;
		for (int i = 0; i < found->partition_cnt && count >= 0; i++)
			count += found->partitions[i].err == 0 && found->partitions[i].leader >= 0;
		rd_kafka_metadata_destroy(metadata);
	}
	rd_kafka_topic_destroy(handle);
	return count;
}

static bool
wait_for_partitions(const char *topic, int wanted)
{
	long long	end = now_ms() + LIMIT_MS;

	while (ready_partitions(topic) != wanted)
	{
		if (now_ms() > end)
			return false;
		rd_kafka_poll(client(), POLL_MS);
	}
	return true;
}

static rd_kafka_AdminOptions_t *
admin_options(rd_kafka_t *rk, rd_kafka_admin_op_t operation)
{
	rd_kafka_AdminOptions_t *options = rd_kafka_AdminOptions_new(rk, operation);
	char		text[256];

	rd_kafka_AdminOptions_set_request_timeout(options, LIMIT_MS, text, sizeof(text));
	return options;
}

/* The event that an administrative request answers with. */
static rd_kafka_event_t *
await(rd_kafka_queue_t *queue, rd_kafka_AdminOptions_t *options)
{
	rd_kafka_event_t *event = rd_kafka_queue_poll(queue, LIMIT_MS * 2);

	rd_kafka_AdminOptions_destroy(options);
	rd_kafka_queue_destroy(queue);
	return event;
}

/* Answers for the one topic that the request was about, then destroys the event. */
static bool
answer_topic(rd_kafka_event_t *event, const rd_kafka_topic_result_t **topics)
{
	rd_kafka_resp_err_t err = rd_kafka_event_error(event);
	const char *text = rd_kafka_event_error_string(event);

	if (!err && topics)
	{
		err = rd_kafka_topic_result_error(topics[0]);
		text = rd_kafka_topic_result_error_string(topics[0]);
	}
	if (err)
		answer(err, text);
	rd_kafka_event_destroy(event);
	return !err;
}

static void
create_topic(const Command *command)
{
	rd_kafka_t *rk = client();
	rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
	rd_kafka_AdminOptions_t *options = admin_options(rk, RD_KAFKA_ADMIN_OP_CREATETOPICS);
	const char *topic = command->word[1].data;
	int			count = atoi(command->word[2].data);
	char		text[256];
	rd_kafka_NewTopic_t *new = rd_kafka_NewTopic_new(topic, count, 1, text, sizeof(text));
	rd_kafka_event_t *event;
	size_t		n;

	if (new == NULL)
	{
		error("BAD_COMMAND", text);
		rd_kafka_AdminOptions_destroy(options);
		rd_kafka_queue_destroy(queue);
		return;
	}
	for (int i = 3; i < command->count; i++)
	{
		char	   *name = strdup(command->word[i].data);
		char	   *value = strchr(name, '=');

		if (value)
			*value++ = '\0';
		rd_kafka_NewTopic_set_config(new, name, value ? value : "");
		free(name);
	}
	rd_kafka_CreateTopics(rk, &new, 1, options, queue);
	event = await(queue, options);
	rd_kafka_NewTopic_destroy(new);
	if (!answer_topic(event, rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(event), &n)))
		return;
	if (wait_for_partitions(topic, count))
		ok("%s", "");
	else
		error("_TIMED_OUT", "the new topic does not show");
}

static void
delete_topic(const Command *command)
{
	rd_kafka_t *rk = client();
	rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
	rd_kafka_AdminOptions_t *options = admin_options(rk, RD_KAFKA_ADMIN_OP_DELETETOPICS);
	rd_kafka_DeleteTopic_t *old = rd_kafka_DeleteTopic_new(command->word[1].data);
	rd_kafka_event_t *event;
	size_t		n;

	rd_kafka_DeleteTopics(rk, &old, 1, options, queue);
	event = await(queue, options);
	rd_kafka_DeleteTopic_destroy(old);
	if (!answer_topic(event, rd_kafka_DeleteTopics_result_topics(rd_kafka_event_DeleteTopics_result(event), &n)))
		return;
	if (wait_for_partitions(command->word[1].data, -1))
		ok("%s", "");
	else
		error("_TIMED_OUT", "the topic is still there");
}

static bool
add_partitions(const char *topic, int count)
{
	rd_kafka_t *rk = client();
	rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
	rd_kafka_AdminOptions_t *options = admin_options(rk, RD_KAFKA_ADMIN_OP_CREATEPARTITIONS);
	char		text[256];
	rd_kafka_NewPartitions_t *new = rd_kafka_NewPartitions_new(topic, (size_t) count, text, sizeof(text));
	rd_kafka_event_t *event;
	size_t		n;

	rd_kafka_CreatePartitions(rk, &new, 1, options, queue);
	event = await(queue, options);
	rd_kafka_NewPartitions_destroy(new);
	return answer_topic(event, rd_kafka_CreatePartitions_result_topics(rd_kafka_event_CreatePartitions_result(event), &n));
}

static void
partitions(const Command *command)
{
	const char *topic = command->word[1].data;
	int			count = command->count > 2 ? atoi(command->word[2].data) : 0;

	if (count > 0)
	{
		if (!add_partitions(topic, count))
			return;
		if (!wait_for_partitions(topic, count))
			error("_TIMED_OUT", "the new partitions do not show");
		else
			ok(" %d", count);
		return;
	}
	count = ready_partitions(topic);
	if (count == -1)
		answer(RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART, NULL);
	else if (count == -2)
		answer(RD_KAFKA_RESP_ERR__TRANSPORT, NULL);
	else
		ok(" %d", count);
}

static void
alter_topic(const Command *command)
{
	rd_kafka_t *rk = client();
	rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
	rd_kafka_AdminOptions_t *options = admin_options(rk, RD_KAFKA_ADMIN_OP_ALTERCONFIGS);
	rd_kafka_ConfigResource_t *resource = rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, command->word[1].data);
	rd_kafka_event_t *event;
	rd_kafka_resp_err_t err;
	const char *text;

	for (int i = 2; i < command->count; i++)
	{
		char	   *name = strdup(command->word[i].data);
		char	   *value = strchr(name, '=');

		if (value)
			*value++ = '\0';
		rd_kafka_ConfigResource_set_config(resource, name, value ? value : "");
		free(name);
	}
	rd_kafka_AlterConfigs(rk, &resource, 1, options, queue);
	event = await(queue, options);
	rd_kafka_ConfigResource_destroy(resource);
	err = rd_kafka_event_error(event);
	text = rd_kafka_event_error_string(event);
	if (!err)
	{
		size_t		n;
		const rd_kafka_ConfigResource_t **results =
			rd_kafka_AlterConfigs_result_resources(rd_kafka_event_AlterConfigs_result(event), &n);

		err = rd_kafka_ConfigResource_error(results[0]);
		text = rd_kafka_ConfigResource_error_string(results[0]);
	}
	answer(err, text);
	rd_kafka_event_destroy(event);
}

static void
delete_records(const Command *command)
{
	rd_kafka_t *rk = client();
	rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
	rd_kafka_AdminOptions_t *options = admin_options(rk, RD_KAFKA_ADMIN_OP_DELETERECORDS);
	rd_kafka_topic_partition_list_t *before = rd_kafka_topic_partition_list_new(1);
	rd_kafka_DeleteRecords_t *request;
	rd_kafka_event_t *event;
	rd_kafka_resp_err_t err;

	rd_kafka_topic_partition_list_add(before, command->word[1].data, atoi(command->word[2].data))->offset =
		atoll(command->word[3].data);
	request = rd_kafka_DeleteRecords_new(before);
	rd_kafka_DeleteRecords(rk, &request, 1, options, queue);
	event = await(queue, options);
	rd_kafka_DeleteRecords_destroy(request);
	rd_kafka_topic_partition_list_destroy(before);
	err = rd_kafka_event_error(event);
	if (err)
		answer(err, rd_kafka_event_error_string(event));
	else
	{
		const rd_kafka_topic_partition_t *result =
			&rd_kafka_DeleteRecords_result_offsets(rd_kafka_event_DeleteRecords_result(event))->elems[0];

		if (result->err)
			answer(result->err, NULL);
		else
			ok(" %lld", (long long) result->offset);
	}
	rd_kafka_event_destroy(event);
}

static void
create_acl(const Command *command)
{
	rd_kafka_t *rk = client();
	rd_kafka_AclOperation_t operation = is(command, 6, "read") ? RD_KAFKA_ACL_OPERATION_READ :
		is(command, 6, "write") ? RD_KAFKA_ACL_OPERATION_WRITE :
		is(command, 6, "describe") ? RD_KAFKA_ACL_OPERATION_DESCRIBE : RD_KAFKA_ACL_OPERATION_ALL;
	char		principal[256],
				text[256];
	rd_kafka_AclBinding_t *acl;
	rd_kafka_queue_t *queue;
	rd_kafka_AdminOptions_t *options;
	rd_kafka_event_t *event;
	rd_kafka_resp_err_t err;

	snprintf(principal, sizeof(principal), "User:%s", command->word[2].data);
	acl = rd_kafka_AclBinding_new(is(command, 3, "group") ? RD_KAFKA_RESOURCE_GROUP : RD_KAFKA_RESOURCE_TOPIC,
								  command->word[5].data,
								  is(command, 4, "prefixed") ? RD_KAFKA_RESOURCE_PATTERN_PREFIXED : RD_KAFKA_RESOURCE_PATTERN_LITERAL,
								  principal, "*", operation,
								  is(command, 1, "deny") ? RD_KAFKA_ACL_PERMISSION_TYPE_DENY : RD_KAFKA_ACL_PERMISSION_TYPE_ALLOW,
								  text, sizeof(text));
	if (acl == NULL)
	{
		error("BAD_COMMAND", text);
		return;
	}
	queue = rd_kafka_queue_new(rk);
	options = admin_options(rk, RD_KAFKA_ADMIN_OP_CREATEACLS);
	rd_kafka_CreateAcls(rk, &acl, 1, options, queue);
	event = await(queue, options);
	rd_kafka_AclBinding_destroy(acl);
	err = rd_kafka_event_error(event);
	if (err)
		answer(err, rd_kafka_event_error_string(event));
	else
	{
		size_t		n;
		const rd_kafka_error_t *refused = rd_kafka_acl_result_error(
			rd_kafka_CreateAcls_result_acls(rd_kafka_event_CreateAcls_result(event), &n)[0]);

		answer(rd_kafka_error_code(refused), rd_kafka_error_string(refused));
	}
	rd_kafka_event_destroy(event);
}

/* ---- producing */

/* Headers, if the command has any. */
static rd_kafka_headers_t *
make_headers(const Command *command)
{
	rd_kafka_headers_t *headers = NULL;
	Word		header;

	for (int i = 0; (header = nth_option(command, "header", i)).data; i++)
	{
		char	   *value = memchr(header.data, ':', header.size);
		size_t		name_size = value ? (size_t) (value - header.data) : header.size;

		if (headers == NULL)
			headers = rd_kafka_headers_new(4);
		rd_kafka_header_add(headers, header.data, (ssize_t) name_size, value ? value + 1 : NULL,
							value ? (ssize_t) (header.size - name_size - 1) : 0);
	}
	return headers;
}

/* A producer holds what was wrong with a topic against it until it asks again. */
static void
refresh(rd_kafka_t *rk, rd_kafka_topic_t *topic)
{
	const struct rd_kafka_metadata *metadata;

	if (rd_kafka_metadata(rk, 0, topic, &metadata, LIMIT_MS) == RD_KAFKA_RESP_ERR_NO_ERROR)
		rd_kafka_metadata_destroy(metadata);
}

/* Takes the headers over.  Waits for room in the queue, and for partitions that the producer has not heard of. */
static rd_kafka_resp_err_t
produce(rd_kafka_t *rk, rd_kafka_topic_t *topic, int partition, Word key, Word value, rd_kafka_headers_t *headers,
		long long timestamp, Outcome *outcome)
{
	long long	start = now_ms();

	for (;;)
	{
		rd_kafka_error_t *refused;
		rd_kafka_resp_err_t err;
		rd_kafka_vu_t arguments[] = {
			{.vtype = RD_KAFKA_VTYPE_RKT, .u.rkt = topic},
			{.vtype = RD_KAFKA_VTYPE_PARTITION, .u.i32 = partition},
			{.vtype = RD_KAFKA_VTYPE_KEY, .u.mem = {key.data, key.size}},
			{.vtype = RD_KAFKA_VTYPE_VALUE, .u.mem = {value.data, value.size}},
			{.vtype = RD_KAFKA_VTYPE_TIMESTAMP, .u.i64 = timestamp},
			{.vtype = RD_KAFKA_VTYPE_MSGFLAGS, .u.i = RD_KAFKA_MSG_F_COPY},
			{.vtype = RD_KAFKA_VTYPE_OPAQUE, .u.ptr = outcome},
			{.vtype = RD_KAFKA_VTYPE_HEADERS, .u.headers = headers}
		};
		size_t		count = sizeof(arguments) / sizeof(arguments[0]);

		refused = rd_kafka_produceva(rk, arguments, headers ? count : count - 1);
		if (refused == NULL)
			return RD_KAFKA_RESP_ERR_NO_ERROR;
		err = rd_kafka_error_code(refused);
		rd_kafka_error_destroy(refused);
		if (err == RD_KAFKA_RESP_ERR__QUEUE_FULL && now_ms() < start + LIMIT_MS)
			rd_kafka_poll(rk, 100);
		else if (err == RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION && now_ms() < start + NEW_PARTITION_MS)
		{
			refresh(rk, topic);
			rd_kafka_poll(rk, POLL_MS);
		}
		else
		{
			if (headers)
				rd_kafka_headers_destroy(headers);
			return err;
		}
	}
}

/* The producer that the options name, or NULL after an error has been answered. */
static Producer *
chosen_producer(const Command *command)
{
	Word		id = option(command, "tx");
	Word		codec = option(command, "codec");
	Producer   *producer;

	if (id.data == NULL)
		return plain_producer(codec.data ? codec.data : "none");
	producer = find_producer(id.data);
	if (producer && producer->open)
		return producer;
	error("BAD_COMMAND", "no such transaction is open");
	return NULL;
}

static int
parse_partition(const char *text)
{
	return strcmp(text, "any") == 0 ? RD_KAFKA_PARTITION_UA : strcmp(text, "spread") == 0 ? SPREAD : atoi(text);
}

/* Waits for all records of the command, and lets the topic go.  With a fatal error librdkafka has only that to say for each of them. */
static rd_kafka_resp_err_t
finish(rd_kafka_t *rk, rd_kafka_topic_t *topic, Outcome *outcome, rd_kafka_resp_err_t err)
{
	rd_kafka_resp_err_t flushed = rd_kafka_flush(rk, LIMIT_MS * 2);
	rd_kafka_resp_err_t fatal = rd_kafka_fatal_error(rk, NULL, 0);

	err = fatal ? fatal : err ? err : outcome->error ? outcome->error : flushed;
	if (err)
		refresh(rk, topic);
	rd_kafka_topic_destroy(topic);
	return err;
}

/* Commits and aborts wait for their markers on these partitions. */
static void
touch(Producer *producer, const char *topic, int partition)
{
	Touched    *t;

	for (t = producer->touched; t; t = t->next)
		if (t->partition == partition && strcmp(t->topic, topic) == 0)
			return;
	t = calloc(1, sizeof(Touched));
	t->topic = strdup(topic);
	t->partition = partition;
	t->next = producer->touched;
	producer->touched = t;
}

static void
touch_all(Producer *producer, const char *topic, int partition)
{
	if (!producer->open)
		return;
	if (partition >= 0)
		touch(producer, topic, partition);
	else
		for (int i = ready_partitions(topic) - 1; i >= 0; i--)
			touch(producer, topic, i);
}

static void
send_record(const Command *command)
{
	Producer   *producer = chosen_producer(command);
	Outcome		outcome = {0};
	int			partition = parse_partition(command->word[2].data);
	rd_kafka_topic_t *topic;
	rd_kafka_resp_err_t err;

	if (producer == NULL)
		return;
	topic = rd_kafka_topic_new(producer->rk, command->word[1].data, NULL);
	touch_all(producer, command->word[1].data, partition);
	err = produce(producer->rk, topic, partition, option(command, "key"), option(command, "value"),
				  make_headers(command), number_option(command, "timestamp", 0), &outcome);
	err = finish(producer->rk, topic, &outcome, err);
	if (err)
		answer(err, NULL);
	else
		ok(" %lld", (long long) outcome.offset);
}

/* Produces at most so many lines; after an error it reads on, so that the next command is one. */
static void
send_lines(const Command *command, FILE *input, long long count)
{
	const char *name = command->word[1].data;
	Producer   *producer = chosen_producer(command);
	Word		separator = option(command, "separator");
	long long	timestamp = number_option(command, "timestamp", 0);
	long long	step = number_option(command, "step", 0);
	int			partition = parse_partition(command->word[2].data);
	int			spread = partition == SPREAD ? ready_partitions(name) : 0;
	rd_kafka_topic_t *topic = producer ? rd_kafka_topic_new(producer->rk, name, NULL) : NULL;
	rd_kafka_resp_err_t err = spread < 0 ? RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART : RD_KAFKA_RESP_ERR_NO_ERROR;
	Outcome		outcome = {0};
	char	   *line = NULL;
	size_t		room = 0;
	ssize_t		size;

	if (producer)
		touch_all(producer, name, partition);
	for (long long i = 0; i < count && (size = getline(&line, &room, input)) >= 0; i++)
	{
		Word		key = {NULL, 0},
					value = {line, (size_t) size - (line[size - 1] == '\n')};
		char	   *found;

		if (producer == NULL || err || outcome.error)
			continue;
		if (separator.size && (found = memmem(line, value.size, separator.data, separator.size)))
		{
			key = (Word){line, (size_t) (found - line)};
			value = (Word){found + separator.size, value.size - key.size - separator.size};
		}
		err = produce(producer->rk, topic, spread > 0 ? (int) (i % spread) : partition, key, value, NULL,
					  timestamp + (timestamp ? i * step : 0), &outcome);
		if (i % 1000 == 0)
			rd_kafka_poll(producer->rk, 0);
	}
	free(line);
	if (producer == NULL)
		return;
	err = finish(producer->rk, topic, &outcome, err);
	if (err)
		answer(err, NULL);
	else
		ok(" %ld", outcome.delivered);
}

static void
send_file(const Command *command)
{
	FILE	   *input = fopen(command->word[3].data, "r");

	if (input == NULL)
	{
		error("BAD_COMMAND", "the file cannot be opened");
		return;
	}
	send_lines(command, input, INT64_MAX);
	fclose(input);
}

/* ---- transactions */

static bool
failed(rd_kafka_error_t *problem)
{
	if (problem == NULL)
		return false;
	error(rd_kafka_error_name(problem), rd_kafka_error_string(problem));
	rd_kafka_error_destroy(problem);
	return true;
}

static void
begin(const Command *command)
{
	const char *id = command->word[1].data;
	Word		codec = option(command, "codec");
	Word		timeout = option(command, "timeout");
	Producer   *producer = find_producer(id);

	if (producer && producer->open)
	{
		error("BAD_COMMAND", "it is open already");
		return;
	}
	if (producer && (codec.data || timeout.data || rd_kafka_fatal_error(producer->rk, NULL, 0)))
	{
		remove_producer(producer);
		producer = NULL;
	}
	if (producer == NULL)
	{
		producer = add_producer(id, codec.data ? codec.data : "none", id, timeout.data ? timeout.data : "600000");
		if (failed(rd_kafka_init_transactions(producer->rk, LIMIT_MS)))
		{
			remove_producer(producer);
			return;
		}
	}
	if (failed(rd_kafka_begin_transaction(producer->rk)))
		return;
	producer->open = true;
	ok("%s", "");
}

static int64_t
high_watermark(const char *topic, int partition)
{
	int64_t		low,
				high;

	return rd_kafka_query_watermark_offsets(reader(false), topic, partition, &low, &high, LIMIT_MS) ? -1 : high;
}

/* The broker answers before the partitions have the markers that make the end of a transaction visible. */
static bool
wait_for_markers(Producer *producer)
{
	long long	end = now_ms() + LIMIT_MS;

	for (Touched *t = on_mock() ? NULL : producer->touched; t; t = t->next)
		while (high_watermark(t->topic, t->partition) <= t->high)
		{
			if (now_ms() > end)
				return false;
			rd_kafka_poll(producer->rk, POLL_MS);
		}
	return true;
}

static void
end_transaction(const Command *command, bool commit)
{
	Producer   *producer = find_producer(command->word[1].data);

	if (producer == NULL || !producer->open)
	{
		error("BAD_COMMAND", "no such transaction is open");
		return;
	}
	for (Touched *t = producer->touched; t; t = t->next)
		t->high = high_watermark(t->topic, t->partition);
	producer->open = false;
	if (failed(commit ? rd_kafka_commit_transaction(producer->rk, LIMIT_MS) :
			   rd_kafka_abort_transaction(producer->rk, LIMIT_MS)))
	{
		remove_producer(producer);
		return;
	}
	if (wait_for_markers(producer))
		ok("%s", "");
	else
		error("_TIMED_OUT", "the end of the transaction does not show");
	forget_touched(producer);
}

static void
leave(const Command *command)
{
	Producer   *producer = find_producer(command->word[1].data);

	if (producer == NULL || !producer->open)
	{
		error("BAD_COMMAND", "no such transaction is open");
		return;
	}
	remove_producer(producer);
	ok("%s", "");
}

/* ---- reading */

static void
watermarks(const Command *command)
{
	const char *topic = command->word[1].data;
	int			partition = atoi(command->word[2].data);
	int64_t		low,
				high,
				stable;
	rd_kafka_resp_err_t err = rd_kafka_query_watermark_offsets(reader(false), topic, partition, &low, &high, LIMIT_MS);

	if (!err)
		err = rd_kafka_query_watermark_offsets(reader(true), topic, partition, &low, &stable, LIMIT_MS);
	if (err)
		answer(err, NULL);
	else
		ok(" %lld %lld %lld", (long long) low, (long long) high, (long long) stable);
}

/* A list of one partition, of the topic and partition at these words. */
static rd_kafka_topic_partition_list_t *
one_partition(const Command *command, int i, int64_t offset)
{
	rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);

	rd_kafka_topic_partition_list_add(list, command->word[i].data, atoi(command->word[i + 1].data))->offset = offset;
	return list;
}

static void
answer_offset(rd_kafka_resp_err_t err, rd_kafka_topic_partition_list_t *list)
{
	if (!err)
		err = list->elems[0].err;
	if (err)
		answer(err, NULL);
	else
		ok(" %lld", list->elems[0].offset < 0 ? -1LL : (long long) list->elems[0].offset);
	rd_kafka_topic_partition_list_destroy(list);
}

static void
offset_at(const Command *command)
{
	rd_kafka_topic_partition_list_t *list = one_partition(command, 1, atoll(command->word[3].data));

	answer_offset(rd_kafka_offsets_for_times(reader(false), list, LIMIT_MS), list);
}

static void
committed(const Command *command)
{
	rd_kafka_topic_partition_list_t *list = one_partition(command, 2, 0);
	rd_kafka_t *rk = new_reader(command->word[1].data, false);

	answer_offset(rd_kafka_committed(rk, list, LIMIT_MS), list);
	rd_kafka_destroy(rk);
}

static void
print_record(const rd_kafka_message_t *message)
{
	rd_kafka_timestamp_type_t type;
	rd_kafka_headers_t *headers;

	printf("%lld %lld", (long long) message->offset, (long long) rd_kafka_message_timestamp(message, &type));
	if (message->key)
	{
		printf(" key=");
		print_encoded(message->key, message->key_len);
	}
	if (message->payload)
	{
		printf(" value=");
		print_encoded(message->payload, message->len);
	}
	if (rd_kafka_message_headers(message, &headers) == RD_KAFKA_RESP_ERR_NO_ERROR)
	{
		const char *name;
		const void *value;
		size_t		size;

		for (size_t i = 0; rd_kafka_header_get_all(headers, i, &name, &value, &size) == RD_KAFKA_RESP_ERR_NO_ERROR; i++)
		{
			printf(" header=");
			print_encoded(name, strlen(name));
			if (value)
			{
				putchar(':');
				print_encoded(value, size);
			}
		}
	}
	putchar('\n');
}

/* Up to the end of the partition; the messages are the caller's. */
static rd_kafka_resp_err_t
read_to_end(rd_kafka_t *rk, rd_kafka_message_t ***messages, size_t *count)
{
	long long	end = now_ms() + LIMIT_MS;
	size_t		room = 0;

	while (now_ms() < end)
	{
		rd_kafka_message_t *message = rd_kafka_consumer_poll(rk, 100);
		rd_kafka_resp_err_t err = message ? message->err : RD_KAFKA_RESP_ERR_NO_ERROR;

		if (message == NULL)
			continue;
		if (err)
		{
			rd_kafka_message_destroy(message);
			if (err == RD_KAFKA_RESP_ERR__PARTITION_EOF)
				return RD_KAFKA_RESP_ERR_NO_ERROR;
			if (err == RD_KAFKA_RESP_ERR__TRANSPORT || err == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN)
				continue;
			return err;
		}
		if (*count == room)
		{
			room = room ? room * 2 : 1024;
			*messages = realloc(*messages, room * sizeof(**messages));
		}
		(*messages)[(*count)++] = message;
	}
	return RD_KAFKA_RESP_ERR__TIMED_OUT;
}

static void
read_records(const Command *command)
{
	rd_kafka_t *rk = reader(option(command, "isolation").data != NULL);
	rd_kafka_topic_partition_list_t *list =
		one_partition(command, 1, number_option(command, "from", RD_KAFKA_OFFSET_BEGINNING));
	rd_kafka_message_t **messages = NULL;
	size_t		count = 0;
	rd_kafka_resp_err_t err = rd_kafka_assign(rk, list);

	if (!err)
		err = read_to_end(rk, &messages, &count);
	rd_kafka_assign(rk, NULL);
	rd_kafka_topic_partition_list_destroy(list);
	if (err)
		answer(err, NULL);
	else
		ok(" %zu", count);
	for (size_t i = 0; i < count; i++)
	{
		if (!err)
			print_record(messages[i]);
		rd_kafka_message_destroy(messages[i]);
	}
	free(messages);
}

/* ---- commands */

static void
send_input_lines(const Command *command)
{
	send_lines(command, stdin, is(command, 3, "all") ? INT64_MAX : atoll(command->word[3].data));
}

static void
commit(const Command *command)
{
	end_transaction(command, true);
}

static void
abort_it(const Command *command)
{
	end_transaction(command, false);
}

static const struct
{
	const char *name;
	int			words;			/* at least, the name included */
	int			admin_words;	/* with so many it takes a broker with administration; 0: never */
	void		(*run) (const Command *command);
}			commands[] = {
	{"create", 3, 3, create_topic},
	{"delete", 2, 2, delete_topic},
	{"partitions", 2, 3, partitions},
	{"alter", 2, 2, alter_topic},
	{"delete_records", 4, 4, delete_records},
	{"acl", 7, 7, create_acl},
	{"send", 3, 0, send_record},
	{"lines", 4, 0, send_input_lines},
	{"file", 4, 0, send_file},
	{"begin", 2, 0, begin},
	{"commit", 2, 0, commit},
	{"abort", 2, 0, abort_it},
	{"leave", 2, 0, leave},
	{"watermarks", 3, 0, watermarks},
	{"offset", 4, 0, offset_at},
	{"committed", 4, 0, committed},
	{"read", 3, 0, read_records},
};

static void
run(const Command *command)
{
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
	{
		int			admin_words = commands[i].admin_words;

		if (!is(command, 0, commands[i].name) || command->count < commands[i].words)
			continue;
		if (admin_words && command->count >= admin_words && on_mock())
			error("_UNSUPPORTED_FEATURE", "the mock cluster has no administration");
		else
			commands[i].run(command);
		return;
	}
	error("BAD_COMMAND", "unknown, or too few words");
}

int
main(int argc, char **argv)
{
	char	   *line = NULL;
	size_t		room = 0;

	if (argc < 2)
	{
		fprintf(stderr, "usage: kafka_tool BOOTSTRAP [NAME=VALUE...]\n");
		return 2;
	}
	bootstrap = argv[1];
	setting_count = argc - 2;
	settings = argv + 2;
	while (getline(&line, &room, stdin) > 0)
	{
		Command		command;

		split(line, &command);
		if (command.count == 0)
			continue;
		if (is(&command, 0, "quit"))
			break;
		run(&command);
		fflush(stdout);
	}
	free(line);
	for (int i = 0; i < 2; i++)
		if (readers[i])
			rd_kafka_destroy(readers[i]);
	while (producers)
		remove_producer(producers);
	return 0;
}
