--
-- Append mode: a group's row appears once, when its window closes.
--
SET timezone = 'UTC';
SET datestyle = 'ISO';

CREATE FOREIGN TABLE clicks (who text, amount numeric, at timestamptz)
	SERVER stream_staged OPTIONS (event_time 'at', watermark '1 minute');
CREATE MATERIALIZED VIEW per_minute WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.trigger = 'manual') AS
	SELECT who, window_start, window_end, count(*) AS n, sum(amount) AS total
	FROM clicks, tumble(at, '1 minute') GROUP BY who, window_start, window_end;
INSERT INTO clicks VALUES ('ann', 1, '2024-01-01 00:00:00'), ('ann', 2, '2024-01-01 00:00:59.999999'), ('bob', NULL, '2024-01-01 00:00:10'),
	('ann', 4, '2024-01-01 00:01:00'), (NULL, 8, '2024-01-01 00:00:30');
CALL stream_agg.run('clicks');
SELECT * FROM per_minute;
-- A microsecond before the watermark passes the window's end, and exactly there.
INSERT INTO clicks VALUES ('ann', 16, '2024-01-01 00:01:59.999999');
CALL stream_agg.run('clicks');
SELECT * FROM per_minute;
INSERT INTO clicks VALUES ('ann', 32, '2024-01-01 00:00:59');
CALL stream_agg.run('clicks');
INSERT INTO clicks VALUES ('ann', 64, '2024-01-01 00:02:00');
CALL stream_agg.run('clicks');
SELECT * FROM per_minute ORDER BY window_start, who;
-- Late from here on; the row does not change.
INSERT INTO clicks VALUES ('ann', 128, '2024-01-01 00:00:59'), ('cal', 256, '2024-01-01 00:00:59'), ('cal', 512, '2024-01-01 00:01:00');
CALL stream_agg.run('clicks');
SELECT * FROM per_minute ORDER BY window_start, who;
-- Several windows close at once, also ones that open and close within the batch.
INSERT INTO clicks VALUES ('dan', 1, '2024-01-01 00:03:30'), ('dan', 2, '2024-01-01 00:10:00'), ('eve', 3, '2024-01-01 00:10:00'),
	('eve', 4, '2024-01-01 00:20:00');
CALL stream_agg.run('clicks');
SELECT * FROM per_minute ORDER BY window_start, who;
SELECT output_mode, watermark, read, late, accepted, late_windows, groups, windows FROM stream_agg.views WHERE view = 'per_minute'::regclass;
SELECT view, reason, position, event_time, event FROM stream_agg.dead_letters ORDER BY id;
-- What is closed is gone from the state; nothing but the open window is left in its log.
SELECT state AS state_log FROM stream_agg.view_config WHERE view = 'per_minute'::regclass \gset
SELECT DISTINCT stream_agg.to_time(window_start) AS open_window FROM :state_log;

-- A view made later reads the stream from its start, and comes to the same result; one batch a row.
CREATE MATERIALIZED VIEW again WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.trigger = 'manual', stream_agg.max_batch_rows = 1) AS
	SELECT who, window_start, window_end, count(*) AS n, sum(amount) AS total
	FROM clicks, tumble(at, '1 minute') GROUP BY who, window_start, window_end;
CALL stream_agg.run('again');
(SELECT * FROM again EXCEPT ALL SELECT * FROM per_minute) UNION ALL (SELECT * FROM per_minute EXCEPT ALL SELECT * FROM again);
-- One that starts at the end sees nothing of it.
CREATE MATERIALIZED VIEW newest WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.trigger = 'manual', stream_agg.start = 'latest') AS
	SELECT window_start, count(*) AS n FROM clicks, tumble(at, '1 minute') GROUP BY window_start;
CALL stream_agg.run('newest');
INSERT INTO clicks VALUES ('fay', 1, '2024-01-01 00:05:00'), ('fay', 2, '2024-01-01 00:30:00');
CALL stream_agg.run('clicks');
SELECT * FROM newest ORDER BY 1;
SELECT view, read, late, accepted FROM stream_agg.views ORDER BY view::text COLLATE "C";
DROP FOREIGN TABLE clicks CASCADE;

-- HAVING, FILTER, expressions over aggregates, hopping windows; window_end alone.
CREATE FOREIGN TABLE trades (symbol text NOT NULL, price numeric, size int, event_time timestamptz NOT NULL)
	SERVER stream_staged OPTIONS (watermark '0');
