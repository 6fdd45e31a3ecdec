--
-- Views over cumulating windows, months, and the local time of a zone.
--
SET timezone = 'UTC';
SET datestyle = 'ISO';
SET intervalstyle = 'postgres';
SET client_min_messages = warning;

-- cumulate(): each window is judged on its own.
CREATE FOREIGN TABLE sales (id int, amount int, at timestamptz NOT NULL) SERVER stream_staged OPTIONS (event_time 'at', watermark '0');
CREATE MATERIALIZED VIEW so_far WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT window_start, window_end, count(*) AS n, sum(amount) AS amount FROM sales, cumulate(at, '5 minutes', '15 minutes') GROUP BY 1, 2;
CREATE MATERIALIZED VIEW at_end WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append') AS
	SELECT window_end, count(*) AS n, sum(amount) AS amount, avg(amount) AS mean FROM sales, cumulate(at, '5 minutes', '15 minutes') GROUP BY window_end;
INSERT INTO sales VALUES (1, 1, '2024-01-01 12:01'), (2, 2, '2024-01-01 12:04'), (3, 4, '2024-01-01 12:07'), (4, 8, '2024-01-01 12:02');
CALL stream_agg.run('sales');
SELECT * FROM so_far ORDER BY 1, 2;
SELECT * FROM at_end ORDER BY 1;
-- The last one was late for [12:00, 12:05), and in time for the longer ones.
SELECT view, read, late, accepted, late_windows, windows FROM stream_agg.views ORDER BY view::text COLLATE "C";
-- Places of rows are found again, the window's start from its end alone, too.
VACUUM FULL so_far;
VACUUM FULL at_end;
INSERT INTO sales VALUES (5, 16, '2024-01-01 12:14:59.999999'), (6, 32, '2024-01-01 12:15');
CALL stream_agg.run('sales');
SELECT * FROM so_far ORDER BY 1, 2;
SELECT * FROM at_end ORDER BY 1;
SELECT conrelid::regclass, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid IN ('so_far'::regclass, 'at_end'::regclass) AND contype = 'p' ORDER BY 1;
-- Another step is another window.
ALTER MATERIALIZED VIEW so_far SET (stream_agg.trigger = 'manual');
SELECT stream_agg.execute($$ALTER CONTINUOUS VIEW so_far AS
	SELECT window_start, window_end, count(*) AS n, sum(amount) AS amount FROM sales, cumulate(at, '3 minutes', '15 minutes') GROUP BY 1, 2$$);
SELECT stream_agg.execute($$ALTER CONTINUOUS VIEW so_far AS
	SELECT window_start, window_end, count(*) AS n, sum(amount) AS amount FROM sales, cumulate(at, size => '15 minutes', step => '5 minutes') WHERE amount < 100 GROUP BY 1, 2$$);
INSERT INTO sales VALUES (7, 64, '2024-01-01 12:16'), (8, 128, '2024-01-01 12:16');
CALL stream_agg.run('sales');
SELECT * FROM so_far ORDER BY 1, 2;
DROP FOREIGN TABLE sales CASCADE;

-- Days in a zone: 24, 23, 24 hours. One view with both bounds, one with the start, one with the end; unlogged; over a date range of the clock.
CREATE FOREIGN TABLE visits (who text, at timestamptz NOT NULL) SERVER stream_staged OPTIONS (event_time 'at', watermark '1 hour');
CREATE MATERIALIZED VIEW daily WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append') AS
	SELECT window_start, window_end, count(*) AS n FROM visits, tumble(at, '1 day', timezone => 'America/New_York') GROUP BY 1, 2;
CREATE MATERIALIZED VIEW daily_start WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT who, window_start, count(*) AS n FROM visits, tumble(at, '1 day', timezone => 'America/New_York') GROUP BY 1, 2;
CREATE MATERIALIZED VIEW daily_end WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT window_end, count(*) AS n, avg(length(who)) AS a FROM visits, tumble(at, '1 day', timezone => 'America/New_York') GROUP BY 1;
CREATE MATERIALIZED VIEW three_days WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT window_start, count(*) AS n FROM visits, hop(at, '3 days', '1 day', timezone => 'America/New_York') GROUP BY 1;
CREATE MATERIALIZED VIEW hourly WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.state = 'unlogged', stream_agg.output_mode = 'append') AS
	SELECT window_start, count(*) AS n FROM visits, tumble(at, '1 hour', timezone => 'America/New_York') GROUP BY 1;
