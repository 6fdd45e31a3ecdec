--
-- dedup_key with state = 'unlogged': keys in the worker's memory alone, seen again by reading again
--
SET client_min_messages = warning;
SET timezone = 'UTC';
CREATE FOREIGN TABLE s (id int, at timestamptz, key int, v int) SERVER stream_staged
	OPTIONS (event_time 'at', watermark '10 minutes', max_future 'infinity');
-- Keys come again before and after they are forgotten, some at once, and with other times.
CREATE PROCEDURE feed(first int, last int) LANGUAGE sql AS $$
	INSERT INTO s SELECT i, '2024-01-01Z'::timestamptz + (i - i * 7 % 13) * interval '20 seconds',
		CASE WHEN i % 11 <> 0 THEN CASE WHEN i % 3 = 0 THEN i % 47 ELSE 100 + i / 2 END END, i % 50
		FROM generate_series(first, last) i;
$$;
CREATE PROCEDURE stop_worker() LANGUAGE plpgsql AS $$
DECLARE
	old int[] := (SELECT array_agg(pid) FROM stream_agg.streams WHERE stream = 's'::regclass);
BEGIN
	PERFORM pg_terminate_backend(pid, 10000) FROM unnest(old) pid;
END $$;
-- As if the worker had lost its memory.
-- (Paused, so that the next worker does not take what is about to be dropped.)
CREATE PROCEDURE lose_state() LANGUAGE plpgsql AS $$
DECLARE
	running regclass[] := (SELECT array_agg(view) FROM stream_agg.views WHERE status = 'running');
	spill regclass;
BEGIN
	PERFORM stream_agg.pause(view) FROM unnest(running) view;
	COMMIT;
	CALL stop_worker();
	COMMIT;
	FOR spill IN SELECT unnest(ARRAY[c.spill, c.dedup_spill]) FROM stream_agg.view_config c LOOP
		IF spill IS NOT NULL THEN
			EXECUTE format('DELETE FROM %s WHERE seq = 0', spill);
		END IF;
	END LOOP;
	PERFORM stream_agg.resume(view) FROM unnest(running) view;
END $$;
CREATE FUNCTION share(v int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN 100 / (v - 3); END';
CREATE AGGREGATE ids(int) (sfunc = array_append, stype = int[], initcond = '{}');
-- Groups and keys are lost; keys alone, since the results hold the groups; and none.
CREATE PROCEDURE make(name text, what text, mode text, state text) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE MATERIALIZED VIEW %s WITH (stream_agg.continuous, stream_agg.trigger = ''manual'', stream_agg.dedup_key = ''key'',
		stream_agg.output_mode = %L, stream_agg.state = %L) AS SELECT window_start, %s FROM s, hop(at, ''10 minutes'', ''5 minutes'') WHERE v <> 7 GROUP BY 1',
		name, mode, state, what);
END $$;
CALL make('closed', 'ids(id) AS ids, sum(share(v)) AS shares', 'append', 'unlogged');
CALL make('closed_h', 'ids(id) AS ids, sum(share(v)) AS shares', 'append', 'heap');
CALL make('latest', 'ids(id) AS ids, avg(v) AS mean', 'update', 'unlogged');
CALL make('latest_h', 'ids(id) AS ids, avg(v) AS mean', 'update', 'heap');
CALL make('stored', 'count(*) AS n, max(id) AS top', 'update', 'unlogged');
CALL make('stored_h', 'count(*) AS n, max(id) AS top', 'update', 'heap');
CREATE VIEW differences AS
	SELECT (SELECT count(*) FROM ((TABLE closed EXCEPT ALL TABLE closed_h) UNION ALL (TABLE closed_h EXCEPT ALL TABLE closed)) x) AS closed,
		(SELECT count(*) FROM ((TABLE latest EXCEPT ALL TABLE latest_h) UNION ALL (TABLE latest_h EXCEPT ALL TABLE latest)) x) AS latest,
		(SELECT count(*) FROM ((TABLE stored EXCEPT ALL TABLE stored_h) UNION ALL (TABLE stored_h EXCEPT ALL TABLE stored)) x) AS stored,
		(SELECT count(DISTINCT ROW(status, read, duplicate, filtered, failed, late, accepted)) = 2 FROM stream_agg.views) AS counted,
		(SELECT bool_and(duplicate > 0) FROM stream_agg.views) AS duplicates;
CREATE FUNCTION on_disk(OUT view regclass, OUT keys bool, OUT places bool, OUT distant bool) RETURNS SETOF record LANGUAGE plpgsql AS $$
DECLARE
	c record;
BEGIN
	FOR c IN SELECT * FROM stream_agg.view_config ORDER BY view_config.view::text LOOP
		view := c.view;
		EXECUTE format('SELECT count(*) > 0 FROM %s', c.dedup) INTO keys;
		places := EXISTS (SELECT FROM stream_agg.view_duplicate d WHERE d.view_id = c.id);
		distant := EXISTS (SELECT FROM stream_agg.view_rebuild r WHERE r.view_id = c.id);
		RETURN NEXT;
	END LOOP;
END $$;

