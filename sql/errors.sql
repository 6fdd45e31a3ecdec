--
-- What a continuous view may not hold: what is wrong, where, and what to do.
--
SET timezone = 'UTC';
SET datestyle = 'ISO';
CREATE FOREIGN TABLE s (k int, v numeric, t text, at timestamptz) SERVER stream_staged OPTIONS (event_time 'at', watermark '1 minute');
CREATE FOREIGN TABLE s2 (k int, at timestamptz) SERVER stream_staged OPTIONS (event_time 'at');
CREATE FOREIGN TABLE timeless (k int) SERVER stream_staged;
CREATE TABLE tab (k int PRIMARY KEY, name text);
CREATE VIEW s_view AS SELECT * FROM s;

-- Window functions.
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS
	SELECT k, row_number() OVER (ORDER BY at) FROM s;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS
	SELECT k, sum(sum(v)) OVER (PARTITION BY k) FROM s GROUP BY k;
-- DISTINCT and ORDER BY inside aggregates, ordered-set and hypothetical-set aggregates, in HAVING too.
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT count(*), count(DISTINCT k) FROM s;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT count(*), sum(v ORDER BY k) FROM s;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT count(*), percentile_cont(0.5) WITHIN GROUP (ORDER BY v) FROM s;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT count(*), rank(1) WITHIN GROUP (ORDER BY k) FROM s;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT count(*) FROM s HAVING mode() WITHIN GROUP (ORDER BY k) > 1;
-- States that cannot be stored.
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT count(*), json_agg(k) FROM s;
-- DISTINCT, ORDER BY, LIMIT, locking, set operations, WITH, GROUPING SETS, set-returning functions.
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT DISTINCT k FROM s;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT DISTINCT ON (k) k, v FROM s;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT k, v FROM s ORDER BY v;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT k, count(*) FROM s GROUP BY k ORDER BY count(*) DESC;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT k, v FROM s LIMIT 10;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT k, v FROM s OFFSET 10;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT s.k FROM s, tab FOR UPDATE OF tab;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT k FROM s UNION ALL SELECT k FROM tab;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT k FROM s EXCEPT SELECT k FROM s2;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS WITH w AS (SELECT * FROM tab) SELECT s.k, w.name FROM s JOIN w USING (k);
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS WITH w AS (SELECT * FROM s) SELECT k, count(*) FROM w GROUP BY k;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT k, t, count(*) FROM s GROUP BY ROLLUP (k, t);
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT k, t, count(*) FROM s GROUP BY GROUPING SETS ((k), (t));
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT k, generate_series(1, 3) FROM s;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS VALUES (1), (2);
-- Streams: none, two, inside sub-queries and views, on the nullable side.
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT 1 AS one;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT * FROM tab;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT s.k FROM s JOIN s2 USING (k);
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT a.k FROM s a JOIN s b USING (k);
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT * FROM s_view;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT s2.k FROM s2 JOIN s_view USING (k);
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT * FROM (SELECT * FROM s) x;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT k FROM s2 WHERE k IN (SELECT k FROM s);
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT k FROM tab WHERE k IN (SELECT k FROM s);
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT (SELECT count(*) FROM s2) AS n FROM s;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT tab.k, count(*) FROM tab LEFT JOIN s USING (k) GROUP BY 1;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT tab.k, count(*) FROM s RIGHT JOIN tab USING (k) GROUP BY 1;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT k, count(*) FROM s FULL JOIN tab USING (k) GROUP BY 1;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT k, window_start, count(*) FROM s LEFT JOIN LATERAL tumble(at, '1 minute') ON true GROUP BY 1, 2;
-- What changes from one reading to the next.
CREATE FUNCTION vol(int) RETURNS int LANGUAGE sql VOLATILE AS 'SELECT $1';
CREATE FUNCTION hidden(int) RETURNS bool LANGUAGE sql VOLATILE AS 'SELECT true';
CREATE FUNCTION same(int, int) RETURNS bool LANGUAGE sql VOLATILE AS 'SELECT $1 = $2';
CREATE OPERATOR === (LEFTARG = int, RIGHTARG = int, FUNCTION = same);
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT k, sum(v * random()) FROM s GROUP BY k;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT k, count(*) FROM s WHERE at > now() GROUP BY k;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT k, max(CURRENT_TIMESTAMP - at) FROM s GROUP BY k;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT at::date = CURRENT_DATE AS today, count(*) FROM s GROUP BY 1;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT k, count(*) FILTER (WHERE at < clock_timestamp()) FROM s GROUP BY k;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT k, count(*) FROM s WHERE at > LOCALTIMESTAMP GROUP BY k;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT k, count(*) FROM s WHERE at > statement_timestamp() GROUP BY k;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT k, count(*) FROM s WHERE timeofday() > t GROUP BY k;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT k, count(*) FROM s WHERE t < now()::text GROUP BY k;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT vol(k) AS k, count(*) FROM s GROUP BY 1;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT k, count(*) FROM s GROUP BY k HAVING hidden(k);
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT k, count(*) FROM s WHERE k === 1 GROUP BY k;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT k, count(*) FROM s WHERE k IN (SELECT k FROM tab WHERE random() < 0.5) GROUP BY k;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT k, age(min(at)) FROM s GROUP BY k;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT s.k, count(*) FROM s JOIN (SELECT k, random() AS r FROM tab) x ON x.k = s.k GROUP BY 1;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT k, count(*) FROM s JOIN LATERAL (SELECT now() AS n) x ON at > n GROUP BY 1;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT window_start, count(*) FROM s, tumble(now(), '1 minute') GROUP BY 1;
-- Windows.
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT k, count(*) FROM s, tumble(at, '1 minute') GROUP BY k;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT count(*) FROM s, hop(at, '1 minute', '1 minute');
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT date_trunc('hour', window_start) AS h, count(*) FROM s, tumble(at, '1 minute') GROUP BY 1;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT a.window_start, count(*) FROM s, tumble(at, '1 minute') a, hop(at, '1 minute', '1 minute') b GROUP BY 1;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT window_start, count(*) FROM s, tumble(at, '1 month 1 day') GROUP BY 1;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT window_start, count(*) FROM s, tumble(at, '0') GROUP BY 1;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT window_start, count(*) FROM s, tumble(at, '-1 minute') GROUP BY 1;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT window_start, count(*) FROM s, hop(at, '1 minute', '0') GROUP BY 1;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT window_start, count(*) FROM s, hop(at, '1 day', '1 millisecond') GROUP BY 1;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT window_start, count(*) FROM s, hop(at, k * interval '1 minute', NULL) GROUP BY 1;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT window_start, count(*) FROM s, tumble(at, NULL) GROUP BY 1;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT window_start, count(*) FROM s, tumble(at, 'a minute') GROUP BY 1;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT window_start, count(*) FROM s, tumble(at, v * interval '1 second') GROUP BY 1;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT window_start, window_end, count(*) FROM s, tumble(at, '1 day', timezone => 'Mars/Olympus') GROUP BY 1, 2;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT window_start, window_end, count(*) FROM s, hop(at, '1 day', '1 hour', timezone => '+05:30') GROUP BY 1, 2;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT window_start, window_end, count(*) FROM s, cumulate(at, '1 hour', '1 day', timezone => 'UTC-3') GROUP BY 1, 2;
-- A window function where it would not be taken for the window: groups would never close, sessions never meet.
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT window_start, count(*) FROM s, LATERAL (SELECT * FROM tumble(at, '1 minute')) w GROUP BY 1;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT window_start, window_end, count(*) FROM s, LATERAL (SELECT * FROM session(at, '1 minute')) w GROUP BY 1, 2;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT window_start, count(*) FROM s JOIN LATERAL (SELECT (hop(at, '2 minutes', '1 minute')).*) w ON true GROUP BY 1;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT w.b, count(*) FROM s, LATERAL (SELECT x.b FROM tab, LATERAL (SELECT a AS b FROM cumulate(at, '1 minute', '1 hour') c (a, b)) x) w GROUP BY 1;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT a, count(*) FROM s, ROWS FROM (tumble(at, '1 minute'), generate_series(1, 1)) w (a, b, c) GROUP BY 1;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT a, count(*) FROM s, ROWS FROM (generate_series(1, 1), session(at, '1 minute')) w (c, a, b) GROUP BY 1;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT window_start, ordinality, count(*) FROM s, tumble(at, '1 minute') WITH ORDINALITY GROUP BY 1, 2;
-- Not of another table's times, nor in a condition.
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT k, count(*) FROM s JOIN (SELECT k AS kk, window_start FROM tab, tumble(timestamptz '2024-01-01' + tab.k * interval '1 second', '1 minute')) w ON k = kk
	WHERE EXISTS (SELECT FROM tumble(at, '1 day') WHERE window_start > '2024-01-01') GROUP BY k;
