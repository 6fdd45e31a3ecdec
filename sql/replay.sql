--
-- replay_dead_letters: what was refused is fed again, once
--
SET client_min_messages = warning;
SET timezone = 'UTC';
SET datestyle = 'ISO';
CREATE FOREIGN TABLE s (id int, at timestamptz, k text, v int, n numeric(10,3), f float8, b bytea, tags text[], day date)
	SERVER stream_staged OPTIONS (event_time 'at', watermark '1 hour', max_future 'infinity');
CREATE TABLE l (LIKE s);
CREATE VIEW counts AS SELECT view, status, read, failed, filtered, late, accepted, replayed FROM stream_agg.views ORDER BY view::text COLLATE "C";
CREATE VIEW letters AS SELECT view, reason, message, event ->> 'id' AS id FROM stream_agg.dead_letters ORDER BY view::text COLLATE "C", (event ->> 'id')::int;
CREATE MATERIALIZED VIEW sums WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT window_start, k, count(*) AS n, avg(100 / v) AS mean FROM s, tumble(at, '10 minutes') GROUP BY window_start, k;
CREATE MATERIALIZED VIEW closed WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.trigger = 'manual') AS
	SELECT window_start, count(*) AS n, sum(100 / v) AS total FROM s, tumble(at, '10 minutes') GROUP BY window_start;
CREATE MATERIALIZED VIEW running WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT k, sum(100 / v) AS total FROM s GROUP BY k;
CREATE MATERIALIZED VIEW every WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT id, at, k, v, n, f, b, tags, day, 100 / v AS part FROM s;
INSERT INTO l SELECT i, '2024-01-01 12:00Z'::timestamptz + i * interval '1 minute', 'k' || i % 3, i % 5, i / 8.0, i / 7.0::float8,
	decode(to_hex(i + 4096), 'hex'), ARRAY['a' || i, 'b, "c"', NULL], '2024-01-01'::date + i FROM generate_series(1, 45) i;
UPDATE l SET k = E'\\"xe\n', n = NULL, f = '-Infinity', b = NULL, tags = '{}', day = NULL WHERE id = 10;
UPDATE l SET f = 1e-300 / 3, n = 1.500, k = NULL WHERE id = 20;
INSERT INTO s SELECT * FROM l ORDER BY id;
CALL stream_agg.run('s');
TABLE counts;
SELECT view, reason, message, count(*) FROM letters GROUP BY 1, 2, 3 ORDER BY view::text COLLATE "C";
-- without a fix they are refused again, and stay
SELECT stream_agg.replay_dead_letters('sums');
CALL stream_agg.run('sums');
TABLE counts;
SELECT view, reason, message, count(*) FROM letters GROUP BY 1, 2, 3 ORDER BY view::text COLLATE "C";
SELECT count(*) FROM stream_agg.replay;
-- the fix
\set VERBOSITY terse
CREATE MATERIALIZED VIEW sums WITH (stream_agg.continuous, stream_agg.replace) AS
	SELECT window_start, k, count(*) AS n, avg(100 / nullif(v, 0)) AS fixed FROM s, tumble(at, '10 minutes') GROUP BY window_start, k;
CREATE MATERIALIZED VIEW closed WITH (stream_agg.continuous, stream_agg.replace) AS
	SELECT window_start, count(*) AS n, sum(coalesce(100 / nullif(v, 0), 1000)) AS fixed FROM s, tumble(at, '10 minutes') GROUP BY window_start;
CREATE MATERIALIZED VIEW running WITH (stream_agg.continuous, stream_agg.replace) AS
	SELECT k, sum(coalesce(100 / nullif(v, 0), 1000)) AS fixed FROM s WHERE id <> 15 GROUP BY k;
CREATE MATERIALIZED VIEW every WITH (stream_agg.continuous, stream_agg.replace) AS
	SELECT id, at, k, v, n, f, b, tags, day, coalesce(100 / nullif(v, 0), 1000) AS fixed FROM s;
