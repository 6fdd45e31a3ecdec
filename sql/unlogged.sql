--
-- state = 'unlogged': groups in the worker's memory alone, made again by reading again
--
SET client_min_messages = warning;
CREATE TABLE l (id int, at timestamptz, k text, v int);
CREATE FOREIGN TABLE s (id int, at timestamptz, k text, v int) SERVER stream_staged
	OPTIONS (event_time 'at', watermark '10 minutes', max_future 'infinity');
CREATE PROCEDURE feed(first int, last int) LANGUAGE sql AS $$
	WITH x AS (INSERT INTO l SELECT i, '2024-01-01Z'::timestamptz + (i - i * 7 % 13) * interval '20 seconds', 'k' || i % 5, i % 50
		FROM generate_series(first, last) i RETURNING *)
	INSERT INTO s SELECT * FROM x;
$$;
CREATE VIEW steps AS SELECT view, r.partition, r.position > 0 AS moved
	FROM stream_agg.view_rebuild r JOIN stream_agg.view_config c ON c.id = r.view_id ORDER BY 1, 2, 3;
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
-- As if the worker had lost its memory.
-- (Paused, so that the next worker does not take what is about to be dropped.)
CREATE PROCEDURE lose_state() LANGUAGE plpgsql AS $$
DECLARE
	running regclass[] := (SELECT array_agg(view) FROM stream_agg.views WHERE status = 'running');
BEGIN
	PERFORM stream_agg.pause(view) FROM unnest(running) view;
	COMMIT;
	CALL stop_worker();
	COMMIT;
	CALL drop_marks();
	PERFORM stream_agg.resume(view) FROM unnest(running) view;
END $$;
CREATE FUNCTION marks() RETURNS SETOF regclass LANGUAGE plpgsql AS $$
DECLARE
	v record;
	marked bool;
BEGIN
	FOR v IN SELECT view, spill FROM stream_agg.view_config WHERE spill IS NOT NULL ORDER BY view::text LOOP
		EXECUTE format('SELECT EXISTS (SELECT FROM %s WHERE seq = 0)', v.spill) INTO marked;
		IF marked THEN RETURN NEXT v.view; END IF;
	END LOOP;
END $$;

-- Chunks in the logs of views.
CREATE FUNCTION logged() RETURNS TABLE (view regclass, chunks bigint) LANGUAGE plpgsql AS $$
DECLARE
	v record;
BEGIN
	FOR v IN SELECT c.view, c.state FROM stream_agg.view_config c WHERE c.state IS NOT NULL ORDER BY c.view::text LOOP
		RETURN QUERY EXECUTE format('SELECT %L::regclass, count(*) FROM %s', v.view, v.state);
	END LOOP;
END $$;

CREATE AGGREGATE ids(int) (sfunc = array_append, stype = int[], initcond = '{}');

--
-- What cannot be made again
--
CREATE TABLE names (k text, name text);
CREATE MATERIALIZED VIEW running WITH (stream_agg.continuous, stream_agg.state = 'unlogged') AS
	SELECT k, avg(v) AS mean FROM s GROUP BY k;
CREATE MATERIALIZED VIEW rows WITH (stream_agg.continuous, stream_agg.state = 'unlogged') AS SELECT k, v FROM s;
CREATE MATERIALIZED VIEW joined WITH (stream_agg.continuous, stream_agg.state = 'unlogged') AS
	SELECT name, window_start, avg(v) AS mean FROM s JOIN names USING (k), tumble(at, '5 minutes') GROUP BY name, window_start;
CREATE MATERIALIZED VIEW semi WITH (stream_agg.continuous, stream_agg.state = 'unlogged') AS
	SELECT k, window_start, avg(v) AS mean FROM s, tumble(at, '5 minutes') WHERE k IN (SELECT k FROM names) GROUP BY k, window_start;
CREATE MATERIALIZED VIEW clocked WITH (stream_agg.continuous, stream_agg.state = 'unlogged') AS
	SELECT to_char(at, 'HH24') AS hour, window_start, avg(v) AS mean FROM s, tumble(at, '5 minutes') GROUP BY to_char(at, 'HH24'), window_start;
CREATE FOREIGN TABLE timeless (k text, at timestamptz, v int) SERVER stream_staged OPTIONS (event_time 'at');
CREATE MATERIALIZED VIEW open WITH (stream_agg.continuous, stream_agg.state = 'unlogged') AS
	SELECT k, window_start, avg(v) AS mean FROM timeless, tumble(at, '5 minutes') GROUP BY k, window_start;
CREATE MATERIALIZED VIEW other WITH (stream_agg.continuous, stream_agg.state = 'tape') AS SELECT k, count(*) AS n FROM s GROUP BY k;