DROP MATERIALIZED VIEW v;
-- Grouping columns that are not selected, columns that are not grouped.
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT count(*) FROM s GROUP BY k;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT k + 1 AS k1, count(*) FROM s GROUP BY k;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT k, count(*) FROM s, tumble(at, '1 minute') GROUP BY k, window_start;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT k, v FROM s GROUP BY k;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT tab.k, name, count(*) FROM s JOIN tab USING (k) GROUP BY tab.k;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT k, count(*), (SELECT name FROM tab WHERE tab.k = s.k) FROM s GROUP BY k;
-- Output modes.
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.output_mode = 'append') AS SELECT k, count(*) FROM s GROUP BY k;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.output_mode = 'append') AS SELECT window_start, count(*) FROM s2, tumble(at, '1 minute') GROUP BY 1;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.output_mode = 'complete') AS SELECT k FROM s;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.output_mode = 'complete', stream_agg.state = 'unlogged', stream_agg.watermark = '1 minute') AS
	SELECT window_start, count(*) FROM s, tumble(at, '1 minute') GROUP BY 1;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.watermark = '1 minute', stream_agg.output_mode = 'append') AS
	SELECT window_start, count(*) FROM timeless, tumble(timestamptz '2024-01-01', '1 minute') GROUP BY 1;