\set VERBOSITY default
-- some of them, then all; asking twice is asking once, and a rollback asks nothing
SELECT stream_agg.replay_dead_letters('sums', array_agg(id)) FROM stream_agg.dead_letters WHERE event ->> 'id' IN ('5', '30') AND view = 'sums'::regclass;
BEGIN;
SELECT stream_agg.replay_dead_letters('closed');
ROLLBACK;
CALL stream_agg.run('s');
TABLE counts;
SELECT id FROM letters WHERE view = 'sums'::regclass;
SELECT stream_agg.replay_dead_letters('sums') AS first, stream_agg.replay_dead_letters('sums') AS again;
SELECT view, stream_agg.replay_dead_letters(view) FROM stream_agg.views WHERE view <> 'sums'::regclass ORDER BY view::text;
CALL stream_agg.run('s');
TABLE counts;
TABLE letters;
SELECT count(*) FROM stream_agg.replay;
-- the batch answer over all of them: of no open window is anything missing
SELECT window_start, k, count(*) AS n FROM l, tumble(at, '10 minutes') GROUP BY 1, 2 EXCEPT ALL SELECT window_start, k, n FROM sums;
(SELECT id, at, k, v, n, f, b, tags, day FROM l EXCEPT ALL SELECT id, at, k, v, n, f, b, tags, day FROM every)
UNION ALL (SELECT id, at, k, v, n, f, b, tags, day FROM every EXCEPT ALL SELECT id, at, k, v, n, f, b, tags, day FROM l);
SELECT id, fixed FROM every WHERE v = 0 ORDER BY id;
TABLE running ORDER BY k;
-- append: in time, before the window closes
SELECT count(*) FROM closed;
INSERT INTO s VALUES (100, '2024-01-01 14:00Z', 'k', 1);
CALL stream_agg.run('s');
SELECT window_start, n, n = (SELECT count(*) FROM l, tumble(at, '10 minutes') t WHERE t.window_start = closed.window_start) AS complete, fixed FROM closed ORDER BY 1;
-- late ones are judged by the watermark as it is
INSERT INTO s VALUES (101, '2024-01-01 12:05Z', 'late', 1), (102, '2024-01-01 13:30Z', 'k', 1);
CALL stream_agg.run('s');
TABLE letters;
SELECT view, stream_agg.replay_dead_letters(view) FROM stream_agg.views ORDER BY view::text;
CALL stream_agg.run('s');
TABLE letters;
TABLE counts;
-- a filter that finds none asks for none, though array_agg() then gives NULL; letters of others, and nobody's, are none either
SELECT stream_agg.replay_dead_letters('sums', array_agg(id)) FROM stream_agg.dead_letters WHERE message = 'no such message';
SELECT stream_agg.replay_dead_letters('sums', NULL), stream_agg.replay_dead_letters('s', NULL);
SELECT stream_agg.replay_dead_letters('sums', array_agg(id)) FROM stream_agg.dead_letters WHERE view <> 'sums'::regclass;
SELECT stream_agg.replay_dead_letters('sums', '{{-1, 0}, {9223372036854775807, NULL}}');
SELECT count(*) FROM stream_agg.replay;
-- one of a view that is paused waits for it; one that begins anew has none
SELECT stream_agg.pause('sums');
SELECT stream_agg.replay_dead_letters('sums');
SELECT count(*) FROM stream_agg.replay;
SELECT stream_agg.resume('sums');
CALL stream_agg.run('sums');
SELECT count(*) FROM stream_agg.replay;
BEGIN;
SELECT stream_agg.replay_dead_letters('closed');
SELECT stream_agg.reset('closed');
SELECT count(*) FROM stream_agg.replay;
COMMIT;
CALL stream_agg.run('s');
SELECT replayed FROM stream_agg.views WHERE view = 'closed'::regclass;

-- a column that is no more what it was: that letter alone is refused again
CREATE FOREIGN TABLE t (id int, at timestamptz, v text) SERVER stream_staged OPTIONS (event_time 'at', watermark '1 hour', max_future '1 hour');
CREATE MATERIALIZED VIEW numbers WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT id, (v || '0')::int AS v FROM t;
INSERT INTO t VALUES (1, '2024-01-01 12:00Z', '1'), (2, '2024-01-01 12:00Z', 'x'), (3, '2024-01-01 12:00Z', 'y'), (4, '2024-01-01 12:00Z', '');
CALL stream_agg.run('t');
UPDATE stream_agg.dead_letter SET event = jsonb_set(event, '{id}', '"none"') WHERE event ->> 'id' = '2';
UPDATE stream_agg.dead_letter SET event = NULL WHERE event ->> 'id' = '3';
SELECT stream_agg.replay_dead_letters('numbers');
CALL stream_agg.run('t');
TABLE numbers;
SELECT reason, message FROM stream_agg.dead_letters WHERE view = 'numbers'::regclass ORDER BY id;

