--
-- Administration: pause, resume, run, explain, what the views show, and who may do what.
--
SET timezone = 'UTC';
SET datestyle = 'ISO';

CREATE ROLE regress_sa_owner;
CREATE ROLE regress_sa_other;
CREATE ROLE regress_sa_admin IN ROLE stream_agg_admin;
GRANT CREATE ON SCHEMA public TO regress_sa_owner;
SET ROLE regress_sa_owner;
CREATE FOREIGN TABLE s (k int, v int, at timestamptz) SERVER stream_staged OPTIONS (event_time 'at', watermark '1 minute');
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT k, window_start, count(*) AS n, sum(v) AS total, avg(v) AS mean FROM s, tumble(at, '1 minute') GROUP BY k, window_start;
CREATE MATERIALIZED VIEW w WITH (stream_agg.continuous, stream_agg.trigger = '1 day', stream_agg.output_mode = 'append') AS
	SELECT window_start, window_end, count(*) AS n FROM s, tumble(at, '1 minute') GROUP BY 1, 2;
CREATE MATERIALIZED VIEW t WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.on_error = 'fail') AS SELECT k, v FROM s WHERE v > 1;
INSERT INTO s VALUES (1, 1, '2024-01-01 00:00:00'), (2, 2, '2024-01-01 00:00:30'), (1, 3, '2024-01-01 00:05:00'), (1, 4, '2024-01-01 00:00:00'), (1, 4, NULL);
CALL stream_agg.run('s');

-- What the owner sees.
SELECT stream, source, owner, views, status, message, end_position, dead_letters_dropped FROM stream_agg.streams;
SELECT view, stream, owner, status, message, output_mode, trigger, watermark, oldest_window_end FROM stream_agg.views ORDER BY view::text COLLATE "C";
SELECT view, read, skipped, tombstone, malformed, null_time, future, duplicate, failed, filtered, late, accepted, late_windows, groups, windows
FROM stream_agg.views ORDER BY view::text COLLATE "C";
SELECT view, topic, partition, position, end_position, lag, running_max, watermark FROM stream_agg.partitions ORDER BY view::text COLLATE "C";
SELECT view, sum(read) AS read, sum(null_time) AS null_time, sum(late) AS late, sum(accepted) AS accepted, sum(written) AS written, min(lag) AS lag, max(watermark) AS watermark,
	bool_and(duration >= '0' AND finished_at IS NOT NULL) AS timed
FROM stream_agg.progress GROUP BY view ORDER BY view::text COLLATE "C";
SELECT stream, view, reason, topic, partition, position, event_time, arrival IS NOT NULL AS arrived, message IS NOT NULL AS has_message, event
FROM stream_agg.dead_letters ORDER BY position, view::text;
-- explain
SELECT * FROM stream_agg.explain('v');
SELECT * FROM stream_agg.explain('w');
SELECT * FROM stream_agg.explain('t');
SELECT * FROM stream_agg.explain('s');

-- Somebody else sees nothing, and may do nothing.
SET ROLE regress_sa_other;
SELECT count(*) FROM stream_agg.streams;
SELECT count(*) FROM stream_agg.views;
SELECT count(*) FROM stream_agg.partitions;
SELECT count(*) FROM stream_agg.progress;
SELECT count(*) FROM stream_agg.dead_letters;
SELECT stream_agg.pause('v');
SELECT stream_agg.resume('v');
SELECT stream_agg.drop_view('v');
SELECT * FROM stream_agg.explain('v');
CALL stream_agg.run('v');
CALL stream_agg.run('s');
SELECT * FROM stream_agg.view_config;
SELECT * FROM stream_agg.dead_letter;
SELECT * FROM stream_agg.view_position;
DELETE FROM stream_agg.dead_letters;
SELECT * FROM stream_agg.progress_list();
SELECT * FROM stream_agg.worker_status('s');
INSERT INTO stream_agg.view_config (id) VALUES (1);
SELECT stream_agg.may_see('v'), stream_agg.may_see('s'), stream_agg.may_see(NULL);
DROP MATERIALIZED VIEW v;
DO $$ BEGIN PERFORM * FROM stream_agg.staged_segment; EXCEPTION WHEN insufficient_privilege THEN RAISE NOTICE 'refused'; END $$;