--
-- Views of every kind, and their answers
--
CREATE MATERIALIZED VIEW closed WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.state = 'unlogged',
	stream_agg.trigger = 'manual', stream_agg.max_batch_rows = 70) AS
	SELECT k, window_start, window_end, count(*) AS n, avg(v) AS mean, stddev(v::numeric) AS spread, ids(id)
	FROM s, tumble(at, '5 minutes') GROUP BY k, window_start, window_end;
CREATE MATERIALIZED VIEW latest WITH (stream_agg.continuous, stream_agg.state = 'unlogged', stream_agg.trigger = 'manual') AS
	SELECT k, window_end, count(*) AS n, avg(v) AS mean, max(v) AS top FROM s, hop(at, '10 minutes', '4 minutes') WHERE v <> 7
	GROUP BY k, window_end HAVING count(*) > 2;
CREATE MATERIALIZED VIEW mixed WITH (stream_agg.continuous, stream_agg.state = 'unlogged', stream_agg.trigger = 'manual') AS
	SELECT window_start, sum(100 / (v - 3)) AS quotients, count(*) AS n, avg(v) AS mean, max(k) AS top
	FROM s, tumble(at, '5 minutes') GROUP BY window_start;
CREATE MATERIALIZED VIEW stored WITH (stream_agg.continuous, stream_agg.state = 'unlogged', stream_agg.trigger = 'manual') AS
	SELECT window_start, count(*) AS n, max(k) AS top FROM s, tumble(at, '5 minutes') GROUP BY window_start;
CREATE MATERIALIZED VIEW visits WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.state = 'unlogged',
	stream_agg.trigger = 'manual', stream_agg.max_batch_rows = 90) AS
	SELECT k, window_start, window_end, count(*) AS n, avg(v) AS mean, max(id) AS last FROM s, session(at, '80 seconds')
	GROUP BY k, window_start, window_end;
CREATE MATERIALIZED VIEW spans WITH (stream_agg.continuous, stream_agg.state = 'unlogged', stream_agg.trigger = 'manual') AS
	SELECT k, window_start, window_end, count(*) AS n, avg(v) AS mean, max(id) AS last FROM s, session(at, '80 seconds')
	GROUP BY k, window_start, window_end;

CREATE VIEW differences AS
	WITH answer AS (SELECT k, window_start, window_end, count(*), avg(v), stddev(v::numeric), ids(id ORDER BY id)
			FROM l, tumble(at, '5 minutes') GROUP BY 1, 2, 3 HAVING window_end <= (SELECT max(at) - interval '10 minutes' FROM l)),
		hops AS (SELECT k, window_end, count(*), avg(v), max(v) FROM l, hop(at, '10 minutes', '4 minutes') WHERE v <> 7
			GROUP BY 1, 2 HAVING count(*) > 2),
		mixture AS (SELECT window_start, sum(100 / (v - 3)), count(*), avg(v), max(k) FROM l, tumble(at, '5 minutes') WHERE v <> 3 GROUP BY 1),
		plain AS (SELECT window_start, count(*), max(k) FROM l, tumble(at, '5 minutes') GROUP BY 1),
		islands AS (SELECT *, count(*) FILTER (WHERE begins) OVER (PARTITION BY k ORDER BY at) AS island
			FROM (SELECT *, at > lag(at) OVER (PARTITION BY k ORDER BY at) + interval '80 seconds' AS begins FROM l) x),
		sessions AS (SELECT k, min(at), max(at) + interval '80 seconds', count(*), avg(v), max(id) FROM islands GROUP BY k, island),
		ended AS (SELECT * FROM sessions x (k, s, e) WHERE e < (SELECT max(at) - interval '10 minutes' FROM l))
	SELECT (SELECT count(*) FROM ((TABLE answer EXCEPT ALL TABLE closed) UNION ALL (TABLE closed EXCEPT ALL TABLE answer)) x) AS closed,
		(SELECT count(*) FROM ((TABLE hops EXCEPT ALL TABLE latest) UNION ALL (TABLE latest EXCEPT ALL TABLE hops)) x) AS latest,
		(SELECT count(*) FROM ((TABLE mixture EXCEPT ALL TABLE mixed) UNION ALL (TABLE mixed EXCEPT ALL TABLE mixture)) x) AS mixed,
		(SELECT count(*) FROM ((TABLE plain EXCEPT ALL TABLE stored) UNION ALL (TABLE stored EXCEPT ALL TABLE plain)) x) AS stored,
		(SELECT count(*) FROM ((TABLE sessions EXCEPT ALL TABLE spans) UNION ALL (TABLE spans EXCEPT ALL TABLE sessions)) x) AS spans,
		(SELECT count(*) FROM ((TABLE ended EXCEPT ALL TABLE visits) UNION ALL (TABLE visits EXCEPT ALL TABLE ended)) x) AS visits,
		(SELECT string_agg(status, ' ') FROM stream_agg.views) AS statuses,
		(SELECT bool_and(late = 0 AND (failed > 0) = (view = 'mixed'::regclass)) FROM stream_agg.views) AS counted;

