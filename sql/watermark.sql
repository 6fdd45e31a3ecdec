--
-- The watermark: how it moves, who moves it, and what is late
--
SET client_min_messages = warning;
CREATE FOREIGN TABLE s (id int, at timestamptz) SERVER stream_staged
	OPTIONS (event_time 'at', watermark '0', max_future 'infinity');
CREATE PROCEDURE wait_for(condition text) LANGUAGE plpgsql AS $$
DECLARE
	met boolean;
BEGIN
	FOR i IN 1 .. 3000 LOOP
		EXECUTE condition INTO met;
		EXIT WHEN met;
		COMMIT;
		PERFORM pg_sleep(0.02);
	END LOOP;
	IF met IS NOT TRUE THEN
		RAISE EXCEPTION 'timed out waiting for: %', condition;
	END IF;
END $$;
-- As if the worker had lost its memory.
CREATE PROCEDURE lose_state() LANGUAGE plpgsql AS $$
DECLARE
	old int[] := (SELECT array_agg(pid) FROM stream_agg.streams WHERE stream = 's'::regclass);
BEGIN
	PERFORM pg_terminate_backend(pid, 10000) FROM unnest(old) pid;
END $$;

--
-- advance_watermark: a batch of no events comes by itself, whatever the trigger
--
CREATE MATERIALIZED VIEW at_once WITH (stream_agg.continuous, stream_agg.output_mode = 'append') AS
	SELECT window_start, count(*) AS n FROM s, tumble(at, '10 minutes') GROUP BY window_start;
CREATE MATERIALIZED VIEW on_call WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.trigger = 'manual') AS
	SELECT window_start, count(*) AS n FROM s, tumble(at, '10 minutes') GROUP BY window_start;
CREATE MATERIALIZED VIEW hourly WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.trigger = '1 hour') AS
	SELECT window_start, count(*) AS n FROM s, tumble(at, '10 minutes') GROUP BY window_start;
INSERT INTO s VALUES (1, '2024-01-01 12:01Z'), (2, '2024-01-01 12:12Z'), (3, '2024-01-01 12:13Z');
CALL stream_agg.run('s');
TABLE at_once;
SELECT stream_agg.advance_watermark(view, '2024-01-01 12:20Z') FROM stream_agg.views;
CALL wait_for($$SELECT count(*) = 3 FROM stream_agg.watermark_advances WHERE taken_at IS NOT NULL$$);
SELECT 'at_once' AS view, * FROM at_once UNION ALL SELECT 'on_call', * FROM on_call UNION ALL SELECT 'hourly', * FROM hourly ORDER BY 1, 2;
SELECT view, watermark, read, accepted FROM stream_agg.views ORDER BY view::text;
SELECT view, watermark, asked_by = current_user AS mine, taken_at >= asked_at AS taken, watermark_before
FROM stream_agg.watermark_advances ORDER BY view::text;
-- behind it events are late; those at it are not, and it does not go back
SELECT stream_agg.advance_watermark('at_once', '2024-01-01 12:05Z');
INSERT INTO s VALUES (4, '2024-01-01 12:19:59Z'), (5, '2024-01-01 12:20Z');
CALL stream_agg.run('s');
SELECT view, watermark, read, accepted, late FROM stream_agg.views ORDER BY view::text;
SELECT view, event ->> 'id' AS id, message FROM stream_agg.dead_letters ORDER BY view::text;
SELECT watermark, watermark_before FROM stream_agg.watermark_advances WHERE view = 'at_once'::regclass ORDER BY asked_at;
-- what a view with a trigger reads by itself is read first
INSERT INTO s VALUES (6, '2024-01-01 12:21Z');
SELECT stream_agg.advance_watermark('at_once', '2024-01-01 12:30Z');
SELECT stream_agg.advance_watermark('hourly', '2024-01-01 12:30Z');
CALL wait_for($$SELECT count(*) FILTER (WHERE taken_at IS NULL) = 0 FROM stream_agg.watermark_advances$$);
SELECT view, watermark, read, late FROM stream_agg.views ORDER BY view::text;
SELECT 'at_once' AS view, * FROM at_once UNION ALL SELECT 'hourly', * FROM hourly ORDER BY 1, 2;
-- transactional
BEGIN;
SELECT stream_agg.advance_watermark('on_call', '2024-01-01 13:00Z');
SELECT stream_agg.advance_watermark('on_call', '2024-01-01 14:00Z');
ROLLBACK;
CALL stream_agg.run('s');
SELECT watermark FROM stream_agg.views WHERE view = 'on_call'::regclass;
-- a paused view takes it when resumed; run() comes after what was asked for
SELECT stream_agg.pause('on_call');
SELECT stream_agg.advance_watermark('on_call', '2024-01-01 12:31Z');
SELECT count(*) FROM stream_agg.watermark_advances WHERE taken_at IS NULL;
SELECT stream_agg.resume('on_call');
CALL stream_agg.run('on_call');
SELECT watermark, read FROM stream_agg.views WHERE view = 'on_call'::regclass;
SELECT count(*) FROM stream_agg.watermark_advances WHERE taken_at IS NULL;
-- one that begins anew knows nothing of it
BEGIN;
SELECT stream_agg.advance_watermark('on_call', '2024-01-01 15:00Z');
SELECT stream_agg.reset('on_call');
COMMIT;
CALL stream_agg.run('on_call');
SELECT watermark, read, late FROM stream_agg.views WHERE view = 'on_call'::regclass;
-- refusals
\set VERBOSITY terse
SELECT stream_agg.advance_watermark('at_once', 'infinity');
SELECT stream_agg.advance_watermark('at_once', '-infinity');
SELECT stream_agg.advance_watermark('s', '2024-01-01 15:00Z');
CREATE FOREIGN TABLE timeless (id int, at timestamptz) SERVER stream_staged OPTIONS (event_time 'at');
CREATE MATERIALIZED VIEW open WITH (stream_agg.continuous) AS
	SELECT window_start, count(*) AS n FROM timeless, tumble(at, '10 minutes') GROUP BY window_start;
