--
-- cumulate(), months, and windows in the local time of a zone, as plain SQL.
--
SET datestyle = 'ISO';
SET intervalstyle = 'postgres';
SET timezone = 'UTC';

-- cumulate(): every window that begins with the size and holds the time; one ends every step.
SELECT w.* FROM cumulate(timestamptz '2024-01-01 00:12', '5 minutes', '20 minutes') w ORDER BY 2;
SELECT w.* FROM cumulate(timestamptz '2024-01-01 00:15', '5 minutes', '20 minutes') w ORDER BY 2;
SELECT w.* FROM cumulate(timestamptz '1969-12-31 23:59:59.999999', '5 minutes', '20 minutes') w ORDER BY 2;
SELECT w.* FROM cumulate(timestamptz '2024-01-01 00:12', '5 minutes', '20 minutes', '2024-01-01 00:13') w ORDER BY 2;
SELECT w.* FROM cumulate(timestamp '2024-01-01 00:12', '5 minutes', '20 minutes', origin => '2100-01-01 00:13') w ORDER BY 2;
SELECT w.* FROM cumulate(date '2024-01-10', '1 week', '2 weeks') w ORDER BY 2;
-- The last one ends with the size.
SELECT w.* FROM cumulate(timestamptz '2024-01-01 00:10', '4 minutes', '10 minutes') w ORDER BY 2;
SELECT w.* FROM cumulate(timestamp '2024-02-20', '1 week', '1 month') w ORDER BY 2;
SELECT w.* FROM cumulate(timestamptz '2024-01-01', '20 minutes', '20 minutes') w;
-- Against the definition.
SELECT count(*), count(*) FILTER (WHERE same) AS same
FROM (SELECT ARRAY(SELECT w.window_start || ' ' || w.window_end FROM cumulate(ts, step, size, origin) w ORDER BY w.window_end) =
		ARRAY(SELECT b || ' ' || (b + k * step) FROM generate_series(1, 12) k, date_bin(size, ts, origin) b
			WHERE k * step <= size AND ts < b + k * step ORDER BY k) AS same
	FROM generate_series(timestamp '1999-12-31 23:30', '2000-01-01 01:00', '37 seconds') ts,
		(VALUES (interval '5 minutes', interval '1 hour'), ('90 seconds', '3 minutes'), ('1 hour', '1 hour')) v (step, size),
		unnest(ARRAY['1970-01-01', '2024-01-01 00:07', '1812-03-04 05:06:07.89']::timestamp[]) origin) x;

-- Months, quarters and years, from January on, or from another day.
SELECT ts, size, w.* FROM (VALUES (timestamp '2024-02-29 12:00'), ('1969-12-31 23:59:59.999999'), ('2000-01-01')) v (ts),
	(VALUES (interval '1 month'), ('3 months'), ('1 year'), ('10 years')) s (size), tumble(ts, size) w ORDER BY size, ts;
SELECT w.* FROM tumble(date '2024-02-29', '1 quarter') w;	-- the server does not know it
SELECT origin, w.* FROM (VALUES (timestamp '2000-01-15'), ('2000-01-31'), ('2031-05-31 06:00')) v (origin),
	unnest(ARRAY[timestamp '2024-02-29 07:00', '2024-03-30']) ts, tumble(ts, '1 month', origin) w ORDER BY origin, ts;
SELECT w.* FROM hop(timestamp '2024-02-29', '3 months', '1 month') w ORDER BY 1;
SELECT w.* FROM hop(timestamp '2024-02-29', '1 month', '1 week') w ORDER BY 1;
SELECT w.* FROM hop(timestamp '2024-02-29', '1 week', '1 month') w ORDER BY 1;
SELECT w.* FROM cumulate(timestamp '2024-05-29', '1 month', '1 year') w ORDER BY 2;
-- In UTC for a time with a zone, whatever the session's.
SET timezone = 'America/New_York';
SELECT w.* FROM tumble(timestamptz '2024-02-29 22:00', '1 month') w;
SELECT size, w.* FROM (VALUES (interval '1 month'), ('1 year')) s (size), tumble(timestamptz '2024-02-29 22:00', size, timezone => 'America/New_York') w
	ORDER BY 1;

