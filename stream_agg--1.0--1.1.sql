/* stream_agg--1.0--1.1.sql */
\echo Use "ALTER EXTENSION stream_agg UPDATE TO '1.1'" to load this file. \quit

-- Names mean PostgreSQL's own objects here.
SET LOCAL search_path = pg_catalog, pg_temp;

--
-- Statements
--

CREATE FUNCTION stream_agg.execute(statements text) RETURNS void
	LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sa_execute';
COMMENT ON FUNCTION stream_agg.execute(text) IS 'run statements such as CREATE STREAM where the server does not know them';

CREATE FUNCTION stream_agg.stream_sql_handler() RETURNS language_handler
	LANGUAGE C AS 'MODULE_PATHNAME', 'sa_stream_sql_handler';
COMMENT ON FUNCTION stream_agg.stream_sql_handler() IS 'of language stream_sql: there are no functions in it';

CREATE FUNCTION stream_agg.stream_sql_inline(internal) RETURNS void
	LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sa_stream_sql_inline';
COMMENT ON FUNCTION stream_agg.stream_sql_inline(internal) IS 'of language stream_sql: DO';

CREATE FUNCTION stream_agg.stream_sql_validator(oid) RETURNS void
	LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sa_stream_sql_validator';
COMMENT ON FUNCTION stream_agg.stream_sql_validator(oid) IS 'of language stream_sql: refuses functions';

CREATE TRUSTED LANGUAGE stream_sql HANDLER stream_agg.stream_sql_handler
	INLINE stream_agg.stream_sql_inline VALIDATOR stream_agg.stream_sql_validator;
COMMENT ON LANGUAGE stream_sql IS 'statements such as CREATE STREAM, by DO LANGUAGE stream_sql';

--
-- Changing continuous views
--

-- Where the view began, for reset(); NULL: not known.  And dead letters taken in since.
ALTER TABLE stream_agg.view_position ADD COLUMN start_position bigint, ADD COLUMN replayed bigint;

-- Events accepted for windows that had closed (allowed_lateness), per window.
ALTER TABLE stream_agg.view_position ADD COLUMN corrections bigint;

-- The columns of a definition are found in the result table by their names, so they follow RENAME COLUMN.
DO $$
DECLARE
	renamed record;
BEGIN
	FOR pass IN 1 .. 2	-- first out of each other's way: another column may still have the new name
	LOOP
		FOR renamed IN
			SELECT c.relname, d.attnum, d.attname AS old, r.attname AS new
			FROM stream_agg.view_config v
				JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) v.definition::pg_catalog.oid
				JOIN pg_catalog.pg_attribute d ON d.attrelid OPERATOR(pg_catalog.=) c.oid AND d.attnum OPERATOR(pg_catalog.>) 0
				JOIN pg_catalog.pg_attribute r ON r.attrelid OPERATOR(pg_catalog.=) v.view::pg_catalog.oid
					AND r.attnum OPERATOR(pg_catalog.=) d.attnum
			WHERE d.attname OPERATOR(pg_catalog.<>) r.attname
			ORDER BY c.oid, d.attnum
		LOOP
			EXECUTE pg_catalog.format('ALTER VIEW stream_agg.%I RENAME COLUMN %I TO %I', renamed.relname, renamed.old,
				CASE WHEN pass OPERATOR(pg_catalog.=) 1 THEN 'stream_agg_column_' OPERATOR(pg_catalog.||) renamed.attnum::text
					ELSE renamed.new::text END);
		END LOOP;
	END LOOP;
END
$$;

CREATE FUNCTION stream_agg.reset(view regclass) RETURNS void
	LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sa_reset';
COMMENT ON FUNCTION stream_agg.reset(regclass) IS 'empty a continuous view and have it read from its start again';

CREATE FUNCTION stream_agg.seek(view regclass, "position" text) RETURNS void
	LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sa_seek';
COMMENT ON FUNCTION stream_agg.seek(regclass, text) IS 'have a paused continuous view go on elsewhere, whatever that does to its results';