SELECT stream_agg.advance_watermark('open', '2024-01-01 15:00Z');
DROP FOREIGN TABLE timeless CASCADE;
CREATE ROLE stranger;
GRANT SELECT ON at_once TO stranger;
SET ROLE stranger;
SELECT stream_agg.advance_watermark('at_once', '2024-01-01 15:00Z');
SELECT count(*) FROM stream_agg.watermark_advances;
SELECT count(*) FROM stream_agg.watermark_advance;
RESET ROLE;
GRANT stream_agg_admin TO stranger;
SET ROLE stranger;
SELECT stream_agg.advance_watermark('at_once', '2024-01-01 12:32Z');
RESET ROLE;
\set VERBOSITY default
CALL stream_agg.run('at_once');
SELECT watermark FROM stream_agg.views WHERE view = 'at_once'::regclass;
SELECT asked_by FROM stream_agg.watermark_advances WHERE view = 'at_once'::regclass ORDER BY asked_at DESC LIMIT 1;
DROP OWNED BY stranger;
DROP ROLE stranger;
-- a year that was mistyped can be taken back; where events of any time are believed nobody is warned
SET timezone = 'UTC';
BEGIN;
SELECT stream_agg.advance_watermark('at_once', '2420-01-01 12:00Z');
ALTER FOREIGN TABLE s OPTIONS (SET max_future '1 day');
SELECT stream_agg.advance_watermark('at_once', '2420-01-01 12:00Z');
SELECT stream_agg.advance_watermark('at_once', '2024-01-01 12:32Z');
SELECT stream_agg.advance_watermark('at_once', now() + interval '23 hours');
ROLLBACK;
RESET timezone;
-- the last ones are kept
DO $$ BEGIN FOR i IN 1 .. 120 LOOP PERFORM stream_agg.advance_watermark('at_once', '2024-01-01 12:32Z'::timestamptz + i * interval '1 second'); END LOOP; END $$;
CALL stream_agg.run('at_once');
DO $$ BEGIN FOR i IN 1 .. 120 LOOP PERFORM stream_agg.advance_watermark('at_once', '2024-01-01 12:34Z'::timestamptz + i * interval '1 second'); END LOOP; END $$;
CALL stream_agg.run('at_once');
SELECT count(*), count(taken_at) AS taken, max(watermark) FROM stream_agg.watermark_advances WHERE view = 'at_once'::regclass;
-- one that has come to its end can still be closed, and a dropped one leaves nothing
CREATE MATERIALIZED VIEW ended WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg."end" = 'latest') AS
	SELECT window_start, count(*) AS n FROM s, tumble(at, '10 minutes') GROUP BY window_start;
