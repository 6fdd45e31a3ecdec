--
-- Changing continuous views: options, names, the query; reset, seek, swap; beginning where another view stands.
--
SET timezone = 'UTC';
SET datestyle = 'ISO';
SET intervalstyle = 'postgres';

CREATE FOREIGN TABLE s (k text, v int, w numeric, at timestamptz NOT NULL) SERVER stream_staged
	OPTIONS (event_time 'at', watermark '10 seconds');
CREATE MATERIALIZED VIEW u WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT k, window_start, count(*) AS n, avg(v) AS mean FROM s, tumble(at, '1 minute') GROUP BY k, window_start;
CREATE MATERIALIZED VIEW a WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append') AS
	SELECT k, window_start, window_end, count(*) AS n FROM s, tumble(at, '1 minute') GROUP BY k, window_start, window_end;
CREATE MATERIALIZED VIEW r WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT k, sum(v) AS total FROM s GROUP BY k;
CREATE MATERIALIZED VIEW t WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT k, v FROM s WHERE v > 10;
CREATE FUNCTION feed(first int, last int) RETURNS void LANGUAGE sql AS
	$$ INSERT INTO s SELECT 'k' || i % 2, i, i / 10.0, timestamptz '2024-01-01' + i * interval '10 seconds' FROM generate_series($1, $2) i $$;
CREATE VIEW options AS SELECT view, options FROM stream_agg.views ORDER BY view::text COLLATE "C";
SELECT feed(1, 15);
CALL stream_agg.run('s');
SELECT * FROM u ORDER BY window_start, k;

-- Options
ALTER MATERIALIZED VIEW u SET (stream_agg.trigger = '1 hour', stream_agg.watermark = '20 seconds', stream_agg.max_batch_rows = 5);
ALTER TABLE u SET (stream_agg.late_events = drop, stream_agg.on_error = 'fail', fillfactor = 40);
SELECT * FROM options WHERE view = 'u'::regclass;
SELECT reloptions FROM pg_class WHERE oid = 'u'::regclass;
ALTER MATERIALIZED VIEW u RESET (stream_agg.max_batch_rows, stream_agg.on_error, stream_agg.idle_timeout, fillfactor);
ALTER MATERIALIZED VIEW u SET (stream_agg.trigger = 'manual'), SET (stream_agg.max_batch_bytes = '1MB');
SELECT * FROM options WHERE view = 'u'::regclass;
SELECT reloptions FROM pg_class WHERE oid = 'u'::regclass;
ALTER MATERIALIZED VIEW u SET (stream_agg.output_mode = 'append');
ALTER MATERIALIZED VIEW u SET (stream_agg.start = 'latest');
ALTER MATERIALIZED VIEW u RESET (stream_agg."end");
ALTER MATERIALIZED VIEW u SET (stream_agg.retention = '1 day');
ALTER MATERIALIZED VIEW u SET (stream_agg.colour = 'red');
ALTER MATERIALIZED VIEW u RESET (stream_agg.colour);
ALTER MATERIALIZED VIEW u SET (stream_agg.trigger = 'often');
ALTER MATERIALIZED VIEW u SET (stream_agg.trigger = '1 s', stream_agg.trigger = '2 s');
ALTER MATERIALIZED VIEW u SET (stream_agg.trigger = '1 s', nonsense = 1);
SELECT * FROM options WHERE view = 'u'::regclass;
BEGIN;
ALTER MATERIALIZED VIEW u SET (stream_agg.trigger = '1 s');
ROLLBACK;
SELECT * FROM options WHERE view = 'u'::regclass;
CREATE ROLE regress_sa_alter;
GRANT stream_agg_admin TO regress_sa_alter;
SET ROLE regress_sa_alter;
ALTER MATERIALIZED VIEW u SET (stream_agg.trigger = 'immediate');
RESET ROLE;
-- Nothing would ever close.
CREATE FOREIGN TABLE plain (k int, at timestamptz) SERVER stream_staged OPTIONS (event_time 'at');
CREATE MATERIALIZED VIEW pa WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.watermark = '1 s') AS
	SELECT window_start, count(*) AS n FROM plain, tumble(at, '1 minute') GROUP BY 1;
