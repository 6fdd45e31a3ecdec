--
-- Hopping windows in append mode, put together from panes where the aggregates combine.
--
SET timezone = 'UTC';
SET datestyle = 'ISO';
SET client_min_messages = warning;
CREATE TABLE l (id int, at timestamptz, k text, v int, f float8);
CREATE FOREIGN TABLE s (id int, at timestamptz, k text, v int, f float8) SERVER stream_staged
	OPTIONS (event_time 'at', watermark '15 minutes', max_future 'infinity');
CREATE PROCEDURE feed(first int, last int) LANGUAGE sql AS $$
	WITH x AS (INSERT INTO l SELECT i, '2024-01-01Z'::timestamptz + (i - i * 7 % 131 - CASE i % 37 WHEN 0 THEN 400 ELSE 0 END) * interval '30 seconds', nullif('k' || i % 5, 'k3'), i % 50 - 9, (i % 64) / 4.0
		FROM generate_series(first, last) i RETURNING *)
	INSERT INTO s SELECT * FROM x;
$$;
CREATE PROCEDURE stop_worker() LANGUAGE plpgsql AS $$
DECLARE
	old int[] := (SELECT array_agg(pid) FROM stream_agg.streams WHERE stream = 's'::regclass);
BEGIN
	PERFORM pg_terminate_backend(pid, 10000) FROM unnest(old) pid;
END $$;
-- The rows by which the next worker takes what this one has saved.
CREATE PROCEDURE drop_marks() LANGUAGE plpgsql AS $$
DECLARE
	spill regclass;
BEGIN
	FOR spill IN SELECT c.spill FROM stream_agg.view_config c WHERE c.spill IS NOT NULL LOOP
		EXECUTE format('DELETE FROM %s WHERE seq = 0', spill);
	END LOOP;
END $$;
-- Combine functions that are strict or not, and one that gives back what it gets; and an aggregate that has none.
CREATE FUNCTION first_arg(text, text) RETURNS text LANGUAGE sql IMMUTABLE STRICT AS 'SELECT $1';
CREATE AGGREGATE first_text(text) (sfunc = first_arg, combinefunc = first_arg, stype = text);
CREATE FUNCTION append_either(int[], int[]) RETURNS int[] LANGUAGE sql IMMUTABLE AS 'SELECT coalesce($1, ARRAY[]::int[]) || coalesce($2, ARRAY[-1])';
CREATE FUNCTION append_one(int[], int) RETURNS int[] LANGUAGE sql IMMUTABLE AS 'SELECT coalesce($1, ARRAY[]::int[]) || $2';
CREATE AGGREGATE gather(int) (sfunc = append_one, combinefunc = append_either, stype = int[]);
CREATE AGGREGATE sequence(int) (sfunc = append_one, stype = int[]);
CREATE FUNCTION sorted(int[]) RETURNS int[] LANGUAGE sql IMMUTABLE AS 'SELECT array_agg(x ORDER BY x) FROM unnest($1) x';

-- The same with panes and without, which the last aggregate keeps from being used; with batches of their own.
CREATE MATERIALIZED VIEW panes WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append', stream_agg.max_batch_rows = 17) AS
	SELECT k, window_start, window_end, count(*) AS n, count(v) FILTER (WHERE v < 0) AS few, sum(v) AS total, sum(id::bigint) AS ids, avg(v) AS mean,
		min(k || id::text) AS least, max(v) AS most, stddev(v) AS spread, sum(f) AS floats, avg(f) AS float_mean, bool_or(v > 38) AS any_high,
		sorted(gather(id)) AS all_ids, first_text(k) AS same
	FROM s, hop(at, '1 hour', '10 minutes') GROUP BY 1, 2, 3;
CREATE MATERIALIZED VIEW whole WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append', stream_agg.max_batch_rows = 100) AS
	SELECT k, window_start, window_end, count(*) AS n, count(v) FILTER (WHERE v < 0) AS few, sum(v) AS total, sum(id::bigint) AS ids, avg(v) AS mean,
		min(k || id::text) AS least, max(v) AS most, stddev(v) AS spread, sum(f) AS floats, avg(f) AS float_mean, bool_or(v > 38) AS any_high,
		sorted(sequence(id)) AS all_ids, first_text(k) AS same
	FROM s, hop(at, '1 hour', '10 minutes') GROUP BY 1, 2, 3;