-- An administrator may administer everything, but not read what he has no right to.
SET ROLE regress_sa_admin;
SELECT count(*) FROM stream_agg.streams;
SELECT view, status FROM stream_agg.views ORDER BY view::text COLLATE "C";
SELECT stream_agg.pause('v');
CALL stream_agg.run('w');
SELECT stream_agg.resume('v');
CALL stream_agg.run('s');
SELECT * FROM stream_agg.explain('v') LIMIT 1;
SELECT * FROM v;

-- pause and resume.
SET ROLE regress_sa_owner;
SELECT stream_agg.pause('v');
SELECT stream_agg.pause('v');
SELECT view, status FROM stream_agg.views ORDER BY view::text COLLATE "C";
INSERT INTO s VALUES (3, 30, '2024-01-01 00:06:00'), (3, 31, '2024-01-01 00:06:30');
-- A run of the stream names the paused view; of another view it does not mind.
CALL stream_agg.run('s');
CALL stream_agg.run('v');
CALL stream_agg.run('w');
CALL stream_agg.run('t');
SELECT * FROM v WHERE k = 3;
SELECT count(*) FROM t;
SELECT view, position, lag FROM stream_agg.partitions ORDER BY view::text COLLATE "C";
SELECT stream_agg.resume('v');
SELECT stream_agg.resume('v');
CALL stream_agg.run('s');
SELECT * FROM v WHERE k = 3;
SELECT view, position, lag FROM stream_agg.partitions ORDER BY view::text COLLATE "C";
-- In a transaction that rolls back nothing is paused.
BEGIN;
SELECT stream_agg.pause('v');
ROLLBACK;
SELECT status FROM stream_agg.views WHERE view = 'v'::regclass;
-- run() in a transaction block, in a function, of things that are neither.
BEGIN;
CALL stream_agg.run('s');
ROLLBACK;
DO $$ BEGIN CALL stream_agg.run('s'); END $$;
BEGIN;
DO $$ BEGIN CALL stream_agg.run('s'); END $$;
ROLLBACK;
CREATE TABLE ordinary (k int);
CALL stream_agg.run('ordinary');
CALL stream_agg.run('nothing');
CALL stream_agg.run(0);
CALL stream_agg.run(NULL);
SELECT stream_agg.pause('ordinary');
SELECT stream_agg.pause('s');
SELECT stream_agg.resume(0);
SELECT stream_agg.pause(NULL);
CALL stream_agg.run('s', '1 minute');
-- A stream without views.
CREATE FOREIGN TABLE lonely (k int) SERVER stream_staged;
CALL stream_agg.run('lonely');
INSERT INTO lonely VALUES (1);
CALL stream_agg.run('lonely');
SELECT stream, views FROM stream_agg.streams ORDER BY stream::text COLLATE "C";
DROP FOREIGN TABLE lonely;

-- One event fails in a view's expressions: a dead letter of that view, its neighbours are complete.
CREATE MATERIALIZED VIEW dividing WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.start = 'latest') AS
	SELECT k, count(*) AS n, sum(v) AS total FROM s WHERE 10 / v > 0 GROUP BY k;
CREATE MATERIALIZED VIEW strict WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.start = 'latest', stream_agg.on_error = 'fail') AS
	SELECT k, count(*) AS n, sum(v) AS total FROM s WHERE 10 / v > 0 GROUP BY k;
CREATE MATERIALIZED VIEW calm WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.start = 'latest') AS
	SELECT k, count(*) AS n, sum(v) AS total FROM s GROUP BY k;
CREATE MATERIALIZED VIEW above WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.start = 'latest') AS
	SELECT k, 100 / (sum(v) - 1500) AS x FROM s GROUP BY k;
CREATE MATERIALIZED VIEW casting WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.start = 'latest') AS
	SELECT 1 / (k - 7) AS x, v FROM s;
CALL stream_agg.run('s');
INSERT INTO s SELECT i % 10, i % 100, '2024-01-01 00:07:00' FROM generate_series(1, 300) i;
CALL stream_agg.run('s');
SELECT view, status, message FROM stream_agg.views ORDER BY view::text COLLATE "C";
SELECT sum(n), sum(total) FROM calm;
SELECT sum(n), sum(total) FROM dividing;
SELECT count(*) FROM strict;
SELECT count(*) FROM casting;
SELECT count(*) FROM above;
SELECT view, read, failed, filtered, accepted FROM stream_agg.views WHERE view::text IN ('dividing', 'calm', 'casting') ORDER BY view::text COLLATE "C";
SELECT view, reason, message, count(*), min(event ->> 'k') AS k, min(event ->> 'v') AS v
FROM stream_agg.dead_letters WHERE reason = 'failed' GROUP BY 1, 2, 3 ORDER BY view::text COLLATE "C";
-- A failed view stays at its place, and goes on from there.
SELECT view, lag FROM stream_agg.partitions WHERE view::text IN ('strict', 'calm', 'above') ORDER BY view::text COLLATE "C";
SELECT stream_agg.resume('strict');
CALL stream_agg.run('strict');
SELECT status, message FROM stream_agg.views WHERE view = 'strict'::regclass;
DROP TABLE strict, above, casting;