CREATE FUNCTION stream_agg.swap(a regclass, b regclass) RETURNS void
	LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sa_swap';
COMMENT ON FUNCTION stream_agg.swap(regclass, regclass) IS 'exchange the names of two continuous views';

--
-- State, and why a view is trying again
--

-- Where the groups of a view with unlogged state are read again from, should they be lost: of each partition, the first
-- row is that place; the others are where the floor was moved by more than the records themselves.
CREATE TABLE stream_agg.view_rebuild (
	view_id			integer NOT NULL,
	topic			text NOT NULL,
	partition		integer NOT NULL,
	position		bigint NOT NULL,
	floor			bigint,						-- by which records from here on are judged, microseconds since 2000
	running_max		bigint						-- greatest event time of the records before, likewise
);
SELECT pg_catalog.pg_extension_config_dump('stream_agg.view_rebuild', '');

-- Where unlogged state goes when memory is short, and when the worker stops in order; views that have been unlogged have one.
ALTER TABLE stream_agg.view_config ADD COLUMN spill regclass;

-- The keys that events of the view have had (dedup_key).
ALTER TABLE stream_agg.view_config ADD COLUMN dedup regclass;

-- Likewise where unlogged ones go.
ALTER TABLE stream_agg.view_config ADD COLUMN dedup_spill regclass;

-- Whether the key of a letter's event is among them, seen of it first: then it is no duplicate of itself.  NULL: it is not.
ALTER TABLE stream_agg.dead_letter ADD COLUMN seen boolean;

-- The places of duplicates among the records that a view with unlogged state would read again: a row for each batch and
-- partition that had any.
CREATE TABLE stream_agg.view_duplicate (
	view_id			integer NOT NULL,
	topic			text NOT NULL,
	partition		integer NOT NULL,
	"first"			bigint NOT NULL,			-- position
	"last"			bigint NOT NULL,
	places			bytea NOT NULL,				-- distance of each from the one before
	PRIMARY KEY (view_id, topic, partition, "last")
);
SELECT pg_catalog.pg_extension_config_dump('stream_agg.view_duplicate', '');

CREATE FUNCTION stream_agg.state_now(view regclass, OUT groups bigint, OUT windows bigint, OUT state_bytes bigint,
	OUT oldest_window_end timestamptz) RETURNS record
	LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sa_state_now';
COMMENT ON FUNCTION stream_agg.state_now(regclass) IS 'what the last batch of a continuous view left open; NULLs where none is known';

CREATE FUNCTION stream_agg.retry_reason(view regclass) RETURNS text
	LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sa_retry_reason';
COMMENT ON FUNCTION stream_agg.retry_reason(regclass) IS 'why a continuous view is trying a batch again; NULL: it is not';

CREATE OR REPLACE VIEW stream_agg.views WITH (security_barrier) AS
SELECT v.view, v.stream, pg_get_userbyid(c.relowner) AS owner,
	CASE WHEN v.database IS DISTINCT FROM d.oid THEN 'restored' WHEN r.reason IS NOT NULL THEN 'retrying' ELSE v.status END AS status,
	coalesce(r.reason, v.message) AS message,
	coalesce((SELECT split_part(o, '=', 2) FROM unnest(v.options) o WHERE o LIKE 'output\_mode=%'), 'update') AS output_mode,
	coalesce((SELECT split_part(o, '=', 2) FROM unnest(v.options) o WHERE o LIKE 'trigger=%'), 'immediate') AS trigger,
	p.watermark, p.read, p.skipped, p.tombstone, p.malformed, p.null_time, p.future, p.duplicate, p.failed, p.filtered,
	p.late, p.accepted, p.late_windows,
	n.groups, n.windows, n.state_bytes,
	CASE WHEN coalesce(v.state, v.dedup) IS NOT NULL THEN coalesce(pg_total_relation_size(v.state), 0)
		+ coalesce(pg_total_relation_size(v.spill), 0) + coalesce(pg_total_relation_size(v.dedup), 0)
		+ coalesce(pg_total_relation_size(v.dedup_spill), 0) END AS state_log_bytes,
	v.definition, v.options,
	n.oldest_window_end,
	(SELECT sum(greatest(o.position - b.position, 0))::bigint
		FROM stream_agg.view_position o
			JOIN (SELECT topic, partition, min(position) AS position FROM stream_agg.view_rebuild s WHERE s.view_id = v.id
				GROUP BY 1, 2) b USING (topic, partition)
		WHERE o.view_id = v.id) AS rebuild_distance,
	p.replayed, p.corrections