-- letters of the stream itself go to the views that have passed them
CREATE MATERIALIZED VIEW behind WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT id, v FROM t;
INSERT INTO t VALUES (5, '2124-01-01 12:00Z', '5'), (6, NULL, '6');
CALL stream_agg.run('numbers');
SELECT view, reason, event ->> 'id' AS id FROM stream_agg.dead_letters WHERE event ->> 'v' IN ('5', '6') ORDER BY view::text NULLS LAST, 3;
ALTER FOREIGN TABLE t OPTIONS (SET max_future 'infinity');
BEGIN;
SELECT stream_agg.replay_dead_letters('t', array_agg(id)) FROM stream_agg.dead_letters WHERE event ->> 'v' IN ('5', '6');
SELECT view, reason, event ->> 'id' AS id FROM stream_agg.dead_letters WHERE event ->> 'v' IN ('5', '6') ORDER BY view::text NULLS LAST, 3;
COMMIT;
CALL stream_agg.run('t');
SELECT view, reason, event ->> 'id' AS id FROM stream_agg.dead_letters WHERE event ->> 'v' IN ('5', '6') ORDER BY view::text NULLS LAST, 3;
TABLE numbers;
TABLE behind;
SELECT view, read, null_time, future, accepted, replayed, watermark FROM stream_agg.views WHERE stream = 't'::regclass ORDER BY 1;

-- an error that is none of the events' leaves them letters, and the view running
CREATE UNIQUE INDEX single ON numbers (v);
INSERT INTO t VALUES (7, '2024-01-01 12:00Z', 'z');
CALL stream_agg.run('numbers');
UPDATE stream_agg.dead_letter SET event = jsonb_set(event, '{v}', '"5"') WHERE event ->> 'id' = '7';
SELECT stream_agg.replay_dead_letters('numbers', array_agg(id)) FROM stream_agg.dead_letters WHERE event ->> 'id' = '7' AND view = 'numbers'::regclass;
CALL stream_agg.run('numbers');
SELECT reason, message FROM stream_agg.dead_letters WHERE event ->> 'id' = '7' AND view = 'numbers'::regclass;
SELECT status, replayed FROM stream_agg.views WHERE view = 'numbers'::regclass;
DROP INDEX single;
SELECT stream_agg.replay_dead_letters('numbers', array_agg(id)) FROM stream_agg.dead_letters WHERE event ->> 'id' = '7' AND view = 'numbers'::regclass;
CALL stream_agg.run('numbers');
TABLE numbers;

-- into views with unlogged state: what they have changed is on disk, in its place, whatever is lost before or afterwards
CREATE FUNCTION part(v int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN 100 / v; END';
CREATE AGGREGATE ids(int) (sfunc = array_append, stype = int[], initcond = '{}');
CREATE FOREIGN TABLE u (id int, at timestamptz, v int) SERVER stream_staged OPTIONS (event_time 'at', watermark '1 hour', max_future 'infinity');
CREATE MATERIALIZED VIEW lost WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.state = 'unlogged') AS
	SELECT window_start, ids(id) AS ids, avg(part(v)) AS mean FROM u, tumble(at, '1 hour') WHERE v < 100 GROUP BY 1;
CREATE MATERIALIZED VIEW kept WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT window_start, ids(id) AS ids, avg(part(v)) AS mean FROM u, tumble(at, '1 hour') WHERE v < 100 GROUP BY 1;
CREATE VIEW differences AS (TABLE lost EXCEPT ALL TABLE kept) UNION ALL (TABLE kept EXCEPT ALL TABLE lost);
-- (Paused, so that the next worker does not take what is about to be dropped.)
CREATE PROCEDURE lose_state() LANGUAGE plpgsql AS $$
DECLARE
	old int[] := (SELECT array_agg(pid) FROM stream_agg.streams WHERE stream = 'u'::regclass);
	spill regclass := (SELECT c.spill FROM stream_agg.view_config c WHERE c.view = 'lost'::regclass);
	running regclass[] := (SELECT array_agg(view) FROM stream_agg.views WHERE status = 'running');
