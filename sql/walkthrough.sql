--
-- The examples that engines for event time are taught with, with their figures.
--
SET timezone = 'UTC';
SET datestyle = 'ISO';
SET client_min_messages = warning;

-- A customer's events in windows of five minutes; one comes out of order, one is exactly on the boundary.
CREATE FOREIGN TABLE customer_events (customer_id text NOT NULL, event_time timestamptz NOT NULL)
	SERVER stream_staged OPTIONS (watermark '10 minutes');
CREATE MATERIALIZED VIEW customer_counts WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT customer_id, window_start, window_end, count(*) AS events
	FROM customer_events, tumble(event_time, '5 minutes') GROUP BY customer_id, window_start, window_end;
INSERT INTO customer_events VALUES ('C1', '2024-01-01 10:01:10'), ('C1', '2024-01-01 10:04:40');
CALL stream_agg.run('customer_events');
SELECT * FROM customer_counts ORDER BY window_start;
INSERT INTO customer_events VALUES ('C1', '2024-01-01 10:06:00'), ('C1', '2024-01-01 10:03:20');
CALL stream_agg.run('customer_events');
SELECT * FROM customer_counts ORDER BY window_start;
INSERT INTO customer_events VALUES ('C1', '2024-01-01 10:05:00');
CALL stream_agg.run('customer_events');
SELECT * FROM customer_counts ORDER BY window_start;
DROP FOREIGN TABLE customer_events CASCADE;

-- Words in windows of ten minutes, every five.
CREATE FOREIGN TABLE words (word text NOT NULL, at timestamptz NOT NULL) SERVER stream_staged OPTIONS (event_time 'at', watermark '10 minutes');
CREATE MATERIALIZED VIEW word_counts WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT window_start, window_end, word, count(*) AS n FROM words, hop(at, '10 minutes', '5 minutes') GROUP BY window_start, window_end, word;
INSERT INTO words VALUES ('cat', '2024-01-01 12:07');
CALL stream_agg.run('words');
SELECT * FROM word_counts ORDER BY 1, 3;
-- A watermark of ten minutes: at 12:15 it stands at 12:05.
CREATE MATERIALIZED VIEW tumbling WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT window_start, window_end, word, count(*) AS n FROM words, tumble(at, '5 minutes') GROUP BY window_start, window_end, word;
INSERT INTO words VALUES ('dog', '2024-01-01 12:15');
CALL stream_agg.run('words');
SELECT DISTINCT watermark FROM stream_agg.views;
-- 12:08 counts in both of its windows; 12:02 no longer in that from 11:55 to 12:05, but in the one that is open.
INSERT INTO words VALUES ('owl', '2024-01-01 12:08'), ('bat', '2024-01-01 12:02');
CALL stream_agg.run('words');
SELECT * FROM word_counts ORDER BY 1, 3;
-- In tumbling windows of five minutes 12:02 is late.
SELECT * FROM tumbling ORDER BY 1, 3;
SELECT view, read, late, accepted, late_windows FROM stream_agg.views ORDER BY view::text COLLATE "C";
SELECT view, reason, event_time, message FROM stream_agg.dead_letters;
DROP FOREIGN TABLE words CASCADE;

-- Append: the window from 12:00 to 12:10 appears when 12:20 has come, and once.
CREATE FOREIGN TABLE words (word text NOT NULL, at timestamptz NOT NULL) SERVER stream_staged OPTIONS (event_time 'at', watermark '10 minutes');
CREATE MATERIALIZED VIEW final_counts WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append') AS
	SELECT window_start, window_end, word, count(*) AS n FROM words, hop(at, '10 minutes', '5 minutes') GROUP BY window_start, window_end, word;
INSERT INTO words VALUES ('cat', '2024-01-01 12:01'), ('cat', '2024-01-01 12:09'), ('dog', '2024-01-01 12:12');
CALL stream_agg.run('words');
INSERT INTO words VALUES ('cat', '2024-01-01 12:04'), ('dog', '2024-01-01 12:19:59.999999');
CALL stream_agg.run('words');
SELECT * FROM final_counts WHERE window_start = '2024-01-01 12:00';
INSERT INTO words VALUES ('owl', '2024-01-01 12:20');
CALL stream_agg.run('words');
SELECT * FROM final_counts WHERE window_start = '2024-01-01 12:00';
INSERT INTO words VALUES ('cat', '2024-01-01 12:06'), ('owl', '2024-01-01 12:30');
CALL stream_agg.run('words');
SELECT * FROM final_counts ORDER BY window_start, word;
DROP FOREIGN TABLE words CASCADE;

-- Grades, running.
CREATE FOREIGN TABLE grades (grade int) SERVER stream_staged;
CREATE MATERIALIZED VIEW statistics WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'complete') AS
	SELECT count(*) AS count, max(grade) AS max, min(grade) AS min, round(avg(grade), 1) AS avg FROM grades;
INSERT INTO grades VALUES (20), (55);
CALL stream_agg.run('grades');
SELECT * FROM statistics;
INSERT INTO grades VALUES (0), (99);
CALL stream_agg.run('grades');
SELECT * FROM statistics;
INSERT INTO grades VALUES (15), (60);
CALL stream_agg.run('grades');
SELECT * FROM statistics;
DROP FOREIGN TABLE grades CASCADE;

-- Words of lines, running.
CREATE FOREIGN TABLE lines (line text) SERVER stream_staged;
CREATE MATERIALIZED VIEW word_counts WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT word, count(*) AS n FROM lines, string_to_table(line, ' ') AS word GROUP BY word;
INSERT INTO lines VALUES ('abc def');
CALL stream_agg.run('lines');
SELECT * FROM word_counts ORDER BY word;
INSERT INTO lines VALUES ('abc def');
CALL stream_agg.run('lines');
SELECT * FROM word_counts ORDER BY word;
DROP FOREIGN TABLE lines CASCADE;

-- Numbers of at least 100, each counted.
CREATE FOREIGN TABLE numbers (value int NOT NULL) SERVER stream_staged;
CREATE MATERIALIZED VIEW large WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT value, count(*) AS n FROM numbers WHERE value >= 100 GROUP BY value;
INSERT INTO numbers VALUES (5), (100), (99), (250), (100);
CALL stream_agg.run('numbers');
SELECT * FROM large ORDER BY value;
INSERT INTO numbers VALUES (100), (-100), (101);
CALL stream_agg.run('numbers');
SELECT * FROM large ORDER BY value;
SELECT read, filtered, accepted FROM stream_agg.views;
DROP FOREIGN TABLE numbers CASCADE;
