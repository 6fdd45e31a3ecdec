--
-- What other engines have got wrong about windows: each a case of its kind, in views.
--
SET timezone = 'UTC';
SET datestyle = 'ISO';
SET client_min_messages = warning;

-- Before 1970: 1969-12-31 23:59:58.450 in windows of 100 ms is in the one from .400; and what lies around it.
CREATE FOREIGN TABLE s (id int, at timestamptz) SERVER stream_staged OPTIONS (event_time 'at', watermark '0');
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append') AS
	SELECT window_start, window_end, count(*) AS n, sum(id) AS ids FROM s, tumble(at, '100 milliseconds') GROUP BY 1, 2;
CREATE MATERIALIZED VIEW h WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append') AS
	SELECT window_start, window_end, count(*) AS n, sum(id) AS ids FROM s, hop(at, '100 milliseconds', '40 milliseconds') GROUP BY 1, 2;
INSERT INTO s VALUES (1, '1969-12-31 23:59:58.399999'), (2, '1969-12-31 23:59:58.4'), (4, '1969-12-31 23:59:58.450'), (8, '1969-12-31 23:59:58.5'),
	(16, '1969-12-31 23:59:59.999999'), (32, '1970-01-01 00:00'), (64, '1970-01-01 00:01');
CALL stream_agg.run('s');
SELECT * FROM v ORDER BY 1;
SELECT * FROM h WHERE window_start <= '1969-12-31 23:59:58.450' AND window_end > '1969-12-31 23:59:58.450' ORDER BY 1;
DROP FOREIGN TABLE s CASCADE;

-- Origins before, around and after the time: 00:00:04 is in 23:54 to 00:04 by all of them.
CREATE FOREIGN TABLE s (id int, at timestamptz) SERVER stream_staged OPTIONS (event_time 'at', watermark '0');
CREATE MATERIALIZED VIEW v1 WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT window_start, window_end, count(*) AS n FROM s, tumble(at, '10 minutes', '2023-12-31 23:44') GROUP BY 1, 2;
CREATE MATERIALIZED VIEW v2 WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT window_start, window_end, count(*) AS n FROM s, tumble(at, '10 minutes', '2023-12-31 23:54') GROUP BY 1, 2;
CREATE MATERIALIZED VIEW v3 WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT window_start, window_end, count(*) AS n FROM s, tumble(at, '10 minutes', '2024-01-01 00:04') GROUP BY 1, 2;
CREATE MATERIALIZED VIEW v4 WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT window_start, window_end, count(*) AS n FROM s, hop(at, '10 minutes', '10 minutes', '2024-01-01 00:04') GROUP BY 1, 2;
CREATE MATERIALIZED VIEW v5 WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT window_start, window_end, count(*) AS n FROM s, cumulate(at, '10 minutes', '10 minutes', '2023-12-31 23:44') GROUP BY 1, 2;
CREATE MATERIALIZED VIEW v6 WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT date_bin('10 minutes', at, '2024-01-01 00:04') AS window_start, date_bin('10 minutes', at, '2024-01-01 00:04') + interval '10 minutes' AS window_end, count(*) AS n FROM s GROUP BY 1;
INSERT INTO s VALUES (1, '2024-01-01 00:00:04');
CALL stream_agg.run('s');
SELECT * FROM v1 UNION ALL TABLE v2 UNION ALL TABLE v3 UNION ALL TABLE v4 UNION ALL TABLE v5 UNION ALL TABLE v6;
-- The watermark of the event itself is before the end of all; that of the end closes them, whatever the origin.
INSERT INTO s VALUES (2, '2024-01-01 00:04');
CALL stream_agg.run('s');
INSERT INTO s VALUES (4, '2024-01-01 00:03:59');
CALL stream_agg.run('s');
SELECT view, late, accepted, windows FROM stream_agg.views ORDER BY view::text COLLATE "C";
DROP FOREIGN TABLE s CASCADE;