-- Days over the change of the clock.
SELECT w.*, w.window_end - w.window_start AS length, count(*) FROM generate_series(timestamptz '2026-03-07', '2026-03-11 23:30', '30 minutes') ts,
	tumble(ts, '1 day', timezone => 'America/New_York') w GROUP BY 1, 2 ORDER BY 1;
SELECT w.*, w.window_end - w.window_start AS length, count(*) FROM generate_series(timestamptz '2026-10-31', '2026-11-02 23:30', '30 minutes') ts,
	tumble(ts, '1 day', timezone => 'America/New_York') w GROUP BY 1, 2 ORDER BY 1;
SELECT to_char(w.window_start, 'Dy YYYY-MM-DD HH24:MI') AS window_start, w.window_end - w.window_start AS length
FROM unnest(ARRAY['1 week', '2 weeks', '10 days']::interval[]) size, tumble(timestamptz '2026-03-10', size, timezone => 'America/New_York') w ORDER BY 1;
SELECT w.* FROM tumble(timestamptz '2026-03-08 05:59', '1 day', '2026-01-01 06:00', 'America/New_York') w;	-- from six to six
SELECT w.*, w.window_end - w.window_start AS length FROM hop(timestamptz '2026-03-08 12:00', '2 days', '1 day', timezone => 'America/New_York') w ORDER BY 1;
SELECT w.*, w.window_end - w.window_start AS length FROM cumulate(timestamptz '2026-03-08 12:00', '1 day', '1 week', timezone => 'America/New_York') w ORDER BY 2;
SELECT w.*, w.window_end - w.window_start AS length FROM cumulate(timestamptz '2026-03-08 05:00', '6 hours', '1 day', timezone => 'America/New_York') w ORDER BY 2;
-- Hours around it are told apart.
SET timezone = 'America/Chicago';
SELECT w.*, count(*) FROM generate_series(timestamptz '2022-11-06 00:00', '2022-11-06 04:59', '1 minute') ts,
	tumble(ts, '1 hour', timezone => 'America/Chicago') w GROUP BY 1, 2 ORDER BY 1;
SELECT count(*), min(n), max(n) FROM (SELECT count(*) AS n FROM generate_series(timestamptz '2022-11-06 00:00', '2022-11-06 23:59', '1 minute') ts,
	tumble(ts, '1 hour', timezone => 'America/Chicago') w GROUP BY w.window_start) x;
SELECT count(*), min(n), max(n) FROM (SELECT count(*) AS n FROM generate_series(timestamptz '2022-11-06 01:00', '2022-11-06 22:59', '1 minute') ts,
	hop(ts, '2 hours', '1 hour', timezone => 'America/Chicago') w WHERE w.window_start >= '2022-11-06 01:00' AND w.window_end <= '2022-11-06 23:00' GROUP BY w.window_start) x;
-- Larger ones follow the clock.
SELECT w.*, w.window_end - w.window_start AS length FROM unnest(ARRAY[timestamptz '2022-03-13', '2022-11-06']) day,
	generate_series(day, day + interval '23 hours', '6 hours') ts, tumble(ts, '6 hours', timezone => 'America/Chicago') w ORDER BY 1;
SELECT w.*, w.window_end - w.window_start AS length FROM generate_series(timestamptz '2022-03-13', '2022-03-13 05:00', '1 hour') ts,
	tumble(ts, '2 hours', timezone => 'America/Chicago') w GROUP BY 1, 2 ORDER BY 1;
SELECT w.*, w.window_end - w.window_start AS length FROM generate_series(timestamptz '2022-11-06', '2022-11-06 05:00', '10 minutes') ts,
	tumble(ts, '90 minutes', timezone => 'America/Chicago') w GROUP BY 1, 2 ORDER BY 1;
SELECT w.*, w.window_end - w.window_start AS length FROM hop(timestamptz '2022-11-06 00:30', '1 day', '8 hours', timezone => 'America/Chicago') w ORDER BY 1;
SET timezone = 'Europe/Berlin';
SELECT count(*), min(n), max(n), min(length), max(length) FROM (SELECT count(*) AS n, w.window_end - w.window_start AS length
	FROM generate_series(timestamptz '2024-10-27 00:00', '2024-10-27 05:59:55', '5 seconds') ts,
	tumble(ts, '30 seconds', timezone => 'Europe/Berlin') w GROUP BY w.window_start, w.window_end) x;
