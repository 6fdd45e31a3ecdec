--
-- allowed_lateness: groups stay after their windows have closed, and late events correct their rows in place.
--
SET timezone = 'UTC';
SET datestyle = 'ISO';

CREATE FOREIGN TABLE clicks (who text, amount int, at timestamptz)
	SERVER stream_staged OPTIONS (event_time 'at', watermark '0');
CREATE MATERIALIZED VIEW appended WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.trigger = 'manual',
	stream_agg.allowed_lateness = '2 minutes') AS
	SELECT who, window_start, count(*) AS n, sum(amount) AS total, avg(amount) AS mean
	FROM clicks, tumble(at, '1 minute') GROUP BY who, window_start;
CREATE MATERIALIZED VIEW updated WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.allowed_lateness = '2 minutes') AS
	SELECT who, window_start, count(*) AS n, sum(amount) AS total, avg(amount) AS mean
	FROM clicks, tumble(at, '1 minute') GROUP BY who, window_start;
CREATE MATERIALIZED VIEW strict WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.trigger = 'manual') AS
	SELECT who, window_start, count(*) AS n, sum(amount) AS total, avg(amount) AS mean
	FROM clicks, tumble(at, '1 minute') GROUP BY who, window_start;
-- Nobody changes rows of append mode but corrections.
CREATE TABLE changes (view text, op text, who text, n bigint);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
	$$BEGIN INSERT INTO public.changes VALUES (TG_TABLE_NAME, TG_OP, coalesce(NEW.who, OLD.who), NEW.n); RETURN NULL; END$$;
CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON appended FOR EACH ROW EXECUTE FUNCTION note();

INSERT INTO clicks VALUES ('ann', 1, '2024-01-01 00:00:10'), ('bob', 2, '2024-01-01 00:00:20'), ('ann', 4, '2024-01-01 00:01:00');
CALL stream_agg.run('clicks');
SELECT * FROM appended ORDER BY window_start, who;
SELECT * FROM changes;
-- A correction, and a group that is born after its window's close.
INSERT INTO clicks VALUES ('ann', 8, '2024-01-01 00:00:59'), ('cal', 16, '2024-01-01 00:00:00');
CALL stream_agg.run('clicks');
SELECT * FROM appended ORDER BY window_start, who;
SELECT * FROM changes;
SELECT view, late, accepted, late_windows, corrections, groups, windows FROM stream_agg.views ORDER BY view::text COLLATE "C";
-- The last moment in which it is allowed: a microsecond before the watermark is two minutes past the window's end.
INSERT INTO clicks VALUES ('ann', 32, '2024-01-01 00:02:59.999999'), ('bob', 64, '2024-01-01 00:00:30');
CALL stream_agg.run('clicks');
SELECT * FROM appended ORDER BY window_start, who;
-- Late from then on; within the batch, too.
INSERT INTO clicks VALUES ('ann', 128, '2024-01-01 00:03:00'), ('bob', 256, '2024-01-01 00:00:30'), ('bob', 512, '2024-01-01 00:01:59');
CALL stream_agg.run('clicks');
SELECT * FROM appended ORDER BY window_start, who;
SELECT view, late, accepted, late_windows, corrections, groups, windows FROM stream_agg.views ORDER BY view::text COLLATE "C";
SELECT view, event_time, message FROM stream_agg.dead_letters WHERE view <> 'strict'::regclass ORDER BY id;
-- A window that is born, closes, and is forgotten within a batch; one that closes and is corrected in the same batch.
INSERT INTO clicks VALUES ('dan', 1, '2024-01-01 00:05:00'), ('dan', 2, '2024-01-01 00:06:00'), ('dan', 3, '2024-01-01 00:05:30'),
	('eve', 1, '2024-01-01 00:20:00'), ('eve', 2, '2024-01-01 00:21:00'), ('eve', 4, '2024-01-01 00:20:00'), ('dan', 9, '2024-01-01 00:05:00');