-- A trigger that raises: the view fails, with the message; the others go on.
CREATE FUNCTION raising() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no % please', NEW.k USING DETAIL = 'Really.', HINT = 'None.'; END $$;
CREATE TRIGGER raising AFTER INSERT OR UPDATE ON calm FOR EACH ROW WHEN (NEW.k = 5) EXECUTE FUNCTION raising();
INSERT INTO s VALUES (5, 50, '2024-01-01 00:08:00'), (6, 60, '2024-01-01 00:08:00');
CALL stream_agg.run('calm');
CALL stream_agg.run('s');
SELECT view, status, message FROM stream_agg.views WHERE status <> 'running';
SELECT k, n, total FROM calm WHERE k IN (5, 6) ORDER BY k;
SELECT view, lag FROM stream_agg.partitions ORDER BY view::text COLLATE "C";
INSERT INTO s VALUES (5, 500, '2024-01-01 00:08:00');
CALL stream_agg.run('dividing');
-- Still there: it fails again; gone: nothing is lost.
SELECT stream_agg.resume('calm');
CALL stream_agg.run('calm');
DROP TRIGGER raising ON calm;
SELECT stream_agg.resume('calm');
CALL stream_agg.run('calm');
CALL stream_agg.run('s');
SELECT k, n, total FROM calm WHERE k IN (5, 6) ORDER BY k;
SELECT status, message, read, accepted FROM stream_agg.views WHERE view = 'calm'::regclass;

-- TRUNCATE of the stream discards what is not read: counted as skipped.
SELECT count(stream_agg.pause(view)::text) FROM stream_agg.views;
INSERT INTO s VALUES (1, 1, '2024-01-01 00:09:00'), (1, 1, '2024-01-01 00:09:00');
TRUNCATE s;
SELECT count(stream_agg.resume(view)::text) FROM stream_agg.views;
INSERT INTO s VALUES (1, 1, '2024-01-01 00:09:00');
CALL stream_agg.run('s');
SELECT view, skipped, read = skipped + tombstone + malformed + null_time + future + duplicate + failed + filtered + late + accepted AS adds_up
FROM stream_agg.views ORDER BY view::text COLLATE "C";

-- An operator of one's own, first in the path and an exact match, opens nobody else's objects.
RESET ROLE;
CREATE SCHEMA regress_sa_snoop AUTHORIZATION regress_sa_other;
SET ROLE regress_sa_other;
CREATE TABLE regress_sa_snoop.mine ();
CREATE FUNCTION regress_sa_snoop.mine_only(oid, regclass) RETURNS boolean IMMUTABLE LANGUAGE sql AS
	$$SELECT $1 OPERATOR(pg_catalog.=) 'regress_sa_snoop.mine'::regclass::oid$$;
CREATE OPERATOR regress_sa_snoop.= (LEFTARG = oid, RIGHTARG = regclass, FUNCTION = regress_sa_snoop.mine_only);
SET search_path = regress_sa_snoop, pg_catalog, public;
SELECT (SELECT count(*) FROM stream_agg.streams) AS streams, (SELECT count(*) FROM stream_agg.views) AS views,
	(SELECT count(*) FROM stream_agg.partitions) AS partitions, (SELECT count(*) FROM stream_agg.dead_letters) AS dead_letters,
	(SELECT count(*) FROM stream_agg.data_losses) AS data_losses, (SELECT count(*) FROM stream_agg.progress) AS progress;
RESET search_path;
RESET ROLE;
DROP SCHEMA regress_sa_snoop CASCADE;

RESET ROLE;
DROP FOREIGN TABLE s CASCADE;
DROP TABLE ordinary;
DROP FUNCTION raising();
REVOKE CREATE ON SCHEMA public FROM regress_sa_owner;
DROP ROLE regress_sa_owner, regress_sa_other, regress_sa_admin;
