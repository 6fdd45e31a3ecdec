--
-- Sessions: windows that end when nothing has come for a while.
--
SET timezone = 'UTC';
SET datestyle = 'ISO';
SET client_min_messages = warning;

-- By itself, session() gives what one event alone has of it.
SELECT * FROM session('2024-01-01 12:00'::timestamptz, '5 s');
SELECT * FROM session('2024-01-01 12:00'::timestamp, '1 day 1 s');
SELECT * FROM session('2024-01-01'::date, '90 min');
SELECT * FROM session('2024-03-30 12:00'::timestamptz AT TIME ZONE 'UTC', '1 day');
SELECT count(*) FROM session(now(), '0'), session(now(), '-1 s') AS b;
SELECT count(*) FROM session(NULL::timestamptz, '1 s');
SELECT count(*) FROM session(now(), NULL);
SELECT * FROM session(now(), '1 month');
SELECT * FROM session('infinity'::timestamptz, '1 s');
SELECT * FROM session('294276-12-31 23:59:59'::timestamptz, '1 day');

-- What a view refuses.
CREATE FOREIGN TABLE clicks (name text NOT NULL, at timestamptz NOT NULL, n int) SERVER stream_staged OPTIONS (event_time 'at', watermark '0 s', max_future 'infinity');
CREATE MATERIALIZED VIEW bad WITH (stream_agg.continuous) AS
	SELECT name, window_start, window_end, count(*) AS n FROM clicks, session(at, '1 month') GROUP BY name, window_start, window_end;
CREATE MATERIALIZED VIEW bad WITH (stream_agg.continuous) AS
	SELECT name, window_start, window_end, count(*) AS n FROM clicks, session(at, '0 s') GROUP BY name, window_start, window_end;
CREATE MATERIALIZED VIEW bad WITH (stream_agg.continuous) AS
	SELECT name, window_start, window_end, count(*) AS n FROM clicks, session(at, NULL) GROUP BY name, window_start, window_end;
CREATE MATERIALIZED VIEW bad WITH (stream_agg.continuous) AS
	SELECT name, window_start, count(*) AS n FROM clicks, session(at, '5 s') GROUP BY name, window_start, window_end;
CREATE MATERIALIZED VIEW bad WITH (stream_agg.continuous) AS
	SELECT name, window_start, window_end, count(*) AS n FROM clicks, session(at, '5 s') WHERE window_end > '2024-01-01'
	GROUP BY name, window_start, window_end;
CREATE MATERIALIZED VIEW bad WITH (stream_agg.continuous) AS
	SELECT name, window_start, window_end, max(window_end) AS n FROM clicks, session(at, '5 s') GROUP BY name, window_start, window_end;
CREATE MATERIALIZED VIEW bad WITH (stream_agg.continuous) AS SELECT name, window_start, window_end FROM clicks, session(at, '5 s');
CREATE MATERIALIZED VIEW bad WITH (stream_agg.continuous) AS SELECT name, count(*) FROM clicks, session(at, '5 s') GROUP BY name;
CREATE AGGREGATE lonely(int) (SFUNC = int4pl, STYPE = int, INITCOND = '0');
CREATE MATERIALIZED VIEW bad WITH (stream_agg.continuous) AS
	SELECT name, window_start, window_end, lonely(n) AS n FROM clicks, session(at, '5 s') GROUP BY name, window_start, window_end;
SELECT * FROM stream_agg.estimate_state($$SELECT name, window_start, window_end, count(*) AS n FROM clicks, session(at, '5 s') GROUP BY name, window_start, window_end$$);
DROP FOREIGN TABLE clicks CASCADE;

-- Two users.  Of the first, events six seconds apart are two sessions where the gap is five, and one where it is twenty.
CREATE FOREIGN TABLE users (name text NOT NULL, at timestamptz NOT NULL, n int) SERVER stream_staged OPTIONS (event_time 'at', watermark '1 min', max_future 'infinity');
CREATE MATERIALIZED VIEW by_user WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT name, window_start, window_end, window_end - window_start AS lasted, count(*) AS n, sum(n) AS total, avg(n) AS mean
	FROM users, session(at, CASE name WHEN 'user2' THEN interval '20 s' ELSE interval '5 s' END)
	GROUP BY name, window_start, window_end;
