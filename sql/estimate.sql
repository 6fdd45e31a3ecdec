--
-- estimate_state(): groups and bytes to expect of a view, and of a query before there is one.
--
SET timezone = 'UTC';
SET datestyle = 'ISO';
SET intervalstyle = 'postgres';

-- An answer without the bytes, which differ between machines.
CREATE FUNCTION pg_temp.estimate(what text, watermark interval DEFAULT NULL, sample_rows integer DEFAULT 100000,
	OUT delay interval, OUT windows bigint, OUT groups bigint, OUT basis text) RETURNS SETOF record LANGUAGE sql AS
$$SELECT delay, windows, groups, basis FROM stream_agg.estimate_state(what, watermark, sample_rows)$$;

-- 1000 events an hour of 50 keys in turn, for six hours, of which the last one is not whole.
CREATE FOREIGN TABLE s (k int, v int, at timestamptz) SERVER stream_staged OPTIONS (event_time 'at', watermark '30 minutes');
SELECT * FROM pg_temp.estimate('SELECT k, window_start, count(*) FROM s, tumble(at, ''1 hour'') GROUP BY 1, 2');
INSERT INTO s SELECT i % 50, i, timestamptz '2024-01-01 00:00:00' + i * interval '3.6 s' FROM generate_series(0, 5999) i;
SELECT * FROM pg_temp.estimate($$SELECT k, window_start, count(*), avg(v) FROM s, tumble(at, '1 hour') GROUP BY 1, 2$$);
SELECT * FROM pg_temp.estimate($$SELECT k, window_start, count(*), avg(v) FROM s, tumble(at, '1 hour') GROUP BY 1, 2$$, '1 day');
-- Every event is in six windows.
SELECT * FROM pg_temp.estimate($$SELECT k, window_end, count(*) FROM s, hop(at, '1 hour', '10 minutes') GROUP BY 1, 2$$, '6 hours');
-- hop() where its windows are more than grouping columns.
SELECT * FROM pg_temp.estimate($$SELECT k, window_end, count(*), max(window_end - at) FROM s, hop(at, '1 hour', '10 minutes') GROUP BY 1, 2$$, '6 hours');
-- WHERE, joins, parentheses and comments.
CREATE TABLE names (k int, name text);
INSERT INTO names SELECT i % 50, 'name ' || i % 7 FROM generate_series(0, 99) i;
SELECT * FROM pg_temp.estimate($$ /* by name */ SELECT name, window_start, count(*) FROM s LEFT JOIN names USING (k), tumble(at, '1 hour')
	WHERE k < 20 GROUP BY 1, 2$$, '1 hour');
SELECT * FROM pg_temp.estimate($$(SELECT k, window_start, count(*) FROM s, tumble(at, '1 hour') GROUP BY 1, 2) -- in parentheses$$, '1 hour');
-- Sizes that are no constants: those of the window at hand.
SELECT * FROM pg_temp.estimate($$SELECT k, window_start, window_end, count(*) FROM s, tumble(at, CASE WHEN k < 100 THEN interval '2 hours' END) GROUP BY 1, 2, 3$$, '1 hour');
-- No window: groups that are never forgotten. No aggregate: no groups.
SELECT * FROM pg_temp.estimate('SELECT k, count(*) FROM s GROUP BY k');
SELECT * FROM pg_temp.estimate('SELECT count(*) FROM s');
SELECT * FROM pg_temp.estimate('SELECT k, v FROM s WHERE v > 1');
SELECT * FROM pg_temp.estimate('SELECT v, count(*) FROM s GROUP BY v', sample_rows => 100);
-- Bytes are those of the groups in memory, more for states that are larger.
SELECT bool_and(bytes = groups * (bytes / groups) + bytes % groups AND bytes / groups BETWEEN 50 AND 1000) AS sane,
	count(DISTINCT bytes / groups) = 1 AS proportional
FROM stream_agg.estimate_state($$SELECT k, window_start, count(*) FROM s, tumble(at, '1 hour') GROUP BY 1, 2$$);
SELECT a.groups = b.groups AND a.bytes < b.bytes AS larger
FROM stream_agg.estimate_state($$SELECT k, window_start, count(*) FROM s, tumble(at, '1 hour') GROUP BY 1, 2$$) a
	JOIN stream_agg.estimate_state($$SELECT k, window_start, count(*), stddev(v::numeric) FROM s, tumble(at, '1 hour') GROUP BY 1, 2$$) b USING (delay);