FROM stream_agg.view_config v
	JOIN pg_class c ON c.oid = v.view
	JOIN pg_database d ON d.datname = current_database()
	LEFT JOIN LATERAL (
		SELECT CASE WHEN bool_and(watermark IS NOT NULL) THEN stream_agg.to_time(min(watermark)) END AS watermark,
			sum("read")::bigint AS "read", sum(skipped)::bigint AS skipped, sum(tombstone)::bigint AS tombstone,
			sum(malformed)::bigint AS malformed, sum(null_time)::bigint AS null_time, sum(future)::bigint AS future,
			sum(duplicate)::bigint AS duplicate, sum(failed)::bigint AS failed, sum(filtered)::bigint AS filtered,
			sum(late)::bigint AS late, sum(accepted)::bigint AS accepted, sum(late_windows)::bigint AS late_windows,
			sum(coalesce(replayed, 0))::bigint AS replayed, coalesce(sum(corrections), 0)::bigint AS corrections
		FROM stream_agg.view_position p WHERE p.view_id = v.id) p ON true
	LEFT JOIN LATERAL stream_agg.state_now(v.view) n ON true
	LEFT JOIN LATERAL (
		SELECT CASE WHEN v.status = 'running' THEN stream_agg.retry_reason(v.view) END AS reason) r ON true
WHERE stream_agg.may_see(v.view);

CREATE FUNCTION stream_agg.estimate_state(view regclass, watermark interval DEFAULT NULL,
	OUT delay interval, OUT windows bigint, OUT groups bigint, OUT bytes bigint, OUT basis text) RETURNS SETOF record
	LANGUAGE C AS 'MODULE_PATHNAME', 'sa_estimate_view';
COMMENT ON FUNCTION stream_agg.estimate_state(regclass, interval) IS 'groups and bytes that a continuous view keeps now, and is to keep at this and at longer delays';

CREATE FUNCTION stream_agg.estimate_state(view_or_query text, watermark interval DEFAULT NULL, sample_rows integer DEFAULT 100000,
	OUT delay interval, OUT windows bigint, OUT groups bigint, OUT bytes bigint, OUT basis text) RETURNS SETOF record
	LANGUAGE C AS 'MODULE_PATHNAME', 'sa_estimate_state';
COMMENT ON FUNCTION stream_agg.estimate_state(text, interval, integer) IS 'the same for a view by its name, or for the query of a view, from a sample of its stream';

--
-- Time
--

-- What administrators have asked of watermarks, and the last ones that were taken.
CREATE TABLE stream_agg.watermark_advance (
	view			regclass NOT NULL,
	watermark		timestamptz NOT NULL,		-- where the view's watermark is to be at least
	asked_by		text NOT NULL,
	asked_at		timestamptz NOT NULL,
	taken_at		timestamptz,				-- NULL: not yet
	watermark_before timestamptz				-- of the view, when it was taken
);
CREATE INDEX watermark_advance_view ON stream_agg.watermark_advance (view);
SELECT pg_catalog.pg_extension_config_dump('stream_agg.watermark_advance', '');

CREATE FUNCTION stream_agg.advance_watermark(view regclass, watermark timestamptz) RETURNS void
	LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sa_advance_watermark';
COMMENT ON FUNCTION stream_agg.advance_watermark(regclass, timestamptz) IS 'have a continuous view take the time for at least this, and close windows';