CALL stream_agg.run('clicks');
SELECT * FROM appended WHERE window_start >= '2024-01-01 00:03' ORDER BY window_start, who;
SELECT * FROM changes;
SELECT view, late, accepted, late_windows, corrections, groups, windows FROM stream_agg.views ORDER BY view::text COLLATE "C";
-- In update mode the rows are the same, where windows are closed.
SELECT * FROM updated EXCEPT ALL SELECT * FROM appended;
SELECT * FROM appended EXCEPT ALL SELECT * FROM updated;

-- Whatever the batches, the same.
CREATE MATERIALIZED VIEW one_by_one WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.trigger = 'manual',
	stream_agg.allowed_lateness = '2 minutes', stream_agg.max_batch_rows = 1) AS
	SELECT who, window_start, count(*) AS n, sum(amount) AS total, avg(amount) AS mean
	FROM clicks, tumble(at, '1 minute') GROUP BY who, window_start;
CREATE MATERIALIZED VIEW at_once WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.trigger = 'manual',
	stream_agg.allowed_lateness = '2 minutes', stream_agg.state = 'unlogged') AS
	SELECT who, window_start, count(*) AS n, sum(amount) AS total, avg(amount) AS mean
	FROM clicks, tumble(at, '1 minute') GROUP BY who, window_start;
CALL stream_agg.run('clicks');
SELECT * FROM one_by_one EXCEPT ALL SELECT * FROM appended;
SELECT * FROM at_once EXCEPT ALL SELECT * FROM appended;
SELECT count(DISTINCT ROW(read, late, accepted, late_windows, corrections)) FROM stream_agg.views WHERE view <> 'strict'::regclass;

-- Reset begins anew; a new worker finds the rows again; a result table that was rewritten, too.
SELECT stream_agg.reset('appended');
CALL stream_agg.run('appended');
SELECT * FROM one_by_one EXCEPT ALL SELECT * FROM appended;
SELECT corrections FROM stream_agg.views WHERE view = 'appended'::regclass;
SELECT stream_agg.pause('appended');
SELECT stream_agg.resume('appended');
VACUUM FULL one_by_one;
INSERT INTO clicks VALUES ('eve', 8, '2024-01-01 00:20:00'), ('fay', 1, '2024-01-01 00:20:59');
CALL stream_agg.run('clicks');
SELECT * FROM appended WHERE window_start = '2024-01-01 00:20' ORDER BY who;
SELECT * FROM one_by_one EXCEPT ALL SELECT * FROM appended;
SELECT * FROM appended EXCEPT ALL SELECT * FROM one_by_one;
-- The query changes with closed windows at hand: their groups go on.
CREATE MATERIALIZED VIEW appended WITH (stream_agg.continuous, stream_agg.replace) AS
	SELECT who, window_start, count(*) AS n, sum(amount) AS total, avg(amount) AS mean, max(amount) AS most
	FROM clicks, tumble(at, '1 minute') GROUP BY who, window_start;
INSERT INTO clicks VALUES ('eve', 3, '2024-01-01 00:20:00');
CALL stream_agg.run('clicks');
SELECT * FROM appended WHERE window_start = '2024-01-01 00:20' ORDER BY who;
DROP FOREIGN TABLE clicks CASCADE;
TRUNCATE changes;

-- HAVING: a correction may bring a row, and take it away.
CREATE FOREIGN TABLE sums (who text, n int, at timestamptz) SERVER stream_staged OPTIONS (event_time 'at', watermark '0');
CREATE MATERIALIZED VIEW positive WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.trigger = 'manual',
	stream_agg.allowed_lateness = '1 hour') AS
	SELECT who, window_start, sum(n) AS n FROM sums, tumble(at, '1 minute') GROUP BY 1, 2 HAVING sum(n) > 0;
CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON positive FOR EACH ROW EXECUTE FUNCTION note();
INSERT INTO sums VALUES ('ann', 1, '2024-01-01 00:00'), ('bob', -1, '2024-01-01 00:00'), (NULL, 1, '2024-01-01 00:01');
CALL stream_agg.run('sums');
INSERT INTO sums VALUES ('ann', -1, '2024-01-01 00:00'), ('bob', 2, '2024-01-01 00:00');
CALL stream_agg.run('sums');
INSERT INTO sums VALUES ('ann', 7, '2024-01-01 00:00'), ('bob', 3, '2024-01-01 00:00');
CALL stream_agg.run('sums');
SELECT * FROM changes;
SELECT * FROM positive ORDER BY who;
DROP FOREIGN TABLE sums CASCADE;

-- Hopping windows are judged each on its own.
CREATE FOREIGN TABLE hops (at timestamptz) SERVER stream_staged OPTIONS (event_time 'at', watermark '0');
CREATE MATERIALIZED VIEW hopping WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.trigger = 'manual',
	stream_agg.allowed_lateness = '5 minutes') AS
	SELECT window_start, window_end, count(*) AS n FROM hops, hop(at, '10 minutes', '5 minutes') GROUP BY 1, 2;
INSERT INTO hops VALUES ('2024-01-01 12:07'), ('2024-01-01 12:20'), ('2024-01-01 12:14'), ('2024-01-01 12:15'), ('2024-01-01 12:04');
CALL stream_agg.run('hops');
SELECT * FROM hopping ORDER BY 1;
SELECT late, accepted, late_windows, corrections FROM stream_agg.views;
SELECT line FROM stream_agg.explain('hopping') line WHERE line LIKE 'Window%';
-- Another query, whose states cannot be combined.
CREATE AGGREGATE plain_sum(int) (sfunc = int4pl, stype = int, initcond = '0');
CREATE MATERIALIZED VIEW hopping WITH (stream_agg.continuous, stream_agg.replace) AS
	SELECT window_start, window_end, count(*) AS n, plain_sum(1) AS more FROM hops, hop(at, '10 minutes', '5 minutes') GROUP BY 1, 2;
INSERT INTO hops VALUES ('2024-01-01 12:15'), ('2024-01-01 12:25'), ('2024-01-01 12:30');
CALL stream_agg.run('hops');
SELECT * FROM hopping ORDER BY 1;
DROP FOREIGN TABLE hops CASCADE;
DROP AGGREGATE plain_sum(int);

-- Sessions, which stay for as long, and may grow and meet: an event is late when it is behind the watermark by more than
-- what is allowed.  The gap is five seconds.
CREATE FOREIGN TABLE visits (who text, at timestamptz) SERVER stream_staged OPTIONS (event_time 'at', watermark '0', max_future 'infinity');
CREATE MATERIALIZED VIEW ended WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.trigger = 'manual',
	stream_agg.allowed_lateness = '1 minute') AS
	SELECT who, window_start, window_end, count(*) AS n, avg(extract(second FROM at))::numeric(8, 3) AS mean
	FROM visits, session(at, '5 s') WHERE who <> 'clock' GROUP BY who, window_start, window_end;
CREATE MATERIALIZED VIEW current WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.allowed_lateness = '1 minute') AS
	SELECT who, window_start, window_end, count(*) AS n, avg(extract(second FROM at))::numeric(8, 3) AS mean
	FROM visits, session(at, '5 s') WHERE who <> 'clock' GROUP BY who, window_start, window_end;
-- These read all of it in the end.
CREATE MATERIALIZED VIEW at_once WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.trigger = '1 day',
	stream_agg.allowed_lateness = '1 minute') AS
	SELECT who, window_start, window_end, count(*) AS n, avg(extract(second FROM at))::numeric(8, 3) AS mean
	FROM visits, session(at, '5 s') WHERE who <> 'clock' GROUP BY who, window_start, window_end;
CREATE MATERIALIZED VIEW one_by_one WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.trigger = '1 day',
	stream_agg.allowed_lateness = '1 minute', stream_agg.max_batch_rows = 1) AS
	SELECT who, window_start, window_end, count(*) AS n, avg(extract(second FROM at))::numeric(8, 3) AS mean
	FROM visits, session(at, '5 s') WHERE who <> 'clock' GROUP BY who, window_start, window_end;