SELECT count(*), min(n), max(n), min(length), max(length) FROM (SELECT count(*) AS n, w.window_end - w.window_start AS length
	FROM generate_series(timestamptz '2024-03-31 00:00', '2024-03-31 05:59:55', '5 seconds') ts,
	tumble(ts, '30 seconds', timezone => 'Europe/Berlin') w GROUP BY w.window_start, w.window_end) x;

-- Midnight comes twice (Havana), a minute of it (St. John's), not at all (Beirut), half an hour is skipped (Lord Howe), a whole day (Apia).
SELECT zone, w.window_start AT TIME ZONE zone AS local_start, w.window_end - w.window_start AS length, count(*)
FROM (VALUES ('America/Havana', timestamptz '2023-11-05 12:00+00'), ('America/St_Johns', '2006-10-29 12:00+00'), ('Asia/Beirut', '2024-03-31 12:00+02'),
		('Australia/Lord_Howe', '2024-04-06 12:00+00'), ('Pacific/Apia', '2011-12-30 12:00+00')) v (zone, day),
	generate_series(day - interval '1 day', day + interval '1 day', '1 minute') ts, tumble(ts, '1 day', timezone => zone) w
GROUP BY zone, w.window_start, w.window_end ORDER BY zone, w.window_start;
SELECT w.window_start AT TIME ZONE 'Australia/Lord_Howe' AS local_start, w.window_end - w.window_start AS length
FROM generate_series(timestamptz '2024-04-06 14:00+00', '2024-04-06 17:00+00', '5 minutes') ts, tumble(ts, '1 hour', timezone => 'Australia/Lord_Howe') w GROUP BY w.window_start, w.window_end ORDER BY w.window_start;

-- In every zone and for every size: start <= ts < end, and the next window begins where this one ends.
SELECT count(*), count(*) FILTER (WHERE w.window_start <= ts AND ts < w.window_end AND next.window_start = w.window_end AND last = w
	AND (before.window_end = w.window_start)) AS good
FROM unnest(ARRAY['America/New_York', 'Europe/Berlin', 'Australia/Lord_Howe', 'America/Havana', 'America/St_Johns', 'Pacific/Apia', 'Africa/Casablanca',
		'Asia/Kathmandu', 'Europe/Dublin', 'Antarctica/Troll', 'America/Juneau', 'UTC']) zone,
	unnest(ARRAY['30 seconds', '7 minutes', '1 hour', '2 hours', '5 hours', '1 day', '3 days', '1 week', '1 month', '1 year', '1 day 12 hours', '36 hours']::interval[]) size,
	unnest(ARRAY['1867-10-18', '1906-04-02', '1942-02-09', '1987-10-25', '2011-12-28', '2024-03-09', '2024-04-06', '2024-11-02', '2150-11-02']::timestamptz[]) day,
	generate_series(day, day + interval '3 days', '2 hours 7 minutes 13 seconds') ts,
	tumble(ts, size, timezone => zone) w, tumble(w.window_end, size, timezone => zone) next,
	tumble(w.window_end - interval '1 microsecond', size, timezone => zone) last, tumble(w.window_start - interval '1 microsecond', size, timezone => zone) before;
-- Days and months in local time are those of AT TIME ZONE; smaller sizes that divide an hour, those of the zone's offset.
SELECT count(*), count(*) FILTER (WHERE w.window_start = date_trunc('day', ts, zone) AND m.window_start = date_trunc('month', ts, zone)
	AND m.window_end = (date_trunc('month', ts AT TIME ZONE zone) + interval '1 month') AT TIME ZONE zone AND q.window_start = date_trunc('quarter', ts, zone)
	AND h.window_start = date_trunc('hour', ts, zone)) AS same
FROM unnest(ARRAY['America/New_York', 'Europe/Berlin', 'Asia/Kolkata', 'America/Sao_Paulo']) zone,
	generate_series(timestamptz '2015-01-01', '2025-01-01', '5 days 7 hours 11 minutes') ts,
	tumble(ts, '1 day', timezone => zone) w, tumble(ts, '1 month', timezone => zone) m, tumble(ts, '3 months', timezone => zone) q, tumble(ts, '1 hour', timezone => zone) h;
-- Hopping windows of a size that is their slide are tumbling ones; a time is in as many as it should.
SELECT count(*), count(*) FILTER (WHERE h = w) AS same,
	count(*) FILTER (WHERE (SELECT count(*) FROM hop(ts, 3 * size, size, timezone => 'America/New_York') x WHERE x.window_start <= ts AND ts < x.window_end) = 3) AS three
FROM unnest(ARRAY['30 seconds', '7 minutes', '1 hour', '2 hours', '5 hours', '1 day', '1 week', '1 month']::interval[]) size,
	unnest(ARRAY['2024-03-09', '2024-11-02']::timestamptz[]) day, generate_series(day, day + interval '3 days', '27 minutes') ts,
	tumble(ts, size, timezone => 'America/New_York') w, hop(ts, size, size, timezone => 'America/New_York') h;

-- NULL: no window, and no zone.
SELECT * FROM cumulate(NULL::timestamptz, '1 minute', '5 minutes');
SELECT * FROM cumulate(timestamp '2024-01-01', NULL, '5 minutes');
SELECT * FROM cumulate(timestamp '2024-01-01', '1 minute', NULL);
SELECT * FROM tumble(NULL::timestamptz, '1 day', timezone => 'Europe/Berlin');
SET timezone = 'UTC';
SELECT * FROM tumble(timestamptz '2024-06-01 23:00', '1 day', timezone => NULL);
SELECT v.i, w.window_start FROM (VALUES (1, 'Europe/Berlin'), (2, 'America/New_York'), (3, NULL), (4, 'Europe/Berlin')) v (i, zone),
	tumble(timestamptz '2024-06-01 23:00', '1 day', timezone => zone) w ORDER BY i;

-- Errors.
SELECT * FROM tumble(timestamptz '2024-01-01', '1 day', timezone => 'Europe/Paradise');
SELECT * FROM tumble(timestamptz '2024-01-01', '1 day', timezone => '');
SELECT * FROM tumble(timestamp '2024-01-01', '1 month 1 day');
SELECT * FROM tumble(timestamp '2024-01-01', '1 month -1 day');
SELECT * FROM tumble(timestamp '2024-01-01', '-1 month');
SELECT * FROM tumble(timestamp '2024-01-01', '400000 years');
SELECT * FROM tumble(timestamp '294276-12-31', '1 month');
SELECT * FROM tumble(timestamptz '294276-12-31 23:59:59', '1 year', timezone => 'Europe/Berlin');
SELECT * FROM tumble(timestamptz '4714-11-24 00:00:00 BC', '1 day', timezone => 'Asia/Tokyo');
SELECT * FROM tumble(timestamptz 'infinity', '1 day', timezone => 'Asia/Tokyo');
SELECT * FROM tumble(timestamptz '2024-01-01', '1 day', '-infinity', 'Asia/Tokyo');
SELECT * FROM hop(timestamptz '2024-01-01', '1 day', '7 hours', timezone => 'Asia/Tokyo');
SELECT * FROM hop(timestamptz '2024-01-01', '1 month', '1 hour', timezone => 'Asia/Tokyo');
SELECT * FROM hop(timestamptz '2024-01-01', '100 years', '1 hour', timezone => 'Asia/Tokyo');
SELECT * FROM cumulate(timestamptz '2024-01-01', '0', '1 hour');
SELECT * FROM cumulate(timestamptz '2024-01-01', '-1 minute', '1 hour');
SELECT * FROM cumulate(timestamptz '2024-01-01', '1 minute', '-1 hour');
SELECT * FROM cumulate(timestamptz '2024-01-01', '2 hours', '1 hour');
SELECT * FROM cumulate(timestamptz '2024-01-01', '1 second', '1 month');
SELECT * FROM cumulate(timestamptz 'infinity', '1 second', '1 minute');

-- They are inlined.
CREATE TABLE event (at timestamptz);
EXPLAIN (COSTS OFF) SELECT window_start, count(*) FROM event, cumulate(at, '1 hour', '1 day') GROUP BY 1;
DROP TABLE event;