\d by_user
INSERT INTO users VALUES ('user1', '2024-01-01 12:00:00', 1), ('user1', '2024-01-01 12:00:06', 2),
	('user2', '2024-01-01 12:00:00', 3), ('user2', '2024-01-01 12:00:06', 4);
CALL stream_agg.run('users');
SELECT * FROM by_user ORDER BY name, window_start;
-- Exactly one gap apart is one session; a late event bridges two, three become one; the row of the earliest stays, with what users added.
ALTER TABLE by_user ADD number serial;
INSERT INTO users VALUES ('user2', '2024-01-01 12:00:26', 5), ('user1', '2024-01-01 12:00:20', 6), ('user1', '2024-01-01 12:00:15.5', 7);
CALL stream_agg.run('users');
SELECT * FROM by_user ORDER BY name, window_start;
INSERT INTO users VALUES ('user1', '2024-01-01 12:00:03', 8);
CALL stream_agg.run('users');
SELECT * FROM by_user ORDER BY name, window_start;
INSERT INTO users VALUES ('user1', '2024-01-01 12:00:11', 9), ('user1', '2024-01-01 11:59:55', 10), ('user1', '2024-01-01 11:59:54.9', 11);
CALL stream_agg.run('users');
SELECT * FROM by_user ORDER BY name, window_start;
-- All of it in one batch.
CREATE MATERIALIZED VIEW at_once WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT name, window_start, window_end, window_end - window_start AS lasted, count(*) AS n, sum(n) AS total, avg(n) AS mean
	FROM users, session(at, CASE name WHEN 'user2' THEN interval '20 s' ELSE interval '5 s' END)
	GROUP BY name, window_start, window_end;
INSERT INTO users VALUES ('user3', '2024-01-01 12:00', 1);
CALL stream_agg.run('users');
SELECT * FROM at_once ORDER BY name, window_start;
DROP FOREIGN TABLE users CASCADE;

-- The gap is the row's: what reaches farthest counts.  A gap of nothing and less leaves the event out; one of a month is its fault.
CREATE FOREIGN TABLE gaps (at timestamptz NOT NULL, gap interval) SERVER stream_staged OPTIONS (event_time 'at', watermark '1 day', max_future 'infinity');
CREATE MATERIALIZED VIEW by_gap WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT window_start, window_end, count(*) AS n FROM gaps, session(at, gap) GROUP BY window_start, window_end;
INSERT INTO gaps VALUES ('2024-01-01 12:00', '1 h'), ('2024-01-01 12:10', '1 min'), ('2024-01-01 13:00', '0'),
	('2024-01-01 13:00', '-5 s'), ('2024-01-01 13:00', NULL), ('2024-01-01 13:00', '1 month'), ('2024-01-01 13:00:01', '1 s');
CALL stream_agg.run('gaps');
SELECT * FROM by_gap ORDER BY window_start;
INSERT INTO gaps VALUES ('2024-01-01 11:00', '3 h');
CALL stream_agg.run('gaps');
SELECT * FROM by_gap ORDER BY window_start;
SELECT read, accepted, filtered, failed, late FROM stream_agg.views;
SELECT reason, message FROM stream_agg.dead_letters;
DROP FOREIGN TABLE gaps CASCADE;

-- Gap 5: at 0, the watermark to 6, then 3: late, in one batch or in three.  At 5 it joins, for the watermark is not past it.
CREATE FOREIGN TABLE late (name text, at timestamptz NOT NULL) SERVER stream_staged OPTIONS (event_time 'at', watermark '0 s', max_future 'infinity');
CREATE MATERIALIZED VIEW changing WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT name, window_start, window_end, count(*) AS n FROM late, session(at, '5 s') GROUP BY name, window_start, window_end;
CREATE MATERIALIZED VIEW final WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append') AS
	SELECT name, window_start, window_end, count(*) AS n FROM late, session(at, '5 s') GROUP BY name, window_start, window_end;
CREATE MATERIALIZED VIEW one_batch WITH (stream_agg.continuous, stream_agg.trigger = '1 hour') AS
	SELECT name, window_start, window_end, count(*) AS n FROM late, session(at, '5 s') GROUP BY name, window_start, window_end;