CALL wait_for($$SELECT status = 'finished' FROM stream_agg.views WHERE view = 'ended'::regclass$$);
TABLE ended;
SELECT stream_agg.advance_watermark('ended', '2024-01-01 12:30Z');
CALL wait_for($$SELECT count(*) = 3 FROM ended$$);
TABLE ended;
SELECT status, watermark FROM stream_agg.views WHERE view = 'ended'::regclass;
DROP MATERIALIZED VIEW at_once, on_call, hourly, ended;
SELECT count(*) FROM stream_agg.watermark_advance;
DROP FOREIGN TABLE s CASCADE;

--
-- The same events are accepted when unlogged state is made again
--
CREATE FOREIGN TABLE s (id int, at timestamptz) SERVER stream_staged
	OPTIONS (event_time 'at', watermark '10 minutes', max_future 'infinity');
CREATE TABLE l (id int, at timestamptz, floor timestamptz);
CREATE PROCEDURE feed(first int, last int) LANGUAGE sql AS $$
	WITH x AS (INSERT INTO l SELECT i, '2024-01-01Z'::timestamptz + (i - i * 7 % 41) * interval '20 seconds',
			(SELECT max(watermark) FROM stream_agg.views)
		FROM generate_series(first, last) i RETURNING *)
	INSERT INTO s SELECT id, at FROM x;
$$;
CREATE MATERIALIZED VIEW heap WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.trigger = 'manual') AS
	SELECT window_start, window_end, count(*) AS n, avg(id) AS mean FROM s, hop(at, '10 minutes', '2 minutes')
	GROUP BY window_start, window_end;
CREATE MATERIALIZED VIEW unlogged WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.trigger = 'manual',
	stream_agg.state = 'unlogged') AS
	SELECT window_start, window_end, count(*) AS n, avg(id) AS mean FROM s, hop(at, '10 minutes', '2 minutes')
	GROUP BY window_start, window_end;
CREATE VIEW answer AS
	SELECT window_start, window_end, count(*), avg(id) FROM (SELECT *,
			greatest(floor, max(at) OVER (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) - interval '10 minutes') AS bound FROM l) e,
		hop(at, '10 minutes', '2 minutes')
	WHERE bound IS NULL OR window_end > bound GROUP BY 1, 2
	HAVING window_end <= (SELECT min(watermark) FROM stream_agg.views);
CREATE VIEW differences AS
	SELECT (SELECT count(*) FROM ((TABLE answer EXCEPT ALL TABLE heap) UNION ALL (TABLE heap EXCEPT ALL TABLE answer)) x) AS heap,
		(SELECT count(*) FROM ((TABLE answer EXCEPT ALL TABLE unlogged) UNION ALL (TABLE unlogged EXCEPT ALL TABLE answer)) x) AS unlogged,
		(SELECT count(*) > 0 FROM heap) AS rows, (SELECT min(late_windows) = max(late_windows) FROM stream_agg.views) AS equal;
CREATE PROCEDURE advance(ahead interval) LANGUAGE sql AS $$
	SELECT stream_agg.advance_watermark(view, (SELECT max(at) FROM l) + ahead) FROM stream_agg.views;
