/*
 * option_kafka.c
 *		What Kafka streams, their servers and user mappings may say to the client library.
 *
 * Invariant: the library is told nothing by a user that is not in this list.  The list leaves out what
 *
 *	- loads code or runs commands: plugins, OpenSSL's engines and providers, and Kerberos, for which the
 *	  library calls kinit through a shell (so a mechanism is to be named: its default is Kerberos);
 *	- is not ours to give away: committing, storing and resetting offsets, group membership, ends of
 *	  partitions, creating topics, logging (its debug contexts print what is sent at login);
 *	- is for producers, or without effect.
 *
 * Names, ranges and words are those of librdkafka 2.0.2; newer versions take them all.
 *
 * No locks, no state: nothing to recover after a crash.
 */
#include "postgres.h"

#include "catalog/pg_collation.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "regex/regex.h"
#include "utils/builtins.h"

#include "compat.h"

#include "option.h"
#include "option_kafka.h"
#include "option_value.h"

#define MAX_TOPIC_NAME 249

/* What a setting is; most are for servers and streams alone. */
#define ON_LINK 0x01			/* servers and streams */
#define ON_MAPPING 0x02			/* user mappings; without ON_LINK: a secret */
#define IS_FILE 0x04
#define IS_GUARDED 0x08

typedef enum SettingKind
{
	KIND_TEXT,
	KIND_URL,
	KIND_BOOL,
	KIND_INT,
	KIND_WORD
} SettingKind;

typedef struct KafkaSetting
{
	const char *name;			/* the library's; options have underscores for its dots */
	int			flags;
	SettingKind kind;
	int			min;			/* of KIND_INT */
	int			max;
	const char *const *words;	/* of KIND_WORD, as the library spells them */
} KafkaSetting;

