/* stream_agg--1.0.sql */
\echo Use "CREATE EXTENSION stream_agg" to load this file. \quit

-- Names mean PostgreSQL's own objects here, whatever others may have created in the schema that is to hold
-- the window functions.
SET LOCAL search_path = pg_catalog, pg_temp;

-- Everything but the window functions lives in the fixed schema stream_agg.  The window functions go
-- to the schema chosen at CREATE EXTENSION, so that they are called unqualified.
DO $$
DECLARE
	nsp pg_namespace;
	owner pg_roles;
BEGIN
	SELECT * INTO nsp FROM pg_namespace WHERE nspname = 'stream_agg';
	IF NOT FOUND THEN
		CREATE SCHEMA stream_agg;
	ELSE
		SELECT * INTO owner FROM pg_roles WHERE oid = nsp.nspowner;
		IF owner.rolname <> current_user AND NOT owner.rolsuper THEN
			RAISE EXCEPTION 'schema "stream_agg" exists and belongs to another user'
				USING HINT = 'Drop or rename it first.';
		END IF;
		-- What is in there, or comes in later, could be taken for ours.
		IF EXISTS (SELECT FROM pg_depend WHERE refclassid = 'pg_namespace'::regclass AND refobjid = nsp.oid
				AND classid <> 'pg_extension'::regclass)
			OR EXISTS (SELECT FROM aclexplode(nsp.nspacl) a WHERE a.privilege_type = 'CREATE' AND a.grantee <> nsp.nspowner)
		THEN
			RAISE EXCEPTION 'schema "stream_agg" exists, and is not empty or others may create objects in it'
				USING HINT = 'Drop or rename it first.';
		END IF;
	END IF;
	EXECUTE format('COMMENT ON SCHEMA stream_agg IS %L', 'Administration and tables of the stream_agg extension');
END
$$;
GRANT USAGE ON SCHEMA stream_agg TO PUBLIC;

--
-- Streams
--
CREATE FUNCTION stream_agg.fdw_handler() RETURNS fdw_handler
	LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sa_fdw_handler';
COMMENT ON FUNCTION stream_agg.fdw_handler() IS 'handler of the foreign data wrapper stream_agg';

CREATE FUNCTION stream_agg.fdw_validator(options text[], catalog oid) RETURNS void
	LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sa_fdw_validator';
COMMENT ON FUNCTION stream_agg.fdw_validator(text[], oid) IS 'checks the options of servers and streams';

CREATE FOREIGN DATA WRAPPER stream_agg
	HANDLER stream_agg.fdw_handler VALIDATOR stream_agg.fdw_validator;
COMMENT ON FOREIGN DATA WRAPPER stream_agg IS 'streams: rows that arrive over time';

CREATE SERVER stream_staged FOREIGN DATA WRAPPER stream_agg OPTIONS (type 'staged');
COMMENT ON SERVER stream_staged IS 'streams written with INSERT and COPY';
GRANT USAGE ON FOREIGN SERVER stream_staged TO PUBLIC;

CREATE SERVER stream_kafka FOREIGN DATA WRAPPER stream_agg OPTIONS (type 'kafka');
COMMENT ON SERVER stream_kafka IS 'Kafka topics as streams that say themselves how to connect';

--
-- Configuration and positions.  pg_dump takes the contents of these tables along, so that results,
-- state and position come from one snapshot.
--
CREATE SEQUENCE stream_agg.object_id AS integer;

CREATE TABLE stream_agg.staged_stream (
	stream			regclass PRIMARY KEY,
	id				integer NOT NULL,		-- names the stream's segments and sequence
	chunks			regclass NOT NULL,		-- sequence of chunk numbers
	first_position	bigint NOT NULL,		-- the lowest one still kept
	next_position	bigint NOT NULL,		-- end of the fixed order
	writing			regclass				-- the segment that writers use
);

CREATE TABLE stream_agg.staged_segment (
	segment			regclass PRIMARY KEY,
	stream			regclass NOT NULL
);
CREATE INDEX staged_segment_stream ON stream_agg.staged_segment (stream);