CREATE MATERIALIZED VIEW monthly WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT window_end, count(*) AS n FROM visits, tumble(at, '1 month', timezone => 'America/New_York') GROUP BY 1;
INSERT INTO visits SELECT 'ann', t FROM generate_series(timestamptz '2026-03-07 00:00-05', '2026-03-08 12:00-04', '1 hour') t;
CALL stream_agg.run('visits');
VACUUM FULL daily_start; VACUUM FULL daily_end; VACUUM FULL three_days; VACUUM FULL hourly; VACUUM FULL monthly;
INSERT INTO visits SELECT 'ann', t FROM generate_series(timestamptz '2026-03-08 13:00-04', '2026-03-11 01:00-04', '1 hour') t;
CALL stream_agg.run('visits');
INSERT INTO visits VALUES ('bob', '2026-03-09 23:59-04'), ('bob', '2026-03-10 00:00-04');
CALL stream_agg.run('visits');
SET timezone = 'America/New_York';
SELECT *, window_end - window_start AS length FROM daily ORDER BY 1;
SELECT * FROM daily_start ORDER BY 2, 1;
SELECT * FROM daily_end ORDER BY 1;
SELECT * FROM three_days ORDER BY 1;
SELECT count(*), min(n), max(n), min(window_start), max(window_start) FROM hourly;
SELECT * FROM monthly ORDER BY 1;
SELECT view, read, late, accepted, late_windows, windows, oldest_window_end FROM stream_agg.views ORDER BY view::text COLLATE "C";
SELECT conrelid::regclass, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid::regclass::text IN ('daily', 'daily_start', 'daily_end', 'three_days') AND contype IN ('p', 'u') ORDER BY conrelid::regclass::text COLLATE "C";
-- The same over a table.
CREATE TABLE visits_copy (who text, at timestamptz NOT NULL);
INSERT INTO visits_copy SELECT 'ann', t FROM generate_series(timestamptz '2026-03-07 00:00-05', '2026-03-11 01:00-04', '1 hour') t;
SELECT count(*) FROM (SELECT window_start, window_end, count(*) AS n FROM visits_copy, tumble(at, '1 day', timezone => 'America/New_York') GROUP BY 1, 2
	INTERSECT ALL TABLE daily) x;
DROP TABLE visits_copy;
SET timezone = 'UTC';
SELECT delay, windows, groups FROM stream_agg.estimate_state('daily'::regclass, '1 day');
SELECT delay, windows, groups FROM stream_agg.estimate_state('SELECT window_end, count(*) FROM visits, cumulate(at, ''6 hours'', ''1 day'') GROUP BY 1');
SELECT delay, windows FROM stream_agg.estimate_state('SELECT window_start, count(*) FROM visits, tumble(at, ''30 minutes'', timezone => ''Asia/Tokyo'') GROUP BY 1', '2 hours');
SELECT delay, windows FROM stream_agg.estimate_state('SELECT window_start, count(*) FROM visits, hop(at, ''1 month'', ''1 week'') GROUP BY 1', '2 hours');
DROP FOREIGN TABLE visits CASCADE;