-- A sample that covers a part of a window: what is still to come is extrapolated. 1000 keys at random, 4000 events an hour.
CREATE FOREIGN TABLE r (k int, at timestamptz) SERVER stream_staged OPTIONS (event_time 'at');
INSERT INTO r SELECT abs(hashint4(i)) % 1000, timestamptz '2024-01-01 00:00:00' + i * interval '0.9 s' FROM generate_series(0, 19999) i;
SELECT * FROM pg_temp.estimate($$SELECT k, window_start, count(*) FROM r, tumble(at, '1 hour') GROUP BY 1, 2$$);
SELECT count(DISTINCT k) AS groups_in_an_hour FROM (SELECT k FROM r LIMIT 4000) x;
SELECT e.delay, e.windows, regexp_replace(e.basis, '\d+ %', 'part'), e.groups / e.windows BETWEEN 900 AND 1050 AS near
FROM pg_temp.estimate($$SELECT k, window_start, count(*) FROM r, tumble(at, '1 hour') GROUP BY 1, 2$$, sample_rows => 1500) e;
SELECT groups BETWEEN 900 AND 1100 AS near, basis FROM pg_temp.estimate('SELECT k, count(*) FROM r GROUP BY k', sample_rows => 1500);
-- One moment of a window.
SELECT * FROM pg_temp.estimate($$SELECT k, window_start, count(*) FROM r, tumble(at, '1 hour') GROUP BY 1, 2$$, '0', 1);

-- A view, by what it holds; before it is there for its worker, nothing.
BEGIN;
CREATE MATERIALIZED VIEW "per Hour" WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT k, window_start, count(*) AS n, avg(v) AS mean FROM s, tumble(at, '1 hour') GROUP BY k, window_start;
SELECT * FROM pg_temp.estimate('"per Hour"');
SELECT groups, windows, state_bytes, oldest_window_end FROM stream_agg.views;
COMMIT;
CALL stream_agg.run('s');
SELECT * FROM pg_temp.estimate('"per Hour"');
SELECT * FROM pg_temp.estimate('public."per Hour"', '10 hours');
SELECT e.delay, e.windows, e.groups, e.basis, e.bytes = v.state_bytes AS all_bytes FROM stream_agg.views v, stream_agg.estimate_state(v.view, '1 hour') e;
SELECT groups, windows, state_bytes > 0 AS has_bytes, state_log_bytes > 0 AS has_log, watermark, oldest_window_end FROM stream_agg.views;
-- What is open in fact, with that delay.
CREATE MATERIALIZED VIEW longer WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.watermark = '3 hours') AS
	SELECT k, window_start, count(*) AS n, avg(v) AS mean FROM s, tumble(at, '1 hour') GROUP BY k, window_start;
CREATE MATERIALIZED VIEW running WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT k, count(*) AS n FROM s GROUP BY k;
CREATE MATERIALIZED VIEW rows WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT k, v FROM s WHERE v < 10;
INSERT INTO s SELECT i % 50, i, timestamptz '2024-01-01 00:00:00' + i * interval '3.6 s' FROM generate_series(6000, 11999) i;
CALL stream_agg.run('s');
SELECT * FROM pg_temp.estimate('"per Hour"', '3 hours');
SELECT * FROM pg_temp.estimate('longer', '30 minutes');
SELECT * FROM pg_temp.estimate('running');
SELECT * FROM pg_temp.estimate('rows');
-- All windows closed.
INSERT INTO s VALUES (1, 1, '2024-01-03');
CREATE MATERIALIZED VIEW filtered WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT k, window_start, count(*) AS n FROM s, tumble(at, '1 hour') WHERE v > 1 GROUP BY k, window_start;
CALL stream_agg.run('s');
SELECT * FROM pg_temp.estimate('filtered', '1 hour');
-- No watermark: windows are never forgotten.
CREATE MATERIALIZED VIEW open WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT k, window_start, count(*) AS n FROM r, tumble(at, '1 hour') GROUP BY k, window_start;
CALL stream_agg.run('r');
SELECT * FROM pg_temp.estimate('open');

-- Rights: of a view, its owner's and administrators'; of a query, those that the query needs.
CREATE ROLE regress_sa_estimate;
SET ROLE regress_sa_estimate;
SELECT * FROM stream_agg.estimate_state('longer'::regclass);
SELECT * FROM stream_agg.estimate_state('SELECT k, count(*) FROM s GROUP BY k');
SELECT * FROM stream_agg.state_now('longer');
RESET ROLE;
GRANT SELECT (k) ON s TO regress_sa_estimate;
SET ROLE regress_sa_estimate;
SELECT groups FROM stream_agg.estimate_state('SELECT k, count(*) FROM s GROUP BY k');
SELECT groups FROM stream_agg.estimate_state($$SELECT window_start, count(*) FROM s, tumble(at, '1 hour') GROUP BY 1$$);
RESET ROLE;
GRANT stream_agg_admin TO regress_sa_estimate;
SET ROLE regress_sa_estimate;
SELECT count(*) FROM stream_agg.estimate_state('longer');
RESET ROLE;
DROP OWNED BY regress_sa_estimate;
DROP ROLE regress_sa_estimate;