ALTER MATERIALIZED VIEW pa RESET (stream_agg.watermark);
ALTER MATERIALIZED VIEW pa SET (stream_agg.watermark = '5 s');
ALTER FOREIGN TABLE plain OPTIONS (ADD watermark '3 s');
ALTER MATERIALIZED VIEW pa RESET (stream_agg.watermark);
ALTER FOREIGN TABLE plain OPTIONS (DROP watermark);
ALTER FOREIGN TABLE plain OPTIONS (SET watermark '4 s');
ALTER MATERIALIZED VIEW pa SET (stream_agg.watermark = '5 s');
ALTER FOREIGN TABLE plain OPTIONS (DROP watermark);
-- A view without watermark keeps closed what was closed before.
CREATE MATERIALIZED VIEW pu WITH (stream_agg.continuous, stream_agg.watermark = '1 s', stream_agg.trigger = 'manual') AS
	SELECT window_start, count(*) AS n FROM plain, tumble(at, '1 minute') GROUP BY 1;
INSERT INTO plain VALUES (1, '2024-01-01 00:00:10'), (2, '2024-01-01 00:05:00');
CALL stream_agg.run('pu');
ALTER MATERIALIZED VIEW pu RESET (stream_agg.watermark);
INSERT INTO plain VALUES (3, '2024-01-01 00:00:20'), (4, '2024-01-01 00:05:30'), (5, '2024-01-01 00:09:30'), (6, '2024-01-01 00:05:40');
CALL stream_agg.run('pu');
SELECT * FROM pu ORDER BY 1;
SELECT read, late, accepted FROM stream_agg.views WHERE view = 'pu'::regclass;
DROP FOREIGN TABLE plain CASCADE;

-- Windows and the watermark keep to the same time, whatever way another column would come to carry it.
CREATE FOREIGN TABLE times (k int, at timestamptz, seen timestamptz) SERVER stream_staged OPTIONS (event_time 'at', watermark '1 s');
CREATE MATERIALIZED VIEW windows WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT window_start, count(*) AS n FROM times, tumble(at, '1 minute') GROUP BY 1;
CREATE MATERIALIZED VIEW runs WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT k, count(*) AS n FROM times GROUP BY k;
ALTER FOREIGN TABLE times OPTIONS (SET event_time 'seen');
BEGIN;
ALTER FOREIGN TABLE times OPTIONS (DROP event_time, DROP watermark);
ROLLBACK;
ALTER FOREIGN TABLE times OPTIONS (SET watermark '2 s');
DROP MATERIALIZED VIEW windows;
ALTER FOREIGN TABLE times OPTIONS (SET event_time 'seen');
INSERT INTO times VALUES (1, NULL, '2024-01-01'), (1, '2024-01-01', NULL);
CALL stream_agg.run('times');
SELECT read, null_time, accepted, watermark FROM stream_agg.views WHERE view = 'runs'::regclass;
DROP FOREIGN TABLE times CASCADE;
CREATE FOREIGN TABLE times (k int, at timestamptz, seen timestamptz) SERVER stream_staged;
CREATE MATERIALIZED VIEW windows WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT window_start, count(*) AS n FROM times, tumble(at, '1 minute') GROUP BY 1;
ALTER FOREIGN TABLE times ADD COLUMN event_time timestamptz;
ALTER FOREIGN TABLE times RENAME COLUMN seen TO event_time;
ALTER FOREIGN TABLE times ADD COLUMN more int;
ALTER FOREIGN TABLE times RENAME COLUMN at TO event_time;
INSERT INTO times VALUES (1, '2024-01-01', NULL);
CALL stream_agg.run('times');
SELECT * FROM windows;
DROP FOREIGN TABLE times CASCADE;