-- What is made with the functions of 1.0 changes to those of today.
CREATE FOREIGN TABLE old (k int, at timestamptz) SERVER stream_staged OPTIONS (event_time 'at', watermark '0');
CREATE MATERIALIZED VIEW t10 WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT window_end, count(*) AS n FROM old, stream_agg.tumble_without_zone(at, '1 day') GROUP BY 1;
CREATE MATERIALIZED VIEW h10 WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT window_start, count(*) AS n FROM old, stream_agg.hop_without_zone(at, '1 day', '12 hours') GROUP BY 1;
INSERT INTO old VALUES (1, '2024-01-01 13:00');
CALL stream_agg.run('old');
SELECT stream_agg.execute('ALTER CONTINUOUS VIEW t10 AS SELECT window_end, count(*) AS n FROM old, tumble(at, ''1 day'') WHERE k > 1 GROUP BY 1;
	ALTER CONTINUOUS VIEW h10 AS SELECT window_start, count(*) AS n FROM old, hop(at, ''1 day'', ''12 hours'') WHERE k > 1 GROUP BY 1');
SELECT stream_agg.execute('ALTER CONTINUOUS VIEW t10 AS SELECT window_end, count(*) AS n FROM old, tumble(at, ''1 day'', timezone => ''Asia/Tokyo'') GROUP BY 1');
INSERT INTO old VALUES (1, '2024-01-01 13:01'), (2, '2024-01-01 13:02');
CALL stream_agg.run('old');
SELECT * FROM t10;
SELECT * FROM h10 ORDER BY 1;
DROP FOREIGN TABLE old CASCADE;

-- Months of a timestamp and of a date; late by month.
CREATE FOREIGN TABLE bills (amount numeric, at date) SERVER stream_staged OPTIONS (event_time 'at', watermark '3 days');
CREATE MATERIALIZED VIEW by_month WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append') AS
	SELECT window_start, sum(amount) AS total FROM bills, tumble(at, '1 month') GROUP BY 1;
CREATE MATERIALIZED VIEW month_so_far WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append') AS
	SELECT window_start, window_end, sum(amount) AS total FROM bills, cumulate(at, '2 weeks', '1 month') GROUP BY 1, 2;
INSERT INTO bills VALUES (1, '2024-01-31'), (2, '2024-02-01'), (4, '2024-02-03'), (8, '2024-01-30'), (16, '2024-02-04'), (32, '2024-01-31'), (64, '2024-02-29'), (128, '2024-03-04');
CALL stream_agg.run('bills');
SELECT * FROM by_month ORDER BY 1;
SELECT * FROM month_so_far ORDER BY 1, 2;
SELECT view, read, late, accepted, late_windows FROM stream_agg.views ORDER BY view::text COLLATE "C";
DROP FOREIGN TABLE bills CASCADE;

-- What is refused.
CREATE FOREIGN TABLE s (k int, at timestamptz, plain timestamp, zone text, len interval) SERVER stream_staged OPTIONS (event_time 'at', watermark '1 hour');
CREATE FOREIGN TABLE p (k int, at timestamp) SERVER stream_staged OPTIONS (event_time 'at', watermark '1 hour');
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT window_start, count(*) FROM s, cumulate(at, '1 minute', '5 minutes') GROUP BY 1;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT window_end, count(*) FROM s, hop(at, '1 month', '1 day') GROUP BY 1;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT window_start, count(*) FROM s, tumble(at, '1 day', timezone => zone) GROUP BY 1;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT window_start, count(*) FROM s, tumble(at, len) GROUP BY 1;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT window_start, count(*) FROM s, tumble(at, '1 day', timezone => 'Mars/Olympus') GROUP BY 1;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT window_start, count(*) FROM s, tumble(at, '1 month 1 day') GROUP BY 1;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT window_start, count(*) FROM s, tumble(at, '1 day', 'infinity') GROUP BY 1;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT window_start, count(*) FROM s, hop(at, '5 hours', '2 hours', timezone => 'Europe/Berlin') GROUP BY 1;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT window_end, count(*) FROM s, cumulate(at, '2 hours', '1 hour') GROUP BY 1;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT window_end, count(*) FROM s, cumulate(at, '1 second', '1 year') GROUP BY 1;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT window_end, count(*) FROM s, cumulate(at, NULL, '1 year') GROUP BY 1;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT window_end, count(*) FROM s, cumulate(plain, '1 hour', '1 day') GROUP BY 1;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT window_end, count(*) FROM p, tumble(at, '1 day', timezone => 'Europe/Berlin') GROUP BY 1;
-- Arguments by name, in any order; a zone of the event's own, with both bounds.
CREATE MATERIALIZED VIEW named WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT window_end, count(*) AS n FROM s, hop(slide => '5 minutes', size => '10 minutes', ts => at) GROUP BY 1;
CREATE MATERIALIZED VIEW own_zone WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT window_start, window_end, count(*) AS n FROM s, tumble(at, '1 day', timezone => zone) GROUP BY 1, 2;
INSERT INTO s (at, zone) VALUES ('2024-01-01 12:07', 'Europe/Berlin'), ('2024-01-01 12:07', 'Asia/Tokyo'), ('2024-01-01 12:07', 'Mars/Olympus'), ('2024-01-01 12:07', NULL);
CALL stream_agg.run('s');
SELECT * FROM named ORDER BY 1;
SELECT * FROM own_zone ORDER BY 1;
SELECT view, read, failed, filtered, late, accepted FROM stream_agg.views ORDER BY view::text COLLATE "C";
SELECT reason, message FROM stream_agg.dead_letters;
DROP FOREIGN TABLE s CASCADE;
DROP FOREIGN TABLE p CASCADE;