-- The fixed order of a staged stream: the records [first_position, first_position + records) are those of
-- the chunks in these ranges (pairs of first and last chunk), in order of their stored number.
CREATE TABLE stream_agg.staged_order (
	stream			regclass NOT NULL,
	first_position	bigint NOT NULL,
	records			bigint NOT NULL,
	chunks			bigint[] NOT NULL,
	skipped			boolean NOT NULL,		-- discarded by TRUNCATE before anyone read them
	PRIMARY KEY (stream, first_position)
);

CREATE TABLE stream_agg.view_config (
	id				integer PRIMARY KEY,
	view			regclass NOT NULL UNIQUE,	-- the result table
	definition		regclass NOT NULL,			-- the SELECT, kept as a view
	state			regclass,					-- state log, where the view needs one
	stream			regclass NOT NULL,
	database		oid,						-- where it runs; NULL after a restore, until resumed
	status			text NOT NULL,				-- running, paused, failed
	message			text,						-- why it failed
	options			text[] NOT NULL,			-- name=value
	settings		text[] NOT NULL				-- TimeZone and friends at creation, name=value
);

CREATE TABLE stream_agg.view_position (
	view_id			integer NOT NULL,
	topic			text NOT NULL,
	partition		integer NOT NULL,
	position		bigint NOT NULL,			-- exactly the records before it are in the results
	running_max		bigint,						-- greatest event time, microseconds since 2000
	watermark		bigint,						-- of this partition, likewise
	end_position	bigint,						-- where the view ends; NULL: never
	"read"			bigint NOT NULL,
	skipped			bigint NOT NULL,
	tombstone		bigint NOT NULL,
	malformed		bigint NOT NULL,
	null_time		bigint NOT NULL,
	future			bigint NOT NULL,
	duplicate		bigint NOT NULL,
	failed			bigint NOT NULL,
	filtered		bigint NOT NULL,
	late			bigint NOT NULL,
	accepted		bigint NOT NULL,
	late_windows	bigint NOT NULL,
	PRIMARY KEY (view_id, topic, partition)
) WITH (fillfactor = 50);

CREATE TABLE stream_agg.dead_letter (
	id				bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	stream			regclass NOT NULL,
	view			regclass,					-- NULL: refused by the stream itself
	reason			text NOT NULL,
	topic			text NOT NULL,
	partition		integer NOT NULL,
	position		bigint NOT NULL,
	event_time		timestamptz,
	arrival			timestamptz,
	recorded_at		timestamptz NOT NULL DEFAULT now(),
	message			text,
	event			jsonb,						-- the decoded event; NULL: there is none
	key				bytea,						-- of a record that was not decoded
	payload			bytea						-- likewise, its value
);
CREATE INDEX dead_letter_place ON stream_agg.dead_letter (stream, topic, partition, position);
CREATE INDEX dead_letter_stream ON stream_agg.dead_letter (stream, id);

-- Ranges of records that views passed over because the source no longer had them (on_data_loss = 'skip').
CREATE TABLE stream_agg.data_loss (
	stream			regclass NOT NULL,
	topic			text NOT NULL,
	partition		integer NOT NULL,
	first_position	bigint NOT NULL,			-- the first record that was lost
	next_position	bigint NOT NULL,			-- where reading went on; lower than first_position: the topic was made anew
	recorded_at		timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (stream, topic, partition, first_position, next_position)
);

CREATE TABLE stream_agg.stream_counter (
	stream					regclass PRIMARY KEY,
	dead_letters_dropped	bigint NOT NULL
);

DO $$
DECLARE
	name text;
BEGIN
	FOREACH name IN ARRAY ARRAY['object_id', 'staged_stream', 'staged_segment', 'staged_order', 'view_config',
		'view_position', 'dead_letter', 'dead_letter_id_seq', 'data_loss', 'stream_counter']
	LOOP
		PERFORM pg_catalog.pg_extension_config_dump(('stream_agg.' || name)::regclass, '');
	END LOOP;
END
$$;

-- A row of view_config that comes in through COPY or INSERT, as in a restore, waits for resume().
CREATE FUNCTION stream_agg.forget_database() RETURNS trigger
	LANGUAGE C AS 'MODULE_PATHNAME', 'sa_forget_database';