CREATE VIEW stream_agg.watermark_advances WITH (security_barrier) AS
SELECT a.* FROM stream_agg.watermark_advance a WHERE stream_agg.may_see(a.view);
COMMENT ON VIEW stream_agg.watermark_advances IS 'watermarks that administrators have moved';

-- How far events are behind: of a stream, behind the greatest time before them in their partition; of a view, its late
-- events behind the watermark.  Counts of classes of spans, each up to a quarter longer than the one before (sketch.h).
CREATE TABLE stream_agg.lateness (
	relation		regclass PRIMARY KEY,
	classes			bigint[] NOT NULL,
	greatest		bigint NOT NULL				-- microseconds
);
SELECT pg_catalog.pg_extension_config_dump('stream_agg.lateness', '');

CREATE FUNCTION stream_agg.late_report(view regclass, OUT lateness interval, OUT events bigint, OUT up_to bigint,
	OUT share_up_to double precision) RETURNS SETOF record
	LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sa_late_report';
COMMENT ON FUNCTION stream_agg.late_report(regclass) IS 'how far the late events of a continuous view were behind its watermark';

CREATE FUNCTION stream_agg.suggest_watermark(stream regclass, share double precision) RETURNS interval
	LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sa_suggest_watermark';
COMMENT ON FUNCTION stream_agg.suggest_watermark(regclass, double precision) IS 'the delay of the watermark by which that share of the events of a stream would not have been late';

CREATE FUNCTION stream_agg.suggest_watermark(stream regclass, OUT delay interval, OUT events bigint, OUT lost bigint,
	OUT share_lost double precision) RETURNS SETOF record
	LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sa_watermark_losses';
COMMENT ON FUNCTION stream_agg.suggest_watermark(regclass) IS 'delays of the watermark, and how many events would have been behind it with each';

--
-- Dead letters
--

-- Letters that views are to take again.
CREATE TABLE stream_agg.replay (
	view			regclass NOT NULL,
	letter			bigint NOT NULL,
	PRIMARY KEY (view, letter)
);
SELECT pg_catalog.pg_extension_config_dump('stream_agg.replay', '');

CREATE FUNCTION stream_agg.replay_dead_letters(stream_or_view regclass) RETURNS bigint
	LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sa_replay_dead_letters';
COMMENT ON FUNCTION stream_agg.replay_dead_letters(regclass) IS 'feed dead letters again into the continuous views that they were refused from; returns how many';

-- No default for the letters: array_agg() over no rows is NULL, and means none.
CREATE FUNCTION stream_agg.replay_dead_letters(stream_or_view regclass, letters bigint[]) RETURNS bigint
	LANGUAGE C AS 'MODULE_PATHNAME', 'sa_replay_dead_letters';
COMMENT ON FUNCTION stream_agg.replay_dead_letters(regclass, bigint[]) IS 'feed these dead letters again into the continuous views that they were refused from; returns how many';

--
-- Roles
--

-- Rows that the current user may see: his own objects, or everything for administrators, also while there is
-- no role stream_agg_admin, and what they have of objects that are gone.
CREATE OR REPLACE FUNCTION stream_agg.may_see(relation regclass) RETURNS boolean
	LANGUAGE C STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sa_may_see';

-- The same eight bytes.  In SQL it was parsed where it is called, where "timestamptz" could be the caller's own type,
-- or one that somebody has put into his path.
CREATE OR REPLACE FUNCTION stream_agg.to_time(usecs bigint) RETURNS timestamptz
	LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'sa_usecs';

-- An event belongs to the owner of the stream, but why it failed in a view may tell of what the view joins.  A record's
-- bytes, in letters that a view has got to replay, are more than what its owner may select of it.
CREATE OR REPLACE VIEW stream_agg.dead_letters WITH (security_barrier) AS
SELECT d.id, d.stream, d.view, d.reason, d.topic, d.partition, d.position, d.event_time, d.arrival, d.recorded_at,
	CASE WHEN d.view IS NULL OR d.reason = 'late' OR stream_agg.may_see(d.view) THEN d.message END AS message,
	d.event, CASE WHEN stream_agg.may_see(d.stream) THEN d.key END AS key, CASE WHEN stream_agg.may_see(d.stream) THEN d.payload END AS payload