-- Starts and ends that do not fall together; HAVING; a join that multiplies rows.
CREATE TABLE names (k text, name text);
INSERT INTO names VALUES ('k0', 'zero'), ('k1', 'one'), ('k1', 'eins'), ('k4', NULL);
CREATE MATERIALIZED VIEW uneven WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append', stream_agg.max_batch_rows = 11) AS
	SELECT window_end, name, count(*) AS n, avg(v) AS mean FROM s JOIN names USING (k), hop(at, '25 minutes', '10 minutes', '2001-02-03 04:05:06Z') GROUP BY 1, 2 HAVING count(*) > 3;
CREATE MATERIALIZED VIEW uneven_whole WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append') AS
	SELECT window_end, name, count(*) AS n, avg(v) AS mean FROM s JOIN names USING (k), hop(at, '25 minutes', '10 minutes', '2001-02-03 04:05:06Z') GROUP BY 1, 2 HAVING count(*) > 3 AND sequence(v) IS NOT NULL;
-- No keys, groups alone; state that is made again.
CREATE MATERIALIZED VIEW bare WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append', stream_agg.state = 'unlogged', stream_agg.max_batch_rows = 23) AS
	SELECT window_start, window_end FROM s, hop(at, '1 hour', '7 minutes') GROUP BY 1, 2;
CREATE MATERIALIZED VIEW bare_whole WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append') AS
	SELECT window_start, window_end FROM s, hop(at, '1 hour', '7 minutes') GROUP BY 1, 2 HAVING sequence(id) IS NOT NULL;
CREATE MATERIALIZED VIEW unlogged WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append', stream_agg.state = 'unlogged', stream_agg.max_batch_rows = 29) AS
	SELECT k, window_start, window_end, count(*) AS n, sum(v) AS total, avg(v) AS mean FROM s, hop(at, '1 hour', '10 minutes') GROUP BY 1, 2, 3;

CREATE FUNCTION wrong(OUT what text, OUT rows bigint) RETURNS SETOF record LANGUAGE sql AS $$
	SELECT 'panes', count(*) FROM ((TABLE panes EXCEPT ALL TABLE whole) UNION ALL (TABLE whole EXCEPT ALL TABLE panes)) x
	UNION ALL SELECT 'uneven', count(*) FROM ((TABLE uneven EXCEPT ALL TABLE uneven_whole) UNION ALL (TABLE uneven_whole EXCEPT ALL TABLE uneven)) x
	UNION ALL SELECT 'bare', count(*) FROM ((TABLE bare EXCEPT ALL TABLE bare_whole) UNION ALL (TABLE bare_whole EXCEPT ALL TABLE bare)) x
	UNION ALL SELECT 'unlogged', count(*) FROM (SELECT k, window_start, window_end, n, total, mean FROM whole EXCEPT ALL TABLE unlogged) x
	UNION ALL SELECT 'counters', count(DISTINCT (read, late, accepted, late_windows)) - 1 FROM stream_agg.views WHERE view::text IN ('panes', 'whole', 'unlogged')
	UNION ALL SELECT 'counters', count(DISTINCT (read, filtered, late, accepted, late_windows)) - 1 FROM stream_agg.views WHERE view::text LIKE 'uneven%'
	UNION ALL SELECT 'dead letters', count(*) FROM (SELECT event FROM stream_agg.dead_letters WHERE view = 'panes'::regclass EXCEPT ALL
		SELECT event FROM stream_agg.dead_letters WHERE view = 'whole'::regclass) x