COMMENT ON FUNCTION stream_agg.forget_database() IS 'trigger: a restored continuous view waits for resume()';
CREATE TRIGGER forget_database BEFORE INSERT ON stream_agg.view_config
	FOR EACH ROW EXECUTE FUNCTION stream_agg.forget_database();

-- A dump knows no dependencies of the tables that hold staged rows.
CREATE FUNCTION stream_agg.attach_restored() RETURNS trigger
	LANGUAGE C AS 'MODULE_PATHNAME', 'sa_attach_restored';
COMMENT ON FUNCTION stream_agg.attach_restored() IS 'trigger: restored segments belong to their stream';
CREATE TRIGGER attach_restored AFTER INSERT ON stream_agg.staged_stream
	FOR EACH ROW EXECUTE FUNCTION stream_agg.attach_restored();
CREATE TRIGGER attach_restored AFTER INSERT ON stream_agg.staged_segment
	FOR EACH ROW EXECUTE FUNCTION stream_agg.attach_restored();

CREATE FUNCTION stream_agg.guard() RETURNS trigger
	LANGUAGE C AS 'MODULE_PATHNAME', 'sa_guard';
COMMENT ON FUNCTION stream_agg.guard() IS 'trigger: refuses direct changes of a continuous view';

--
-- Windows.  LANGUAGE sql, neither STRICT nor with SET clauses, so that the planner inlines them.
--
CREATE FUNCTION stream_agg.window_start(ts timestamptz, size interval, origin timestamptz) RETURNS timestamptz
	LANGUAGE C IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'sa_window_start';
CREATE FUNCTION stream_agg.window_end(ts timestamptz, size interval, origin timestamptz) RETURNS timestamptz
	LANGUAGE C IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'sa_window_end';
CREATE FUNCTION stream_agg.window_start(ts timestamp, size interval, origin timestamp) RETURNS timestamp
	LANGUAGE C IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'sa_window_start';
CREATE FUNCTION stream_agg.window_end(ts timestamp, size interval, origin timestamp) RETURNS timestamp
	LANGUAGE C IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'sa_window_end';
CREATE FUNCTION stream_agg.hop_start(ts timestamptz, size interval, slide interval, origin timestamptz, k integer)
	RETURNS timestamptz LANGUAGE C IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'sa_hop_start';
CREATE FUNCTION stream_agg.hop_end(ts timestamptz, size interval, slide interval, origin timestamptz, k integer)
	RETURNS timestamptz LANGUAGE C IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'sa_hop_end';
CREATE FUNCTION stream_agg.hop_start(ts timestamp, size interval, slide interval, origin timestamp, k integer)
	RETURNS timestamp LANGUAGE C IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'sa_hop_start';
CREATE FUNCTION stream_agg.hop_end(ts timestamp, size interval, slide interval, origin timestamp, k integer)
	RETURNS timestamp LANGUAGE C IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'sa_hop_end';
CREATE FUNCTION stream_agg.hop_count(size interval, slide interval) RETURNS integer
	LANGUAGE C IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'sa_hop_count';
COMMENT ON FUNCTION stream_agg.window_start(timestamptz, interval, timestamptz) IS 'start of the tumbling window that holds a time';
COMMENT ON FUNCTION stream_agg.window_end(timestamptz, interval, timestamptz) IS 'end of the tumbling window that holds a time, exclusive';
COMMENT ON FUNCTION stream_agg.window_start(timestamp, interval, timestamp) IS 'start of the tumbling window that holds a time';
COMMENT ON FUNCTION stream_agg.window_end(timestamp, interval, timestamp) IS 'end of the tumbling window that holds a time, exclusive';
COMMENT ON FUNCTION stream_agg.hop_start(timestamptz, interval, interval, timestamptz, integer) IS 'start of the k-th hopping window that holds a time, counted back from the latest; NULL if it does not';
COMMENT ON FUNCTION stream_agg.hop_end(timestamptz, interval, interval, timestamptz, integer) IS 'end of the k-th hopping window that holds a time; NULL if it does not';
COMMENT ON FUNCTION stream_agg.hop_start(timestamp, interval, interval, timestamp, integer) IS 'start of the k-th hopping window that holds a time, counted back from the latest; NULL if it does not';
COMMENT ON FUNCTION stream_agg.hop_end(timestamp, interval, interval, timestamp, integer) IS 'end of the k-th hopping window that holds a time; NULL if it does not';
COMMENT ON FUNCTION stream_agg.hop_count(interval, interval) IS 'how many hopping windows can hold one time';