FROM stream_agg.dead_letter d WHERE stream_agg.may_see(d.stream) OR stream_agg.may_see(d.view);

-- Tables here hold data of users: what ALTER DEFAULT PRIVILEGES grants on tables of the extension's owner is not
-- meant for them, nor for the views over them, through which they could be changed.
DO $$
DECLARE
	item record;
BEGIN
	FOR item IN
		SELECT c.relname, c.relkind, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE pg_catalog.quote_ident(r.rolname) END AS grantee
		FROM pg_catalog.pg_class c CROSS JOIN LATERAL pg_catalog.aclexplode(c.relacl) a
			LEFT JOIN pg_catalog.pg_roles r ON r.oid OPERATOR(pg_catalog.=) a.grantee
		WHERE c.relnamespace OPERATOR(pg_catalog.=) (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname OPERATOR(pg_catalog.=) 'stream_agg')
			AND a.grantee OPERATOR(pg_catalog.<>) c.relowner
			AND c.relkind OPERATOR(pg_catalog.=) ANY (ARRAY['r', 'S', 'v']::pg_catalog."char"[])
		GROUP BY 1, 2, 3
	LOOP
		EXECUTE pg_catalog.format('REVOKE ALL ON %s stream_agg.%I FROM %s CASCADE',
			CASE item.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, item.relname, item.grantee);
	END LOOP;
END
$$;
GRANT SELECT ON stream_agg.streams, stream_agg.views, stream_agg.progress, stream_agg.partitions, stream_agg.dead_letters,
	stream_agg.data_losses, stream_agg.watermark_advances
	TO PUBLIC;

--
-- Dump, restore, upgrade
--
COMMENT ON FUNCTION stream_agg.forget_database() IS 'trigger: a restored continuous view gets its parts back, and waits for resume()';

--
-- Windows: cumulate(), months, and the local time of a zone
--
CREATE FUNCTION stream_agg.window_start(ts timestamptz, size interval, origin timestamptz, timezone text) RETURNS timestamptz
	LANGUAGE C IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'sa_window_start';
CREATE FUNCTION stream_agg.window_end(ts timestamptz, size interval, origin timestamptz, timezone text) RETURNS timestamptz
	LANGUAGE C IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'sa_window_end';
CREATE FUNCTION stream_agg.hop_start(ts timestamptz, size interval, slide interval, origin timestamptz, k integer, timezone text)
	RETURNS timestamptz LANGUAGE C IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'sa_hop_start';
CREATE FUNCTION stream_agg.hop_end(ts timestamptz, size interval, slide interval, origin timestamptz, k integer, timezone text)
	RETURNS timestamptz LANGUAGE C IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'sa_hop_end';
CREATE FUNCTION stream_agg.cumulate_ends(ts timestamptz, step interval, size interval, origin timestamptz, timezone text)
	RETURNS SETOF timestamptz LANGUAGE C IMMUTABLE PARALLEL SAFE ROWS 10 AS 'MODULE_PATHNAME', 'sa_cumulate_ends';
CREATE FUNCTION stream_agg.cumulate_ends(ts timestamp, step interval, size interval, origin timestamp)
	RETURNS SETOF timestamp LANGUAGE C IMMUTABLE PARALLEL SAFE ROWS 10 AS 'MODULE_PATHNAME', 'sa_cumulate_ends';