$$;
SELECT v.view, line FROM stream_agg.views v, stream_agg.explain(v.view) line WHERE line LIKE 'Window%' ORDER BY v.view::text COLLATE "C";
CALL feed(1, 400);
CALL stream_agg.run('s');
SELECT * FROM wrong();
SELECT view, read, late, late_windows, groups > 0 AS open, oldest_window_end FROM stream_agg.views ORDER BY view::text COLLATE "C";
SELECT count(*), min(window_end), max(window_end) FROM panes;
-- After restarts in order, and when memory is lost.
CALL stop_worker();
CALL feed(401, 650);
CALL stream_agg.run('s');
SELECT * FROM wrong();
CALL stop_worker();
CALL drop_marks();
CALL feed(651, 900);
CALL stream_agg.run('s');
SELECT * FROM wrong();
-- State comes to lie elsewhere, and comes back.
ALTER CONTINUOUS VIEW panes SET (state = unlogged);
CALL feed(901, 1000);
CALL stream_agg.run('s');
CALL stop_worker();
CALL drop_marks();
CALL feed(1001, 1100);
CALL stream_agg.run('s');
ALTER CONTINUOUS VIEW panes SET (state = heap);
CALL feed(1101, 1200);
CALL stream_agg.run('s');
CALL stop_worker();
SELECT * FROM wrong();
SELECT delay, basis, windows FROM stream_agg.estimate_state('panes') OFFSET 1;
-- An administrator moves the watermark: to the end of a window, and into one.
SELECT stream_agg.advance_watermark(v, '2024-01-01 10:20:00') FROM unnest('{panes,whole,unlogged}'::regclass[]) v;
CALL stream_agg.run('s');
SELECT stream_agg.advance_watermark(v, '2024-01-01 10:25:00') FROM unnest('{panes,whole,unlogged}'::regclass[]) v;
CALL stream_agg.run('s');
CALL feed(1201, 1300);
CALL stream_agg.run('s');
SELECT * FROM wrong();
-- With an aggregate that does not combine panes become whole windows, and those stay what they are when it goes again.
ALTER CONTINUOUS VIEW unlogged SET (state = heap);
CALL stream_agg.run('s');
ALTER CONTINUOUS VIEW unlogged AS SELECT k, window_start, window_end, count(*) AS n, sum(v) AS total, avg(v) AS mean, array_length(sequence(id), 1) AS length
	FROM s, hop(at, '1 hour', '10 minutes') GROUP BY 1, 2, 3;
CALL feed(1301, 1350);
CALL stream_agg.run('s');
ALTER CONTINUOUS VIEW unlogged AS SELECT k, window_start, window_end, count(*) AS n, sum(v) AS total, avg(v) AS mean
	FROM s, hop(at, '1 hour', '10 minutes') GROUP BY 1, 2, 3;
CALL feed(1351, 1400);
INSERT INTO s VALUES (0, '2024-01-05', 'end', 0, 0);
CALL stream_agg.run('s');
SELECT * FROM wrong();
SELECT view, windows, groups, oldest_window_end FROM stream_agg.views ORDER BY view::text COLLATE "C";
DROP FOREIGN TABLE s CASCADE;
DROP TABLE l;

-- An event can be late for some of its windows, which close with the same batch: 10:06 is for those that end by 10:40.
CREATE FOREIGN TABLE s (id int, at timestamptz, f float8) SERVER stream_staged OPTIONS (event_time 'at', watermark '0', max_future 'infinity');
CREATE MATERIALIZED VIEW panes WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append') AS
	SELECT window_end, count(*) AS n, sum(id) AS ids FROM s, hop(at, '1 hour', '20 minutes') GROUP BY 1;
INSERT INTO s VALUES (1, '2024-01-01 10:05'), (2, '2024-01-01 10:45'), (4, '2024-01-01 10:06'), (8, '2024-01-01 11:30'), (16, '2024-01-01 10:07'), (32, '2024-01-01 10:59');
CALL stream_agg.run('s');
SELECT * FROM panes ORDER BY 1;
SELECT read, accepted, late, late_windows, groups, windows, oldest_window_end FROM stream_agg.views;
SELECT event ->> 'id' AS late FROM stream_agg.dead_letters;
INSERT INTO s VALUES (64, '2024-01-02');
CALL stream_agg.run('s');
SELECT * FROM panes ORDER BY 1;
-- Sums of floats are sums of panes: of those before a block of 40 minutes ends from the back, and of those behind it.
CREATE MATERIALIZED VIEW floats WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append', stream_agg.start = 'latest') AS
	SELECT window_start, sum(f) AS total FROM s, hop(at, '50 minutes', '20 minutes') GROUP BY 1;
-- To the last bit the same, and with keys spelled the same, whether windows close one by one or all together.
CREATE MATERIALIZED VIEW one_by_one WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append', stream_agg.start = 'latest', stream_agg.max_batch_rows = 3) AS
	SELECT window_start, CASE id % 4 WHEN 0 THEN 1.0 WHEN 1 THEN 1.00 ELSE 1.000 END AS key, sum(f) AS total, stddev(f) AS spread FROM s, hop(at, '1 hour', '2 minutes') GROUP BY 1, 2;
CREATE MATERIALIZED VIEW together WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append', stream_agg.start = 'latest') AS
	SELECT window_start, CASE id % 4 WHEN 0 THEN 1.0 WHEN 1 THEN 1.00 ELSE 1.000 END AS key, sum(f) AS total, stddev(f) AS spread FROM s, hop(at, '1 hour', '2 minutes') GROUP BY 1, 2;