CREATE FUNCTION @extschema@.tumble(ts timestamptz, size interval, origin timestamptz DEFAULT NULL,
	OUT window_start timestamptz, OUT window_end timestamptz) RETURNS SETOF record
	LANGUAGE sql IMMUTABLE PARALLEL SAFE ROWS 1 AS $$
	SELECT stream_agg.window_start(ts, size, origin), stream_agg.window_end(ts, size, origin)
	WHERE ts IS NOT NULL AND size IS NOT NULL
$$;
CREATE FUNCTION @extschema@.tumble(ts timestamp, size interval, origin timestamp DEFAULT NULL,
	OUT window_start timestamp, OUT window_end timestamp) RETURNS SETOF record
	LANGUAGE sql IMMUTABLE PARALLEL SAFE ROWS 1 AS $$
	SELECT stream_agg.window_start(ts, size, origin), stream_agg.window_end(ts, size, origin)
	WHERE ts IS NOT NULL AND size IS NOT NULL
$$;
CREATE FUNCTION @extschema@.hop(ts timestamptz, size interval, slide interval, origin timestamptz DEFAULT NULL,
	OUT window_start timestamptz, OUT window_end timestamptz) RETURNS SETOF record
	LANGUAGE sql IMMUTABLE PARALLEL SAFE ROWS 10 AS $$
	SELECT stream_agg.hop_start(ts, size, slide, origin, k), stream_agg.hop_end(ts, size, slide, origin, k)
	FROM pg_catalog.generate_series(0, stream_agg.hop_count(size, slide) OPERATOR(pg_catalog.-) 1) AS k
	WHERE stream_agg.hop_start(ts, size, slide, origin, k) IS NOT NULL
$$;
CREATE FUNCTION @extschema@.hop(ts timestamp, size interval, slide interval, origin timestamp DEFAULT NULL,
	OUT window_start timestamp, OUT window_end timestamp) RETURNS SETOF record
	LANGUAGE sql IMMUTABLE PARALLEL SAFE ROWS 10 AS $$
	SELECT stream_agg.hop_start(ts, size, slide, origin, k), stream_agg.hop_end(ts, size, slide, origin, k)
	FROM pg_catalog.generate_series(0, stream_agg.hop_count(size, slide) OPERATOR(pg_catalog.-) 1) AS k
	WHERE stream_agg.hop_start(ts, size, slide, origin, k) IS NOT NULL
$$;
CREATE FUNCTION @extschema@.tumble(ts date, size interval, origin date DEFAULT NULL,
	OUT window_start timestamp, OUT window_end timestamp) RETURNS SETOF record
	LANGUAGE sql IMMUTABLE PARALLEL SAFE ROWS 1 AS $$
	SELECT stream_agg.window_start(ts::timestamp, size, origin::timestamp),
		stream_agg.window_end(ts::timestamp, size, origin::timestamp)
	WHERE ts IS NOT NULL AND size IS NOT NULL
$$;
CREATE FUNCTION @extschema@.hop(ts date, size interval, slide interval, origin date DEFAULT NULL,
	OUT window_start timestamp, OUT window_end timestamp) RETURNS SETOF record
	LANGUAGE sql IMMUTABLE PARALLEL SAFE ROWS 10 AS $$
	SELECT stream_agg.hop_start(ts::timestamp, size, slide, origin::timestamp, k),
		stream_agg.hop_end(ts::timestamp, size, slide, origin::timestamp, k)
	FROM pg_catalog.generate_series(0, stream_agg.hop_count(size, slide) OPERATOR(pg_catalog.-) 1) AS k
	WHERE stream_agg.hop_start(ts::timestamp, size, slide, origin::timestamp, k) IS NOT NULL