-- Options: unknown, malformed, not supported yet.
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.colour = 'red') AS SELECT * FROM s;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.output_mode = 'upsert') AS SELECT * FROM s;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.output_mode) AS SELECT * FROM s;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.trigger = 'soon') AS SELECT * FROM s;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.trigger = '0 seconds') AS SELECT * FROM s;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.trigger = '-1 second') AS SELECT * FROM s;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.trigger = '1 month') AS SELECT * FROM s;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.watermark = 'late') AS SELECT * FROM s;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.watermark = '-1 minute') AS SELECT * FROM s;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.max_batch_rows = 0) AS SELECT * FROM s;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.max_batch_rows = 'many') AS SELECT * FROM s;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.start = 'someday') AS SELECT * FROM s;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.start = 'view:other') AS SELECT * FROM s;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.late_events = 'keep') AS SELECT * FROM s;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.on_error = 'ignore') AS SELECT * FROM s;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.state = 'unlogged') AS SELECT * FROM s;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.allowed_lateness = '1 minute') AS SELECT * FROM s;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.dedup_key = 'nobody') AS SELECT * FROM s;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.retention = '1 day') AS SELECT * FROM s;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.trigger = 'immediate') AS SELECT * FROM s;
CREATE MATERIALIZED VIEW v WITH (stream_agg.trigger = 'manual') AS SELECT * FROM s;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous = false) AS SELECT * FROM s;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous = 'perhaps') AS SELECT * FROM s;
\set SHOW_CONTEXT never
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, fillfactor = 5) AS SELECT * FROM s;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, nonsense = 5) AS SELECT * FROM s;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, other.option = 5) AS SELECT * FROM s;
\set SHOW_CONTEXT errors
CREATE FOREIGN TABLE bad (at timestamptz) SERVER stream_staged OPTIONS (watermark '1 minute');
CREATE FOREIGN TABLE bad (at timestamptz) SERVER stream_staged OPTIONS (event_time 'time');
CREATE FOREIGN TABLE bad (at text) SERVER stream_staged OPTIONS (event_time 'at');
CREATE FOREIGN TABLE bad (at timestamptz) SERVER stream_staged OPTIONS (event_time 'at', watermark 'soon');
CREATE FOREIGN TABLE bad (at timestamptz) SERVER stream_staged OPTIONS (event_time 'at', watermark '1 month');
CREATE FOREIGN TABLE bad (at timestamptz) SERVER stream_staged OPTIONS (event_time 'at', delay '1 minute');
CREATE FOREIGN TABLE bad (at timestamptz) SERVER stream_staged OPTIONS (event_time 'at', idle_timeout '-1 minute');
CREATE FOREIGN TABLE bad (at timestamptz) SERVER stream_staged OPTIONS (event_time 'at', on_data_loss 'panic');
CREATE FOREIGN TABLE bad (at timestamptz OPTIONS (path 'x')) SERVER stream_staged OPTIONS (event_time 'at');
CREATE SERVER bad FOREIGN DATA WRAPPER stream_agg;
CREATE SERVER bad FOREIGN DATA WRAPPER stream_agg OPTIONS (type 'pigeon');
-- Names.
CREATE TEMP MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT * FROM s;
CREATE MATERIALIZED VIEW pg_temp.v WITH (stream_agg.continuous) AS SELECT * FROM s;
CREATE UNLOGGED MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT * FROM s;
CREATE MATERIALIZED VIEW tab WITH (stream_agg.continuous) AS SELECT * FROM s;
CREATE MATERIALIZED VIEW IF NOT EXISTS tab WITH (stream_agg.continuous) AS SELECT * FROM s;
CREATE MATERIALIZED VIEW nowhere.v WITH (stream_agg.continuous) AS SELECT * FROM s;
CREATE MATERIALIZED VIEW v (a, b) WITH (stream_agg.continuous) AS SELECT k FROM s;
CREATE MATERIALIZED VIEW v (a, a) WITH (stream_agg.continuous) AS SELECT k, t FROM s;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT k, k FROM s;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT nothing FROM s;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT * FROM s WITH NO DATA;
DROP MATERIALIZED VIEW IF EXISTS v;
CREATE TABLE v WITH (stream_agg.continuous) AS SELECT * FROM s;
CREATE VIEW v WITH (stream_agg.continuous) AS SELECT * FROM s;
DROP MATERIALIZED VIEW IF EXISTS v;