static const char *const family_words[] = {"any", "v4", "v6", NULL};
static const char *const protocol_words[] = {"plaintext", "ssl", "sasl_plaintext", "sasl_ssl", NULL};
static const char *const identification_words[] = {"https", "none", NULL};
static const char *const mechanism_words[] = {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", NULL};
static const char *const oauth_words[] = {"default", "oidc", NULL};
static const char *const isolation_words[] = {"read_committed", "read_uncommitted", NULL};

static const KafkaSetting settings[] =
{
	/* who and where */
	{"bootstrap.servers", ON_LINK | IS_GUARDED, KIND_TEXT},
	{"client.id", ON_LINK, KIND_TEXT},
	{"client.rack", ON_LINK, KIND_TEXT},

	/* what is read */
	{"isolation.level", ON_LINK, KIND_WORD, .words = isolation_words},
	{"check.crcs", ON_LINK, KIND_BOOL},
	{"fetch.wait.max.ms", ON_LINK, KIND_INT, 0, 300000},
	{"fetch.min.bytes", ON_LINK, KIND_INT, 1, 100000000},
	{"fetch.max.bytes", ON_LINK, KIND_INT, 0, 2147483135},
	{"fetch.error.backoff.ms", ON_LINK, KIND_INT, 0, 300000},
	{"max.partition.fetch.bytes", ON_LINK, KIND_INT, 1, 1000000000},
	{"message.max.bytes", ON_LINK, KIND_INT, 1000, 1000000000},
	{"receive.message.max.bytes", ON_LINK, KIND_INT, 1000, PG_INT32_MAX},
	{"queued.min.messages", ON_LINK, KIND_INT, 1, 10000000},
	{"queued.max.messages.kbytes", ON_LINK, KIND_INT, 1, 2097151},
	{"statistics.interval.ms", ON_LINK, KIND_INT, 0, 86400000},

	/* connections */
	{"broker.address.family", ON_LINK, KIND_WORD, .words = family_words},
	{"broker.address.ttl", ON_LINK, KIND_INT, 0, 86400000},
	{"broker.version.fallback", ON_LINK, KIND_TEXT},
	{"api.version.request", ON_LINK, KIND_BOOL},
	{"api.version.request.timeout.ms", ON_LINK, KIND_INT, 1, 300000},
	{"api.version.fallback.ms", ON_LINK, KIND_INT, 0, 604800000},
	{"connections.max.idle.ms", ON_LINK, KIND_INT, 0, PG_INT32_MAX},
	{"reconnect.backoff.ms", ON_LINK, KIND_INT, 0, 3600000},
	{"reconnect.backoff.max.ms", ON_LINK, KIND_INT, 0, 3600000},
	{"socket.connection.setup.timeout.ms", ON_LINK, KIND_INT, 1000, PG_INT32_MAX},
	{"socket.timeout.ms", ON_LINK, KIND_INT, 10, 300000},
	{"socket.keepalive.enable", ON_LINK, KIND_BOOL},
	{"socket.nagle.disable", ON_LINK, KIND_BOOL},
	{"socket.max.fails", ON_LINK, KIND_INT, 0, 1000000},
	{"socket.send.buffer.bytes", ON_LINK, KIND_INT, 0, 100000000},
	{"socket.receive.buffer.bytes", ON_LINK, KIND_INT, 0, 100000000},

	/* metadata; without a refresh now and then, moved partitions would be found by their errors alone */
	{"metadata.max.age.ms", ON_LINK, KIND_INT, 1, 86400000},
	{"topic.metadata.refresh.interval.ms", ON_LINK, KIND_INT, 10, 3600000},
	{"topic.metadata.refresh.fast.interval.ms", ON_LINK, KIND_INT, 1, 60000},
	{"topic.metadata.refresh.sparse", ON_LINK, KIND_BOOL},
	{"topic.metadata.propagation.max.ms", ON_LINK, KIND_INT, 0, 3600000},

	/* security */
	{"security.protocol", ON_LINK | IS_GUARDED, KIND_WORD, .words = protocol_words},
	{"enable.ssl.certificate.verification", ON_LINK | IS_GUARDED, KIND_BOOL},
	{"ssl.endpoint.identification.algorithm", ON_LINK | IS_GUARDED, KIND_WORD, .words = identification_words},
	{"ssl.cipher.suites", ON_LINK | IS_GUARDED, KIND_TEXT},
	{"ssl.curves.list", ON_LINK | IS_GUARDED, KIND_TEXT},
	{"ssl.sigalgs.list", ON_LINK | IS_GUARDED, KIND_TEXT},
	{"ssl.ca.location", ON_LINK | IS_GUARDED | IS_FILE, KIND_TEXT},
	{"ssl.ca.pem", ON_LINK | IS_GUARDED, KIND_TEXT},
	{"ssl.crl.location", ON_LINK | IS_GUARDED | IS_FILE, KIND_TEXT},
	{"ssl.certificate.location", ON_LINK | ON_MAPPING | IS_FILE, KIND_TEXT},
	{"ssl.certificate.pem", ON_LINK | ON_MAPPING, KIND_TEXT},
	{"ssl.key.location", ON_LINK | ON_MAPPING | IS_FILE, KIND_TEXT},
	{"ssl.key.pem", ON_MAPPING, KIND_TEXT},
	{"ssl.key.password", ON_MAPPING, KIND_TEXT},
	{"ssl.keystore.location", ON_LINK | ON_MAPPING | IS_FILE, KIND_TEXT},
	{"ssl.keystore.password", ON_MAPPING, KIND_TEXT},
	{"sasl.mechanism", ON_LINK | IS_GUARDED, KIND_WORD, .words = mechanism_words},
	{"sasl.username", ON_MAPPING, KIND_TEXT},
	{"sasl.password", ON_MAPPING, KIND_TEXT},
	{"sasl.oauthbearer.method", ON_LINK | IS_GUARDED, KIND_WORD, .words = oauth_words},
	{"sasl.oauthbearer.token.endpoint.url", ON_LINK | IS_GUARDED, KIND_URL},
	{"sasl.oauthbearer.scope", ON_LINK | IS_GUARDED, KIND_TEXT},
	{"sasl.oauthbearer.extensions", ON_LINK | IS_GUARDED, KIND_TEXT},
	{"sasl.oauthbearer.client.id", ON_MAPPING, KIND_TEXT},
	{"sasl.oauthbearer.client.secret", ON_MAPPING, KIND_TEXT},
	{"sasl.oauthbearer.config", ON_MAPPING, KIND_TEXT},
	{"enable.sasl.oauthbearer.unsecure.jwt", ON_LINK | IS_GUARDED, KIND_BOOL},
};

/* ---------- the list ---------- */

/* Is it the library's name, with underscores for dots? */
static bool
is_option_of(const char *name, const char *option)
{
	for (; *name != '\0'; name++, option++)
	{
		if (*option != (*name == '.' ? '_' : *name))
			return false;
	}
	return *option == '\0';
}

static const KafkaSetting *
find_setting(const char *option)
{
	for (size_t i = 0; i < lengthof(settings); i++)
	{
		if (is_option_of(settings[i].name, option))
			return &settings[i];
	}
	return NULL;
}

static const KafkaSetting *
get_setting(const char *option)
{
	const KafkaSetting *setting = find_setting(option);

	if (setting == NULL)
		elog(ERROR, "\"%s\" is no setting of the Kafka client", option);
	return setting;
}

static int
place_flag(SaKafkaPlace place)
{
	return place == SA_KAFKA_LINK ? ON_LINK : ON_MAPPING;
}

const char *
sa_option_kafka_name(const char *option)
{
	return get_setting(option)->name;
}

bool
sa_option_kafka_valid(SaKafkaPlace place, const char *option)
{
	const KafkaSetting *setting = find_setting(option);

	return setting != NULL && (setting->flags & place_flag(place)) != 0;
}

bool
sa_option_kafka_is_secret(const char *option)
{
	const KafkaSetting *setting = find_setting(option);

	return setting != NULL && (setting->flags & (ON_LINK | ON_MAPPING)) == ON_MAPPING;
}

bool
sa_option_kafka_is_file(const char *option)
{
	return (get_setting(option)->flags & IS_FILE) != 0;
}

bool
sa_option_kafka_is_guarded(const char *option)
{
	const KafkaSetting *setting = find_setting(option);

	return setting != NULL && (setting->flags & IS_GUARDED) != 0;
}

const char *
sa_option_kafka_names(SaKafkaPlace place)
{
	StringInfoData names;

	initStringInfo(&names);
	for (size_t i = 0; i < lengthof(settings); i++)
	{
		if ((settings[i].flags & place_flag(place)) == 0)
			continue;
		if (names.len > 0)
			appendStringInfoString(&names, ", ");
		for (const char *c = settings[i].name; *c != '\0'; c++)
			appendStringInfoChar(&names, *c == '.' ? '_' : *c);
	}
	return names.data;
}

/* ---------- values ---------- */

static const char *
read_text(const char *option, const char *value)
{
	if (value[0] == '\0')
		sa_option_refuse_hidden(option, "The value must not be empty.");
	return value;
}

/* The library would hand anything to its HTTP client; a URL may carry a password. */
static const char *
read_url(const char *option, const char *value)
{
	if (pg_strncasecmp(value, "https://", 8) != 0 && pg_strncasecmp(value, "http://", 7) != 0)
		sa_option_refuse_hidden(option, "Give a URL that begins with https:// or http://.");
	return value;
}

const char *
sa_option_kafka_read(const char *option, const char *value)
{
	const KafkaSetting *setting = get_setting(option);

	switch (setting->kind)
	{
		case KIND_TEXT:
			return read_text(option, value);
		case KIND_URL:
			return read_url(option, value);
		case KIND_BOOL:
			return sa_option_read_bool(option, value) ? "true" : "false";
		case KIND_INT:
			return psprintf("%d", sa_option_read_int(option, value, setting->min, setting->max));
		case KIND_WORD:
			return setting->words[sa_option_read_word(option, value, setting->words)];
	}
	elog(ERROR, "unexpected kind of setting: %d", (int) setting->kind);
	return NULL;				/* keep compiler quiet */
}

/* ---------- topics ---------- */

bool
sa_option_kafka_is_topic(const char *name)
{
	static const char legal[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
	size_t		length = strlen(name);

	return length > 0 && length <= MAX_TOPIC_NAME && strspn(name, legal) == length &&
		strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static bool
is_listed(List *topics, const char *topic)
{
	ListCell   *lc;

	foreach(lc, topics)
	{
		if (strcmp(lfirst(lc), topic) == 0)
			return true;
	}
	return false;
}

/* The name between two commas, without blanks around it. */
static char *
trim_topic(const char *start, size_t length)
{
	while (length > 0 && strchr(" \t\r\n", *start) != NULL)
	{
		start++;
		length--;
	}
	while (length > 0 && strchr(" \t\r\n", start[length - 1]) != NULL)
		length--;
	return pnstrdup(start, length);
}

List *
sa_option_kafka_read_topics(const char *name, const char *value)
{
	List	   *topics = NIL;
	const char *at = value;

	for (;;)
	{
		size_t		length = strcspn(at, ",");
		char	   *topic = trim_topic(at, length);

		if (!sa_option_kafka_is_topic(topic))
			sa_option_refuse_value(name, value,
								   "Give topics separated by commas; names have up to 249 letters, digits, dots, underscores and hyphens.");
		if (is_listed(topics, topic))
			sa_option_refuse_value(name, value, psprintf("Name the topic \"%s\" only once.", topic));
		topics = lappend(topics, topic);
		at += length;
		if (*at == '\0')
			return topics;
		at++;
	}
}

regex_t *
sa_option_kafka_compile_pattern(const char *name, const char *value)
{
	size_t		length = strlen(value);
	pg_wchar   *pattern = palloc(sizeof(pg_wchar) * (length + 1));
	regex_t    *regex = palloc(sizeof(regex_t));
	char		message[100];
	int			result;

	if (length == 0)
		sa_option_refuse_value(name, value, "Give a regular expression.");
	result = pg_regcomp(regex, pattern, pg_mb2wchar_with_len(value, pattern, length),
						REG_ADVANCED | REG_NOSUB, C_COLLATION_OID);
	if (result != REG_OKAY)
	{
		pg_regerror(result, regex, message, sizeof(message));
		sa_option_refuse_value(name, value, psprintf("It is not a regular expression: %s.", message));
	}
	pfree(pattern);
	return regex;
}