-- A size that is no multiple of the slide: 12:05 is in the windows from 11:55, 12:00 and 12:05; 12:04 and 12:07 in others.
CREATE FOREIGN TABLE s (id int, at timestamptz) SERVER stream_staged OPTIONS (event_time 'at', watermark '1 hour');
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT window_start, window_end, count(*) AS n, sum(id) AS ids FROM s, hop(at, '12 minutes', '5 minutes') GROUP BY 1, 2;
INSERT INTO s VALUES (1, '2024-01-01 12:05'), (2, '2024-01-01 12:04:59'), (4, '2024-01-01 12:07');
CALL stream_agg.run('s');
SELECT * FROM v ORDER BY 1;
DROP FOREIGN TABLE s CASCADE;

-- Days of New York over the change of the clock: 24, 23 and 24 hours; one row an hour, some of them late.
CREATE FOREIGN TABLE s (at timestamptz) SERVER stream_staged OPTIONS (event_time 'at', watermark '30 minutes');
CREATE MATERIALIZED VIEW days WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append', stream_agg.max_batch_rows = 7) AS
	SELECT window_start, window_end - window_start AS length, count(*) AS n FROM s, tumble(at, '1 day', timezone => 'America/New_York') GROUP BY window_start, window_end;
CREATE MATERIALIZED VIEW days_trunc WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append', stream_agg.max_batch_rows = 13) AS
	SELECT date_trunc('day', at, 'America/New_York') AS window_start, count(*) AS n FROM s GROUP BY 1;
CREATE MATERIALIZED VIEW so_far WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append') AS
	SELECT window_start, window_end, count(*) AS n FROM s, cumulate(at, '8 hours', '1 day', timezone => 'America/New_York') GROUP BY window_start, window_end;
INSERT INTO s SELECT at FROM generate_series(timestamptz '2026-03-07 05:00+00', '2026-03-12 04:00+00', '1 hour') WITH ORDINALITY t (at, i) ORDER BY i;
INSERT INTO s VALUES ('2026-03-11 03:59+00'), ('2026-03-12 03:29+00'), ('2026-03-12 03:59+00'), ('2026-03-12 04:30+00'), ('2026-03-12 03:59:59+00');
CALL stream_agg.run('s');
SET timezone = 'America/New_York';
SELECT * FROM days ORDER BY 1;
SELECT window_start, n FROM days EXCEPT ALL TABLE days_trunc;
SELECT * FROM so_far WHERE window_start = '2026-03-08 00:00-05' ORDER BY 2;
SET timezone = 'UTC';
SELECT view, read, late, accepted, windows FROM stream_agg.views ORDER BY view::text COLLATE "C";
DROP FOREIGN TABLE s CASCADE;

-- Half minutes of Berlin over both changes: six rows each, none in two, and as many as there are half minutes.
CREATE FOREIGN TABLE s (at timestamptz) SERVER stream_staged OPTIONS (event_time 'at', watermark '0');
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append') AS
	SELECT window_start, window_end, count(*) AS n FROM s, tumble(at, '30 seconds', timezone => 'Europe/Berlin') GROUP BY 1, 2;
INSERT INTO s SELECT at FROM unnest(ARRAY[timestamptz '2024-03-31 00:00+00', '2024-10-27 00:00+00']) change, generate_series(change, change + interval '2 hours', '5 seconds') at ORDER BY at;
CALL stream_agg.run('s');
SELECT count(*), sum(n), min(n) FILTER (WHERE n <> 1), max(n), min(window_end - window_start), max(window_end - window_start) FROM v;
DROP FOREIGN TABLE s CASCADE;

-- Chicago, 2022-11-06, 60 rows an hour: 60 each, also in the hour that the clock shows twice; so does date_trunc().
CREATE FOREIGN TABLE s (at timestamptz) SERVER stream_staged OPTIONS (event_time 'at', watermark '0');
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append') AS
	SELECT window_start, count(*) AS n FROM s, tumble(at, '1 hour', timezone => 'America/Chicago') GROUP BY 1;
