--
-- GROUP BY date_bin(...) and date_trunc(...) of the event time are windows.
--
SET timezone = 'UTC';
SET datestyle = 'ISO';
SET client_min_messages = warning;

CREATE FOREIGN TABLE taps (card int, fare numeric, at timestamptz NOT NULL) SERVER stream_staged OPTIONS (event_time 'at', watermark '0');
CREATE MATERIALIZED VIEW quarters WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append') AS
	SELECT date_bin('15 minutes', at, '2001-01-01 00:05') AS bucket, count(*) AS n, sum(fare) AS fare FROM taps GROUP BY bucket;
CREATE MATERIALIZED VIEW hours WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT date_trunc('hour', at) AS hour, card, count(*) AS n FROM taps GROUP BY 1, 2 HAVING date_trunc('hour', at) <> '2024-03-09 23:00Z';
SET timezone = 'America/New_York';
-- Days of the zone that is set, and stays with the view; of one that is given.
CREATE MATERIALIZED VIEW days WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.state = 'unlogged', stream_agg.output_mode = 'append') AS
	SELECT date_trunc('day', t.at) AS day, count(*) AS n, avg(fare) AS mean FROM taps t GROUP BY date_trunc('day', t.at);
SET timezone = 'UTC';
CREATE MATERIALIZED VIEW berlin WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT count(*) AS n, date_trunc('DAY', at, 'Europe/Berlin') AS day FROM taps WHERE date_trunc('hour', at) > '2024-03-09 00:00Z' GROUP BY day;
-- Of two, the shorter one is the window.
CREATE MATERIALIZED VIEW two_units WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append') AS
	SELECT date_trunc('month', at) AS month, date_trunc('hour', at) AS hour, count(*) AS n FROM taps GROUP BY 1, 2;
CREATE MATERIALIZED VIEW joined WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT date_trunc('week', at) AS week, label, count(*) AS n FROM taps LEFT JOIN (VALUES (1, 'one'), (2, 'two')) l (card, label) USING (card) GROUP BY 1, 2;
INSERT INTO taps SELECT i % 3, i, timestamptz '2024-03-09 12:10+00' + i * interval '30 minutes' FROM generate_series(0, 99) i;
CALL stream_agg.run('taps');
INSERT INTO taps VALUES (1, 1000, '2024-03-11 04:00Z'), (1, 1000, '2024-03-11 03:59Z'), (1, 2000, '2024-03-11 13:40Z');
CALL stream_agg.run('taps');
SELECT count(*), sum(n), sum(fare), min(bucket), max(bucket) FROM quarters;
SELECT count(*), sum(n), min(hour), max(hour) FROM hours;
SELECT * FROM days ORDER BY 1;
SELECT * FROM berlin ORDER BY 2;
SELECT month, count(*), sum(n), min(hour), max(hour) FROM two_units GROUP BY 1;
SELECT * FROM joined ORDER BY 1, 2;
SELECT view, read, late, accepted, filtered, windows, oldest_window_end FROM stream_agg.views ORDER BY view::text COLLATE "C";
SELECT conrelid::regclass, pg_get_constraintdef(oid) FROM pg_constraint
WHERE conrelid::regclass::text IN ('quarters', 'hours', 'days', 'berlin', 'two_units', 'joined') AND contype IN ('p', 'u') ORDER BY conrelid::regclass::text COLLATE "C";
SELECT view, pg_get_viewdef(definition) FROM stream_agg.views WHERE view IN ('quarters'::regclass, 'days'::regclass, 'joined'::regclass) ORDER BY view::text COLLATE "C";
-- State is found again by the start alone.
VACUUM FULL hours; VACUUM FULL berlin; VACUUM FULL joined;
INSERT INTO taps VALUES (1, 0, '2024-03-11 13:59:59.999999Z'), (2, 0, '2024-03-11 22:59Z'), (2, 0, '2024-03-11 23:00Z');
CALL stream_agg.run('taps');
SELECT * FROM hours WHERE hour >= '2024-03-11 13:00Z' ORDER BY 1, 2;
SELECT * FROM berlin ORDER BY 2;
SELECT * FROM joined ORDER BY 1, 2;
-- They change like others; the zone is that of the view.
ALTER MATERIALIZED VIEW days SET (stream_agg.state = 'heap');
CALL stream_agg.run('days');
SELECT stream_agg.execute($$ALTER CONTINUOUS VIEW days AS
	SELECT date_trunc('day', at) AS day, count(*) AS n, avg(fare) AS mean FROM taps WHERE card < 3 GROUP BY 1$$);
