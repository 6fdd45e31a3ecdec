--
-- Output mode complete: no group is ever forgotten, and nothing is late.
--
SET timezone = 'UTC';
SET datestyle = 'ISO';
SET client_min_messages = warning;
CREATE TABLE l (k int, v int, at timestamptz);
CREATE FOREIGN TABLE s (k int, v int, at timestamptz) SERVER stream_staged
	OPTIONS (event_time 'at', watermark '0', max_future 'infinity', idle_timeout '1 hour');
CREATE PROCEDURE feed(first int, last int) LANGUAGE sql AS $$
	WITH x AS (INSERT INTO l SELECT i % 4, i % 50, '2024-01-01Z'::timestamptz + i * 7919 % 86400 * interval '1 second'
		FROM generate_series(first, last) i RETURNING *)
	INSERT INTO s SELECT * FROM x;
$$;
CREATE PROCEDURE stop_worker() LANGUAGE plpgsql AS $$
DECLARE
	old int[] := (SELECT array_agg(pid) FROM stream_agg.streams WHERE stream = 's'::regclass);
BEGIN
	PERFORM pg_terminate_backend(pid, 10000) FROM unnest(old) pid;
END $$;
-- States in the log; rows that come and go; states in the rows themselves, with a clock that goes on.
CREATE MATERIALIZED VIEW tumbled WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'complete') AS
	SELECT k, window_start, count(*) AS n, avg(v) AS mean FROM s, tumble(at, '1 hour') GROUP BY k, window_start;
CREATE MATERIALIZED VIEW hopped WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'complete', stream_agg.max_batch_rows = 7) AS
	SELECT window_start, count(*) AS n, sum(v) AS total FROM s, hop(at, '3 hours', '1 hour') GROUP BY 1 HAVING count(*) > 2;
CREATE MATERIALIZED VIEW simple WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'complete', stream_agg.on_idle = 'advance') AS
	SELECT window_end, count(*) AS n, max(v) AS most FROM s, cumulate(at, '6 hours', '1 day') GROUP BY 1;
CREATE MATERIALIZED VIEW visits WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'complete') AS
	SELECT k, window_start, window_end, count(*) AS n, avg(v) AS mean FROM s, session(at, '10 minutes') GROUP BY k, window_start, window_end;
CREATE VIEW all_visits AS
	SELECT k, min(at) AS window_start, max(at) + interval '10 minutes' AS window_end, count(*) AS n, avg(v) AS mean
	FROM (SELECT *, count(*) FILTER (WHERE begins) OVER (PARTITION BY k ORDER BY at ROWS UNBOUNDED PRECEDING) AS visit
		FROM (SELECT *, at > lag(at) OVER (PARTITION BY k ORDER BY at) + interval '10 minutes' AS begins FROM l) x) x
	GROUP BY k, visit;
-- Rows that differ between a view and its SELECT over all events.
CREATE FUNCTION wrong(OUT view text, OUT rows bigint) RETURNS SETOF record LANGUAGE sql AS $$
	SELECT 'tumbled', count(*) FROM (
		(TABLE tumbled EXCEPT ALL SELECT k, window_start, count(*), avg(v) FROM l, tumble(at, '1 hour') GROUP BY k, window_start) UNION ALL
		(SELECT k, window_start, count(*), avg(v) FROM l, tumble(at, '1 hour') GROUP BY k, window_start EXCEPT ALL TABLE tumbled)) x
	UNION ALL SELECT 'hopped', count(*) FROM (
		(TABLE hopped EXCEPT ALL SELECT window_start, count(*), sum(v) FROM l, hop(at, '3 hours', '1 hour') GROUP BY 1 HAVING count(*) > 2) UNION ALL
		(SELECT window_start, count(*), sum(v) FROM l, hop(at, '3 hours', '1 hour') GROUP BY 1 HAVING count(*) > 2 EXCEPT ALL TABLE hopped)) x
	UNION ALL SELECT 'simple', count(*) FROM (
		(TABLE simple EXCEPT ALL SELECT window_end, count(*), max(v) FROM l, cumulate(at, '6 hours', '1 day') GROUP BY 1) UNION ALL
		(SELECT window_end, count(*), max(v) FROM l, cumulate(at, '6 hours', '1 day') GROUP BY 1 EXCEPT ALL TABLE simple)) x
	UNION ALL SELECT 'visits', count(*) FROM ((TABLE visits EXCEPT ALL TABLE all_visits) UNION ALL (TABLE all_visits EXCEPT ALL TABLE visits)) x
$$;
CALL feed(1, 200);
CALL stream_agg.run('s');
SELECT * FROM wrong();
-- However late, and after a restart; a year later, and back again.
CALL stop_worker();
CALL feed(201, 300);
INSERT INTO s SELECT 1, 1, '2025-01-01';
INSERT INTO l SELECT 1, 1, '2025-01-01';
CALL stream_agg.run('s');
CALL stop_worker();
CALL feed(301, 400);
CALL stream_agg.run('s');
SELECT * FROM wrong();
SELECT view, output_mode, watermark, read, accepted, late, late_windows, windows, groups FROM stream_agg.views ORDER BY view::text COLLATE "C";
SELECT count(*) FROM stream_agg.dead_letters;
-- Nor is anything forgotten by an administrator's word.
SELECT stream_agg.advance_watermark('tumbled', '2026-01-01');
CALL stream_agg.run('tumbled');
CALL feed(401, 410);
CALL stream_agg.run('s');
SELECT * FROM wrong();
SELECT view, watermark, late, windows FROM stream_agg.views ORDER BY view::text COLLATE "C";
-- Another query over the same groups.
ALTER CONTINUOUS VIEW tumbled AS SELECT k, window_start, count(*) AS n, avg(v) AS mean, max(v) AS most FROM s, tumble(at, '1 hour') GROUP BY k, window_start;
CALL feed(411, 420);
CALL stream_agg.run('s');
SELECT count(*) FROM (SELECT k, window_start, n, mean FROM tumbled EXCEPT ALL
	SELECT k, window_start, count(*), avg(v) FROM l, tumble(at, '1 hour') GROUP BY k, window_start) x;
-- Its state cannot be made again by reading again.
ALTER CONTINUOUS VIEW tumbled SET (state = unlogged);
SELECT delay, windows, basis FROM stream_agg.estimate_state('tumbled');
SELECT line FROM stream_agg.explain('tumbled') WITH ORDINALITY e (line, n) WHERE n <= 3;
DROP FOREIGN TABLE s CASCADE;
DROP FUNCTION wrong;
DROP VIEW all_visits;
DROP PROCEDURE feed, stop_worker;
DROP TABLE l;