-- Errors, which point into the query.
SELECT * FROM stream_agg.estimate_state('SELECT k, nothing FROM s');
SELECT * FROM stream_agg.estimate_state('SELECT k, FROM s');
SELECT * FROM stream_agg.estimate_state('SELECT k, count(*) FROM names GROUP BY k');
SELECT * FROM stream_agg.estimate_state('SELECT k, count(*), random() FROM s GROUP BY k');
SELECT * FROM stream_agg.estimate_state('SELECT 1 / (v - v), count(*) FROM s GROUP BY 1');
SELECT * FROM stream_agg.estimate_state('SELECT window_start, count(*) FROM s, LATERAL (SELECT * FROM tumble(at, ''1 hour'')) w GROUP BY 1');
SELECT * FROM stream_agg.estimate_state('SELECT 1; SELECT 2');
SELECT * FROM stream_agg.estimate_state('WITH d AS (DELETE FROM names RETURNING *) SELECT k, count(*) FROM s GROUP BY k');
SELECT * FROM stream_agg.estimate_state('nothing');
SELECT * FROM stream_agg.estimate_state('selection');
SELECT * FROM stream_agg.estimate_state('names');
SELECT * FROM stream_agg.estimate_state('DROP TABLE names');
SELECT * FROM stream_agg.estimate_state('longer', '-1 hour');
SELECT * FROM stream_agg.estimate_state('longer', '1 month');
SELECT * FROM stream_agg.estimate_state('longer', '1000000000 days');
SELECT * FROM stream_agg.estimate_state('SELECT k, count(*) FROM s GROUP BY k', sample_rows => 0);
SELECT * FROM stream_agg.estimate_state(NULL::text);
SELECT * FROM stream_agg.estimate_state(NULL::regclass);
SELECT count(*) FROM names;

SET client_min_messages = warning;
DROP FOREIGN TABLE s, r CASCADE;
DROP TABLE names;

-- Sessions: so many begin in a time, and stay for their length and the delay.  A user comes for two events every ten minutes
-- (and stays for 50 seconds), each minute another one.
CREATE FOREIGN TABLE visits (k int, at timestamptz) SERVER stream_staged OPTIONS (event_time 'at', watermark '2 minutes', max_future 'infinity');
INSERT INTO visits SELECT m % 10, '2024-01-01Z'::timestamptz + m * interval '1 minute' + e * interval '20 s'
	FROM generate_series(0, 599) m, generate_series(0, 1) e ORDER BY m, e;
CREATE FUNCTION sessions(watermark interval DEFAULT NULL, gap text DEFAULT $$'30 s'$$, OUT delay interval, OUT windows bigint, OUT groups bigint, OUT basis text)
	RETURNS SETOF record LANGUAGE sql AS $$
	SELECT delay, windows, groups, basis FROM stream_agg.estimate_state(format('SELECT k, window_start, window_end, avg(k) FROM visits, session(at, %s)
		WHERE k < 100 GROUP BY 1, 2, 3', gap), watermark)$$;
SELECT * FROM sessions();
SELECT * FROM sessions('1 hour');
SELECT * FROM sessions('1 hour', $$CASE WHEN k < 5 THEN interval '30 s' ELSE interval '-1 s' END$$);
SELECT * FROM sessions(NULL, $$interval '1 hour'$$);
CREATE MATERIALIZED VIEW visited WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT k, window_start, window_end, avg(k) FROM visits, session(at, '30 s') GROUP BY 1, 2, 3;
SELECT delay, windows, groups, basis FROM stream_agg.estimate_state('visited');
CALL stream_agg.run('visits');
SELECT delay, windows, groups, bytes > 0 AS some, basis FROM stream_agg.estimate_state('visited', '1 hour');
ALTER MATERIALIZED VIEW visited SET (stream_agg.watermark = '1 hour');
INSERT INTO visits SELECT m % 10, '2024-01-01 10:00Z'::timestamptz + m * interval '1 minute' + e * interval '20 s'
	FROM generate_series(0, 599) m, generate_series(0, 1) e ORDER BY m, e;
CALL stream_agg.run('visits');
SELECT delay, windows, groups, basis FROM stream_agg.estimate_state('visited') LIMIT 2;
SELECT * FROM sessions();
DROP FUNCTION sessions;
DROP FOREIGN TABLE visits CASCADE;

-- A group costs at most about 150 bytes beside its key and its states (eight bytes each here), wherever they go to disk.
CREATE FOREIGN TABLE many (k bigint, at timestamptz) SERVER stream_staged OPTIONS (event_time 'at', watermark '1 day', max_future 'infinity');
CREATE MATERIALIZED VIEW updated WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT window_start, k, count(*) AS n FROM many, tumble(at, '1 hour') GROUP BY 1, 2;
CREATE MATERIALIZED VIEW appended WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append') AS
	SELECT window_start, k, count(*) AS n, max(k) AS top FROM many, tumble(at, '1 hour') GROUP BY 1, 2;
CREATE MATERIALIZED VIEW unlogged WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append', stream_agg.state = 'unlogged') AS
	SELECT window_start, k, count(*) AS n, max(k) AS top FROM many, tumble(at, '1 hour') GROUP BY 1, 2;
INSERT INTO many SELECT i, '2024-01-01' FROM generate_series(1, 100000) i;
CALL stream_agg.run('many');
SELECT view, groups, state_bytes > 0 AND state_bytes / groups <= 150 + 8 + CASE view::text WHEN 'updated' THEN 8 ELSE 16 END AS small
FROM stream_agg.views ORDER BY view::text COLLATE "C";
DROP FOREIGN TABLE many CASCADE;