SELECT stream_agg.execute($$ALTER CONTINUOUS VIEW days AS
	SELECT date_trunc('day', at, 'Europe/Berlin') AS day, count(*) AS n, avg(fare) AS mean FROM taps GROUP BY 1$$);
SELECT stream_agg.execute($$ALTER CONTINUOUS VIEW days AS
	SELECT window_start AS day, count(*) AS n, avg(fare) AS mean FROM taps, LATERAL (SELECT * FROM tumble(at, '1 day')) w GROUP BY 1$$);
SELECT pg_get_viewdef(definition) FROM stream_agg.views WHERE view = 'days'::regclass;
SELECT delay, windows FROM stream_agg.estimate_state('SELECT date_trunc(''hour'', at), count(*) FROM taps GROUP BY 1', '2 hours');

-- No windows: of other expressions, units, zones and times; beside a window function.  In complete mode they are, though none closes (n3).
CREATE FOREIGN TABLE other (card int, at timestamptz, seen timestamptz, d date) SERVER stream_staged OPTIONS (event_time 'at', watermark '0');
CREATE MATERIALIZED VIEW n1 WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT date_trunc('day', seen) AS day, count(*) AS n FROM other GROUP BY 1;
CREATE MATERIALIZED VIEW n2 WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT date_trunc('day', at)::date AS day, count(*) AS n FROM other GROUP BY 1;
CREATE MATERIALIZED VIEW n3 WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'complete') AS SELECT date_trunc('day', at) AS day, count(*) AS n FROM other GROUP BY 1;
CREATE MATERIALIZED VIEW n4 WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT date_trunc('day', at, 'CET') AS day, count(*) AS n FROM other GROUP BY 1;
CREATE MATERIALIZED VIEW n5 WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT date_trunc(CASE card WHEN 1 THEN 'day' ELSE 'hour' END, at) AS day, count(*) AS n FROM other GROUP BY 1;
CREATE MATERIALIZED VIEW n6 WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT date_trunc('day', at) AS day, window_start, count(*) AS n FROM other, tumble(at, '1 hour') GROUP BY 1, 2;
SELECT view, pg_get_viewdef(definition) ~ ' w\(' AS function FROM stream_agg.views WHERE stream = 'other'::regclass ORDER BY view::text COLLATE "C";
SELECT stream_agg.execute('ALTER CONTINUOUS VIEW n3 AS SELECT date_trunc(''day'', at) AS day, count(*) AS n FROM other WHERE card > 0 GROUP BY 1');
SELECT pg_get_viewdef(definition) ~ ' w\(' AS function FROM stream_agg.views WHERE view = 'n3'::regclass;
-- What the server's functions refuse at every event is refused at once; with what may differ from event to event it is the event's fault.
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT date_bin('0', at, '2001-01-01') AS bin, count(*) FROM other GROUP BY 1;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT date_bin('-5 minutes', at, '2001-01-01') AS bin, count(*) FROM other GROUP BY 1;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT date_bin('1 month', at, '2001-01-01') AS bin, count(*) FROM other GROUP BY 1;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT date_bin('1 day', at, 'infinity') AS bin, count(*) FROM other GROUP BY 1;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT date_trunc('fortnight', at) AS unit, count(*) FROM other GROUP BY 1;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT date_trunc('timezone', at, 'UTC') AS unit, count(*) FROM other GROUP BY 1;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT date_trunc('day', at, 'Nowhere/At_All') AS day, count(*) FROM other GROUP BY 1;
-- Who groups by the event time, but by no window, is told so where it matters: at creation, where groups could close.
SET client_min_messages = notice;
CREATE MATERIALIZED VIEW n7 WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT date_trunc('day', at)::date AS day, count(*) AS n FROM other GROUP BY day;
CREATE MATERIALIZED VIEW n8 WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT card, date_trunc('day', o.at AT TIME ZONE 'UTC') AS day, count(*) AS n FROM other o LEFT JOIN (VALUES (1)) l (card) USING (card) GROUP BY 1, 2;
CREATE MATERIALIZED VIEW n9 WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT date_trunc('day', at) AS day, at::time AS clock, count(*) AS n FROM other GROUP BY 1, 2;
CREATE MATERIALIZED VIEW n10 WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT date_trunc('day', seen) AS day, max(at) AS latest FROM other GROUP BY 1;
CREATE MATERIALIZED VIEW n11 WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'complete') AS SELECT at::date AS day, count(*) AS n FROM other GROUP BY 1;
SET client_min_messages = warning;
-- Dates are counted by tumble(), or as timestamps; date_trunc() of a date itself is of its midnight in the zone that is set.
CREATE FOREIGN TABLE days_off (day date) SERVER stream_staged OPTIONS (event_time 'day', watermark '0');
SET client_min_messages = notice;
CREATE MATERIALIZED VIEW d1 WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT date_trunc('month', day) AS month, count(*) AS n FROM days_off GROUP BY 1;
CREATE MATERIALIZED VIEW d2 WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append') AS SELECT date_trunc('month', day::timestamp) AS month, count(*) AS n FROM days_off GROUP BY 1;
CREATE MATERIALIZED VIEW d3 WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append') AS SELECT date_bin('7 days', day::timestamp, '2024-01-01') AS week, count(*) AS n FROM days_off GROUP BY 1;
CREATE MATERIALIZED VIEW d4 WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append') AS SELECT window_start AS month, count(*) AS n FROM days_off, tumble(day::timestamp, '1 month') GROUP BY 1;
SET client_min_messages = warning;
INSERT INTO days_off SELECT date '2023-12-25' + i FROM generate_series(0, 70) i;
INSERT INTO days_off VALUES ('2024-02-29'), ('2024-03-01');
CALL stream_agg.run('days_off');
SELECT * FROM d2 ORDER BY 1;
SELECT min(week), max(week), count(*), sum(n) FROM d3;
SELECT count(*) FROM ((TABLE d2 EXCEPT ALL TABLE d4) UNION ALL (TABLE d4 EXCEPT ALL TABLE d2)) x;
SELECT view, late, accepted FROM stream_agg.views WHERE stream = 'days_off'::regclass ORDER BY view::text;
DROP FOREIGN TABLE days_off CASCADE;
-- The window must be selected, as any grouping column.
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT count(*) FROM other GROUP BY date_trunc('day', at);
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.output_mode = 'append') AS SELECT date_trunc('day', seen) AS day, count(*) FROM other GROUP BY 1;
DROP FOREIGN TABLE other CASCADE;
DROP FOREIGN TABLE taps CASCADE;