COMMENT ON FUNCTION stream_agg.window_start(timestamptz, interval, timestamptz, text) IS 'start of the tumbling window that holds a time, by the local time of a zone';
COMMENT ON FUNCTION stream_agg.window_end(timestamptz, interval, timestamptz, text) IS 'end of the tumbling window that holds a time, exclusive, by the local time of a zone';
COMMENT ON FUNCTION stream_agg.hop_start(timestamptz, interval, interval, timestamptz, integer, text) IS 'start of the k-th hopping window that holds a time, counted back from the latest, by the local time of a zone; NULL if it does not';
COMMENT ON FUNCTION stream_agg.hop_end(timestamptz, interval, interval, timestamptz, integer, text) IS 'end of the k-th hopping window that holds a time, by the local time of a zone; NULL if it does not';
COMMENT ON FUNCTION stream_agg.cumulate_ends(timestamptz, interval, interval, timestamptz, text) IS 'ends of the cumulating windows that hold a time, by the local time of a zone';
COMMENT ON FUNCTION stream_agg.cumulate_ends(timestamp, interval, interval, timestamp) IS 'ends of the cumulating windows that hold a time';

-- A function cannot be given another parameter.  What uses those without a zone goes on with them.
ALTER FUNCTION @extschema@.tumble(timestamptz, interval, timestamptz) SET SCHEMA stream_agg;
ALTER FUNCTION @extschema@.hop(timestamptz, interval, interval, timestamptz) SET SCHEMA stream_agg;
ALTER FUNCTION stream_agg.tumble(timestamptz, interval, timestamptz) RENAME TO tumble_without_zone;
ALTER FUNCTION stream_agg.hop(timestamptz, interval, interval, timestamptz) RENAME TO hop_without_zone;
COMMENT ON FUNCTION stream_agg.tumble_without_zone(timestamptz, interval, timestamptz) IS 'tumble() of version 1.0';
COMMENT ON FUNCTION stream_agg.hop_without_zone(timestamptz, interval, interval, timestamptz) IS 'hop() of version 1.0';

CREATE FUNCTION @extschema@.tumble(ts timestamptz, size interval, origin timestamptz DEFAULT NULL, timezone text DEFAULT NULL,
	OUT window_start timestamptz, OUT window_end timestamptz) RETURNS SETOF record
	LANGUAGE sql IMMUTABLE PARALLEL SAFE ROWS 1 AS $$
	SELECT stream_agg.window_start(ts, size, origin, timezone), stream_agg.window_end(ts, size, origin, timezone)
	WHERE ts IS NOT NULL AND size IS NOT NULL
$$;
CREATE FUNCTION @extschema@.hop(ts timestamptz, size interval, slide interval, origin timestamptz DEFAULT NULL,
	timezone text DEFAULT NULL, OUT window_start timestamptz, OUT window_end timestamptz) RETURNS SETOF record
	LANGUAGE sql IMMUTABLE PARALLEL SAFE ROWS 10 AS $$
	SELECT stream_agg.hop_start(ts, size, slide, origin, k, timezone), stream_agg.hop_end(ts, size, slide, origin, k, timezone)
	FROM pg_catalog.generate_series(0, stream_agg.hop_count(size, slide) OPERATOR(pg_catalog.-) 1) AS k
	WHERE stream_agg.hop_start(ts, size, slide, origin, k, timezone) IS NOT NULL
$$;
CREATE FUNCTION @extschema@.cumulate(ts timestamptz, step interval, size interval, origin timestamptz DEFAULT NULL,
	timezone text DEFAULT NULL, OUT window_start timestamptz, OUT window_end timestamptz) RETURNS SETOF record
	LANGUAGE sql IMMUTABLE PARALLEL SAFE ROWS 10 AS $$
	SELECT stream_agg.window_start(ts, size, origin, timezone), ends
	FROM stream_agg.cumulate_ends(ts, step, size, origin, timezone) AS ends
$$;
CREATE FUNCTION @extschema@.cumulate(ts timestamp, step interval, size interval, origin timestamp DEFAULT NULL,
	OUT window_start timestamp, OUT window_end timestamp) RETURNS SETOF record
	LANGUAGE sql IMMUTABLE PARALLEL SAFE ROWS 10 AS $$
	SELECT stream_agg.window_start(ts, size, origin), ends
	FROM stream_agg.cumulate_ends(ts, step, size, origin) AS ends