$$;
COMMENT ON FUNCTION @extschema@.tumble(date, interval, date) IS 'tumbling window: [window_start, window_end) of this size that holds the midnight of a date';
COMMENT ON FUNCTION @extschema@.hop(date, interval, interval, date) IS 'hopping windows of this size, one every slide, that hold the midnight of a date';
COMMENT ON FUNCTION @extschema@.tumble(timestamptz, interval, timestamptz) IS 'tumbling window: [window_start, window_end) of this size that holds ts';
COMMENT ON FUNCTION @extschema@.tumble(timestamp, interval, timestamp) IS 'tumbling window: [window_start, window_end) of this size that holds ts';
COMMENT ON FUNCTION @extschema@.hop(timestamptz, interval, interval, timestamptz) IS 'hopping windows of this size, one every slide, that hold ts';
COMMENT ON FUNCTION @extschema@.hop(timestamp, interval, interval, timestamp) IS 'hopping windows of this size, one every slide, that hold ts';

CREATE FUNCTION stream_agg.usecs(timestamptz) RETURNS bigint
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sa_usecs';
CREATE FUNCTION stream_agg.usecs(timestamp) RETURNS bigint
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sa_usecs';
COMMENT ON FUNCTION stream_agg.usecs(timestamptz) IS 'microseconds since 2000-01-01 00:00 UTC';
COMMENT ON FUNCTION stream_agg.usecs(timestamp) IS 'microseconds since 2000-01-01 00:00';

--
-- Administration.  Functions check by themselves who may call them for what.
--
DO $$
BEGIN
	IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'stream_agg_admin') THEN
		CREATE ROLE stream_agg_admin;
		COMMENT ON ROLE stream_agg_admin IS 'may administer all streams and continuous views of stream_agg';
	END IF;
END
$$;

CREATE FUNCTION stream_agg.pause(view regclass) RETURNS void
	LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sa_pause';
COMMENT ON FUNCTION stream_agg.pause(regclass) IS 'stop a continuous view at its position';

CREATE FUNCTION stream_agg.resume(view regclass) RETURNS void
	LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sa_resume';
COMMENT ON FUNCTION stream_agg.resume(regclass) IS 'let a paused, failed or restored continuous view go on from its position';

CREATE FUNCTION stream_agg.drop_view(view regclass) RETURNS void
	LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sa_drop_view';
COMMENT ON FUNCTION stream_agg.drop_view(regclass) IS 'drop a continuous view';

CREATE PROCEDURE stream_agg.run(stream_or_view regclass, timeout interval DEFAULT '5 minutes')
	LANGUAGE C AS 'MODULE_PATHNAME', 'sa_run';
COMMENT ON PROCEDURE stream_agg.run(regclass, interval) IS 'take everything committed before the call into the views of a stream, whatever their triggers, and return when that is committed';

CREATE FUNCTION stream_agg.explain(view regclass) RETURNS SETOF text
	LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sa_explain';
COMMENT ON FUNCTION stream_agg.explain(regclass) IS 'how the batches of a continuous view run, and where its state is kept';

CREATE FUNCTION stream_agg.worker_status(stream regclass, OUT pid integer, OUT message text, OUT trouble text,
	OUT trouble_since timestamptz) RETURNS SETOF record
	LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sa_worker_status';
COMMENT ON FUNCTION stream_agg.worker_status(regclass) IS 'worker of a stream or why it has none, and what keeps its source from reading';

CREATE FUNCTION stream_agg.partition_end(stream regclass, topic text, partition integer) RETURNS bigint
	LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sa_partition_end';
COMMENT ON FUNCTION stream_agg.partition_end(regclass, text, integer) IS 'where a partition ends, as the worker of its stream knows; NULL: it has not told';

CREATE FUNCTION stream_agg.progress_list(OUT view regclass, OUT finished_at timestamptz, OUT duration interval,
	OUT "read" bigint, OUT skipped bigint, OUT tombstone bigint, OUT malformed bigint, OUT null_time bigint,
	OUT future bigint, OUT duplicate bigint, OUT failed bigint, OUT filtered bigint, OUT late bigint,
	OUT accepted bigint, OUT late_windows bigint, OUT written bigint, OUT lag bigint, OUT watermark timestamptz,
	OUT groups bigint, OUT windows bigint, OUT state_bytes bigint) RETURNS SETOF record
	LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sa_progress_list';
COMMENT ON FUNCTION stream_agg.progress_list() IS 'the last batches of the continuous views of this database that the current user may see';