SELECT stream_agg.pause('one_batch');
INSERT INTO late VALUES ('a', '2024-01-01 00:00:00');
CALL stream_agg.run('changing'); CALL stream_agg.run('final');
INSERT INTO late VALUES ('other', '2024-01-01 00:00:05');
CALL stream_agg.run('changing'); CALL stream_agg.run('final');
INSERT INTO late VALUES ('a', '2024-01-01 00:00:05');
CALL stream_agg.run('changing'); CALL stream_agg.run('final');
SELECT * FROM changing ORDER BY 1, 2;
SELECT * FROM final ORDER BY 1, 2;
INSERT INTO late VALUES ('b', '2024-01-01 00:01:00');
CALL stream_agg.run('changing'); CALL stream_agg.run('final');
INSERT INTO late VALUES (NULL, '2024-01-01 00:01:06');
CALL stream_agg.run('changing'); CALL stream_agg.run('final');
INSERT INTO late VALUES ('b', '2024-01-01 00:01:03');
CALL stream_agg.run('changing'); CALL stream_agg.run('final');
INSERT INTO late VALUES (NULL, '2024-01-01 00:01:06'), ('b', '2024-01-01 00:01:05.999999');
CALL stream_agg.run('changing'); CALL stream_agg.run('final');
SELECT * FROM changing ORDER BY 1, 2;
SELECT * FROM final ORDER BY 1, 2;
SELECT stream_agg.resume('one_batch');
CALL stream_agg.run('one_batch');
SELECT * FROM one_batch ORDER BY 1, 2;
SELECT view, read, accepted, late, late_windows, groups, windows, oldest_window_end FROM stream_agg.views ORDER BY view::text;
DROP FOREIGN TABLE late CASCADE;

-- Order: as they came, of sessions that meet the earlier one's first.  An event that makes two meet whose sums do not fit
-- is the one that fails, and nothing is left of the attempt.
CREATE AGGREGATE names(text) (SFUNC = array_append, STYPE = text[], COMBINEFUNC = array_cat, INITCOND = '{}');
CREATE AGGREGATE narrow(int) (SFUNC = int4pl, STYPE = int, COMBINEFUNC = int4pl);
CREATE FOREIGN TABLE calls (name text, at timestamptz NOT NULL, n int) SERVER stream_staged OPTIONS (event_time 'at', watermark '1 min', max_future 'infinity');
CREATE MATERIALIZED VIEW talks WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT window_start, window_end, names(name) AS names, narrow(n) AS total, count(n) AS n FROM calls, session(at, '5 s')
	GROUP BY window_start, window_end;
CREATE MATERIALIZED VIEW ended WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append') AS
	SELECT window_start, window_end, names(name) AS names, narrow(n) AS total, count(n) AS n FROM calls, session(at, '5 s')
	GROUP BY window_start, window_end;
INSERT INTO calls VALUES ('a', '2024-01-01 12:00:10', 2000000000), ('b', '2024-01-01 12:00:12', NULL), ('c', '2024-01-01 12:00:00', NULL),
	('d', '2024-01-01 12:00:20', 2000000000), ('e', '2024-01-01 12:00:30', -5);
CALL stream_agg.run('calls');
SELECT * FROM talks ORDER BY 1;
INSERT INTO calls VALUES ('f', '2024-01-01 12:00:05', 1), ('g', '2024-01-01 12:00:16', 1), ('h', '2024-01-01 12:00:25', 1),
	('i', '2024-01-01 12:00:07', 2000000000), ('j', '2024-01-01 11:59:59', 1);
CALL stream_agg.run('calls');
SELECT * FROM talks ORDER BY 1;
SELECT view, reason, message, event->>'name' AS name FROM stream_agg.dead_letters ORDER BY view::text, 4;
INSERT INTO calls VALUES ('k', '2024-01-01 12:02', 1);
CALL stream_agg.run('calls');
SELECT * FROM ended ORDER BY 1;
DROP FOREIGN TABLE calls CASCADE;
DROP AGGREGATE names(text);
DROP AGGREGATE narrow(int);

-- Dates, and gaps that another table has.
CREATE TABLE plans (plan text PRIMARY KEY, gap interval);
INSERT INTO plans VALUES ('daily', '1 day'), ('weekly', '7 days');
CREATE FOREIGN TABLE visits (plan text, day date NOT NULL) SERVER stream_staged OPTIONS (event_time 'day', watermark '10 days', max_future 'infinity');
CREATE MATERIALIZED VIEW stays WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT p.plan AS name, window_start, window_end, count(*) AS n, sum(length(v.plan)) AS letters
	FROM visits v LEFT JOIN plans p USING (plan), session(day, gap) GROUP BY p.plan, window_start, window_end;
