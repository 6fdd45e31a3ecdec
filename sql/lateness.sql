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
-- Another query, whose states cannot be combined.
CREATE AGGREGATE plain_sum(int) (sfunc = int4pl, stype = int, initcond = '0');
CREATE MATERIALIZED VIEW hopping WITH (stream_agg.continuous, stream_agg.replace) AS
	SELECT window_start, window_end, count(*) AS n, plain_sum(1) AS more FROM hops, hop(at, '10 minutes', '5 minutes') GROUP BY 1, 2;
INSERT INTO hops VALUES ('2024-01-01 12:15'), ('2024-01-01 12:25'), ('2024-01-01 12:30');
CALL stream_agg.run('hops');
SELECT * FROM hopping ORDER BY 1;
DROP FOREIGN TABLE hops CASCADE;
DROP AGGREGATE plain_sum(int);

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