$$;
CREATE FUNCTION @extschema@.cumulate(ts date, step interval, size interval, origin date DEFAULT NULL,
	OUT window_start timestamp, OUT window_end timestamp) RETURNS SETOF record
	LANGUAGE sql IMMUTABLE PARALLEL SAFE ROWS 10 AS $$
	SELECT stream_agg.window_start(ts::timestamp, size, origin::timestamp), ends
	FROM stream_agg.cumulate_ends(ts::timestamp, step, size, origin::timestamp) AS ends
$$;
COMMENT ON FUNCTION @extschema@.tumble(timestamptz, interval, timestamptz, text) IS 'tumbling window: [window_start, window_end) of this size that holds ts';
COMMENT ON FUNCTION @extschema@.hop(timestamptz, interval, interval, timestamptz, text) IS 'hopping windows of this size, one every slide, that hold ts';
COMMENT ON FUNCTION @extschema@.cumulate(timestamptz, interval, interval, timestamptz, text) IS 'cumulating windows that hold ts: they begin together every size, and end one every step';
COMMENT ON FUNCTION @extschema@.cumulate(timestamp, interval, interval, timestamp) IS 'cumulating windows that hold ts: they begin together every size, and end one every step';
COMMENT ON FUNCTION @extschema@.cumulate(date, interval, interval, date) IS 'cumulating windows that hold the midnight of a date: they begin together every size, and end one every step';

--
-- Sessions
--
CREATE FUNCTION stream_agg.session_end(ts timestamptz, gap interval) RETURNS timestamptz
	LANGUAGE C IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'sa_session_end';
CREATE FUNCTION stream_agg.session_end(ts timestamp, gap interval) RETURNS timestamp
	LANGUAGE C IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'sa_session_end';
COMMENT ON FUNCTION stream_agg.session_end(timestamptz, interval) IS 'when a session ends that no other event joins; NULL where the gap is not greater than zero';
COMMENT ON FUNCTION stream_agg.session_end(timestamp, interval) IS 'when a session ends that no other event joins; NULL where the gap is not greater than zero';
CREATE FUNCTION @extschema@.session(ts timestamptz, gap interval, OUT window_start timestamptz, OUT window_end timestamptz)
	RETURNS SETOF record LANGUAGE sql IMMUTABLE PARALLEL SAFE ROWS 1 AS $$
	SELECT ts, stream_agg.session_end(ts, gap) WHERE stream_agg.session_end(ts, gap) IS NOT NULL
$$;
CREATE FUNCTION @extschema@.session(ts timestamp, gap interval, OUT window_start timestamp, OUT window_end timestamp)
	RETURNS SETOF record LANGUAGE sql IMMUTABLE PARALLEL SAFE ROWS 1 AS $$
	SELECT ts, stream_agg.session_end(ts, gap) WHERE stream_agg.session_end(ts, gap) IS NOT NULL
$$;
CREATE FUNCTION @extschema@.session(ts date, gap interval, OUT window_start timestamp, OUT window_end timestamp)
	RETURNS SETOF record LANGUAGE sql IMMUTABLE PARALLEL SAFE ROWS 1 AS $$
	SELECT ts::timestamp, stream_agg.session_end(ts::timestamp, gap) WHERE stream_agg.session_end(ts::timestamp, gap) IS NOT NULL
$$;
COMMENT ON FUNCTION @extschema@.session(timestamptz, interval) IS 'in a continuous view, the session that ts belongs to, which ends when nothing has come for gap; by itself, what ts alone has of it: [ts, ts + gap)';
COMMENT ON FUNCTION @extschema@.session(timestamp, interval) IS 'in a continuous view, the session that ts belongs to, which ends when nothing has come for gap; by itself, what ts alone has of it: [ts, ts + gap)';
COMMENT ON FUNCTION @extschema@.session(date, interval) IS 'in a continuous view, the session that the midnight of a date belongs to, which ends when nothing has come for gap; by itself, what the date alone has of it';

