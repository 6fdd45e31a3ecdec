--
-- Update mode: after every trigger, the current value of every group.
--
SET timezone = 'UTC';
SET datestyle = 'ISO';

CREATE FOREIGN TABLE clicks (who text, page text, amount numeric, at timestamptz)
	SERVER stream_staged OPTIONS (event_time 'at', watermark '1 minute');

-- Windows and keys; a row on a boundary belongs to the next window.
CREATE MATERIALIZED VIEW per_minute WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT who, window_start, window_end, count(*) AS n, count(amount) AS amounts, sum(amount) AS total,
		avg(amount) AS mean, min(page) AS first_page, max(amount) AS most
	FROM clicks, tumble(at, '1 minute') GROUP BY who, window_start, window_end;
SELECT * FROM per_minute;
CALL stream_agg.run('clicks');
SELECT * FROM per_minute;
INSERT INTO clicks VALUES ('ann', '/b', 1, '2024-01-01 00:00:00'), ('ann', '/a', 2.50, '2024-01-01 00:00:59.999999'),
	('ann', '/c', 4, '2024-01-01 00:01:00'), ('bob', NULL, NULL, '2024-01-01 00:00:10');
CALL stream_agg.run('clicks');
SELECT * FROM per_minute ORDER BY window_start, who;
-- The same groups again, and new ones.
INSERT INTO clicks VALUES ('ann', '/z', 10, '2024-01-01 00:00:30'), ('bob', '/x', 7, '2024-01-01 00:00:40'),
	(NULL, '/n', 1, '2024-01-01 00:00:00'), ('cal', '/c', 5, '2024-01-01 00:01:30');
CALL stream_agg.run('per_minute');
SELECT * FROM per_minute ORDER BY window_start, who;
-- 00:01 + delay is passed: the first window is forgotten, its rows stay and no longer change.
INSERT INTO clicks VALUES ('dan', '/d', 1, '2024-01-01 00:02:00');
CALL stream_agg.run('clicks');
INSERT INTO clicks VALUES ('ann', '/late', 1000, '2024-01-01 00:00:30'), ('ann', '/c', 6, '2024-01-01 00:01:01');
CALL stream_agg.run('clicks');
SELECT * FROM per_minute ORDER BY window_start, who;
SELECT status, output_mode, trigger, watermark, read, null_time, future, failed, filtered, late, accepted, late_windows, groups, windows
FROM stream_agg.views WHERE view = 'per_minute'::regclass;
SELECT view, reason, topic, partition, position, event_time, event FROM stream_agg.dead_letters ORDER BY id;

-- Every (event, window) pair is judged as the log says, also within one batch: the third event of this
-- batch is late, because the second one has moved the watermark before it.
INSERT INTO clicks VALUES ('eve', '/1', 1, '2024-01-01 00:03:00'), ('eve', '/2', 1, '2024-01-01 00:06:00'),
	('eve', '/3', 1, '2024-01-01 00:03:01'), ('eve', '/4', 1, '2024-01-01 00:05:00');
CALL stream_agg.run('clicks');
SELECT who, window_start, n FROM per_minute WHERE who = 'eve' ORDER BY window_start;
SELECT read, late, accepted FROM stream_agg.views WHERE view = 'per_minute'::regclass;
DROP TABLE per_minute;

-- Hopping windows: each is judged on its own.
CREATE FOREIGN TABLE hops (id int, at timestamptz NOT NULL) SERVER stream_staged OPTIONS (event_time 'at', watermark '0');
CREATE MATERIALIZED VIEW hopping WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT window_start, window_end, count(*) AS n, sum(id) AS ids FROM hops, hop(at, '10 minutes', '5 minutes') GROUP BY 1, 2;
INSERT INTO hops VALUES (1, '2024-01-01 00:02'), (10, '2024-01-01 00:07'), (100, '2024-01-01 00:12'), (1000, '2024-01-01 00:08');
CALL stream_agg.run('hops');
SELECT * FROM hopping ORDER BY 1;
-- The last one was late for [00:00, 00:10), and in time for [00:05, 00:15).
SELECT read, late, accepted, late_windows FROM stream_agg.views WHERE view = 'hopping'::regclass;
INSERT INTO hops VALUES (9, '2024-01-01 00:01');
CALL stream_agg.run('hops');
SELECT * FROM hopping ORDER BY 1;
SELECT read, late, accepted, late_windows FROM stream_agg.views WHERE view = 'hopping'::regclass;
SELECT view, reason, position, event_time, event FROM stream_agg.dead_letters WHERE stream = 'hops'::regclass ORDER BY id;
DROP FOREIGN TABLE hops CASCADE;
-- Gaps between windows: what is in none of them is filtered.
CREATE FOREIGN TABLE hops (id int, at timestamptz NOT NULL) SERVER stream_staged OPTIONS (event_time 'at', watermark '0');
CREATE MATERIALIZED VIEW gaps WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT window_start, count(*) AS n FROM hops, hop(at, '1 minute', '5 minutes') GROUP BY 1;
INSERT INTO hops VALUES (1, '2024-01-01 00:00'), (2, '2024-01-01 00:01'), (3, '2024-01-01 00:05:59'), (4, '2024-01-01 00:06');
CALL stream_agg.run('hops');
SELECT * FROM gaps ORDER BY 1;
SELECT read, filtered, late, accepted FROM stream_agg.views WHERE view = 'gaps'::regclass;
DROP FOREIGN TABLE hops CASCADE;