CALL feed(1, 500);
CALL stream_agg.run('s');
TABLE differences;
TABLE steps;
-- their state is not on disk
SELECT line FROM stream_agg.explain('mixed') AS line WHERE line LIKE '%made again%' OR line LIKE '%result row%';
SELECT view, rebuild_distance > 0 AS distant, rebuild_distance < read AS less FROM stream_agg.views ORDER BY 1;
SELECT view, (SELECT count(*) FROM pg_class k WHERE k.oid = c.state AND pg_relation_size(k.oid) > 0) AS written
FROM stream_agg.view_config c ORDER BY 1;

CALL lose_state();
CALL feed(501, 800);
CALL stream_agg.run('s');
TABLE differences;
TABLE steps;

-- lost twice at the same place, and tables that were rewritten
CALL lose_state();
CALL stream_agg.run('s');
CALL lose_state();
VACUUM FULL mixed;
CALL feed(801, 1200);
CALL stream_agg.run('s');
VACUUM FULL latest;
CALL feed(1201, 1300);
CALL stream_agg.run('s');
TABLE differences;

-- to heap and back, with state lost in between
ALTER MATERIALIZED VIEW closed SET (stream_agg.state = 'heap');
ALTER MATERIALIZED VIEW mixed RESET (stream_agg.state);
ALTER MATERIALIZED VIEW visits RESET (stream_agg.state);
CALL lose_state();
CALL feed(1301, 1400);
CALL stream_agg.run('s');
TABLE steps;
CALL lose_state();
CALL feed(1401, 1500);
CALL stream_agg.run('s');
ALTER MATERIALIZED VIEW closed SET (stream_agg.state = 'unlogged');
ALTER MATERIALIZED VIEW mixed SET (stream_agg.state = 'unlogged');
ALTER MATERIALIZED VIEW visits SET (stream_agg.state = 'unlogged');
CALL feed(1501, 1520);
CALL stream_agg.run('s');
CALL lose_state();
CALL feed(1521, 1900);
CALL stream_agg.run('s');
TABLE differences;
-- what the log had of their windows and sessions has gone with them
SELECT * FROM logged();

--
-- A worker that stops in order saves them; the next one takes them back, once, and only as of where the view stands
--
SELECT marks();
CALL stop_worker();
SELECT marks();
CALL stream_agg.run('s');
SELECT marks();
CALL feed(1901, 1910);
CALL stream_agg.run('s');
SELECT marks();
TABLE differences;
CALL stop_worker();
SELECT stream_agg.pause('latest');
CALL feed(1911, 1920);
CALL stream_agg.run('s');
SELECT marks();
CALL stop_worker();
SELECT stream_agg.resume('latest');
CALL stream_agg.run('s');
SELECT marks();
TABLE differences;

--
-- What would have the records read again in another way waits until the state is on disk
--
\set VERBOSITY terse
ALTER MATERIALIZED VIEW closed SET (stream_agg.watermark = '1 hour');
ALTER FOREIGN TABLE s OPTIONS (SET watermark '1 hour');
ALTER FOREIGN TABLE s ALTER v OPTIONS (ADD path 'w');
ALTER FOREIGN TABLE s OPTIONS (ADD idle_timeout '1 hour');
SELECT stream_agg.pause('closed');
SELECT stream_agg.seek('closed', '1800');
SELECT stream_agg.resume('closed');
CREATE MATERIALIZED VIEW closed WITH (stream_agg.continuous, stream_agg.replace) AS
	SELECT k, window_start, window_end, count(*) AS n, avg(v) AS mean, stddev(v::numeric) AS spread, ids(id)
	FROM s, tumble(at, '5 minutes') WHERE v > 5 GROUP BY k, window_start, window_end;
\set VERBOSITY default
ALTER MATERIALIZED VIEW closed SET (stream_agg.state = 'heap');
CALL stream_agg.run('s');
ALTER MATERIALIZED VIEW closed SET (stream_agg.watermark = '10 minutes');
ALTER MATERIALIZED VIEW closed SET (stream_agg.state = 'unlogged');
CALL feed(1921, 2000);
CALL stream_agg.run('s');
TABLE differences;