-- What GROUP BY date_bin(...) and date_trunc(...) of the event time mean in a view: window functions, in its definition.
CREATE FUNCTION stream_agg.trunc_start(ts timestamptz, unit text, timezone text) RETURNS timestamptz
	LANGUAGE C IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'sa_trunc_start';
CREATE FUNCTION stream_agg.trunc_end(ts timestamptz, unit text, timezone text) RETURNS timestamptz
	LANGUAGE C IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'sa_trunc_end';
CREATE FUNCTION stream_agg.trunc_start(ts timestamp, unit text) RETURNS timestamp
	LANGUAGE C IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'sa_trunc_start';
CREATE FUNCTION stream_agg.trunc_end(ts timestamp, unit text) RETURNS timestamp
	LANGUAGE C IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'sa_trunc_end';
COMMENT ON FUNCTION stream_agg.trunc_start(timestamptz, text, text) IS 'date_trunc(unit, ts, timezone)';
COMMENT ON FUNCTION stream_agg.trunc_end(timestamptz, text, text) IS 'end of what date_trunc(unit, ts, timezone) is the start of';
COMMENT ON FUNCTION stream_agg.trunc_start(timestamp, text) IS 'date_trunc(unit, ts)';
COMMENT ON FUNCTION stream_agg.trunc_end(timestamp, text) IS 'end of what date_trunc(unit, ts) is the start of';

CREATE FUNCTION stream_agg.date_trunc(ts timestamptz, unit text, timezone text, OUT window_start timestamptz, OUT window_end timestamptz)
	RETURNS SETOF record LANGUAGE sql IMMUTABLE PARALLEL SAFE ROWS 1 AS $$
	SELECT stream_agg.trunc_start(ts, unit, timezone), stream_agg.trunc_end(ts, unit, timezone) WHERE ts IS NOT NULL
$$;
CREATE FUNCTION stream_agg.date_trunc(ts timestamp, unit text, OUT window_start timestamp, OUT window_end timestamp)
	RETURNS SETOF record LANGUAGE sql IMMUTABLE PARALLEL SAFE ROWS 1 AS $$
	SELECT stream_agg.trunc_start(ts, unit), stream_agg.trunc_end(ts, unit) WHERE ts IS NOT NULL
$$;
CREATE FUNCTION stream_agg.date_bin(ts timestamptz, stride interval, origin timestamptz, OUT window_start timestamptz, OUT window_end timestamptz)
	RETURNS SETOF record LANGUAGE sql IMMUTABLE PARALLEL SAFE ROWS 1 AS $$
	SELECT stream_agg.window_start(ts, stride, origin), stream_agg.window_end(ts, stride, origin) WHERE ts IS NOT NULL
$$;
CREATE FUNCTION stream_agg.date_bin(ts timestamp, stride interval, origin timestamp, OUT window_start timestamp, OUT window_end timestamp)
	RETURNS SETOF record LANGUAGE sql IMMUTABLE PARALLEL SAFE ROWS 1 AS $$
	SELECT stream_agg.window_start(ts, stride, origin), stream_agg.window_end(ts, stride, origin) WHERE ts IS NOT NULL
$$;
COMMENT ON FUNCTION stream_agg.date_trunc(timestamptz, text, text) IS 'window that starts at date_trunc(unit, ts, timezone)';
COMMENT ON FUNCTION stream_agg.date_trunc(timestamp, text) IS 'window that starts at date_trunc(unit, ts)';
COMMENT ON FUNCTION stream_agg.date_bin(timestamptz, interval, timestamptz) IS 'window that starts at date_bin(stride, ts, origin)';
COMMENT ON FUNCTION stream_agg.date_bin(timestamp, interval, timestamp) IS 'window that starts at date_bin(stride, ts, origin)';