INSERT INTO visits VALUES ('daily', '2024-01-01'), ('daily', '2024-01-02'), ('daily', '2024-01-04'), ('none', '2024-01-04'),
	('weekly', '2024-01-01'), ('weekly', '2024-01-08'), ('weekly', '2024-01-15');
CALL stream_agg.run('visits');
SELECT * FROM stays ORDER BY name, window_start;
INSERT INTO visits VALUES ('daily', '2024-01-05'), ('weekly', '2024-01-31'), ('daily', '2024-01-20'), ('daily', '2024-01-21');
CALL stream_agg.run('visits');
SELECT * FROM stays ORDER BY name, window_start;
SELECT accepted, filtered, late, groups FROM stream_agg.views;
DROP FOREIGN TABLE visits CASCADE;
DROP TABLE plans;

-- A lone session with nothing after it closes when the stream has been silent for long, where that is wanted; and is forgotten.
CREATE FOREIGN TABLE lone (at timestamptz NOT NULL) SERVER stream_staged OPTIONS (event_time 'at', watermark '0 s', idle_timeout '50 ms', max_future 'infinity');
CREATE MATERIALIZED VIEW waits WITH (stream_agg.continuous, stream_agg.output_mode = 'append') AS
	SELECT window_start, window_end, count(*) AS n FROM lone, session(at, '100 ms') GROUP BY window_start, window_end;
CREATE MATERIALIZED VIEW goes_on WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.on_idle = 'advance') AS
	SELECT window_start, window_end, count(*) AS n FROM lone, session(at, '100 ms') GROUP BY window_start, window_end;
CREATE MATERIALIZED VIEW stays WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.on_idle = 'advance',
	stream_agg.allowed_lateness = '200 ms') AS
	SELECT window_start, window_end, count(*) AS n FROM lone, session(at, '100 ms') GROUP BY window_start, window_end;
INSERT INTO lone VALUES ('2024-01-01 12:00'), ('2024-01-01 12:00:00.1');
DO $$
BEGIN
	FOR i IN 1 .. 3000 LOOP
		EXIT WHEN EXISTS (SELECT FROM goes_on) AND EXISTS (SELECT FROM stream_agg.views WHERE view = 'stays'::regclass AND groups = 0 AND accepted = 2);
		COMMIT;
		PERFORM pg_sleep(0.02);
	END LOOP;
END$$;
SELECT * FROM goes_on;
SELECT * FROM stays;
SELECT * FROM waits;
-- And by an administrator: not yet when the watermark is at its end.
SELECT stream_agg.advance_watermark('waits', '2024-01-01 12:00:00.2');
CALL stream_agg.run('waits');
SELECT * FROM waits;
SELECT stream_agg.advance_watermark('waits', '2024-01-01 12:00:00.200001');
CALL stream_agg.run('waits');
SELECT * FROM waits;
INSERT INTO lone VALUES ('2024-01-01 12:00:00.2');
CALL stream_agg.run('waits');
SELECT late FROM stream_agg.views WHERE view = 'waits'::regclass;
DROP FOREIGN TABLE lone CASCADE;

-- Without a watermark nothing closes; HAVING; without a row to see before; stamps without a zone; before 1970.
CREATE FOREIGN TABLE rest (at timestamp NOT NULL, n numeric) SERVER stream_staged OPTIONS (event_time 'at', max_future 'infinity');
CREATE MATERIALIZED VIEW long WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT window_start, window_end, count(*) AS n, stddev(n)::numeric(10, 3) AS deviation FROM rest, session(at, '100 ms')
	GROUP BY window_start, window_end HAVING count(*) > 1;