CREATE MATERIALIZED VIEW w WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append') AS
	SELECT date_trunc('hour', at, 'America/Chicago') AS hour, count(*) AS n FROM s GROUP BY hour;
INSERT INTO s SELECT at FROM generate_series(timestamptz '2022-11-06 00:00-05', '2022-11-07 00:00-06', '1 minute') at ORDER BY at;
CALL stream_agg.run('s');
SELECT count(*), min(n), max(n) FROM v;
SELECT window_start, window_start AT TIME ZONE 'America/Chicago' AS clock, n FROM v ORDER BY 1 LIMIT 4;
SELECT count(*) FROM (TABLE v EXCEPT ALL TABLE w) x;
DROP FOREIGN TABLE s CASCADE;

-- A slow replay of old events into one bucket: one row of 500, however often it is read.
CREATE FOREIGN TABLE s (id int, at timestamptz) SERVER stream_staged OPTIONS (event_time 'at', watermark '5 minutes');
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append', stream_agg.max_batch_rows = 3) AS
	SELECT window_start, count(*) AS n, sum(id) AS ids FROM s, tumble(at, '1 day') GROUP BY 1;
INSERT INTO s SELECT i, timestamptz '2014-05-06 07:00' + i * interval '1 second' FROM generate_series(1, 200) i;
CALL stream_agg.run('s');
INSERT INTO s SELECT i, timestamptz '2014-05-06 06:00' + i * interval '1 second' FROM generate_series(201, 350) i;
CALL stream_agg.run('s');
INSERT INTO s SELECT i, timestamptz '2014-05-06 23:50' + i * interval '1 second' FROM generate_series(351, 500) i;
CALL stream_agg.run('s');
SELECT count(*) FROM v;
INSERT INTO s VALUES (501, '2014-05-07 00:05');
CALL stream_agg.run('s');
SELECT * FROM v;
DROP FOREIGN TABLE s CASCADE;

-- Run once three times, over A, A and B, B and C: each time what the watermark has passed, and nothing twice.
CREATE FOREIGN TABLE s (what text, at timestamptz) SERVER stream_staged OPTIONS (event_time 'at', watermark '10 seconds');
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append') AS
	SELECT window_start, count(*) AS n, min(what) AS first, max(what) AS last FROM s, tumble(at, '10 seconds') GROUP BY 1;
INSERT INTO s VALUES ('A1', '2024-01-01 00:00:01'), ('A2', '2024-01-01 00:00:09');
CALL stream_agg.run('v');
SELECT * FROM v ORDER BY 1;
INSERT INTO s VALUES ('A3', '2024-01-01 00:00:11'), ('B1', '2024-01-01 00:00:21');
CALL stream_agg.run('v');
SELECT * FROM v ORDER BY 1;
INSERT INTO s VALUES ('B2', '2024-01-01 00:00:12'), ('C1', '2024-01-01 00:00:31'), ('C2', '2024-01-01 00:00:40');
CALL stream_agg.run('v');
SELECT * FROM v ORDER BY 1;
CALL stream_agg.run('v');
SELECT * FROM v ORDER BY 1;
DROP FOREIGN TABLE s CASCADE;

-- Another worker between any two events: nothing comes twice, nothing in time is dropped.
CREATE FOREIGN TABLE s (id int, at timestamptz) SERVER stream_staged OPTIONS (event_time 'at', watermark '5 seconds');
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append') AS
	SELECT window_start, count(*) AS n, avg(id) AS mean FROM s, tumble(at, '10 seconds') GROUP BY 1;
CREATE MATERIALIZED VIEW c WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT window_end, count(*) AS n, avg(id) AS mean FROM s, cumulate(at, '5 seconds', '10 seconds') GROUP BY 1;
CREATE MATERIALIZED VIEW h WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append') AS
	SELECT window_start, window_end, count(*) AS n, avg(id) AS mean FROM s, hop(at, '10 seconds', '5 seconds') GROUP BY 1, 2;
CREATE MATERIALIZED VIEW visits WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append') AS
	SELECT window_start, window_end, count(*) AS n, avg(id) AS mean FROM s, session(at, '4 seconds') GROUP BY 1, 2;
