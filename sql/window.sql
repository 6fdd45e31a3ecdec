--
-- tumble() and hop() as plain SQL.
--
SET timezone = 'UTC';
SET datestyle = 'ISO';
CREATE FUNCTION utc(text) RETURNS timestamptz LANGUAGE sql STABLE AS $$ SELECT ($1 || '+00')::timestamptz $$;

-- Half open: a row exactly on a boundary belongs to the next window.
SELECT ts, w.* FROM (VALUES (timestamptz '2024-01-01 00:04:59.999999'), ('2024-01-01 00:05'), ('2024-01-01 00:05:00.000001'),
	('2024-01-01 00:09:59.999999'), ('2024-01-01 00:10')) v (ts), tumble(ts, '5 minutes') w ORDER BY ts;
SELECT ts, w.* FROM (VALUES (timestamp '2024-01-01 00:04:59.999999'), ('2024-01-01 00:05')) v (ts), tumble(ts, '5 minutes') w ORDER BY ts;
SELECT pg_typeof(window_start), pg_typeof(window_end) FROM tumble(timestamptz '2024-01-01', '1 h');
SELECT pg_typeof(window_start), pg_typeof(window_end) FROM tumble(timestamp '2024-01-01', '1 h');
SELECT pg_typeof(window_start), pg_typeof(window_end) FROM hop(timestamp '2024-01-01', '1 h', '30 min') LIMIT 1;

-- Before 1970, and before 2000.
SELECT ts, w.* FROM (VALUES (timestamptz '1969-12-31 23:59:59.999999'), ('1970-01-01 00:00'), ('1969-12-31 23:00'),
	('1999-12-31 23:59:59.999999'), ('2000-01-01 00:00'), ('1883-11-18 12:03:58'), ('0001-01-01 00:00:00 BC'))
	v (ts), tumble(ts, '7 minutes') w ORDER BY ts;
-- The default origin is the start of 1970: windows of seven minutes are counted from there.
SELECT w.* FROM tumble(timestamptz '1970-01-01 00:00', '7 minutes') w;

-- Origins, before and after the time itself.
SELECT origin, w.* FROM (VALUES (timestamptz '2024-01-01 00:02'), ('1970-01-01 00:02'), ('2100-01-01 00:02'), ('1900-01-01 00:02'), (NULL))
	v (origin), tumble(timestamptz '2024-01-01 00:01:59', '5 minutes', origin) w ORDER BY origin;
SELECT w.* FROM tumble(timestamptz '2024-01-01 00:01:59', '5 minutes', origin => '2024-01-01 00:02') w;
SELECT w.* FROM hop(timestamptz '2024-01-01 00:01:59', '5 minutes', '5 minutes', '2024-01-01 00:02') w;

-- Whole weeks start on Monday, other numbers of days at the epoch (a Thursday).
SELECT to_char(ts, 'Dy YYYY-MM-DD') AS ts, size, to_char(w.window_start, 'Dy YYYY-MM-DD') AS window_start,
	to_char(w.window_end, 'Dy YYYY-MM-DD') AS window_end
FROM (VALUES (timestamptz '2024-05-15 12:00'), ('1969-05-15 12:00'), ('2024-05-13 00:00'), ('2024-05-12 23:59:59')) v (ts),
	(VALUES (interval '7 days'), ('14 days'), ('168 hours'), ('6 days')) s (size), tumble(ts, size) w ORDER BY size, v.ts;
SELECT to_char(w.window_start, 'Dy YYYY-MM-DD') AS window_start FROM hop(timestamptz '2024-05-15 12:00', '14 days', '7 days') w ORDER BY w.window_start;

-- hop(): every window that holds the time, whether size is a multiple of slide or not.
SELECT w.* FROM hop(timestamptz '2024-01-01 00:12', '10 minutes', '5 minutes') w ORDER BY 1;
SELECT w.* FROM hop(timestamptz '2024-01-01 00:10', '10 minutes', '5 minutes') w ORDER BY 1;
SELECT w.* FROM hop(timestamptz '2024-01-01 00:12', '7 minutes', '5 minutes') w ORDER BY 1;
SELECT w.* FROM hop(timestamptz '2024-01-01 00:11', '7 minutes', '5 minutes') w ORDER BY 1;
-- Gaps, where slide is longer than size.
SELECT ts, w.* FROM (VALUES (timestamptz '2024-01-01 00:00'), ('2024-01-01 00:01:59.999999'), ('2024-01-01 00:02'), ('2024-01-01 00:04:59')) v (ts)
	LEFT JOIN LATERAL hop(ts, '2 minutes', '5 minutes') w ON true ORDER BY 1, 2;