-- Names
ALTER MATERIALIZED VIEW u RENAME COLUMN n TO events;
ALTER TABLE u RENAME mean TO n;
ALTER TABLE u RENAME TO u2;
ALTER MATERIALIZED VIEW u2 RENAME TO u;
CREATE SCHEMA alter_schema;
ALTER MATERIALIZED VIEW u SET SCHEMA alter_schema;
ALTER MATERIALIZED VIEW alter_schema.u SET SCHEMA public;
COMMENT ON MATERIALIZED VIEW u IS 'updated';
SELECT obj_description('u'::regclass, 'pg_class');
ALTER MATERIALIZED VIEW u OWNER TO regress_sa_alter;
SELECT owner FROM stream_agg.views WHERE view = 'u'::regclass;
ALTER MATERIALIZED VIEW u OWNER TO CURRENT_USER;
SELECT pg_get_viewdef(definition) FROM stream_agg.views WHERE view = 'u'::regclass;
REFRESH MATERIALIZED VIEW u;
SELECT feed(16, 18);
CALL stream_agg.run('s');
SELECT * FROM u ORDER BY window_start, k;

-- Another query.  Aggregates that are new cover what is to come; closed groups have NULL.
ALTER TABLE u ADD COLUMN note text DEFAULT 'mine';
CREATE MATERIALIZED VIEW u WITH (stream_agg.continuous, stream_agg.replace) AS
	SELECT k, window_start, count(*) AS events, avg(v) AS n, max(v) AS top, stddev(w) AS spread FROM s, tumble(at, '1 minute')
	WHERE v <> 20 GROUP BY k, window_start;
SELECT * FROM u ORDER BY window_start, k;
SELECT feed(16, 21);
CALL stream_agg.run('s');
SELECT * FROM u ORDER BY window_start, k;
-- Aggregates go, one by one until the state log is not needed any more, and then comes one that needs it again.
CREATE MATERIALIZED VIEW u WITH (stream_agg.continuous, stream_agg.replace) AS
	SELECT window_start, top, k, n FROM (SELECT 1) x;
CREATE MATERIALIZED VIEW u WITH (stream_agg.continuous, stream_agg.replace) AS
	SELECT window_start, max(v) AS top, k, count(*) AS events FROM s, tumble(at, '1 minute') GROUP BY window_start, k;
SELECT * FROM u ORDER BY window_start, k;
SELECT state_log_bytes FROM stream_agg.views WHERE view = 'u'::regclass;
SELECT feed(20, 23);
CALL stream_agg.run('s');
SELECT * FROM u ORDER BY window_start, k;
CREATE MATERIALIZED VIEW u WITH (stream_agg.continuous, stream_agg.replace) AS
	SELECT window_start, max(v) AS top, k, count(*) AS events, avg(v) AS mean, count(*) AS again FROM s, tumble(at, '1 minute') GROUP BY window_start, k;
SELECT state_log_bytes > 0 AS has_log FROM stream_agg.views WHERE view = 'u'::regclass;
SELECT feed(22, 24);
CALL stream_agg.run('s');
SELECT * FROM u ORDER BY window_start, k;
\d u
-- In append mode open groups take it up.
CREATE MATERIALIZED VIEW a (k, window_start, window_end, n, total) WITH (stream_agg.continuous, stream_agg.replace) AS
	SELECT k, window_start, window_end, count(*), sum(v) FROM s, tumble(at, '1 minute') GROUP BY k, window_start, window_end;
SELECT feed(24, 32);
CALL stream_agg.run('s');
SELECT * FROM a ORDER BY window_start, k;
-- Running, joined, and with another WHERE only.
CREATE TABLE names (k text PRIMARY KEY, name text);
INSERT INTO names VALUES ('k1', 'odd');
CREATE MATERIALIZED VIEW r WITH (stream_agg.continuous, stream_agg.replace) AS
	SELECT s.k, sum(s.v) AS total, max(names.name) AS name FROM s JOIN names ON names.k = s.k GROUP BY s.k;