$$;
CALL feed(1, 100);
CALL stream_agg.run('s');
CALL advance('-5 minutes');
CALL stream_agg.run('s');
SELECT max(stream_agg.to_time(floor)) = (SELECT max(watermark) FROM stream_agg.views) AS kept FROM stream_agg.view_rebuild;
CALL feed(101, 150);
CALL stream_agg.run('s');
CALL lose_state();
CALL feed(151, 200);
CALL stream_agg.run('s');
TABLE differences;
-- twice at the same place, and while state is lost
CALL advance('-8 minutes');
CALL advance('-2 minutes');
CALL lose_state();
CALL stream_agg.run('s');
CALL feed(201, 260);
CALL stream_agg.run('s');
CALL lose_state();
CALL advance('1 minute');
CALL stream_agg.run('s');
CALL feed(261, 300);
CALL stream_agg.run('s');
CALL lose_state();
CALL feed(301, 600);
CALL stream_agg.run('s');
TABLE differences;
SELECT max(late_windows) > 20 AS late FROM stream_agg.views;
DROP FOREIGN TABLE s CASCADE;

--
-- on_idle = 'advance': the last windows of a stream that fell silent close
--
CREATE FOREIGN TABLE s (id int, at timestamptz) SERVER stream_staged
	OPTIONS (event_time 'at', watermark '500 ms', idle_timeout '100 ms', max_future 'infinity');
CREATE MATERIALIZED VIEW goes_on WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.on_idle = 'advance') AS
	SELECT window_start, count(*) AS n, avg(id) AS mean FROM s, tumble(at, '1 second') GROUP BY window_start;
CREATE MATERIALIZED VIEW unlogged WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.on_idle = 'advance',
	stream_agg.state = 'unlogged') AS
	SELECT window_start, count(*) AS n, avg(id) AS mean FROM s, tumble(at, '1 second') GROUP BY window_start;
CREATE MATERIALIZED VIEW on_call WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.on_idle = 'advance',
	stream_agg.trigger = 'manual') AS
	SELECT window_start, count(*) AS n, avg(id) AS mean FROM s, tumble(at, '1 second') GROUP BY window_start;
CREATE MATERIALIZED VIEW now_and_then WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.on_idle = 'advance',
	stream_agg.trigger = '200 ms') AS
	SELECT window_start, count(*) AS n, avg(id) AS mean FROM s, tumble(at, '1 second') GROUP BY window_start;
CREATE MATERIALIZED VIEW holds WITH (stream_agg.continuous, stream_agg.output_mode = 'append') AS
	SELECT window_start, count(*) AS n, avg(id) AS mean FROM s, tumble(at, '1 second') GROUP BY window_start;
CREATE MATERIALIZED VIEW patient WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.on_idle = 'advance',
	stream_agg.idle_timeout = '1 day') AS
	SELECT window_start, count(*) AS n, avg(id) AS mean FROM s, tumble(at, '1 second') GROUP BY window_start;
-- nothing yet: no time to go on from
CALL stream_agg.run('s');
SELECT count(watermark) FROM stream_agg.views;
-- a lone tail of four rows, and silence
INSERT INTO s VALUES (1, '2024-01-01 12:00:00.1Z'), (2, '2024-01-01 12:00:00.4Z'), (3, '2024-01-01 12:00:01.2Z'), (4, '2024-01-01 12:00:01.9Z');
CALL wait_for('SELECT count(*) = 2 FROM goes_on');
CALL wait_for('SELECT count(*) = 2 FROM unlogged');
CALL wait_for('SELECT count(*) = 2 FROM now_and_then');
CREATE PROCEDURE ask_for(view regclass, rows int) LANGUAGE plpgsql AS $$
DECLARE
	got int;
BEGIN
	FOR i IN 1 .. 3000 LOOP
		EXECUTE format('SELECT count(*) FROM %s', view) INTO got;
		EXIT WHEN got >= rows;
		COMMIT;
		CALL stream_agg.run(view);
		PERFORM pg_sleep(0.02);
	END LOOP;
