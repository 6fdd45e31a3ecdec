--
-- Options of Kafka streams, their servers, user mappings and columns, and where views begin and end: what
-- is accepted, what is refused and how.  Nothing here meets a broker.
--
SET timezone = 'UTC';
SET datestyle = 'ISO';
-- The message in full, without its place in the source.
CREATE FUNCTION try(command text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	state text;
	message text;
	detail text;
	hint text;
BEGIN
	EXECUTE command;
	RETURN 'accepted';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	RETURN state || ': ' || message ||
		CASE WHEN detail <> '' THEN E'\nDETAIL: ' || detail ELSE '' END ||
		CASE WHEN hint <> '' THEN E'\nHINT: ' || hint ELSE '' END;
END $$;
\pset format unaligned
\pset tuples_only on

--
-- Servers
--
SELECT srvname, srvoptions, has_server_privilege('public', oid, 'USAGE') AS public, obj_description(oid, 'pg_foreign_server')
	FROM pg_foreign_server WHERE srvname LIKE 'stream%' ORDER BY srvname;
CREATE SERVER k FOREIGN DATA WRAPPER stream_agg OPTIONS (
	bootstrap_servers 'broker1:9092,broker2:9092', type 'kafka', client_id 'test', client_rack 'a', isolation_level 'READ_UNCOMMITTED',
	check_crcs 'on', fetch_wait_max_ms '100', fetch_min_bytes '1', fetch_max_bytes '52428800', max_partition_fetch_bytes '1048576',
	receive_message_max_bytes '100000000', queued_min_messages '1000', queued_max_messages_kbytes '65536', statistics_interval_ms '0',
	broker_address_family 'v4', connections_max_idle_ms '0', reconnect_backoff_ms '100', reconnect_backoff_max_ms '10000',
	socket_timeout_ms '60000', socket_keepalive_enable 'true', api_version_request 'yes', metadata_max_age_ms '900000',
	topic_metadata_refresh_interval_ms '300000', security_protocol 'SASL_SSL', sasl_mechanism 'scram-sha-256',
	ssl_ca_pem '-----BEGIN CERTIFICATE-----', ssl_ca_location '/etc/ssl/certs', enable_ssl_certificate_verification 'true',
	ssl_endpoint_identification_algorithm 'https');
CREATE SERVER plain FOREIGN DATA WRAPPER stream_agg OPTIONS (type 'kafka', bootstrap_servers 'broker:9092');
CREATE SERVER bare FOREIGN DATA WRAPPER stream_agg OPTIONS (type 'kafka');
-- The allow list, in full.
SELECT try($$CREATE SERVER bad FOREIGN DATA WRAPPER stream_agg OPTIONS (type 'kafka', colour 'blue')$$);
SELECT name, split_part(try(format($$CREATE SERVER bad FOREIGN DATA WRAPPER stream_agg OPTIONS (type 'kafka', %I 'x')$$, name)), E'\n', 1)
	FROM unnest('{plugin_library_paths,interceptors,enable_auto_commit,auto_commit_interval_ms,auto_offset_reset,enable_auto_offset_store,
		offset_store_path,offset_store_method,enable_partition_eof,group_instance_id,partition_assignment_strategy,session_timeout_ms,
		sasl_kerberos_kinit_cmd,sasl_kerberos_keytab,sasl_kerberos_principal,sasl_kerberos_service_name,ssl_engine_location,ssl_engine_id,
		ssl_providers,log_level,log_queue,log_thread_name,log_connection_close,debug,allow_auto_create_topics,topic_blacklist,
		internal_termination_signal,transactional_id,enabled_events,builtin_features,ssl_key,socket_cb,
		bootstrap.servers,BOOTSTRAP_SERVERS,bootstrap_server,bootstrap_servers_,metadata_broker_list,topic,group_id,watermark}'::text[]) AS name;
-- Values.
SELECT name, value, try(format($$CREATE SERVER bad FOREIGN DATA WRAPPER stream_agg OPTIONS (type 'kafka', %I %L)$$, name, value))
	FROM (VALUES ('bootstrap_servers', ''), ('client_id', ''), ('fetch_wait_max_ms', 'soon'), ('fetch_wait_max_ms', '-1'), ('fetch_wait_max_ms', '300001'),
		('fetch_wait_max_ms', '1 s'), ('fetch_min_bytes', '0'), ('queued_max_messages_kbytes', '99999999999'), ('check_crcs', 'perhaps'),
		('security_protocol', 'tls'), ('sasl_mechanism', 'GSSAPI'), ('isolation_level', 'serializable'), ('broker_address_family', 'ipv6'),
		('ssl_endpoint_identification_algorithm', 'http'), ('sasl_oauthbearer_method', 'magic'),
		('sasl_oauthbearer_token_endpoint_url', 'file:///etc/passwd'), ('topic_metadata_refresh_interval_ms', '-1')) AS v (name, value);
SELECT try($$CREATE SERVER bad FOREIGN DATA WRAPPER stream_agg OPTIONS (type 'kafka',
	sasl_oauthbearer_method 'oidc', sasl_oauthbearer_token_endpoint_url 'HTTPS://user:secret@example/token', sasl_oauthbearer_scope 's',
	sasl_oauthbearer_extensions 'a=b', enable_sasl_oauthbearer_unsecure_jwt 'off')$$);
DROP SERVER bad;
-- Types.
SELECT try($$CREATE SERVER bad FOREIGN DATA WRAPPER stream_agg OPTIONS (bootstrap_servers 'broker:9092')$$);
SELECT try($$CREATE SERVER bad FOREIGN DATA WRAPPER stream_agg OPTIONS (type 'pigeon', bootstrap_servers 'broker:9092')$$);
SELECT try($$CREATE SERVER bad FOREIGN DATA WRAPPER stream_agg OPTIONS (bootstrap_servers 'broker:9092', type 'staged')$$);
SELECT try($$CREATE SERVER bad FOREIGN DATA WRAPPER stream_agg OPTIONS (type 'staged', plugin_library_paths 'x')$$);
SELECT try($$ALTER SERVER plain OPTIONS (SET type 'staged')$$);
SELECT try($$ALTER SERVER plain OPTIONS (DROP type)$$);
SELECT try($$CREATE FOREIGN DATA WRAPPER other VALIDATOR stream_agg.fdw_validator OPTIONS (type 'kafka')$$);

--
-- Secrets
--
CREATE USER MAPPING FOR CURRENT_USER SERVER k OPTIONS (sasl_username 'alice', sasl_password 'hush-1', ssl_key_pem 'hush-2',
	ssl_key_password 'hush-3', ssl_keystore_password 'hush-4', ssl_keystore_location '/k', ssl_certificate_pem 'c', ssl_certificate_location '/c',
	ssl_key_location '/k', sasl_oauthbearer_client_id 'id', sasl_oauthbearer_client_secret 'hush-5', sasl_oauthbearer_config 'principal=hush');
-- Only there, and never shown.
SELECT name, try(format($$CREATE SERVER bad FOREIGN DATA WRAPPER stream_agg OPTIONS (type 'kafka', %I 'hush-hush')$$, name))
	FROM unnest('{sasl_username,sasl_password,ssl_key_pem,ssl_key_password,ssl_keystore_password,sasl_oauthbearer_client_id,
		sasl_oauthbearer_client_secret,sasl_oauthbearer_config}'::text[]) AS name;
SELECT try($$CREATE SERVER bad FOREIGN DATA WRAPPER stream_agg OPTIONS (type 'pigeon', colour 'blue', sasl_password 'hush-hush')$$);
SELECT try($$CREATE FOREIGN TABLE bad (a int) SERVER plain OPTIONS (topic 't', sasl_password 'hush-hush')$$);
SELECT try($$CREATE FOREIGN TABLE bad (a int) SERVER stream_staged OPTIONS (sasl_password 'hush-hush')$$);
SELECT try($$ALTER SERVER plain OPTIONS (ADD sasl_password 'hush-hush')$$);
SELECT try($$CREATE USER MAPPING FOR CURRENT_USER SERVER plain OPTIONS (sasl_password '')$$);
SELECT try($$CREATE USER MAPPING FOR CURRENT_USER SERVER plain OPTIONS (sasl_pasword 'hush-hush')$$);
SELECT try($$CREATE USER MAPPING FOR CURRENT_USER SERVER plain OPTIONS (sasl_password 'hush-hush', bootstrap_servers 'broker:9092')$$);
SELECT try($$ALTER USER MAPPING FOR CURRENT_USER SERVER k OPTIONS (ADD security_protocol 'ssl')$$);
SELECT try($$CREATE USER MAPPING FOR PUBLIC SERVER stream_staged OPTIONS (sasl_password 'hush-hush')$$);
CREATE USER MAPPING FOR PUBLIC SERVER stream_staged;
SELECT try($$ALTER USER MAPPING FOR PUBLIC SERVER stream_staged OPTIONS (ADD sasl_password 'hush-hush')$$);
DROP USER MAPPING FOR PUBLIC SERVER stream_staged;

--
-- Streams
--
CREATE FOREIGN TABLE s1 (
	a int,
	b text OPTIONS (path 'address.city'),
	c text OPTIONS (path '"a.b".c."d""e"'),
	at timestamptz OPTIONS (timestamp_format 'epoch_ms'),
	day date OPTIONS (path 'times.day', timestamp_format 'epoch_s'),
	mt text OPTIONS (metadata 'topic'), mp int OPTIONS (metadata 'partition'), mo int8 OPTIONS (metadata 'offset'),
	ms timestamptz OPTIONS (metadata 'timestamp'), mts text OPTIONS (metadata 'timestamp_type'), mk bytea OPTIONS (metadata 'key'),
	mh jsonb OPTIONS (metadata 'HEADERS')
) SERVER k OPTIONS (topic 'events', event_time 'at', watermark '1 minute', max_future 'infinity', idle_timeout '30 s', on_data_loss 'skip',
	on_malformed 'fail', on_tombstone 'dead_letter', partition_discovery '10 seconds', group_id 'lag', format 'json', max_record_bytes '1MB',
	isolation_level 'read_committed', client_id 'mine');
\pset format aligned
\pset tuples_only off
\d+ s1
\pset format unaligned
\pset tuples_only on
CREATE FOREIGN TABLE s2 (a int, b text) SERVER plain OPTIONS (topic 'a, b.c ,d_e-f', format 'csv', delimiter E'\t', quote '');
CREATE FOREIGN TABLE s3 (v bytea) SERVER plain OPTIONS (topic_pattern '^events\.[a-z]+$', format 'raw');
CREATE FOREIGN TABLE s4 (a int) SERVER stream_kafka OPTIONS (bootstrap_servers 'broker:9092', topic 'events');
CREATE FOREIGN TABLE s5 (a int) SERVER bare OPTIONS (bootstrap_servers 'broker:9092', topic 'events', security_protocol 'ssl', ssl_ca_pem 'x');
-- Names and values.
SELECT try($$CREATE FOREIGN TABLE bad (a int) SERVER plain OPTIONS (topic 't', colour 'blue')$$);
SELECT split_part(try($$CREATE FOREIGN TABLE bad (a int) SERVER plain OPTIONS (topic 't', enable_auto_commit 'true')$$), E'\n', 1);
SELECT name, left(value, 20), replace(try(format($$CREATE FOREIGN TABLE bad (a int) SERVER plain OPTIONS (%I %L)$$, name, value)), repeat('x', 250), 'x...')
	FROM (VALUES ('topic', ''), ('topic', ','), ('topic', 'a,'), ('topic', 'a,,b'), ('topic', 'a b'), ('topic', '^a.*'), ('topic', '.'), ('topic', 'a,..'),
		('topic', 'a/b'), ('topic', 'a,b,a'), ('topic', repeat('x', 250)),
		('topic_pattern', ''), ('topic_pattern', '(a'), ('topic_pattern', 'a{2,1}'), ('topic_pattern', '['),
		('partition_discovery', '0'), ('partition_discovery', '-1 s'), ('partition_discovery', '1 month'), ('partition_discovery', 'often'),
		('isolation_level', 'dirty'), ('group_id', ''), ('client_id', ''), ('format', 'avro'),
		('delimiter', ''), ('delimiter', '||'), ('delimiter', E'\n'),
		('quote', '""'), ('quote', E'\n'),
		('max_record_bytes', '0'), ('max_record_bytes', '-1'), ('max_record_bytes', '1GB'), ('max_record_bytes', 'much'),
		('on_malformed', 'ignore'), ('on_tombstone', 'bury'), ('on_data_loss', 'panic'), ('idle_timeout', '-1 s'), ('idle_timeout', 'long'))
		AS v (name, value);
SELECT replace(try(format($$CREATE FOREIGN TABLE bad (a int) SERVER plain OPTIONS (delimiter %L)$$, E'\r')), E'\r', '<CR>');
-- What a stream needs, and what does not go together.
SELECT try($$CREATE FOREIGN TABLE bad (a int) SERVER plain$$);
SELECT try($$CREATE FOREIGN TABLE bad (a int) SERVER plain OPTIONS (topic 't', topic_pattern 't.*')$$);
SELECT try($$CREATE FOREIGN TABLE bad (a int) SERVER bare OPTIONS (topic 't')$$);
SELECT try($$CREATE FOREIGN TABLE bad (a int) SERVER plain OPTIONS (topic 't', security_protocol 'sasl_ssl')$$);
SELECT try($$CREATE FOREIGN TABLE bad (a int) SERVER plain OPTIONS (topic 't', security_protocol 'sasl_ssl', sasl_mechanism 'PLAIN')$$);
DROP FOREIGN TABLE bad;
SELECT try($$CREATE FOREIGN TABLE bad (a int) SERVER plain OPTIONS (topic 't', delimiter ';')$$);
SELECT try($$CREATE FOREIGN TABLE bad (a text) SERVER plain OPTIONS (topic 't', format 'raw', quote '''')$$);
SELECT try($$CREATE FOREIGN TABLE bad (a int) SERVER plain OPTIONS (topic 't', format 'csv', delimiter '"')$$);
SELECT try($$CREATE FOREIGN TABLE bad (a int) SERVER plain OPTIONS (topic 't', watermark '1 s')$$);
SELECT try($$ALTER FOREIGN TABLE s4 OPTIONS (DROP topic)$$);
SELECT try($$ALTER FOREIGN TABLE s4 OPTIONS (DROP bootstrap_servers)$$);
SELECT try($$ALTER FOREIGN TABLE s4 OPTIONS (ADD topic_pattern 'x')$$);
SELECT try($$ALTER FOREIGN TABLE s4 OPTIONS (DROP topic, ADD topic_pattern 'x')$$);
-- Streams of one type refuse options of the other.
SELECT try($$CREATE FOREIGN TABLE bad (a int) SERVER plain OPTIONS (topic 't', staged_limit '1 GB')$$);
SELECT try($$CREATE FOREIGN TABLE bad (a int) SERVER stream_staged OPTIONS (topic 't')$$);
SELECT name, split_part(try(format($$CREATE FOREIGN TABLE bad (a int) SERVER stream_staged OPTIONS (%I %L)$$, name, value)), E'\n', 1)
	FROM (VALUES ('topic_pattern', 't'), ('partition_discovery', '1 s'), ('group_id', 'g'), ('format', 'csv'), ('delimiter', ';'), ('quote', ''),
		('max_record_bytes', '1MB'), ('bootstrap_servers', 'broker:9092'), ('isolation_level', 'read_committed'), ('client_id', 'x'),
		('ssl_ca_location', '/ca')) AS v (name, value);

--
-- Columns
--
SELECT value, try(format($$CREATE FOREIGN TABLE bad (a int OPTIONS (path %L)) SERVER plain OPTIONS (topic 't')$$, value))
	FROM unnest(ARRAY['', '.', 'a.', '.a', 'a..b', '"a', '"a"b', 'a"b', 'a"b"', '""', 'a.""', '"a".']) AS value;
SELECT value, try(format($$ALTER FOREIGN TABLE s4 ALTER COLUMN a OPTIONS (ADD path %L)$$, value)),
	try($$ALTER FOREIGN TABLE s4 ALTER COLUMN a OPTIONS (DROP path)$$)
	FROM unnest(ARRAY['a', 'a.b.c', '"a.b"', '"a""b"', ' a . b ', 'key."x"', '"."', 'a."b".c']) AS value;
SELECT try($$CREATE FOREIGN TABLE bad (a int OPTIONS (colour 'blue')) SERVER plain OPTIONS (topic 't')$$);
SELECT try($$CREATE FOREIGN TABLE bad (a int OPTIONS (metadata 'colour')) SERVER plain OPTIONS (topic 't')$$);
SELECT try($$CREATE FOREIGN TABLE bad (a int OPTIONS (metadata 'offset', path 'a')) SERVER plain OPTIONS (topic 't')$$);
SELECT try($$CREATE FOREIGN TABLE bad (a timestamptz OPTIONS (metadata 'timestamp', timestamp_format 'epoch_ms')) SERVER plain OPTIONS (topic 't')$$);
SELECT try($$CREATE FOREIGN TABLE bad (a timestamptz OPTIONS (timestamp_format 'epoch')) SERVER plain OPTIONS (topic 't')$$);
SELECT try($$CREATE FOREIGN TABLE bad (a bigint OPTIONS (timestamp_format 'epoch_ms')) SERVER plain OPTIONS (topic 't')$$);
SELECT try($$CREATE FOREIGN TABLE bad (a time OPTIONS (timestamp_format 'iso8601')) SERVER plain OPTIONS (topic 't')$$);
CREATE DOMAIN stamp AS timestamp;
CREATE FOREIGN TABLE s6 (a stamp OPTIONS (timestamp_format 'epoch_us')) SERVER plain OPTIONS (topic 't');
SELECT try($$CREATE FOREIGN TABLE bad (a int OPTIONS (path 'x')) SERVER plain OPTIONS (topic 't', format 'csv')$$);
SELECT try($$CREATE FOREIGN TABLE bad (a text OPTIONS (path 'x')) SERVER plain OPTIONS (topic 't', format 'raw')$$);
SELECT try($$ALTER FOREIGN TABLE s1 OPTIONS (SET format 'csv')$$);
SELECT try($$ALTER FOREIGN TABLE s4 ADD COLUMN b bigint OPTIONS (timestamp_format 'epoch_ms')$$);
SELECT try($$ALTER FOREIGN TABLE s6 ALTER COLUMN a TYPE bigint$$);
SELECT try($$CREATE FOREIGN TABLE bad (a int OPTIONS (path 'x')) SERVER stream_staged$$);
SELECT try($$CREATE FOREIGN TABLE bad (a int, b int OPTIONS (metadata 'offset')) SERVER stream_staged$$);

--
-- Roles: USAGE is granted, files need a privilege, and secrets go where their owner wants.
--
CREATE ROLE kafka_user;
GRANT CREATE ON SCHEMA public TO kafka_user;
SET ROLE kafka_user;
SELECT try($$CREATE FOREIGN TABLE bad (a int) SERVER stream_kafka OPTIONS (topic 't', bootstrap_servers 'broker:9092')$$);
RESET ROLE;
GRANT USAGE ON FOREIGN SERVER plain, stream_kafka TO kafka_user;
CREATE USER MAPPING FOR PUBLIC SERVER plain;
SET ROLE kafka_user;
SELECT name, try(format($$CREATE FOREIGN TABLE bad (a int) SERVER plain OPTIONS (topic 't', %I '/etc/passwd')$$, name))
	FROM unnest('{ssl_ca_location,ssl_crl_location,ssl_certificate_location,ssl_key_location,ssl_keystore_location}'::text[]) AS name;
SELECT try($$CREATE USER MAPPING FOR kafka_user SERVER plain OPTIONS (ssl_key_location '/etc/passwd', ssl_key_password 'hush-hush')$$);
SELECT try($$CREATE USER MAPPING FOR kafka_user SERVER plain OPTIONS (ssl_key_pem 'hush-hush')$$);
-- With a mapping of one's own, or without any, a stream may connect as it likes.
CREATE FOREIGN TABLE u1 (a int) SERVER plain OPTIONS (topic 't', bootstrap_servers 'elsewhere:9092', security_protocol 'ssl');
CREATE FOREIGN TABLE u2 (a int) SERVER stream_kafka OPTIONS (topic 't', bootstrap_servers 'elsewhere:9092');
DROP USER MAPPING FOR kafka_user SERVER plain;
RESET ROLE;
ALTER USER MAPPING FOR PUBLIC SERVER plain OPTIONS (ADD sasl_username 'shared', ADD sasl_password 'hush-hush');
SET ROLE kafka_user;
-- With that of PUBLIC only as the server says.
CREATE FOREIGN TABLE u3 (a int) SERVER plain OPTIONS (topic 't', client_id 'mine', fetch_wait_max_ms '10');
SELECT name, try(format($$CREATE FOREIGN TABLE bad (a int) SERVER plain OPTIONS (topic 't', %I %L)$$, name, value))
	FROM (VALUES ('bootstrap_servers', 'elsewhere:9092'), ('security_protocol', 'plaintext'), ('enable_ssl_certificate_verification', 'false'),
		('ssl_ca_pem', 'mine'), ('sasl_mechanism', 'PLAIN'), ('sasl_oauthbearer_token_endpoint_url', 'https://elsewhere')) AS v (name, value);
SELECT try($$ALTER FOREIGN TABLE u3 OPTIONS (ADD bootstrap_servers 'elsewhere:9092')$$);
SELECT try($$ALTER FOREIGN TABLE u1 OPTIONS (SET topic 'other')$$);
SELECT umoptions FROM pg_user_mappings WHERE srvname = 'plain';
RESET ROLE;
GRANT pg_read_server_files TO kafka_user;
SET ROLE kafka_user;
SELECT try($$CREATE FOREIGN TABLE u4 (a int) SERVER stream_kafka OPTIONS (topic 't', bootstrap_servers 'broker:9092', ssl_ca_location '/ca')$$);
SELECT try($$CREATE USER MAPPING FOR kafka_user SERVER plain OPTIONS (ssl_key_location '/key', ssl_key_password 'hush-hush')$$);
SELECT try($$ALTER FOREIGN TABLE u1 OPTIONS (SET topic 'other')$$);
RESET ROLE;
DROP OWNED BY kafka_user;
DROP ROLE kafka_user;

--
-- Views
--
CREATE FOREIGN TABLE v1 (k int, at timestamptz) SERVER stream_staged OPTIONS (event_time 'at', watermark '1 minute', idle_timeout '1 minute');
SELECT name, value, try(format($$CREATE MATERIALIZED VIEW bad WITH (stream_agg.continuous, stream_agg.%I = %L) AS SELECT k FROM v1$$, name, value))
	FROM (VALUES ('max_batch_bytes', '1023'), ('max_batch_bytes', '1025MB'), ('max_batch_bytes', '-1'), ('max_batch_bytes', 'lots'),
		('idle_timeout', '-1 s'), ('idle_timeout', '1 month'), ('idle_timeout', 'never'),
		('start', ''), ('start', 'soon'), ('start', '42'), ('start', 'infinity'), ('start', '-infinity'), ('start', '2024-02-30'), ('start', '2024-01-01 25:00'),
		('start', 'view:other'), ('end', 'earliest'), ('end', 'soon'), ('end', 'infinity'), ('end', 'view:other')) AS v (name, value);
SELECT value, split_part(try(format($$CREATE MATERIALIZED VIEW bad WITH (stream_agg.continuous, stream_agg.start = %L) AS SELECT k FROM v1$$, value)), E'\nHINT', 1)
	FROM unnest(ARRAY['{', '{}', '{"t"}', '{"t": 1}', '{"t": null}', '{"t": [1]}', '{"t": {}}', '{"": {"0": 1}}', '{"a b": {"0": 1}}', '{"t": {"x": 1}}', '{"t": {"": 1}}',
		'{"t": {"-1": 1}}', '{"t": {"01": 1}}', '{"t": {"1.0": 1}}', '{"t": {"2147483648": 1}}', '{"t": {"0": -1}}', '{"t": {"0": 1.5}}', '{"t": {"0": "1"}}',
		'{"t": {"0": null}}', '{"t": {"0": {"1": 2}}}', '{"t": {"0": 9223372036854775808}}', '{"t": {"0": 1}, "u": {"0": -1}}', '{"t": {"0": 1}} x',
		'[{"t": {"0": 1}}]']) AS value;
SELECT try($$CREATE MATERIALIZED VIEW bad WITH (stream_agg.continuous, stream_agg.end = '{"t": {"0": -1}}') AS SELECT k FROM v1$$);
-- What is accepted, as the catalog keeps it: times as they are anywhere and at any time.
CREATE FOREIGN TABLE v2 (k int) SERVER plain OPTIONS (topic 't');
SET timezone = 'America/New_York';
SET datestyle = 'SQL, DMY';
CREATE PROCEDURE keep(options text) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE MATERIALIZED VIEW kept WITH (stream_agg.continuous, %s) AS SELECT k FROM v2', options);
	RAISE NOTICE '%', (SELECT c.options FROM stream_agg.view_config c WHERE c.view = 'kept'::regclass);
	ROLLBACK;
END $$;
CALL keep('stream_agg.max_batch_bytes = 1024, stream_agg.idle_timeout = 0');
CALL keep($$stream_agg.max_batch_bytes = '1 GB', stream_agg.idle_timeout = '1 minute'$$);
CALL keep($$stream_agg.start = Earliest, stream_agg.end = LATEST$$);
CALL keep($$stream_agg.start = '02/01/2024 03:04:05.678', stream_agg.end = '2024-06-01 12:00:00+05:30'$$);
CALL keep($$stream_agg.start = '0044-03-15 12:00:00+00 BC'$$);
CALL keep($$stream_agg.start = ' {"t": {"0": 42, "2147483647": 9223372036854775807}, "u.v": {"7": 0}}', stream_agg.end = '{"t": {"0": 1e3}}'$$);
CREATE FUNCTION is_settled(word text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	kept text[];
BEGIN
	EXECUTE format('CREATE MATERIALIZED VIEW kept WITH (stream_agg.continuous, stream_agg.start = %L) AS SELECT k FROM v2', word);
	SELECT options INTO kept FROM stream_agg.view_config WHERE view = 'kept'::regclass;
	DROP MATERIALIZED VIEW kept;
	RETURN kept[1] ~ '^start=\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?\+00$';
END $$;
BEGIN;
SELECT word, is_settled(word) FROM unnest('{now,yesterday,today,tomorrow,epoch}'::text[]) AS word;
ROLLBACK;

SET client_min_messages = warning;
DROP SERVER k, plain, bare CASCADE;
DROP FOREIGN TABLE s4, v1;
DROP DOMAIN stamp;
DROP FUNCTION try, is_settled;
DROP PROCEDURE keep;