-- Windows whose size is the event's own: two may start together.
CREATE FOREIGN TABLE sized (id int, minutes int, at timestamptz) SERVER stream_staged OPTIONS (event_time 'at', watermark '1 hour');
CREATE MATERIALIZED VIEW own_size WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT window_start, window_end, count(*) AS n, sum(id) AS ids FROM sized, tumble(at, minutes * interval '1 minute') GROUP BY 1, 2;
INSERT INTO sized VALUES (1, 1, '2024-01-01 00:00:30'), (2, 5, '2024-01-01 00:00:40'), (4, 5, '2024-01-01 00:04:40'), (8, NULL, '2024-01-01 00:00:40'), (16, 0, '2024-01-01 00:00:40');
CALL stream_agg.run('sized');
INSERT INTO sized VALUES (32, 1, '2024-01-01 00:00:30'), (64, 5, '2024-01-01 00:00:40');
CALL stream_agg.run('sized');
SELECT * FROM own_size ORDER BY 1, 2;
SELECT read, failed, filtered, accepted FROM stream_agg.views WHERE view = 'own_size'::regclass;
VACUUM FULL own_size;
INSERT INTO sized VALUES (128, 1, '2024-01-01 00:00:30'), (256, 5, '2024-01-01 00:00:40');
CALL stream_agg.run('sized');
SELECT * FROM own_size ORDER BY 1, 2;
DROP FOREIGN TABLE sized CASCADE;

-- NULLs group together.
CREATE FOREIGN TABLE pairs (x int, y int, v numeric) SERVER stream_staged;
CREATE MATERIALIZED VIEW by_pair WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT x, y, count(*) AS n, sum(v) AS total FROM pairs GROUP BY x, y;
INSERT INTO pairs VALUES (NULL, NULL), (1, NULL), (NULL, 1);
CALL stream_agg.run('pairs');
INSERT INTO pairs VALUES (NULL, NULL), (1, NULL), (NULL, 1);
CALL stream_agg.run('pairs');
SELECT * FROM by_pair ORDER BY x, y;
-- sum(numeric) over NULLs is NULL, then counts up.
INSERT INTO pairs VALUES (1, NULL, 21);
CALL stream_agg.run('pairs');
SELECT * FROM by_pair ORDER BY x, y;
INSERT INTO pairs VALUES (1, NULL, 21), (1, NULL, NULL);
CALL stream_agg.run('pairs');
SELECT * FROM by_pair ORDER BY x, y;
DROP FOREIGN TABLE pairs CASCADE;

-- HAVING makes rows appear and disappear.
CREATE FOREIGN TABLE moves (account text NOT NULL, amount int) SERVER stream_staged;
CREATE MATERIALIZED VIEW overdrawn WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT account, sum(amount) AS balance, count(*) AS n FROM moves GROUP BY account HAVING sum(amount) < 0;
INSERT INTO moves VALUES ('a', 10), ('b', -5), ('c', -1);
CALL stream_agg.run('moves');
SELECT * FROM overdrawn ORDER BY 1;
INSERT INTO moves VALUES ('a', -20), ('b', 6), ('c', -1);
CALL stream_agg.run('moves');
SELECT * FROM overdrawn ORDER BY 1;
INSERT INTO moves VALUES ('a', 10), ('b', -6), ('c', 100), ('d', 1);
CALL stream_agg.run('moves');
SELECT * FROM overdrawn ORDER BY 1;
INSERT INTO moves VALUES ('b', 1), ('d', -2);
CALL stream_agg.run('moves');
SELECT * FROM overdrawn ORDER BY 1;
-- HAVING without aggregates, on keys and on a windowed view.
CREATE MATERIALIZED VIEW having_key WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT account, max(amount) AS most FROM moves GROUP BY account HAVING account > 'b' AND max(amount) IS NOT NULL;
CALL stream_agg.run('having_key');
SELECT * FROM having_key ORDER BY 1;
-- One row in all, hidden by HAVING.
CREATE MATERIALIZED VIEW having_all WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT count(*) AS n FROM moves HAVING count(*) > 12;
CALL stream_agg.run('having_all');
SELECT * FROM having_all;
INSERT INTO moves VALUES ('e', 1);
CALL stream_agg.run('having_all');
SELECT * FROM having_all;
DROP FOREIGN TABLE moves CASCADE;