END $$;
CALL ask_for('on_call', 2);
SELECT 'goes_on' AS view, * FROM goes_on UNION ALL SELECT 'unlogged', * FROM unlogged UNION ALL SELECT 'on_call', * FROM on_call
UNION ALL SELECT 'now_and_then', * FROM now_and_then ORDER BY 1, 2;
TABLE holds;
TABLE patient;
SELECT view, watermark >= '2024-01-01 12:00:02Z' AS gone_on FROM stream_agg.views ORDER BY view::text;
-- what comes behind it is late, and what comes before is not, also after a restart
CALL lose_state();
INSERT INTO s VALUES (5, '2024-01-01 12:00:01.95Z'), (6, '2024-01-01 13:00:00.2Z');
CALL stream_agg.run('s');
SELECT view, read, accepted, late FROM stream_agg.views ORDER BY view::text;
CALL wait_for('SELECT count(*) = 3 FROM goes_on');
CALL wait_for('SELECT count(*) = 3 FROM unlogged');
CALL wait_for('SELECT count(*) = 3 FROM now_and_then');
TABLE goes_on;
TABLE unlogged;
TABLE patient;
-- state that is lost while the stream is silent
INSERT INTO s VALUES (7, '2024-01-01 14:00:00.2Z'), (8, '2024-01-01 14:00:00.3Z');
CALL stream_agg.run('unlogged');
CALL lose_state();
CALL wait_for('SELECT count(*) = 4 FROM goes_on');
CALL wait_for('SELECT count(*) = 4 FROM unlogged');
SELECT * FROM unlogged ORDER BY window_start DESC LIMIT 1;
-- changed while the view lives
ALTER MATERIALIZED VIEW holds SET (stream_agg.on_idle = 'advance');
CALL wait_for('SELECT count(*) = 4 FROM holds');
ALTER MATERIALIZED VIEW holds RESET (stream_agg.on_idle);
\set VERBOSITY terse
ALTER MATERIALIZED VIEW holds SET (stream_agg.on_idle = 'advance', stream_agg.idle_timeout = '0');
ALTER MATERIALIZED VIEW holds SET (stream_agg.on_idle = 'sometimes');
ALTER FOREIGN TABLE s OPTIONS (DROP idle_timeout);
CREATE FOREIGN TABLE timeless (id int, at timestamptz) SERVER stream_staged OPTIONS (event_time 'at', idle_timeout '1 s');
CREATE MATERIALIZED VIEW open WITH (stream_agg.continuous, stream_agg.on_idle = 'advance') AS
	SELECT window_start, count(*) AS n FROM timeless, tumble(at, '10 minutes') GROUP BY window_start;
\set VERBOSITY default
DROP FOREIGN TABLE timeless;
DROP FOREIGN TABLE s CASCADE;

--
-- Traps
--
SET timezone = 'UTC';
SET datestyle = 'ISO';
CREATE AGGREGATE ids(int) (sfunc = array_append, stype = int[], initcond = '{}');
CREATE AGGREGATE ids(text) (sfunc = array_append, stype = text[], initcond = '{}');
CREATE VIEW counts AS SELECT view, watermark, read, null_time, future, filtered, late, accepted FROM stream_agg.views ORDER BY view::text COLLATE "C";

-- the edges of what a time can be: a watermark before all time is none
CREATE FOREIGN TABLE s (id int, at timestamptz) SERVER stream_staged OPTIONS (event_time 'at', watermark '1 day', max_future 'infinity');
CREATE MATERIALIZED VIEW edges WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.trigger = 'manual') AS
	SELECT window_end, ids(id) FROM s, tumble(at, '7 days') GROUP BY window_end;
INSERT INTO s VALUES (1, '4714-11-24 00:00:00 BC');
CALL stream_agg.run('s');
TABLE counts;
SELECT watermark FROM stream_agg.progress WHERE view = 'edges'::regclass ORDER BY finished_at DESC LIMIT 1;
INSERT INTO s VALUES (2, '2024-01-01'), (3, '294276-12-20');
CALL stream_agg.run('s');
SELECT * FROM edges ORDER BY 1;
TABLE counts;
DROP FOREIGN TABLE s CASCADE;