SELECT feed(33, 34);
CALL stream_agg.run('s');
SELECT * FROM r ORDER BY k;
CREATE MATERIALIZED VIEW r WITH (stream_agg.continuous, stream_agg.replace) AS SELECT k, sum(v) AS total FROM s WHERE v > 34 GROUP BY k;
SELECT feed(34, 35);
CALL stream_agg.run('s');
SELECT * FROM r ORDER BY k;
-- Transforms may say anything of the same types.
CREATE MATERIALIZED VIEW t WITH (stream_agg.continuous, stream_agg.replace) AS SELECT upper(k) AS k, v * 2 AS v, w FROM s WHERE v > 20;
SELECT feed(20, 21);
CALL stream_agg.run('s');
SELECT * FROM t WHERE v > 34 ORDER BY v, k, w;
-- The same query again, with and without a log.
CREATE MATERIALIZED VIEW u WITH (stream_agg.continuous, stream_agg.replace) AS
	SELECT window_start, max(v) AS top, k, count(*) AS events, avg(v) AS mean, count(*) AS again FROM s, tumble(at, '1 minute') GROUP BY window_start, k;
CREATE MATERIALIZED VIEW r WITH (stream_agg.continuous, stream_agg.replace) AS SELECT k, sum(v) AS total FROM s GROUP BY k;
-- What would not go on with the groups that are there.
CREATE MATERIALIZED VIEW u WITH (stream_agg.continuous, stream_agg.replace) AS SELECT window_start, count(*) AS events FROM s, tumble(at, '1 minute') GROUP BY 1;
CREATE MATERIALIZED VIEW u WITH (stream_agg.continuous, stream_agg.replace) AS SELECT window_start, k, v, count(*) AS events FROM s, tumble(at, '1 minute') GROUP BY 1, 2, 3;
CREATE MATERIALIZED VIEW u WITH (stream_agg.continuous, stream_agg.replace) AS SELECT window_start, upper(k) AS k, count(*) AS events FROM s, tumble(at, '1 minute') GROUP BY 1, 2;
CREATE MATERIALIZED VIEW u WITH (stream_agg.continuous, stream_agg.replace) AS SELECT window_start, k, count(*) AS events FROM s, tumble(at, '2 minutes') GROUP BY 1, 2;
CREATE MATERIALIZED VIEW u WITH (stream_agg.continuous, stream_agg.replace) AS SELECT window_start, k, count(*) AS events FROM s, hop(at, '1 minute', '30 s') GROUP BY 1, 2;
CREATE MATERIALIZED VIEW u WITH (stream_agg.continuous, stream_agg.replace) AS SELECT window_end, k, count(*) AS events FROM s, tumble(at, '1 minute') GROUP BY 1, 2;
CREATE MATERIALIZED VIEW u WITH (stream_agg.continuous, stream_agg.replace) AS SELECT k, count(*) AS events FROM s GROUP BY 1;
CREATE MATERIALIZED VIEW u WITH (stream_agg.continuous, stream_agg.replace) AS SELECT window_start, k, sum(v) AS events FROM s, tumble(at, '1 minute') GROUP BY 1, 2;
CREATE MATERIALIZED VIEW u WITH (stream_agg.continuous, stream_agg.replace) AS SELECT window_start, k, sum(v)::text AS events FROM s, tumble(at, '1 minute') GROUP BY 1, 2;
CREATE MATERIALIZED VIEW u WITH (stream_agg.continuous, stream_agg.replace) AS SELECT window_start, k, count(*) AS events FROM s, tumble(at, '1 minute') GROUP BY 1, 2 HAVING count(*) > 1;
CREATE MATERIALIZED VIEW u WITH (stream_agg.continuous, stream_agg.replace) AS SELECT k, v FROM s;
CREATE MATERIALIZED VIEW t WITH (stream_agg.continuous, stream_agg.replace) AS SELECT k, count(*) AS v FROM s GROUP BY k;
CREATE FOREIGN TABLE s2 (k text, v int, w numeric, at timestamptz NOT NULL) SERVER stream_staged OPTIONS (event_time 'at', watermark '10 seconds');
CREATE MATERIALIZED VIEW t WITH (stream_agg.continuous, stream_agg.replace) AS SELECT k, v, w FROM s2;
DROP FOREIGN TABLE s2;
CREATE MATERIALIZED VIEW a WITH (stream_agg.continuous, stream_agg.replace) AS SELECT k, window_start, window_end, count(*) AS n, sum(v) AS total, nosuch FROM s, tumble(at, '1 minute') GROUP BY k, window_start, window_end;
CREATE MATERIALIZED VIEW a WITH (stream_agg.continuous, stream_agg.replace, stream_agg.trigger = 'manual') AS SELECT k, window_start, window_end, count(*) AS n FROM s, tumble(at, '1 minute') GROUP BY 1, 2, 3;
CREATE MATERIALIZED VIEW nosuch WITH (stream_agg.continuous, stream_agg.replace) AS SELECT k, v, w FROM s;
CREATE MATERIALIZED VIEW names WITH (stream_agg.continuous, stream_agg.replace) AS SELECT k, v, w FROM s;
-- A user's column has the name, or something of the user's hangs on a column that would go.
CREATE MATERIALIZED VIEW u WITH (stream_agg.continuous, stream_agg.replace) AS SELECT window_start, k, count(*) AS events, sum(v) AS note FROM s, tumble(at, '1 minute') GROUP BY 1, 2;
CREATE VIEW tops AS SELECT top FROM u;
CREATE MATERIALIZED VIEW u WITH (stream_agg.continuous, stream_agg.replace) AS SELECT window_start, k, count(*) AS events FROM s, tumble(at, '1 minute') GROUP BY 1, 2;
DROP VIEW tops;
-- The guard is up again after an error.
DELETE FROM u;
ALTER TABLE u DROP COLUMN events;
SET ROLE regress_sa_alter;
CREATE MATERIALIZED VIEW t WITH (stream_agg.continuous, stream_agg.replace) AS SELECT k, v, w FROM s;
RESET ROLE;
-- A transaction that is rolled back leaves everything as it was.
SELECT definition AS before, state_log_bytes AS bytes_before FROM stream_agg.views WHERE view = 'u'::regclass \gset
BEGIN;
CREATE MATERIALIZED VIEW u WITH (stream_agg.continuous, stream_agg.replace) AS SELECT window_start, k, count(*) AS events, sum(w) AS ws FROM s, tumble(at, '1 minute') GROUP BY 1, 2;
ROLLBACK;
SELECT feed(33, 34);
CALL stream_agg.run('s');
SELECT definition = :'before'::regclass AS same FROM stream_agg.views WHERE view = 'u'::regclass;
SELECT window_start, k, events, top, mean, again FROM u ORDER BY window_start DESC, k LIMIT 2;
-- The parts of older definitions are gone.
SELECT count(*) FROM pg_class WHERE relnamespace = 'stream_agg'::regnamespace AND relname ~ '^(definition|state)_\d+$' AND relkind = 'v';
SELECT count(*) - (SELECT count(state) FROM stream_agg.view_config) AS left_over FROM pg_class WHERE relnamespace = 'stream_agg'::regnamespace AND relname ~ '^state_\d+$' AND relkind = 'r';

