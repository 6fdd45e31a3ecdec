/*
 * mock_broker.c
 *		librdkafka's mock cluster as a program of its own: Kafka in memory, for where there is no real broker,
 *		and for errors that a real one does not make when asked.
 *
 *	mock_broker [BROKERS]		default 1; prints "ok BOOTSTRAP", then takes one command a line, one reply for each:
 *								"ok", or "error NAME"
 *
 *	topic NAME PARTITIONS		a new topic; those that are only used come by themselves, with 4 partitions
 *	topic_error NAME ERROR		the topic has this error from now on; NO_ERROR: no more
 *	down N | up N				the broker, from 1; 0: all of them.  A broker keeps its port
 *	rtt N MS					answers come that much later
 *	error API ERROR COUNT		the next so many requests of this kind fail: a name below, or the protocol's number
 *	clear API					they do not, after all
 *	leader TOPIC PARTITION N	moves the partition to broker N; -1: nowhere
 *	follower TOPIC PARTITION N LOW HIGH		readers are sent to broker N, which has just these records
 *	quit						so does the end of the input
 *
 * ERROR is a name of librdkafka's (REQUEST_TIMED_OUT, TOPIC_AUTHORIZATION_FAILED) or a number.
 *
 * With librdkafka 2.0 the mock delivers aborted records to those who read committed ones, its transactions take no
 * offsets for markers, it keeps 5 MiB of a partition and then drops its oldest records, answers -1 to the offset at
 * a timestamp, and has no administration, no TLS, no users.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>

static const struct
{
	const char *name;
	int			number;
}			apis[] = {
	{"produce", 0}, {"fetch", 1}, {"list_offsets", 2}, {"metadata", 3}, {"offset_commit", 8}, {"offset_fetch", 9},
	{"find_coordinator", 10}, {"join_group", 11}, {"heartbeat", 12}, {"leave_group", 13}, {"sync_group", 14},
	{"init_producer_id", 22}, {"add_partitions_to_txn", 24}, {"end_txn", 26}
};

static rd_kafka_mock_cluster_t *cluster;
static int	broker_count = 1;

/* -1: there is none of this name. */
static int
find_api(const char *text)
{
	char	   *end;
	long		number = strtol(text, &end, 10);

	for (size_t i = 0; i < sizeof(apis) / sizeof(apis[0]); i++)
		if (strcmp(text, apis[i].name) == 0)
			return apis[i].number;
	return *end ? -1 : (int) number;
}

/* -1 (UNKNOWN) also when there is none of this name. */
static rd_kafka_resp_err_t
find_error(const char *text)
{
	char	   *end;
	long		number = strtol(text, &end, 10);

	for (int err = 0; *end && err < RD_KAFKA_RESP_ERR_END_ALL; err++)
		if (strcmp(text, rd_kafka_err2name(err)) == 0)
			return err;
	return *end ? RD_KAFKA_RESP_ERR_UNKNOWN : (rd_kafka_resp_err_t) number;
}

typedef rd_kafka_resp_err_t (*BrokerCall) (rd_kafka_mock_cluster_t *cluster, int32_t broker);

/* One broker, or all. */
static rd_kafka_resp_err_t
for_brokers(BrokerCall call, int broker)
{
	rd_kafka_resp_err_t err = 0;

	for (int i = 1; i <= broker_count; i++)
		if (broker == 0 || broker == i)
			err = call(cluster, i);
	return err;
}

static rd_kafka_resp_err_t
fail_requests(int api, rd_kafka_resp_err_t err, int count)
{
	if (api < 0)
		return RD_KAFKA_RESP_ERR__INVALID_ARG;
	while (count-- > 0)
		rd_kafka_mock_push_request_errors(cluster, (int16_t) api, 1, err);
	return 0;
}

static rd_kafka_resp_err_t
run(const char *line)
{
	char		name[256],
				text[256];
	int			x,
				y;
	long long	low,
				high;

	if (sscanf(line, "topic %255s %d", name, &x) == 2)
		return rd_kafka_mock_topic_create(cluster, name, x, 1);
	if (sscanf(line, "topic_error %255s %255s", name, text) == 2)
	{
		rd_kafka_mock_topic_set_error(cluster, name, find_error(text));
		return 0;
	}
	if (sscanf(line, "down %d", &x) == 1)
		return for_brokers(rd_kafka_mock_broker_set_down, x);
	if (sscanf(line, "up %d", &x) == 1)
		return for_brokers(rd_kafka_mock_broker_set_up, x);
	if (sscanf(line, "rtt %d %d", &x, &y) == 2)
		return rd_kafka_mock_broker_set_rtt(cluster, x, y);
	if (sscanf(line, "error %255s %255s %d", name, text, &x) == 3)
		return fail_requests(find_api(name), find_error(text), x);
	if (sscanf(line, "clear %255s", name) == 1)
	{
		rd_kafka_mock_clear_request_errors(cluster, (int16_t) find_api(name));
		return 0;
	}
	if (sscanf(line, "leader %255s %d %d", name, &x, &y) == 3)
		return rd_kafka_mock_partition_set_leader(cluster, name, x, y);
	if (sscanf(line, "follower %255s %d %d %lld %lld", name, &x, &y, &low, &high) == 5)
	{
		rd_kafka_resp_err_t err = rd_kafka_mock_partition_set_follower(cluster, name, x, y);

		return err ? err : rd_kafka_mock_partition_set_follower_wmarks(cluster, name, x, low, high);
	}
	return RD_KAFKA_RESP_ERR__INVALID_ARG;
}

int
main(int argc, char **argv)
{
	rd_kafka_conf_t *conf = rd_kafka_conf_new();
	rd_kafka_t *rk;
	char		text[256];
	char		line[1024];

	signal(SIGPIPE, SIG_IGN);
	if (argc > 1)
		broker_count = atoi(argv[1]);
	rd_kafka_conf_set(conf, "log_level", "2", text, sizeof(text));
	rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, text, sizeof(text));	/* keeps the cluster, and connects nowhere */
	cluster = rk ? rd_kafka_mock_cluster_new(rk, broker_count) : NULL;
	if (cluster == NULL)
	{
		fprintf(stderr, "mock_broker: no cluster\n");
		return 1;
	}
	printf("ok %s\n", rd_kafka_mock_cluster_bootstraps(cluster));
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin) && strcmp(line, "quit\n") != 0)
	{
		rd_kafka_resp_err_t err = run(line);

		printf(err ? "error %s\n" : "ok\n", rd_kafka_err2name(err));
		fflush(stdout);
	}
	rd_kafka_mock_cluster_destroy(cluster);
	rd_kafka_destroy(rk);
	return 0;
}