CREATE FUNCTION stream_agg.try_decode(stream regclass, value bytea, key bytea DEFAULT NULL, OUT event json, OUT error text)
	LANGUAGE C AS 'MODULE_PATHNAME', 'sa_try_decode';
COMMENT ON FUNCTION stream_agg.try_decode(regclass, bytea, bytea) IS 'what a record would become: an event of the stream, or an error';

CREATE FUNCTION stream_agg.try_decode_all(stream regclass, "values" bytea[], OUT ordinal integer, OUT event json, OUT error text)
	RETURNS SETOF record LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sa_try_decode_all';
COMMENT ON FUNCTION stream_agg.try_decode_all(regclass, bytea[]) IS 'the same for many records, decoded in one run';

CREATE FUNCTION stream_agg.to_time(usecs bigint) RETURNS timestamptz
	LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
	-- in two parts: an interval times a number is exact only while the number is exact as float8
	SELECT timestamptz '2000-01-01 00:00:00+00'
		OPERATOR(pg_catalog.+) ((usecs OPERATOR(pg_catalog./) 1000000) OPERATOR(pg_catalog.*) interval '1 second')
		OPERATOR(pg_catalog.+) ((usecs OPERATOR(pg_catalog.%) 1000000) OPERATOR(pg_catalog.*) interval '1 microsecond')
$$;
COMMENT ON FUNCTION stream_agg.to_time(bigint) IS 'time from microseconds since 2000-01-01 00:00 UTC';

-- Rows that the current user may see: his own objects, or everything for administrators.
CREATE FUNCTION stream_agg.may_see(relation regclass) RETURNS boolean
	LANGUAGE sql STABLE PARALLEL SAFE AS $$
	-- parsed where it is called: an operator that is not named in full could be the caller's own
	SELECT pg_catalog.pg_has_role(c.relowner, 'USAGE') OR pg_catalog.pg_has_role('stream_agg_admin', 'USAGE')
	FROM pg_catalog.pg_class c WHERE c.oid OPERATOR(pg_catalog.=) relation::pg_catalog.oid
$$;
COMMENT ON FUNCTION stream_agg.may_see(regclass) IS 'whether the current user owns a relation or administers stream_agg';

CREATE VIEW stream_agg.streams WITH (security_barrier) AS
SELECT t.ftrelid::regclass AS stream,
	coalesce((SELECT option_value FROM pg_options_to_table(s.srvoptions) WHERE option_name = 'type'), 'staged') AS source,
	pg_get_userbyid(c.relowner) AS owner,
	(SELECT count(*) FROM stream_agg.view_config v WHERE v.stream = t.ftrelid) AS views,
	CASE WHEN w.trouble IS NOT NULL THEN 'retrying' WHEN w.pid IS NOT NULL THEN 'running'
		WHEN w.message IS NOT NULL THEN 'waiting' ELSE 'idle' END AS status,
	coalesce(w.trouble, w.message) AS message,
	w.trouble_since,
	w.pid,
	(SELECT sum(pg_relation_size(g.segment) + coalesce(pg_relation_size(nullif(k.reltoastrelid, 0)), 0))
		FROM stream_agg.staged_segment g JOIN pg_class k ON k.oid = g.segment WHERE g.stream = t.ftrelid)::bigint AS staged_bytes,
	(SELECT next_position FROM stream_agg.staged_stream n WHERE n.stream = t.ftrelid) AS end_position,
	coalesce((SELECT dead_letters_dropped FROM stream_agg.stream_counter n WHERE n.stream = t.ftrelid), 0) AS dead_letters_dropped
FROM pg_foreign_table t
	JOIN pg_foreign_server s ON s.oid = t.ftserver
	JOIN pg_foreign_data_wrapper f ON f.oid = s.srvfdw AND f.fdwname = 'stream_agg'
	JOIN pg_class c ON c.oid = t.ftrelid
	LEFT JOIN LATERAL stream_agg.worker_status(t.ftrelid) w ON true
WHERE stream_agg.may_see(t.ftrelid);
COMMENT ON VIEW stream_agg.streams IS 'streams of this database and their workers';