-- from the start
BEGIN;
SELECT stream_agg.reset('latest');
TABLE steps;
COMMIT;
CALL stream_agg.run('s');
SELECT sum(n) > 0 AS again FROM latest;
DROP VIEW differences;
DROP MATERIALIZED VIEW latest;
DROP FOREIGN TABLE s CASCADE;
SELECT count(*) FROM stream_agg.view_rebuild;
DROP TABLE names;
DROP FOREIGN TABLE timeless CASCADE;
DROP PROCEDURE feed, lose_state;
DROP FUNCTION logged;
DROP VIEW steps;
DROP TABLE l;
DROP AGGREGATE ids(int);

--
-- A view that has come to its end has its state in the log; letters change it still, and the last windows close
--
CREATE FOREIGN TABLE ended (id int, at timestamptz, v int) SERVER stream_staged OPTIONS (event_time 'at', watermark '10 minutes', max_future 'infinity');
CREATE FUNCTION share(v int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN 100 / (v - 3); END';
INSERT INTO ended SELECT i, '2024-01-01Z'::timestamptz + i * interval '20 s', i % 50 FROM generate_series(1, 100) i;
CREATE MATERIALIZED VIEW final WITH (stream_agg.continuous, stream_agg.state = 'unlogged', stream_agg.output_mode = 'append', stream_agg.end = 'latest') AS
	SELECT window_start, sum(share(v)) AS total, count(*) AS n FROM ended, tumble(at, '10 minutes') GROUP BY window_start;
CREATE MATERIALIZED VIEW goes_on WITH (stream_agg.continuous) AS SELECT count(*) AS n FROM ended;
CALL stream_agg.run('ended');
INSERT INTO ended SELECT i, '2024-01-01Z'::timestamptz + i * interval '20 s', i % 50 FROM generate_series(101, 200) i;
CALL stream_agg.run('ended');
CREATE OR REPLACE FUNCTION share(v int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN 100 / coalesce(nullif(v - 3, 0), 50); END';
VACUUM FULL final;
SELECT stream_agg.replay_dead_letters('final');
CALL stream_agg.run('ended');
SELECT stream_agg.advance_watermark('final', '2024-01-01 02:00Z');
CALL stream_agg.run('ended');
SELECT view, status, message, read, accepted, failed, replayed FROM stream_agg.views ORDER BY view::text;
SELECT count(*) AS rows, sum(n) AS events, sum(total) AS total FROM final;
SELECT reason, count(*) FROM stream_agg.dead_letters GROUP BY reason;
DROP FOREIGN TABLE ended CASCADE;

--
-- What is a dead letter stays out when it is read again, for whatever reason it is one by now
--
CREATE FOREIGN TABLE refused (id int, at timestamptz, v int) SERVER stream_staged OPTIONS (event_time 'at', watermark '10 minutes', max_future 'infinity');
CREATE OR REPLACE FUNCTION share(v int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN 100 / (v - 3); END';
CREATE MATERIALIZED VIEW unlogged WITH (stream_agg.continuous, stream_agg.state = 'unlogged') AS
	SELECT window_start, window_end, sum(share(v)) AS total, avg(id) AS mean, count(*) AS n FROM refused, session(at, '10 minutes') GROUP BY 1, 2;
CREATE MATERIALIZED VIEW heap WITH (stream_agg.continuous) AS
	SELECT window_start, window_end, sum(share(v)) AS total, avg(id) AS mean, count(*) AS n FROM refused, session(at, '10 minutes') GROUP BY 1, 2;
INSERT INTO refused SELECT i, '2024-01-01Z'::timestamptz + i * interval '5 minutes', CASE i WHEN 2 THEN 3 ELSE 4 END FROM generate_series(1, 10) i;
CALL stream_agg.run('refused');
CREATE OR REPLACE FUNCTION share(v int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN 100 / coalesce(nullif(v - 3, 0), 50); END';
SELECT stream_agg.replay_dead_letters('unlogged'), stream_agg.replay_dead_letters('heap');
CALL stream_agg.run('refused');
SELECT view, reason FROM stream_agg.dead_letters ORDER BY view::text;
VACUUM FULL unlogged;
INSERT INTO refused SELECT i, '2024-01-01Z'::timestamptz + i * interval '5 minutes', 4 FROM generate_series(11, 12) i;
CALL stream_agg.run('refused');
SELECT total, round(mean, 3) AS mean, n FROM unlogged;
SELECT total, round(mean, 3) AS mean, n FROM heap;
DROP FOREIGN TABLE refused CASCADE;
DROP FUNCTION share(int);