-- The stream itself.
UPDATE s SET k = 1;
DELETE FROM s;
ALTER FOREIGN TABLE s OPTIONS (SET watermark 'never');

-- Privileges.
CREATE ROLE regress_sa_plain;
GRANT CREATE ON SCHEMA public TO regress_sa_plain;
SET ROLE regress_sa_plain;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT k, count(*) FROM s GROUP BY k;
RESET ROLE;
GRANT SELECT ON s TO regress_sa_plain;
SET ROLE regress_sa_plain;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT s.k, count(*) FROM s JOIN tab USING (k) GROUP BY 1;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT k, count(*) FROM s WHERE k IN (SELECT k FROM tab) GROUP BY 1;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT s.k, count(*) FROM s JOIN (SELECT k FROM tab) x USING (k) GROUP BY 1;
INSERT INTO s (k) VALUES (1);
RESET ROLE;
REVOKE CREATE ON SCHEMA public FROM regress_sa_plain;
SET ROLE regress_sa_plain;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT k, count(*) FROM s GROUP BY k;
CREATE MATERIALIZED VIEW stream_agg.v WITH (stream_agg.continuous) AS SELECT k, count(*) FROM s GROUP BY k;
RESET ROLE;
REVOKE ALL ON s FROM regress_sa_plain;
DROP ROLE regress_sa_plain;

-- Nothing of all that is left.
SELECT count(*) FROM stream_agg.view_config;
SELECT count(*) FROM pg_class WHERE relnamespace = 'stream_agg'::regnamespace AND relname ~ '^(definition|state)_';
DROP VIEW s_view;
DROP FOREIGN TABLE s, s2, timeless;
DROP TABLE tab;
DROP OPERATOR === (int, int);
DROP FUNCTION vol(int);
DROP FUNCTION hidden(int);
DROP FUNCTION same(int, int);