-- run once, three times: A, then A and B, then B and C
CREATE FOREIGN TABLE s (id text, at timestamptz) SERVER stream_staged OPTIONS (event_time 'at', watermark '0');
CREATE MATERIALIZED VIEW once WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.trigger = 'manual') AS
	SELECT window_start, ids(id) FROM s, tumble(at, '10 minutes') GROUP BY window_start;
INSERT INTO s VALUES ('a1', '2024-01-01 12:01'), ('a2', '2024-01-01 12:09');
CALL stream_agg.run('once');
TABLE once;
INSERT INTO s VALUES ('a3', '2024-01-01 12:05'), ('b1', '2024-01-01 12:10');
CALL stream_agg.run('once');
TABLE once;
INSERT INTO s VALUES ('b2', '2024-01-01 12:19:59.999999'), ('a4', '2024-01-01 12:09:59.999999'), ('c1', '2024-01-01 12:25'), ('b3', '2024-01-01 12:15');
CALL stream_agg.run('once');
TABLE once;
TABLE counts;
CALL stream_agg.run('once');
CALL stream_agg.run('once');
TABLE once;
DROP FOREIGN TABLE s CASCADE;

-- times without an end or beginning, and others that are far away, never move the running maximum where they must not
CREATE FOREIGN TABLE s (id int, at timestamptz) SERVER stream_staged OPTIONS (event_time 'at', watermark '0');
CREATE MATERIALIZED VIEW a_whole WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.trigger = 'manual') AS
	SELECT window_start, ids(id) FROM s, tumble(at, '10 minutes') GROUP BY window_start;
CREATE MATERIALIZED VIEW one_by_one WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.trigger = 'manual',
	stream_agg.max_batch_rows = 1) AS
	SELECT window_start, ids(id) FROM s, tumble(at, '10 minutes') GROUP BY window_start;
INSERT INTO s VALUES (1, '-infinity'), (2, 'infinity'), (3, '2024-01-01 12:05'), (4, 'infinity'), (5, '2024-01-01 12:06'), (6, NULL),
	(7, '2024-01-01 12:12'), (8, '-infinity'), (9, now() + interval '1 day'), (10, '2024-01-01 12:13'), (11, '294276-12-31 23:59:59.999999'),
	(12, '2024-01-01 12:20'), (13, '4714-11-24 00:00 BC');
CALL stream_agg.run('s');
TABLE a_whole;
(TABLE a_whole EXCEPT ALL TABLE one_by_one) UNION ALL (TABLE one_by_one EXCEPT ALL TABLE a_whole);
TABLE counts;
SELECT reason, array_agg(event ->> 'id' ORDER BY position) AS ids FROM stream_agg.dead_letters WHERE view IS NULL GROUP BY reason ORDER BY reason;
SELECT view, reason, event ->> 'id' AS id FROM stream_agg.dead_letters WHERE view IS NOT NULL ORDER BY view::text;
DROP FOREIGN TABLE s CASCADE;
-- the same without a zone, and for days
CREATE FOREIGN TABLE s (id int, at timestamp, day date) SERVER stream_staged OPTIONS (event_time 'at', watermark '0');
CREATE FOREIGN TABLE d (id int, at timestamp, day date) SERVER stream_staged OPTIONS (event_time 'day', watermark '0');
CREATE MATERIALIZED VIEW hours WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.trigger = 'manual') AS
	SELECT window_start, ids(id) FROM s, tumble(at, '1 hour') GROUP BY window_start;
CREATE MATERIALIZED VIEW days WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.trigger = 'manual') AS
	SELECT window_start, ids(id) FROM d, tumble(day, '1 day') GROUP BY window_start;
CREATE TABLE t (id int, at timestamp, day date);
INSERT INTO t VALUES (1, '-infinity', '-infinity'), (2, '2024-01-01 12:30', '2024-01-01'), (3, 'infinity', 'infinity'),
	(4, '2024-01-01 12:40', '2024-01-01'), (5, '2024-01-01 13:00', '2024-01-02');