SELECT w.* FROM hop(timestamptz '1969-12-31 23:58', '10 minutes', '5 minutes') w ORDER BY 1;
-- Against the definition: start = origin + n * slide, start <= ts < start + size.
SELECT count(*), count(*) FILTER (WHERE same) AS same
FROM (SELECT ARRAY(SELECT w.window_start FROM hop(ts, size, slide) w ORDER BY 1) =
		ARRAY(SELECT s FROM generate_series(date_bin(slide, ts, utc('1970-01-01')) - 20 * slide, ts, slide) s
			WHERE s <= ts AND ts < s + size ORDER BY 1) AS same
	FROM generate_series(utc('2024-01-01 00:00'), utc('2024-01-01 00:20'), '37 seconds') ts,
		unnest(ARRAY['1 minute', '2 minutes', '3 minutes 10 seconds', '10 minutes']::interval[]) size,
		unnest(ARRAY['1 minute', '90 seconds', '4 minutes']::interval[]) slide) x;

-- Independent of the session's time zone, whatever its clock changes do.
SET timezone = 'America/New_York';
SELECT w.* FROM tumble(timestamptz '2024-03-10 12:00', '1 day') w;
SET timezone = 'UTC';

-- NULL: no window.
SELECT * FROM tumble(NULL::timestamptz, '5 minutes');
SELECT * FROM hop(NULL::timestamptz, '5 minutes', '1 minute');
SELECT * FROM hop(timestamptz '2024-01-01', NULL, '1 minute');
SELECT * FROM hop(timestamptz '2024-01-01', '5 minutes', NULL);
SELECT * FROM tumble(NULL::timestamp, '5 minutes');
SELECT v.i, w.* FROM (VALUES (1, NULL::timestamptz), (2, '2024-01-01')) v (i, ts), tumble(ts, '5 minutes') w ORDER BY i;
SELECT v.i, w.* FROM (VALUES (1, NULL::timestamptz), (2, '2024-01-01')) v (i, ts) LEFT JOIN LATERAL tumble(ts, '5 minutes') w ON true ORDER BY i;
SELECT * FROM tumble(timestamptz '2024-01-01', NULL);
SELECT * FROM tumble(timestamp '2024-01-01', NULL);

-- Errors.
SELECT * FROM tumble(timestamptz 'infinity', '5 minutes');
SELECT * FROM tumble(timestamptz '-infinity', '5 minutes');
SELECT * FROM hop(timestamp 'infinity', '5 minutes', '1 minute');
SELECT * FROM tumble(timestamptz '2024-01-01', '0');
SELECT * FROM tumble(timestamptz '2024-01-01', '-5 minutes');
SELECT * FROM tumble(timestamptz '2024-01-01', '1 year 1 day');
SELECT * FROM tumble(timestamptz '2024-01-01', '5 minutes', 'infinity');
SELECT * FROM hop(timestamptz '2024-01-01', '5 minutes', '0');
SELECT * FROM hop(timestamptz '2024-01-01', '5 minutes', '-1 minute');
SELECT * FROM hop(timestamptz '2024-01-01', '0', '1 minute');
SELECT * FROM hop(timestamptz '2024-01-01', '100 days', '1 second');
SELECT * FROM tumble(timestamptz '4714-11-24 00:00:00 BC', '7 days');
SELECT * FROM tumble(timestamptz '294276-12-31 23:59:59', '7 days');
SELECT * FROM tumble(timestamptz '2024-01-01', '106751991 days', '1970-01-01');
SELECT * FROM tumble(timestamptz '2024-01-01', '106751992 days');
-- The outermost times that still have one.
SELECT * FROM tumble(timestamptz '294276-12-31 23:59:58', '1 second');
SELECT * FROM tumble(timestamptz '4714-11-24 00:00:00 BC', '1 second');

-- tumble() is inlined into plain expressions, with literals and with columns.
CREATE TABLE event (id int, at timestamptz, naive timestamp, size interval);
EXPLAIN (COSTS OFF, VERBOSE) SELECT window_start, count(*) FROM event, tumble(at, '5 minutes') GROUP BY 1;
EXPLAIN (COSTS OFF) SELECT window_start, count(*) FROM event, tumble(naive, size) GROUP BY 1;
EXPLAIN (COSTS OFF) SELECT window_start, count(*) FROM event, tumble(at, '5 minutes', '2000-01-03') GROUP BY 1;

-- As in a view, over a table.
INSERT INTO event SELECT i, timestamptz '2024-01-01' + i * interval '20 seconds' FROM generate_series(0, 29) i;
INSERT INTO event VALUES (100, NULL);
SELECT window_start, window_end, count(*), sum(id) FROM event, tumble(at, '5 minutes') GROUP BY 1, 2 ORDER BY 1;
SELECT window_start, window_end, count(*), sum(id) FROM event, hop(at, '5 minutes', '2 minutes') GROUP BY 1, 2 ORDER BY 1;

-- Not STRICT and without SET clauses, which is what lets them be inlined; immutable, parallel safe.
SELECT p.oid::regprocedure AS function, l.lanname, provolatile, proisstrict, proparallel, proconfig
FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang WHERE p.oid::regprocedure::text ~ '^(tumble|hop|cumulate)\(' ORDER BY p.oid::regprocedure::text COLLATE "C";

DROP TABLE event;
DROP FUNCTION utc(text);