-- Every unit, of a timestamp and in zones, as the server has it; and every time before the end of its window.
CREATE FUNCTION zones() RETURNS SETOF text LANGUAGE sql AS
	$$ SELECT unnest(ARRAY['America/New_York', 'America/Havana', 'America/St_Johns', 'Atlantic/Azores', 'Australia/Lord_Howe', 'Pacific/Apia', 'Asia/Beirut', 'Africa/Casablanca', 'Asia/Kathmandu', 'UTC']) $$;
SELECT count(*), count(*) FILTER (WHERE w.window_start = date_trunc(unit, ts, zone) AND ts < w.window_end) AS same
FROM zones() zone, unnest(ARRAY['microsecond', 'milliseconds', 'second', 'minute', 'hour', 'day', 'week', 'month', 'quarter', 'year', 'decade', 'century', 'millennium']) unit,
	unnest(ARRAY['1942-02-09', '2006-10-28 12:00', '2011-12-29', '2023-11-04 12:00', '2024-03-09', '2024-04-06 06:00', '2024-10-26 12:00', '2000-12-31', '-infinity']::timestamptz[]) day,
	generate_series(CASE WHEN isfinite(day) THEN day ELSE '0001-12-30 BC' END, CASE WHEN isfinite(day) THEN day ELSE '0001-12-30 BC' END + interval '3 days', '127 minutes 13.123457 seconds') ts,
	stream_agg.date_trunc(ts, unit, zone) w;
SELECT count(*), count(*) FILTER (WHERE w.window_start = date_trunc(unit, ts) AND w.window_start <= ts AND ts < w.window_end) AS same
FROM unnest(ARRAY['microsecond', 'millisecond', 's', 'min', 'hours', 'DAY', 'weeks', 'mon', 'qtr', 'y', 'decades', 'c', 'mil']) unit,
	unnest(ARRAY['1969-12-31', '2000-12-31', '0100-12-31', '1000-12-30', '0001-12-30 BC', '0101-12-31 BC', '1001-12-31 BC']::timestamp[]) day,
	generate_series(day, day + interval '3 days', '17 minutes 13.123457 seconds') ts, stream_agg.date_trunc(ts, unit) w;
-- What date_trunc() gives is its own window again, by which state is found.
SELECT count(*), count(*) FILTER (WHERE again = w) AS same
FROM zones() zone, unnest(ARRAY['day', 'week', 'month', 'quarter', 'year', 'century']) unit,
	generate_series(timestamptz '2000-01-01', '2026-01-01', '211 hours') ts, stream_agg.date_trunc(ts, unit, zone) w, stream_agg.date_trunc(w.window_start, unit, zone) again;
DROP FUNCTION zones();