SELECT stream_agg.pause('at_once'), stream_agg.pause('one_by_one');
CREATE TABLE session_changes (number serial, op text, who text, was text, is_now text, n bigint);
CREATE FUNCTION note_session() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO public.session_changes (op, who, was, is_now, n) VALUES (TG_OP, coalesce(NEW.who, OLD.who),
		to_char(OLD.window_start, 'MI:SS') || to_char(OLD.window_end, '-MI:SS'),
		to_char(NEW.window_start, 'MI:SS') || to_char(NEW.window_end, '-MI:SS'), NEW.n);
	RETURN NULL;
END $$;
CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON ended FOR EACH ROW EXECUTE FUNCTION note_session();
-- What the events do to the rows of append mode; each in a batch of its own.
CREATE PROCEDURE visit(VARIADIC visits text[]) LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO visits SELECT split_part(v, ' ', 1), ('2024-01-01 00:' || split_part(v, ' ', 2))::timestamptz FROM unnest(visits) v;
	COMMIT;
	CALL stream_agg.run('ended');
	CALL stream_agg.run('current');
END $$;
CREATE FUNCTION changed() RETURNS TABLE (op text, who text, was text, is_now text, n bigint) LANGUAGE sql AS
	$$WITH x AS (DELETE FROM session_changes RETURNING *) SELECT op, who, was, is_now, n FROM x ORDER BY number$$;