BEGIN
	PERFORM stream_agg.pause(view) FROM unnest(running) view;
	COMMIT;
	PERFORM pg_terminate_backend(pid, 10000) FROM unnest(old) pid;
	COMMIT;
	EXECUTE format('DELETE FROM %s WHERE seq = 0', spill);
	PERFORM stream_agg.resume(view) FROM unnest(running) view;
END $$;
CREATE PROCEDURE replay() LANGUAGE sql AS 'SELECT stream_agg.replay_dead_letters(view) FROM stream_agg.views WHERE stream = ''u''::regclass';
INSERT INTO u SELECT i, '2024-01-01 12:00Z'::timestamptz + i * interval '1 minute', i % 4 FROM generate_series(1, 20) i;
CALL stream_agg.run('u');
-- refused again, they change nothing
CALL replay();
CALL stream_agg.run('u');
SELECT count(*) > 0 AS unlogged FROM stream_agg.view_rebuild;
CALL lose_state();
SELECT stream_agg.replay_dead_letters(view, array_agg(id)) FROM stream_agg.dead_letters WHERE event ->> 'id' IN ('4', '8') AND stream = 'u'::regclass GROUP BY view ORDER BY view::text;
CALL stream_agg.run('u');
CREATE OR REPLACE FUNCTION part(v int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN 100 / nullif(v, 0); END';
SELECT stream_agg.replay_dead_letters(view, array_agg(id)) FROM stream_agg.dead_letters WHERE event ->> 'id' IN ('4', '8', '12') AND stream = 'u'::regclass GROUP BY view ORDER BY view::text;
CALL stream_agg.run('u');
TABLE differences;
SELECT coalesce(rebuild_distance, 0) AS distance FROM stream_agg.views WHERE view = 'lost'::regclass;
-- in memory again
INSERT INTO u SELECT i, '2024-01-01 12:00Z'::timestamptz + i * interval '1 minute', 1 + i % 3 FROM generate_series(21, 30) i;
CALL stream_agg.run('u');
SELECT count(*) > 0 AS unlogged FROM stream_agg.view_rebuild;
SELECT rebuild_distance FROM stream_agg.views WHERE view = 'lost'::regclass;
CALL lose_state();
INSERT INTO u VALUES (31, '2024-01-01 12:31Z', 1);
CALL stream_agg.run('u');
TABLE differences;
-- between two others, the rest of them
CALL replay();
CALL stream_agg.run('u');
CALL lose_state();
INSERT INTO u VALUES (32, '2024-01-01 12:32Z', 1);
CALL stream_agg.run('u');
CALL lose_state();
INSERT INTO u VALUES (33, '2024-01-01 12:33Z', 1), (34, '2024-01-01 14:00Z', 1);
CALL stream_agg.run('u');
TABLE differences;
TABLE lost ORDER BY 1;
SELECT view, read, failed, accepted, replayed FROM stream_agg.views WHERE stream = 'u'::regclass ORDER BY view::text;
DROP FOREIGN TABLE u CASCADE;
DROP AGGREGATE ids(int);
DROP FUNCTION part;
DROP PROCEDURE replay, lose_state;

-- refusals
\set VERBOSITY terse
SELECT stream_agg.replay_dead_letters('l');
CREATE ROLE stranger;
GRANT SELECT ON s, sums TO stranger;
SET ROLE stranger;
SELECT stream_agg.replay_dead_letters('running');
SELECT stream_agg.replay_dead_letters('s');
SELECT count(*) FROM stream_agg.replay;
RESET ROLE;
DROP OWNED BY stranger;
DROP ROLE stranger;
SELECT stream_agg.replay_dead_letters(NULL);
SELECT stream_agg.replay_dead_letters('running', '{}');
SELECT stream_agg.replay_dead_letters('running', '{1, NULL, 100000}');
DROP FOREIGN TABLE s, t CASCADE;
SELECT count(*) FROM stream_agg.replay;
DROP VIEW counts, letters;
DROP TABLE l;