-- Another view from where one stands, and the names exchanged.
CREATE MATERIALIZED VIEW r2 WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.start = 'view:r') AS
	SELECT k, count(*) AS n FROM s GROUP BY k;
SELECT options FROM options WHERE view = 'r2'::regclass;
SELECT feed(36, 39);
CALL stream_agg.run('s');
SELECT * FROM r2 ORDER BY k;
CREATE MATERIALIZED VIEW x WITH (stream_agg.continuous, stream_agg.start = 'view:nosuch') AS SELECT count(*) AS n FROM s;
CREATE MATERIALIZED VIEW x WITH (stream_agg.continuous, stream_agg.start = 'view:names') AS SELECT count(*) AS n FROM s;
CREATE MATERIALIZED VIEW x WITH (stream_agg.continuous, stream_agg.start = 'view:') AS SELECT count(*) AS n FROM s;
CREATE MATERIALIZED VIEW x WITH (stream_agg.continuous, stream_agg."end" = 'view:r') AS SELECT count(*) AS n FROM s;
SET ROLE regress_sa_alter;
SELECT stream_agg.swap('r', 'r2');
SELECT stream_agg.swap('r', 'names');
RESET ROLE;
ALTER MATERIALIZED VIEW r2 SET SCHEMA alter_schema;
SELECT stream_agg.swap('r', 'alter_schema.r2');
ALTER MATERIALIZED VIEW alter_schema.r2 SET SCHEMA public;
SELECT stream_agg.swap('r', 'r2');
SELECT stream_agg.swap('r', 'r');
SELECT * FROM r ORDER BY k;
SELECT * FROM r2 ORDER BY k;
SELECT feed(40, 41);
CALL stream_agg.run('s');
SELECT * FROM r ORDER BY k;
SELECT * FROM r2 ORDER BY k;