CALL visit('ann 01:00', 'ann 01:03', 'bob 01:00', 'clock 01:10');
SELECT * FROM changed();
-- It is corrected, grows, begins earlier; a new one that is closed already.
CALL visit('ann 01:01');
SELECT * FROM changed();
CALL visit('bob 01:04');
SELECT * FROM changed();
CALL visit('bob 00:57');
SELECT * FROM changed();
CALL visit('cal 01:02');
SELECT * FROM changed();
-- It grows until it is open again: its row goes, until it has closed; not yet when the watermark is at its end.
CALL visit('ann 01:08');
SELECT * FROM changed();
CALL visit('clock 01:13');
SELECT * FROM changed();
CALL visit('clock 01:13.000001');
SELECT * FROM changed();
-- An open one and one that has closed meet; three that have closed; one of which there is no row yet with one that has one.
CALL visit('dan 01:20', 'dan 01:30', 'clock 01:27');
SELECT * FROM changed();
CALL visit('dan 01:25');
SELECT * FROM changed();
CALL visit('clock 01:36');
SELECT * FROM changed();
CALL visit('eve 01:40', 'eve 01:50', 'eve 02:00', 'clock 02:10');
SELECT * FROM changed();
CALL visit('eve 01:55', 'eve 01:45');
SELECT * FROM changed();
CALL visit('fay 02:03', 'clock 02:11');
CALL visit('fay 01:55', 'fay 01:59');
SELECT * FROM changed();
-- A restart in between: what has closed has its row, and what has not comes.
CALL visit('gil 02:20', 'gil 02:30', 'hal 02:20', 'clock 02:28');
SELECT * FROM changed();
SELECT pg_terminate_backend(pid, 10000) FROM stream_agg.streams WHERE stream = 'visits'::regclass;
CALL visit('hal 02:21', 'clock 02:36');
SELECT * FROM changed();
CALL visit('gil 02:25', 'hal 02:17', 'ida 02:17');
SELECT * FROM changed();
SELECT pg_terminate_backend(pid, 10000) FROM stream_agg.streams WHERE stream = 'visits'::regclass;
VACUUM FULL ended;
CALL visit('gil 02:35', 'clock 02:40');
SELECT * FROM changed();
CALL visit('clock 02:41');
SELECT * FROM changed();
-- The last moment in which it is allowed.  Sessions are forgotten a microsecond after a minute after their end.
CALL visit('hal 01:41', 'hal 01:40.999999');
SELECT * FROM changed();
SELECT view, late, accepted, late_windows, corrections, groups, windows, oldest_window_end FROM stream_agg.views WHERE view::text IN ('ended', 'current') ORDER BY view::text COLLATE "C";
CALL visit('clock 02:46');
SELECT view, groups, oldest_window_end FROM stream_agg.views WHERE view::text IN ('ended', 'current') ORDER BY view::text COLLATE "C";
CALL visit('clock 02:46.000001');
SELECT view, groups, oldest_window_end FROM stream_agg.views WHERE view::text IN ('ended', 'current') ORDER BY view::text COLLATE "C";
-- Born, closed, and forgotten in one batch; closed, and open again.
CALL visit('jon 10:00', 'clock 10:06', 'kim 10:04', 'jon 10:05', 'clock 11:10.000001', 'jon 10:10', 'leo 11:09', 'kim 11:10', 'kim 11:06');
SELECT * FROM changed();
SELECT view, late, accepted, late_windows, corrections, groups, windows FROM stream_agg.views WHERE view::text IN ('ended', 'current') ORDER BY view::text COLLATE "C";
SELECT view, event_time, message FROM stream_agg.dead_letters ORDER BY id;
-- Whatever the batches, the same; in update mode too, where sessions are closed.
SELECT stream_agg.resume('at_once'), stream_agg.resume('one_by_one');
CALL stream_agg.run('visits');
SELECT * FROM ended ORDER BY window_start, who;
SELECT * FROM one_by_one EXCEPT ALL SELECT * FROM ended;
SELECT * FROM ended EXCEPT ALL SELECT * FROM one_by_one;
SELECT * FROM at_once EXCEPT ALL SELECT * FROM ended;
SELECT * FROM ended EXCEPT ALL SELECT * FROM at_once;
SELECT * FROM ended EXCEPT ALL SELECT * FROM current;
SELECT * FROM current EXCEPT ALL SELECT * FROM ended;
SELECT count(DISTINCT ROW(read, late, accepted, late_windows, corrections, groups)) FROM stream_agg.views;
-- None of one key that overlap or touch.
SELECT a.who FROM current a JOIN current b USING (who) WHERE a.window_start < b.window_start AND a.window_end >= b.window_start;
SELECT a.who FROM ended a JOIN ended b USING (who) WHERE a.window_start < b.window_start AND a.window_end >= b.window_start;
-- The query changes with closed sessions at hand: their groups go on.
CALL visit('leo 11:14', 'clock 11:30');
SELECT * FROM changed();
CREATE MATERIALIZED VIEW ended WITH (stream_agg.continuous, stream_agg.replace) AS
	SELECT who, window_start, window_end, count(*) AS n, avg(extract(second FROM at))::numeric(8, 3) AS mean, max(at) AS last
	FROM visits, session(at, '5 s') WHERE who <> 'clock' GROUP BY who, window_start, window_end;
CALL visit('leo 11:19', 'leo 11:26', 'leo 11:31');
SELECT * FROM changed();
CALL visit('clock 12:00');
SELECT * FROM ended WHERE window_start >= '2024-01-01 00:11' ORDER BY window_start, who;
DROP FOREIGN TABLE visits CASCADE;
TRUNCATE session_changes;

-- HAVING: a closed session that has no row may get one, when it is open again as when it is not.  Duplicates are known for
-- as long as they are not late.  An administrator's watermark closes, and forgets only by the allowed lateness.
CREATE FOREIGN TABLE visits (who text, at timestamptz) SERVER stream_staged OPTIONS (event_time 'at', watermark '0', max_future 'infinity');
CREATE MATERIALIZED VIEW ended WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.trigger = 'manual',
	stream_agg.allowed_lateness = '1 minute', stream_agg.dedup_key = 'who, at') AS
	SELECT who, window_start, window_end, count(*) AS n FROM visits, session(at, '5 s') WHERE who <> 'clock'
	GROUP BY who, window_start, window_end HAVING count(*) % 2 = 0;
CREATE MATERIALIZED VIEW current WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.allowed_lateness = '1 minute') AS
	SELECT window_start, window_end, count(*) AS n FROM visits, session(at, '5 s') GROUP BY window_start, window_end;
CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON ended FOR EACH ROW EXECUTE FUNCTION note_session();
CALL visit('ann 01:00', 'bob 01:00', 'bob 01:01', 'cal 01:00', 'clock 01:10');
SELECT * FROM changed();
CALL visit('ann 01:01', 'bob 01:02', 'cal 01:05', 'cal 01:00', 'ann 01:00', 'bob 01:01');
SELECT * FROM changed();
CALL visit('bob 01:03', 'cal 01:09', 'ann 01:06');
SELECT * FROM changed();
CALL visit('cal 01:13', 'clock 01:18');
SELECT * FROM changed();
CALL visit('clock 01:18.000001');
SELECT * FROM changed();
SELECT stream_agg.advance_watermark('ended', '2024-01-01 00:02:11.000001');
CALL stream_agg.run('ended');
SELECT groups, oldest_window_end FROM stream_agg.views WHERE view = 'ended'::regclass;
CALL visit('ann 01:11', 'cal 01:11', 'cal 01:11.1', 'cal 01:11.1', 'cal 01:11.000001');
SELECT * FROM changed();
SELECT view, duplicate, late, accepted, late_windows, corrections, groups, windows FROM stream_agg.views ORDER BY view::text COLLATE "C";
SELECT stream_agg.advance_watermark('ended', '2024-01-01 00:03');
CALL stream_agg.run('ended');
SELECT groups, oldest_window_end FROM stream_agg.views WHERE view = 'ended'::regclass;
DROP MATERIALIZED VIEW ended, current;

-- A dead letter that is fed again, between two that have closed; and one that comes too late for that.
CREATE FUNCTION weight(who text) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$BEGIN IF who = 'bad' THEN RAISE 'too bad'; END IF; RETURN 1; END$$;
CREATE MATERIALIZED VIEW ended WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.trigger = 'manual',
	stream_agg.allowed_lateness = '1 minute', stream_agg.start = 'latest') AS
	SELECT 'all' AS who, window_start, window_end, sum(weight(who)) AS n FROM visits, session(at, '5 s') WHERE who <> 'clock'
	GROUP BY window_start, window_end;
CREATE MATERIALIZED VIEW current WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT count(*) AS n FROM visits;
CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON ended FOR EACH ROW EXECUTE FUNCTION note_session();
CALL stream_agg.run('visits');
CALL visit('bad 05:00', 'ann 05:20', 'bad 05:23', 'ann 05:28', 'clock 06:18');
SELECT * FROM changed();
CREATE OR REPLACE FUNCTION weight(who text) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1';
SELECT stream_agg.replay_dead_letters('ended');
CALL stream_agg.run('ended');
SELECT * FROM changed();
SELECT status, failed, late, accepted, replayed, corrections, groups FROM stream_agg.views WHERE view = 'ended'::regclass;
SELECT view, reason, event ->> 'at' AS at, message FROM stream_agg.dead_letters;
DROP FOREIGN TABLE visits CASCADE;
DROP FUNCTION weight;
DROP TABLE session_changes;
DROP FUNCTION changed, note_session;
DROP PROCEDURE visit;
-- A dead letter says for which window the event was late, the last that would have held it, and by which watermark: as the view
-- shows its times.  A session is not known yet.
SET timezone = 'Asia/Tokyo';
CREATE FOREIGN TABLE local (at timestamp) SERVER stream_staged OPTIONS (event_time 'at', watermark '0');
CREATE FOREIGN TABLE zoned (at timestamptz) SERVER stream_staged OPTIONS (event_time 'at', watermark '0');
CREATE MATERIALIZED VIEW l_tumble WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT window_end, count(*) AS n FROM local, tumble(at, '1 month') GROUP BY 1;
CREATE MATERIALIZED VIEW l_whole WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT window_end, count(*) AS n FROM local, hop(at, '15 minutes', '10 minutes') GROUP BY 1;
CREATE MATERIALIZED VIEW l_panes WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append') AS SELECT window_end, count(*) AS n FROM local, hop(at, '15 minutes', '10 minutes') GROUP BY 1;
CREATE MATERIALIZED VIEW l_cumulate WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT window_end, count(*) AS n FROM local, cumulate(at, '1 hour', '1 day') GROUP BY 1;
CREATE MATERIALIZED VIEW l_session WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT window_start, window_end, count(*) AS n FROM local, session(at, '1 hour') GROUP BY 1, 2;
CREATE MATERIALIZED VIEW z_trunc WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT date_trunc('day', at) AS day, count(*) AS n FROM zoned GROUP BY 1;
CREATE MATERIALIZED VIEW z_dropped WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.late_events = 'drop') AS SELECT date_trunc('day', at) AS day, count(*) AS n FROM zoned GROUP BY 1;
INSERT INTO local VALUES ('2024-01-31 12:00'), ('2024-02-02 00:00'), ('2024-01-31 23:59:59.9');
INSERT INTO zoned VALUES ('2024-01-31 12:00'), ('2024-02-02 00:00'), ('2024-01-31 23:59:59.9');
CALL stream_agg.run('local');
CALL stream_agg.run('zoned');
SELECT view, late, late_windows FROM stream_agg.views ORDER BY view::text COLLATE "C";
SELECT view, event_time, message, event ->> 'at' AS at FROM stream_agg.dead_letters ORDER BY view::text COLLATE "C";
SET client_min_messages = warning;
DROP FOREIGN TABLE local, zoned CASCADE;
RESET client_min_messages;
SET timezone = 'UTC';