INSERT INTO s TABLE t;
INSERT INTO d TABLE t;
CALL stream_agg.run('s');
CALL stream_agg.run('d');
TABLE hours;
TABLE days;
TABLE counts;
DROP FOREIGN TABLE s, d CASCADE;

-- rows that are filtered out move the time, of many rows of one time none is lost
CREATE FOREIGN TABLE s (id int, at timestamptz) SERVER stream_staged OPTIONS (event_time 'at', watermark '0');
CREATE MATERIALIZED VIEW a_whole WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.trigger = 'manual') AS
	SELECT window_start, count(*) AS n, min(id), max(id) FROM s, tumble(at, '10 minutes') WHERE id > 0 GROUP BY window_start;
CREATE MATERIALIZED VIEW few_by_few WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.trigger = 'manual',
	stream_agg.max_batch_rows = 7) AS
	SELECT window_start, count(*) AS n, min(id), max(id) FROM s, tumble(at, '10 minutes') WHERE id > 0 GROUP BY window_start;
INSERT INTO s SELECT i, '2024-01-01 12:00' FROM generate_series(1, 100) i;
CALL stream_agg.run('s');
INSERT INTO s SELECT i, '2024-01-01 12:00' FROM generate_series(101, 200) i;
INSERT INTO s SELECT i, '2024-01-01 12:09:59.999999' FROM generate_series(201, 300) i;
INSERT INTO s SELECT i, '2024-01-01 12:00' FROM generate_series(301, 400) i;
CALL stream_agg.run('s');
TABLE a_whole;
INSERT INTO s VALUES (-1, '2024-01-01 12:10'), (500, '2024-01-01 12:09');
CALL stream_agg.run('s');
TABLE a_whole;
(TABLE a_whole EXCEPT ALL TABLE few_by_few) UNION ALL (TABLE few_by_few EXCEPT ALL TABLE a_whole);
TABLE counts;
DROP FOREIGN TABLE s CASCADE;
DROP VIEW counts;

--
-- How far events are behind
--
CREATE FOREIGN TABLE s (id int, at timestamptz) SERVER stream_staged OPTIONS (event_time 'at', watermark '3 minutes', max_future 'infinity');
CREATE TABLE e (id int, at timestamptz);
CREATE PROCEDURE feed_behind(first int, last int) LANGUAGE sql AS $$
	WITH x AS (INSERT INTO e SELECT i, '2024-01-01Z'::timestamptz + i * interval '1 second'
			- CASE WHEN i % 3 = 0 THEN (i * 7919 % 1000003) * interval '300 microseconds' WHEN i % 50 = 1 THEN i * interval '7 ms' ELSE '0' END
		FROM generate_series(first, last) i RETURNING *)
	INSERT INTO s TABLE x ORDER BY id;
$$;
CREATE VIEW behind AS SELECT id, at, before, greatest(before - at, '0') AS behind
	FROM (SELECT *, max(at) OVER (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM e) x;
CREATE MATERIALIZED VIEW minutes WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.trigger = 'manual') AS
	SELECT window_start, count(*) AS n FROM s, tumble(at, '1 minute') GROUP BY window_start;
CREATE MATERIALIZED VIEW strict WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.trigger = 'manual',
	stream_agg.watermark = '10 seconds', stream_agg.late_events = 'drop', stream_agg.max_batch_rows = 100) AS
	SELECT window_start, count(*) AS n FROM s, tumble(at, '1 minute') WHERE id % 2 = 0 GROUP BY window_start;