CALL feed(1, 300);
CALL stream_agg.run('s');
CALL feed(301, 500);
CALL stream_agg.run('s');
TABLE differences;
SELECT * FROM on_disk();
SELECT view, rebuild_distance > 0 AS distant, rebuild_distance < read AS less FROM stream_agg.views WHERE rebuild_distance IS NOT NULL ORDER BY 1;
CALL lose_state();
CALL feed(501, 530);
CALL stream_agg.run('s');
TABLE differences;
-- in the midst, and twice at the same place
CALL feed(531, 800);
CALL stream_agg.run('s');
CALL lose_state();
CALL stream_agg.run('s');
CALL lose_state();
CALL feed(801, 801);
CALL stream_agg.run('s');
CALL feed(802, 1000);
CALL stream_agg.run('s');
TABLE differences;
-- places that nothing is read again from are gone
SELECT bool_and(d.last >= r.position) FROM stream_agg.view_duplicate d JOIN (SELECT view_id, min(position) AS position FROM stream_agg.view_rebuild GROUP BY 1) r USING (view_id);
-- saved by a worker that stops in order, and taken up by the next
CALL stop_worker();
CALL feed(1001, 1100);
CALL stream_agg.run('s');
TABLE differences;
-- to heap and back, with state lost in between
ALTER MATERIALIZED VIEW closed SET (stream_agg.state = 'heap');
ALTER MATERIALIZED VIEW stored RESET (stream_agg.state);
CALL lose_state();
CALL feed(1101, 1150);
CALL stream_agg.run('s');
SELECT * FROM on_disk();
CALL lose_state();
CALL feed(1151, 1200);
CALL stream_agg.run('s');
TABLE differences;
ALTER MATERIALIZED VIEW closed SET (stream_agg.state = 'unlogged');
ALTER MATERIALIZED VIEW stored SET (stream_agg.state = 'unlogged');
CALL feed(1201, 1210);
CALL stream_agg.run('s');
CALL lose_state();
CALL feed(1211, 1300);
CALL stream_agg.run('s');
CALL lose_state();
CALL feed(1301, 1500);
CALL stream_agg.run('s');
TABLE differences;
-- tables that were rewritten
\set ECHO none
SELECT format('VACUUM FULL %s, %s', c.dedup, c.dedup_spill) FROM stream_agg.view_config c WHERE c.dedup_spill IS NOT NULL ORDER BY c.view::text \gexec
\set ECHO all
CALL feed(1501, 1600);
CALL stream_agg.run('s');
VACUUM FULL stored;
CALL feed(1601, 1650);
CALL stream_agg.run('s');
TABLE differences;
-- dead letters: events that have failed keep their place and their keys
SELECT reason, count(*) > 0 FROM stream_agg.dead_letters WHERE view = 'closed'::regclass GROUP BY 1 ORDER BY 1;
INSERT INTO s SELECT 10000 + i, '2024-01-01 09:10Z'::timestamptz + i * interval '1 second', 5000 + i / 2, 3 + i % 2 FROM generate_series(0, 9) i;
CALL stream_agg.run('s');
CREATE OR REPLACE FUNCTION share(v int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN 100 / coalesce(nullif(v - 3, 0), 50); END';
CREATE PROCEDURE replay(low int, high int) LANGUAGE sql AS
	'SELECT stream_agg.replay_dead_letters(view, array_agg(id)) FROM stream_agg.dead_letters WHERE (event ->> ''id'')::int BETWEEN low AND high GROUP BY view';
CALL lose_state();
CALL replay(10000, 10004);
CALL stream_agg.run('s');
CALL replay(10005, 10009);
CALL stream_agg.run('s');
SELECT view, replayed FROM stream_agg.views WHERE replayed > 0 ORDER BY view::text;
CALL lose_state();
-- both copies of each are known
INSERT INTO s SELECT 20000 + i, '2024-01-01 09:10Z'::timestamptz + i * interval '1 second', 5000 + i / 2, 1 FROM generate_series(0, 9) i;
CALL stream_agg.run('s');
CALL lose_state();
CALL feed(1651, 2000);
CALL stream_agg.run('s');
TABLE differences;
SELECT view, replayed FROM stream_agg.views WHERE replayed > 0 ORDER BY view::text;
SELECT id FROM closed, unnest(ids) id WHERE id >= 10000 GROUP BY 1 ORDER BY 1;
-- from the start
SELECT stream_agg.reset('latest');
SELECT count(*) FROM stream_agg.view_duplicate d JOIN stream_agg.view_config c ON c.id = d.view_id WHERE c.view = 'latest'::regclass;
CALL stream_agg.run('s');
SELECT sum(cardinality(ids)) > 0 AS again FROM latest;
SELECT count(*) FROM pg_class WHERE relname ~ '^dedup_spill_';
DROP VIEW differences;
DROP FOREIGN TABLE s CASCADE;
SELECT (SELECT count(*) FROM stream_agg.view_rebuild), (SELECT count(*) FROM stream_agg.view_duplicate), (SELECT count(*) FROM pg_class WHERE relname ~ '^dedup_');
DROP PROCEDURE make, replay, lose_state, stop_worker, feed;
DROP FUNCTION on_disk;
DROP AGGREGATE ids(int);
DROP FUNCTION share;