INSERT INTO rest VALUES ('1969-12-31 23:59:58.450', 1), ('2024-01-01', 2), ('1969-12-31 23:59:58.650', 3);
CALL stream_agg.run('rest');
SELECT * FROM long ORDER BY 1;
INSERT INTO rest VALUES ('1969-12-31 23:59:58.550', 5);
CALL stream_agg.run('rest');
SELECT * FROM long ORDER BY 1;
INSERT INTO rest VALUES ('2024-01-01 00:00:00.1', 4), ('infinity', 4);
CALL stream_agg.run('rest');
SELECT * FROM long ORDER BY 1;
-- The state is read again when the table's file changes.
VACUUM FULL long;
INSERT INTO rest VALUES ('1969-12-31 23:59:58.350', 5), ('2023-12-31 23:59:59.9', 1);
CALL stream_agg.run('rest');
SELECT * FROM long ORDER BY 1;
-- The definition may change, and its groups go on.
ALTER MATERIALIZED VIEW long RENAME TO renamed;
CREATE MATERIALIZED VIEW alone WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT window_start, window_end, count(*) AS n FROM rest, session(at, '1 day') GROUP BY window_start, window_end;
INSERT INTO rest VALUES ('2024-01-03', 1), ('2024-01-01', 1);
CALL stream_agg.run('rest');
SELECT * FROM alone ORDER BY 1;
DO LANGUAGE stream_sql $$ALTER CONTINUOUS VIEW alone AS
	SELECT window_start, window_end, count(*) AS n, sum(n) AS total FROM rest, session(at, '1 day') GROUP BY window_start, window_end$$;
INSERT INTO rest VALUES ('2024-01-02', 1);
CALL stream_agg.run('rest');
SELECT * FROM alone ORDER BY 1;
DROP FOREIGN TABLE rest CASCADE;

-- The answer over a table, gaps and islands.
CREATE TABLE events (name text, at timestamptz);
INSERT INTO events VALUES ('a', '2024-01-01 12:00:00'), ('a', '2024-01-01 12:00:05'), ('a', '2024-01-01 12:00:11'), ('b', '2024-01-01 12:00:00');
SELECT name, min(window_start) AS window_start, max(window_end) AS window_end, count(*) AS n
FROM (SELECT *, count(*) FILTER (WHERE begins) OVER (PARTITION BY name ORDER BY window_start, window_end
		ROWS UNBOUNDED PRECEDING) AS session
	FROM (SELECT *, window_start > max(window_end) OVER (PARTITION BY name ORDER BY window_start, window_end
			ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS begins
		FROM events, session(at, '5 s')) AS marked) AS numbered
GROUP BY name, session ORDER BY name, 2;
DROP TABLE events;
DROP AGGREGATE lonely(int);

-- Rows of closed sessions stay known when their state has been made again, whatever the next batch comes to.
CREATE FOREIGN TABLE again (at timestamptz, k int, v int) SERVER stream_staged OPTIONS (event_time 'at', watermark '10 s', max_future 'infinity');
CREATE MATERIALIZED VIEW closed WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.state = 'unlogged',
	stream_agg.allowed_lateness = '20 s', stream_agg.idle_timeout = '1 day', stream_agg.on_idle = 'advance', stream_agg.max_batch_rows = 50) AS
	SELECT k, window_start, window_end, count(*) AS n, avg(v) AS mean FROM again, session(at, '2 s') GROUP BY k, window_start, window_end;
CREATE PROCEDURE feed_again(first int, last int) LANGUAGE sql AS $$
	INSERT INTO again SELECT '2000-01-01Z'::timestamptz + i * interval '1 s', CASE WHEN i % 2 = 0 THEN 0 ELSE i END, 1 FROM generate_series(first, last) i$$;
CALL feed_again(1, 1000);
CALL stream_agg.run('again');
CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not now'; END $$;
CREATE TRIGGER fail AFTER INSERT ON closed FOR EACH ROW EXECUTE FUNCTION fail();
VACUUM FULL closed;
CALL feed_again(1001, 1010);
CALL stream_agg.run('again');
DROP TRIGGER fail ON closed;
INSERT INTO again SELECT '2000-01-01Z'::timestamptz + i * interval '1 s', i, 1 FROM generate_series(983, 989, 2) i;
SELECT stream_agg.resume('closed');
CALL stream_agg.run('again');
SELECT status, message, accepted, corrections FROM stream_agg.views;
SELECT k, n FROM closed WHERE k > 978 ORDER BY k;
DROP FOREIGN TABLE again CASCADE;
DROP PROCEDURE feed_again(int, int);
DROP FUNCTION fail();