-- Anew from the start: a view that began where another stood begins there again.
SELECT stream_agg.reset('r');
SELECT * FROM r ORDER BY k;
SELECT feed(42, 43);
CALL stream_agg.run('s');
SELECT * FROM r ORDER BY k;
SELECT stream_agg.pause('r');
SELECT stream_agg.seek('r', '0');
SELECT stream_agg.reset('r');
SELECT stream_agg.resume('r');
CALL stream_agg.run('s');
SELECT * FROM r ORDER BY k;
SELECT stream_agg.reset('u');
SELECT stream_agg.reset('a');
SELECT count(*) FROM u;
CALL stream_agg.run('s');
SELECT (SELECT sum(events) FROM u) = (SELECT accepted FROM stream_agg.views WHERE view = 'u'::regclass) AS all_there;
SELECT read > 0 AND read = accepted + late AS balanced, late = (SELECT count(*) FROM stream_agg.dead_letters WHERE view = 'a'::regclass) AS letters
FROM stream_agg.views WHERE view = 'a'::regclass;
DELETE FROM u;
SELECT stream_agg.reset('names');
SELECT stream_agg.reset(NULL);
SET ROLE regress_sa_alter;
SELECT stream_agg.reset('t');
RESET ROLE;
CALL stream_agg.run('s');

-- Elsewhere: only while it is paused.
SELECT stream_agg.seek('t', '0');
SELECT stream_agg.pause('t');
SELECT stream_agg.seek('t', '-1');
SELECT stream_agg.seek('t', 'x');
SELECT stream_agg.seek('t', '100000000000000000000');
SELECT position AS here FROM stream_agg.partitions WHERE view = 'u'::regclass \gset
SELECT stream_agg.seek('t', :'here');
SELECT feed(44, 46);
CALL stream_agg.run('u');
SELECT stream_agg.seek('t', (:here + 1)::text);
SELECT stream_agg.resume('t');
CALL stream_agg.run('s');
SELECT * FROM t ORDER BY v, k, w;
SELECT stream_agg.pause('t');
SELECT stream_agg.seek('t', '1000000');
SELECT stream_agg.seek('t', :'here');
SELECT stream_agg.resume('t');
CALL stream_agg.run('t');
SELECT * FROM t ORDER BY v, k, w;

-- Everything goes.
SET client_min_messages = warning;
DROP FOREIGN TABLE s CASCADE;
DROP TABLE names;
DROP SCHEMA alter_schema;
DROP ROLE regress_sa_alter;
DROP FUNCTION feed;
DROP VIEW options;
SELECT count(*) FROM stream_agg.view_config;
SELECT count(*) FROM stream_agg.view_position;
SELECT relname FROM pg_class WHERE relnamespace = 'stream_agg'::regnamespace AND relname ~ '\d$';