CREATE MATERIALIZED VIEW vwap WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.trigger = 'manual') AS
	SELECT window_end, symbol, round(sum(price * size) / nullif(sum(size), 0), 4) AS vwap, count(*) FILTER (WHERE size >= 100) AS blocks,
		max(price) - min(price) AS span, upper(symbol) || ':' || count(*) AS label
	FROM trades, hop(event_time, '2 minutes', '1 minute') GROUP BY symbol, window_end HAVING count(*) > 1;
INSERT INTO trades VALUES ('a', 10, 100, '2024-01-01 00:00:10'), ('a', 11, 50, '2024-01-01 00:00:50'), ('b', 7, 0, '2024-01-01 00:00:30'),
	('a', 12, 100, '2024-01-01 00:01:10'), ('b', 8, 0, '2024-01-01 00:01:20'), ('a', 1, 1, '2024-01-01 00:10:00');
CALL stream_agg.run('trades');
SELECT * FROM vwap ORDER BY window_end, symbol;
-- As the query says over a table, but for the windows still open.
CREATE TABLE trades_copy (LIKE trades);
INSERT INTO trades_copy VALUES ('a', 10, 100, '2024-01-01 00:00:10'), ('a', 11, 50, '2024-01-01 00:00:50'), ('b', 7, 0, '2024-01-01 00:00:30'),
	('a', 12, 100, '2024-01-01 00:01:10'), ('b', 8, 0, '2024-01-01 00:01:20'), ('a', 1, 1, '2024-01-01 00:10:00');
SELECT window_end, symbol, round(sum(price * size) / nullif(sum(size), 0), 4) AS vwap, count(*) FILTER (WHERE size >= 100) AS blocks,
	max(price) - min(price) AS span, upper(symbol) || ':' || count(*) AS label
FROM trades_copy, hop(event_time, '2 minutes', '1 minute') WHERE window_end <= '2024-01-01 00:10'
GROUP BY symbol, window_end HAVING count(*) > 1 ORDER BY window_end, symbol;
DROP TABLE trades_copy;
DROP FOREIGN TABLE trades CASCADE;

-- The watermark of the view goes before the stream's; a stream without one will do.
CREATE FOREIGN TABLE plain (at timestamptz) SERVER stream_staged OPTIONS (event_time 'at');
CREATE MATERIALIZED VIEW own_watermark WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.trigger = 'manual', stream_agg.watermark = '5 seconds') AS
	SELECT window_start, count(*) AS n FROM plain, tumble(at, '10 seconds') GROUP BY 1;
CREATE MATERIALIZED VIEW patient WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.trigger = 'manual', stream_agg.watermark = '1 day') AS
	SELECT window_start, count(*) AS n FROM plain, tumble(at, '10 seconds') GROUP BY 1;
INSERT INTO plain VALUES ('2024-01-01 00:00:01'), ('2024-01-01 00:00:14.999'), ('2024-01-01 00:00:02'), ('2024-01-01 00:00:15'), ('2024-01-01 00:00:03');
CALL stream_agg.run('plain');
SELECT * FROM own_watermark ORDER BY 1;
SELECT * FROM patient ORDER BY 1;
SELECT view, watermark, late, accepted FROM stream_agg.views ORDER BY view::text COLLATE "C";
DROP FOREIGN TABLE plain CASCADE;

-- A window without any grouping column; before 1970; many groups, in order of the key.
CREATE FOREIGN TABLE old (k int NOT NULL, at timestamptz) SERVER stream_staged OPTIONS (event_time 'at', watermark '0');
CREATE MATERIALIZED VIEW whole WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.trigger = 'manual') AS
	SELECT window_start, window_end, count(*) AS n, sum(k) AS total FROM old, tumble(at, '1 hour') GROUP BY 1, 2;
CREATE MATERIALIZED VIEW keyed WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.trigger = 'manual') AS
	SELECT k % 1000 AS k, window_start, count(*) AS n FROM old, tumble(at, '1 hour') GROUP BY 1, 2;
INSERT INTO old SELECT i, timestamptz '1969-12-31 22:30' + i * interval '1 second' FROM generate_series(0, 9999) i;
CALL stream_agg.run('old');
SELECT * FROM whole ORDER BY 1;
SELECT window_start, count(*), sum(n), min(k), max(k) FROM keyed GROUP BY 1 ORDER BY 1;
DROP FOREIGN TABLE old CASCADE;