-- A day view's closing does not close a week view on the same stream.
CREATE FOREIGN TABLE visits (at timestamptz NOT NULL) SERVER stream_staged OPTIONS (event_time 'at', watermark '0');
CREATE MATERIALIZED VIEW daily WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT window_start, count(*) AS n FROM visits, tumble(at, '1 day') GROUP BY window_start;
CREATE MATERIALIZED VIEW weekly WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT window_start, count(*) AS n FROM visits, tumble(at, '7 days') GROUP BY window_start;
INSERT INTO visits VALUES ('2024-05-13 08:00'), ('2024-05-14 08:00'), ('2024-05-15 08:00');
CALL stream_agg.run('visits');
INSERT INTO visits VALUES ('2024-05-13 09:00'), ('2024-05-15 09:00');
CALL stream_agg.run('visits');
SELECT * FROM daily ORDER BY 1;
SELECT * FROM weekly ORDER BY 1;
SELECT view, read, late, accepted, windows FROM stream_agg.views ORDER BY view::text COLLATE "C";
DROP FOREIGN TABLE visits CASCADE;

-- Null times, times far ahead of their arrival, infinite ones: kept aside before they touch the watermark.
CREATE FOREIGN TABLE strange (id int, at timestamptz) SERVER stream_staged OPTIONS (event_time 'at', watermark '0', max_future '1 hour');
CREATE MATERIALIZED VIEW normal WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT window_end, count(*) AS n, sum(id) AS ids FROM strange, tumble(at, '1 minute') GROUP BY window_end;
INSERT INTO strange VALUES (1, '2024-01-01 00:00'), (2, NULL), (3, '2999-01-01 00:00'), (4, 'infinity'), (5, '-infinity'),
	(6, '2024-01-01 00:00:30'), (7, '1905-01-01 12:00');
CALL stream_agg.run('strange');
SELECT * FROM normal ORDER BY 1;
SELECT watermark, read, null_time, future, late, accepted FROM stream_agg.views WHERE view = 'normal'::regclass;
SELECT view, reason, position, event_time, event FROM stream_agg.dead_letters WHERE stream = 'strange'::regclass ORDER BY position;
DROP FOREIGN TABLE strange CASCADE;
-- max_future = 'infinity'.
CREATE FOREIGN TABLE strange (id int, at timestamptz) SERVER stream_staged OPTIONS (event_time 'at', watermark '0', max_future 'infinity');
CREATE MATERIALIZED VIEW anything WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT window_end, count(*) AS n FROM strange, tumble(at, '1 minute') GROUP BY window_end;
INSERT INTO strange VALUES (1, '2024-01-01 00:00'), (3, '2999-01-01 00:00'), (4, '2999-01-01 00:00'), (5, '2999-01-01 00:01'), (6, '2024-01-01 00:00');
CALL stream_agg.run('strange');
SELECT * FROM anything ORDER BY 1;
SELECT watermark, read, future, late, accepted FROM stream_agg.views WHERE view = 'anything'::regclass;
DROP FOREIGN TABLE strange CASCADE;

-- late_events = 'drop': counted all the same, but not kept.  Without a watermark nothing is late.
CREATE FOREIGN TABLE tardy (id int, event_time timestamptz) SERVER stream_staged OPTIONS (watermark '10 seconds');
CREATE MATERIALIZED VIEW dropping WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.late_events = 'drop') AS
	SELECT window_start, window_end, count(*) AS n FROM tardy, tumble(event_time, '10 seconds') GROUP BY 1, 2;
CREATE MATERIALIZED VIEW keeping WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.watermark = '1 hour') AS
	SELECT window_start, window_end, count(*) AS n FROM tardy, tumble(event_time, '10 seconds') GROUP BY 1, 2;