CREATE MATERIALIZED VIEW corrected WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append', stream_agg.allowed_lateness = '5 seconds') AS
	SELECT window_start, count(*) AS n, avg(id) AS mean FROM s, tumble(at, '10 seconds') GROUP BY 1;
CREATE MATERIALIZED VIEW unlogged WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append', stream_agg.state = 'unlogged') AS
	SELECT window_start, count(*) AS n, avg(id) AS mean FROM s, tumble(at, '10 seconds') GROUP BY 1;
CREATE TABLE notes (view text, op text, window_start timestamptz, n bigint);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.notes VALUES (tg_table_name, tg_op, new.window_start, new.n); RETURN NULL; END $$;
CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON v FOR EACH ROW EXECUTE FUNCTION note();
CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON h FOR EACH ROW EXECUTE FUNCTION note();
CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON visits FOR EACH ROW EXECUTE FUNCTION note();
CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON corrected FOR EACH ROW EXECUTE FUNCTION note();
CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON unlogged FOR EACH ROW EXECUTE FUNCTION note();
\set restart 'SELECT pg_terminate_backend(pid, 60000) FROM stream_agg.streams WHERE pid IS NOT NULL'
INSERT INTO s VALUES (1, '2024-01-01 00:00:01');
CALL stream_agg.run('s');
:restart;
INSERT INTO s VALUES (2, '2024-01-01 00:00:14.999999');
CALL stream_agg.run('s');
:restart;
INSERT INTO s VALUES (3, '2024-01-01 00:00:09');	-- in time
CALL stream_agg.run('s');
:restart;
INSERT INTO s VALUES (4, '2024-01-01 00:00:15');	-- closes the first window
CALL stream_agg.run('s');
:restart;
INSERT INTO s VALUES (5, '2024-01-01 00:00:08');	-- late; not yet where that is allowed
CALL stream_agg.run('s');
:restart;
INSERT INTO s VALUES (6, '2024-01-01 00:00:10');	-- in time
CALL stream_agg.run('s');
:restart;
INSERT INTO s VALUES (7, '2024-01-01 00:00:25'), (8, '2024-01-01 00:00:20');
CALL stream_agg.run('s');
SELECT * FROM v ORDER BY 1;
SELECT * FROM c ORDER BY 1;
SELECT * FROM h ORDER BY 1;
SELECT * FROM visits ORDER BY 1;
SELECT * FROM corrected ORDER BY 1;
SELECT count(*) FROM ((TABLE unlogged EXCEPT ALL TABLE v) UNION ALL (TABLE v EXCEPT ALL TABLE unlogged)) x;
SELECT * FROM notes ORDER BY view, window_start, op;
SELECT view, read, late, accepted, late_windows FROM stream_agg.views ORDER BY view::text COLLATE "C";
DROP FOREIGN TABLE s CASCADE;
DROP FUNCTION note();
DROP TABLE notes;

-- Infinite times are no times; the others go on.
CREATE FOREIGN TABLE s (id int, at timestamptz) SERVER stream_staged OPTIONS (event_time 'at', watermark '0', max_future 'infinity');
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append') AS
	SELECT window_start, sum(id) AS ids FROM s, tumble(at, '1 day', timezone => 'Europe/Berlin') GROUP BY 1;
CREATE MATERIALIZED VIEW w WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append') AS
	SELECT date_trunc('day', at) AS day, sum(id) AS ids FROM s GROUP BY 1;
INSERT INTO s VALUES (1, '2024-01-01 12:00'), (2, 'infinity'), (4, '2024-01-01 13:00'), (8, '-infinity'), (16, NULL), (32, '2024-01-01 14:00'), (64, '2024-01-02');
CALL stream_agg.run('s');
SELECT * FROM v;
SELECT * FROM w;
SELECT view, read, null_time, late, accepted, watermark FROM stream_agg.views ORDER BY view::text COLLATE "C";
DROP FOREIGN TABLE s CASCADE;