CREATE VIEW stream_agg.views WITH (security_barrier) AS
SELECT v.view, v.stream, pg_get_userbyid(c.relowner) AS owner,
	CASE WHEN v.database IS DISTINCT FROM d.oid THEN 'restored' ELSE v.status END AS status,
	v.message,
	coalesce((SELECT split_part(o, '=', 2) FROM unnest(v.options) o WHERE o LIKE 'output\_mode=%'), 'update') AS output_mode,
	coalesce((SELECT split_part(o, '=', 2) FROM unnest(v.options) o WHERE o LIKE 'trigger=%'), 'immediate') AS trigger,
	p.watermark, p.read, p.skipped, p.tombstone, p.malformed, p.null_time, p.future, p.duplicate, p.failed, p.filtered,
	p.late, p.accepted, p.late_windows,
	g.groups, g.windows, g.state_bytes,
	pg_total_relation_size(v.state) AS state_log_bytes,
	v.definition, v.options
FROM stream_agg.view_config v
	JOIN pg_class c ON c.oid = v.view
	JOIN pg_database d ON d.datname = current_database()
	LEFT JOIN LATERAL (
		SELECT CASE WHEN bool_and(watermark IS NOT NULL) THEN stream_agg.to_time(min(watermark)) END AS watermark,
			sum("read")::bigint AS "read", sum(skipped)::bigint AS skipped, sum(tombstone)::bigint AS tombstone,
			sum(malformed)::bigint AS malformed, sum(null_time)::bigint AS null_time, sum(future)::bigint AS future,
			sum(duplicate)::bigint AS duplicate, sum(failed)::bigint AS failed, sum(filtered)::bigint AS filtered,
			sum(late)::bigint AS late, sum(accepted)::bigint AS accepted, sum(late_windows)::bigint AS late_windows
		FROM stream_agg.view_position p WHERE p.view_id = v.id) p ON true
	LEFT JOIN LATERAL (
		SELECT groups, windows, state_bytes FROM stream_agg.progress_list() l
		WHERE l.view = v.view ORDER BY finished_at DESC LIMIT 1) g ON true
WHERE stream_agg.may_see(v.view);
COMMENT ON VIEW stream_agg.views IS 'continuous views: status, watermark, and what became of the records read';

CREATE VIEW stream_agg.progress WITH (security_barrier) AS
SELECT l.*, (l."read" / nullif(extract(epoch FROM l.duration), 0))::float8 AS rows_per_second
FROM stream_agg.progress_list() l WHERE stream_agg.may_see(l.view);
COMMENT ON VIEW stream_agg.progress IS 'the last batches of every continuous view, since the server started';

CREATE VIEW stream_agg.partitions WITH (security_barrier) AS
SELECT v.view, p.topic, p.partition, p.position, e.end_position, greatest(least(e.end_position, p.end_position) - p.position, 0) AS lag,
	stream_agg.to_time(p.running_max) AS running_max, stream_agg.to_time(p.watermark) AS watermark,
	p.end_position AS stops_at
FROM stream_agg.view_config v JOIN stream_agg.view_position p ON p.view_id = v.id
	LEFT JOIN stream_agg.staged_stream s ON s.stream = v.stream
	CROSS JOIN LATERAL (SELECT coalesce(s.next_position,
		greatest(stream_agg.partition_end(v.stream, p.topic, p.partition), p.position)) AS end_position) e
WHERE stream_agg.may_see(v.view);
COMMENT ON VIEW stream_agg.partitions IS 'place of every continuous view in every partition of its stream';

CREATE VIEW stream_agg.dead_letters WITH (security_barrier) AS
SELECT * FROM stream_agg.dead_letter d WHERE stream_agg.may_see(d.stream) OR stream_agg.may_see(d.view);
COMMENT ON VIEW stream_agg.dead_letters IS 'records and events kept aside, with their reason, place and payload';

CREATE VIEW stream_agg.data_losses WITH (security_barrier) AS
SELECT * FROM stream_agg.data_loss d WHERE stream_agg.may_see(d.stream);
COMMENT ON VIEW stream_agg.data_losses IS 'records passed over because the source no longer had them';

GRANT SELECT ON stream_agg.streams, stream_agg.views, stream_agg.progress, stream_agg.partitions, stream_agg.dead_letters,
	stream_agg.data_losses
	TO PUBLIC;