INSERT INTO tardy VALUES (1, '2024-01-01 00:00:05'), (2, '2024-01-01 00:00:20'), (3, '2024-01-01 00:00:05'), (4, '2024-01-01 00:00:19');
CALL stream_agg.run('tardy');
SELECT * FROM dropping ORDER BY 1;
SELECT * FROM keeping ORDER BY 1;
SELECT view, watermark, read, late, accepted FROM stream_agg.views ORDER BY view::text COLLATE "C";
SELECT count(*) FROM stream_agg.dead_letters WHERE stream = 'tardy'::regclass;
DROP FOREIGN TABLE tardy CASCADE;

-- Event time of type timestamp and date.
CREATE FOREIGN TABLE naive (id int, at timestamp) SERVER stream_staged OPTIONS (event_time 'at', watermark '1 minute');
CREATE MATERIALIZED VIEW naive_minutes WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT window_start, window_end, sum(id) AS ids FROM naive, tumble(at, '1 minute') GROUP BY 1, 2;
INSERT INTO naive VALUES (1, '2024-03-31 02:30'), (2, '2024-03-31 02:32'), (4, '2024-03-31 02:30');
CALL stream_agg.run('naive');
SELECT * FROM naive_minutes ORDER BY 1;
DROP FOREIGN TABLE naive CASCADE;
CREATE FOREIGN TABLE dated (id int, day date) SERVER stream_staged OPTIONS (event_time 'day', watermark '1 day');
CREATE MATERIALIZED VIEW dated_weeks WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT window_start, window_end, sum(id) AS ids FROM dated, tumble(day, '7 days') GROUP BY 1, 2;
INSERT INTO dated VALUES (1, '2024-05-12'), (2, '2024-05-13'), (4, '2024-05-19'), (8, '2024-05-20'), (16, '2024-05-14'),
	(32, '2024-05-21'), (64, '2024-05-14'), (128, 'infinity'), (256, '5874897-01-01'), (512, '4713-01-01 BC');
CALL stream_agg.run('dated');
SELECT * FROM dated_weeks ORDER BY 1;
SELECT watermark, read, null_time, future, late, accepted FROM stream_agg.views WHERE view = 'dated_weeks'::regclass;
DROP FOREIGN TABLE dated CASCADE;

-- Many rows in one run and many batches: the answer does not depend on where batches are cut.
CREATE FOREIGN TABLE many (k int, v int, at timestamptz) SERVER stream_staged OPTIONS (event_time 'at', watermark '30 seconds');
CREATE MATERIALIZED VIEW large WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT k, window_start, count(*) AS n, sum(v) AS total, avg(v) AS mean FROM many, tumble(at, '1 minute') GROUP BY 1, 2;
CREATE MATERIALIZED VIEW small WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.max_batch_rows = 7) AS
	SELECT k, window_start, count(*) AS n, sum(v) AS total, avg(v) AS mean FROM many, tumble(at, '1 minute') GROUP BY 1, 2;
INSERT INTO many SELECT i % 13, i, timestamptz '2024-01-01' + i * interval '1 second' - (i * 7919 % 101) * interval '1 second'
FROM generate_series(1, 1000) i;
CALL stream_agg.run('many');
SELECT count(*), sum(n), sum(total) FROM large;
(SELECT * FROM large EXCEPT SELECT * FROM small) UNION ALL (SELECT * FROM small EXCEPT SELECT * FROM large);
SELECT count(DISTINCT (read, late, accepted, late_windows, watermark)) FROM stream_agg.views;
-- And is the one of the definition of lateness.
WITH event AS (
	SELECT i, i % 13 AS k, i AS v, timestamptz '2024-01-01' + i * interval '1 second' - (i * 7919 % 101) * interval '1 second' AS at
	FROM generate_series(1, 1000) i),
judged AS (
	SELECT *, max(at) OVER (ORDER BY i ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) - interval '30 seconds' AS watermark FROM event),
answer AS (
	SELECT k, window_start, count(*) AS n, sum(v) AS total, avg(v) AS mean FROM judged, tumble(at, '1 minute')
	WHERE watermark IS NULL OR window_end > watermark GROUP BY 1, 2)
SELECT (SELECT count(*) FROM answer) AS groups, (SELECT count(*) FROM (SELECT * FROM answer EXCEPT ALL SELECT * FROM small) x) AS missing,
	(SELECT count(*) FROM (SELECT * FROM small EXCEPT ALL SELECT * FROM answer) x) AS wrong;
DROP FOREIGN TABLE many CASCADE;

DROP FOREIGN TABLE clicks;