SELECT stream_agg.suggest_watermark('s', 0.5);
SELECT * FROM stream_agg.suggest_watermark('s');
SELECT * FROM stream_agg.late_report('strict');
CALL feed_behind(1, 1000);
INSERT INTO s VALUES (0, NULL), (0, 'infinity');
CALL stream_agg.run('minutes');
CALL lose_state();
CALL feed_behind(1001, 2500);
CALL stream_agg.run('s');
CREATE MATERIALIZED VIEW later WITH (stream_agg.continuous) AS SELECT count(*) AS n FROM s;
CALL feed_behind(2501, 4000);
CALL stream_agg.run('s');
-- each event is counted once, however many views read it, and what a delay loses is exact
SELECT sum(events) AS events, bool_and(lost = (SELECT count(*) FROM behind WHERE behind > delay)) AS exact,
	bool_and(share_lost = lost / 4000.0::float8) AS shares, min(delay), max(delay) = (SELECT max(behind) FROM behind) AS greatest,
	count(*) > 20 AS fine FROM stream_agg.suggest_watermark('s');
-- a suggestion keeps the share asked for, and is not much longer than need be
SELECT share, kept >= share AS kept, suggested <= least_delay * 1.25 + interval '1 ms' AS close
FROM (VALUES (0.5), (0.7), (0.9), (0.99), (0.999), (1)) x (share),
	LATERAL (SELECT stream_agg.suggest_watermark('s', share) AS suggested) y,
	LATERAL (SELECT count(*) FILTER (WHERE behind <= suggested) / 4000.0::float8 AS kept,
		percentile_disc(share) WITHIN GROUP (ORDER BY behind) AS least_delay FROM behind) z;
SELECT stream_agg.suggest_watermark('s', 0), stream_agg.suggest_watermark('s', 1) = (SELECT max(behind) FROM behind) AS all;
-- the late ones of each view, dropped or kept aside
CREATE VIEW late AS SELECT 'minutes'::regclass AS view, before - interval '3 minutes' - at AS lateness FROM behind
		WHERE date_bin('1 minute', at, '2024-01-01Z') + interval '1 minute' <= before - interval '3 minutes'
	UNION ALL SELECT 'strict', before - interval '10 seconds' - at FROM behind
		WHERE date_bin('1 minute', at, '2024-01-01Z') + interval '1 minute' <= before - interval '10 seconds' AND id % 2 = 0;
SELECT v.view, late > 50 AS some, late = (SELECT count(*) FROM late l WHERE l.view = v.view) AS counted, r.* FROM stream_agg.views v,
	LATERAL (SELECT sum(events) = v.late AS all, bool_and(up_to = (SELECT count(*) FROM late l WHERE l.view = v.view AND l.lateness <= r.lateness)) AS exact,
		bool_and(share_up_to = up_to::float8 / v.late) AS shares, max(lateness) = (SELECT max(lateness) FROM late l WHERE l.view = v.view) AS greatest
		FROM stream_agg.late_report(v.view) r) r WHERE late > 0 ORDER BY v.view::text;
-- begun anew, and gone
SELECT stream_agg.reset('strict');
SELECT count(*) FROM stream_agg.late_report('strict');
CALL stream_agg.run('s');
SELECT late = (SELECT sum(events) FROM stream_agg.late_report('strict')) AS again FROM stream_agg.views WHERE view = 'strict'::regclass;
SELECT sum(events) FROM stream_agg.suggest_watermark('s');
\set VERBOSITY terse
SELECT stream_agg.suggest_watermark('s', 1.1);
SELECT stream_agg.suggest_watermark('s', 'NaN');
SELECT stream_agg.suggest_watermark('strict', 0.9);
SELECT stream_agg.late_report('s');
CREATE ROLE stranger;
GRANT SELECT ON s, strict TO stranger;
SET ROLE stranger;
SELECT stream_agg.suggest_watermark('s', 0.9);
SELECT * FROM stream_agg.suggest_watermark('s');
SELECT * FROM stream_agg.late_report('strict');
RESET ROLE;
DROP OWNED BY stranger;
DROP ROLE stranger;
\set VERBOSITY default
DROP FOREIGN TABLE s CASCADE;
SELECT count(*) FROM stream_agg.lateness;
DROP VIEW behind CASCADE;
DROP TABLE e, l, t CASCADE;
DROP PROCEDURE feed_behind, feed, advance, ask_for, lose_state, wait_for;
DROP AGGREGATE ids(int), ids(text);