-- What it needs, and what cannot be.
CREATE FOREIGN TABLE plain (k int, at timestamptz) SERVER stream_staged OPTIONS (event_time 'at');
CREATE MATERIALIZED VIEW wrong WITH (stream_agg.continuous, stream_agg.allowed_lateness = '1 hour') AS
	SELECT window_start, count(*) FROM plain, tumble(at, '1 minute') GROUP BY 1;
CREATE MATERIALIZED VIEW wrong WITH (stream_agg.continuous, stream_agg.watermark = '0', stream_agg.allowed_lateness = '1 hour') AS
	SELECT k, count(*) FROM plain GROUP BY 1;
CREATE MATERIALIZED VIEW wrong WITH (stream_agg.continuous, stream_agg.watermark = '0', stream_agg.allowed_lateness = '-1 hour') AS
	SELECT window_start, count(*) FROM plain, tumble(at, '1 minute') GROUP BY 1;
CREATE MATERIALIZED VIEW good WITH (stream_agg.continuous, stream_agg.watermark = '0', stream_agg.trigger = 'manual', stream_agg.allowed_lateness = '1 hour') AS
	SELECT window_start, count(*) AS n FROM plain, tumble(at, '1 minute') GROUP BY 1;
ALTER MATERIALIZED VIEW good SET (stream_agg.allowed_lateness = '2 hours');
ALTER MATERIALIZED VIEW good RESET (stream_agg.watermark);
-- Windows of one minute stay for an hour.
INSERT INTO plain VALUES (1, '2023-12-31 00:00');
CALL stream_agg.run('plain');
SELECT delay, windows, groups, basis FROM stream_agg.estimate_state('good'::regclass, '10 minutes');
-- An administrator's watermark closes, and forgets only by the allowed lateness.
INSERT INTO plain VALUES (1, '2024-01-01 00:00');
CALL stream_agg.run('plain');
SELECT stream_agg.advance_watermark('good', '2024-01-01 01:00:59');
CALL stream_agg.run('plain');
INSERT INTO plain VALUES (2, '2024-01-01 00:00:30');
CALL stream_agg.run('plain');
SELECT stream_agg.advance_watermark('good', '2024-01-01 01:01');
CALL stream_agg.run('plain');
INSERT INTO plain VALUES (3, '2024-01-01 00:00:30');
CALL stream_agg.run('plain');
SELECT * FROM good;
SELECT accepted, late, corrections, windows FROM stream_agg.views;
DROP FOREIGN TABLE plain CASCADE;
DROP TABLE changes;
DROP FUNCTION note();