CALL stream_agg.run('s');
INSERT INTO s SELECT i, timestamptz '2024-01-03' + i * interval '1 minute', sqrt(i) * (1 - i % 2 * 2) * 1e6 ^ (i % 3) FROM generate_series(0, 299) i;
INSERT INTO s VALUES (64, '2024-01-04');
CALL stream_agg.run('s');
SELECT count(*), count(*) FILTER (WHERE total = wanted) AS equal FROM floats f, LATERAL (
	SELECT coalesce(sum(part ORDER BY pane DESC) FILTER (WHERE before) + sum(part ORDER BY pane) FILTER (WHERE NOT before), sum(part ORDER BY pane DESC) FILTER (WHERE before),
		sum(part ORDER BY pane) FILTER (WHERE NOT before)) AS wanted
	FROM (SELECT (i + 10) / 20 + (i + 20) / 20 AS pane, at < date_bin('40 minutes', window_start + interval '39 minutes', '1970-01-01Z') AS before,
			sum(sqrt(i) * (1 - i % 2 * 2) * 1e6 ^ (i % 3) ORDER BY i) AS part
		FROM generate_series(0, 299) i, LATERAL (SELECT timestamptz '2024-01-03' + i * interval '1 minute') a (at)
		WHERE at >= window_start AND at < window_start + interval '50 minutes' GROUP BY 1, 2) x) w;
SELECT count(*), count(DISTINCT a.key::text) AS spellings, bool_and(a::text = b::text) AS same FROM one_by_one a FULL JOIN together b USING (window_start);
-- No panes: of windows by the calendar, or of one slide, or where they are more than groups, and in update mode.
CREATE MATERIALIZED VIEW months WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append') AS
	SELECT window_start, window_end, count(*) AS n FROM s, hop(at, '2 months', '1 month') GROUP BY 1, 2;
CREATE MATERIALIZED VIEW single WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append') AS
	SELECT window_start, window_end, count(*) AS n FROM s, hop(at, '1 hour', '1 hour') GROUP BY 1, 2;
CREATE MATERIALIZED VIEW filtered WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append') AS
	SELECT window_start, window_end, count(*) AS n FROM s, hop(at, '1 hour', '20 minutes') WHERE at > window_start GROUP BY 1, 2;
CREATE MATERIALIZED VIEW updated WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT window_start, window_end, count(*) AS n FROM s, hop(at, '1 hour', '20 minutes') GROUP BY 1, 2;
SELECT v.view, line FROM stream_agg.views v, stream_agg.explain(v.view) line WHERE line LIKE 'Window%' ORDER BY v.view::text COLLATE "C";
DROP FOREIGN TABLE s CASCADE;

-- More groups than memory should hold, which are combined in parts.
ALTER SYSTEM SET stream_agg.state_memory = '64kB';
SELECT pg_reload_conf();
CREATE FOREIGN TABLE s (id int, at timestamptz) SERVER stream_staged OPTIONS (event_time 'at', watermark '0', max_future 'infinity');
CREATE MATERIALIZED VIEW many WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append', stream_agg.max_batch_rows = 2500) AS
	SELECT window_start, rpad((id % 3001)::text, 600) AS wide, count(*) AS n, avg(id) AS mean FROM s, hop(at, '1 hour', '20 minutes') GROUP BY 1, 2;
INSERT INTO s SELECT i, timestamptz '2024-01-01' + i * interval '0.6 seconds' FROM generate_series(0, 11999) i;
INSERT INTO s VALUES (0, '2024-01-02');
CALL stream_agg.run('s');
SELECT window_start, count(*), sum(n), (SELECT count(*) FROM (SELECT rpad((id % 3001)::text, 600), count(*), avg(id) FROM generate_series(0, 11999) id
	WHERE timestamptz '2024-01-01' + id * interval '0.6 seconds' >= window_start AND timestamptz '2024-01-01' + id * interval '0.6 seconds' < window_start + interval '1 hour'
	GROUP BY 1 EXCEPT ALL SELECT wide, n, mean FROM many m WHERE m.window_start = many.window_start) x) AS wrong FROM many GROUP BY 1 ORDER BY 1;
ALTER SYSTEM RESET stream_agg.state_memory;
SELECT pg_reload_conf();
DROP FOREIGN TABLE s CASCADE;
DROP FUNCTION wrong;
DROP PROCEDURE feed, stop_worker, drop_marks;
DROP AGGREGATE first_text(text), gather(int), sequence(int);
DROP FUNCTION first_arg, append_either, append_one, sorted;
DROP TABLE names;
