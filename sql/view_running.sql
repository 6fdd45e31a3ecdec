--
-- Running aggregates: no window.
--
SET timezone = 'UTC';
SET datestyle = 'ISO';

CREATE FOREIGN TABLE sales (id int, shop text, amount numeric, at timestamptz) SERVER stream_staged;
-- Without grouping columns there is one row, before the first event too.
CREATE MATERIALIZED VIEW totals WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT count(*) AS n, sum(amount) AS total, avg(amount) AS mean, min(shop) AS first_shop FROM sales;
CREATE MATERIALIZED VIEW totals_complete WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'complete') AS
	SELECT count(*) AS n, sum(amount) AS total FROM sales;
CREATE MATERIALIZED VIEW by_shop WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'complete') AS
	SELECT shop, count(*) AS n, sum(amount) AS total FROM sales GROUP BY shop;
CALL stream_agg.run('sales');
SELECT * FROM totals;
SELECT * FROM totals_complete;
SELECT * FROM by_shop;
INSERT INTO sales VALUES (1, 'north', 10, NULL), (2, 'south', NULL, '2024-01-01'), (3, NULL, 5, 'infinity');
CALL stream_agg.run('sales');
SELECT * FROM totals;
SELECT * FROM totals_complete;
SELECT * FROM by_shop ORDER BY 1;
INSERT INTO sales SELECT i, 'east', i, NULL FROM generate_series(1, 100) i;
CALL stream_agg.run('sales');
SELECT * FROM totals;
SELECT * FROM by_shop ORDER BY 1;
SELECT view, output_mode, watermark, read, null_time, accepted, groups FROM stream_agg.views ORDER BY view::text COLLATE "C";
-- Only filtered events.
CREATE MATERIALIZED VIEW nothing WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT count(*) AS n, sum(amount) AS total FROM sales WHERE shop = 'nowhere';
CALL stream_agg.run('nothing');
SELECT * FROM nothing;
SELECT read, filtered, accepted FROM stream_agg.views WHERE view = 'nothing'::regclass;
-- Grouping without any aggregate: the distinct values.
CREATE MATERIALIZED VIEW shops WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT shop FROM sales GROUP BY shop;
CALL stream_agg.run('shops');
INSERT INTO sales (shop) VALUES ('north'), ('west');
CALL stream_agg.run('shops');
SELECT * FROM shops ORDER BY 1;
DROP FOREIGN TABLE sales CASCADE;

-- Expressions: over aggregates, as grouping columns, as arguments, FILTER, constants.
CREATE FOREIGN TABLE m (k int, a int, b float8, t text) SERVER stream_staged;
CREATE TABLE m_copy (k int, a int, b float8, t text);
CREATE MATERIALIZED VIEW exprs WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT k / 10 AS decade, CASE WHEN a > 50 THEN 'high' ELSE 'low' END AS level, 'x' AS constant, k / 10 + 1 AS next_decade,
		count(*) + 1 AS n1, sum(a) * 1.0 / count(*) AS ratio, sum(a * a) FILTER (WHERE a % 2 = 0) AS even_squares,
		count(DISTINCT_FREE.a) AS ca, max(length(t)) || 'c' AS longest, bool_and(a > 10) AS all_high, sum(b) > 10 AS big
	FROM m AS distinct_free GROUP BY k / 10, CASE WHEN a > 50 THEN 'high' ELSE 'low' END;
INSERT INTO m SELECT i % 30, i % 101, i / 8.0, repeat('x', i % 7) FROM generate_series(1, 500) i;
INSERT INTO m_copy SELECT i % 30, i % 101, i / 8.0, repeat('x', i % 7) FROM generate_series(1, 500) i;
CALL stream_agg.run('m');
INSERT INTO m SELECT i % 40, i % 89, i / 4.0, repeat('y', i % 9) FROM generate_series(1, 500) i;
INSERT INTO m_copy SELECT i % 40, i % 89, i / 4.0, repeat('y', i % 9) FROM generate_series(1, 500) i;
INSERT INTO m VALUES (NULL, NULL, NULL, NULL);
INSERT INTO m_copy VALUES (NULL, NULL, NULL, NULL);
CALL stream_agg.run('m');
SELECT * FROM exprs ORDER BY 1, 2;
CREATE TEMP VIEW answer AS SELECT k / 10 AS decade, CASE WHEN a > 50 THEN 'high' ELSE 'low' END AS level, 'x' AS constant, k / 10 + 1 AS next_decade,
		count(*) + 1 AS n1, sum(a) * 1.0 / count(*) AS ratio, sum(a * a) FILTER (WHERE a % 2 = 0) AS even_squares,
		count(a) AS ca, max(length(t)) || 'c' AS longest, bool_and(a > 10) AS all_high, sum(b) > 10 AS big
	FROM m_copy GROUP BY k / 10, CASE WHEN a > 50 THEN 'high' ELSE 'low' END;
(TABLE exprs EXCEPT ALL TABLE answer) UNION ALL (TABLE answer EXCEPT ALL TABLE exprs);
DROP VIEW answer;
-- A FILTER that guards its argument, as in SQL.
CREATE MATERIALIZED VIEW guarded WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT sum(100 / a) FILTER (WHERE a <> 0) AS s, count(*) FILTER (WHERE a IS NULL) AS nulls, count(*) FILTER (WHERE NULL) AS never FROM m;
CALL stream_agg.run('guarded');
SELECT * FROM guarded;
SELECT sum(100 / a) FILTER (WHERE a <> 0) AS s, count(*) FILTER (WHERE a IS NULL) AS nulls, count(*) FILTER (WHERE NULL) AS never FROM m_copy;
SELECT failed, read, accepted FROM stream_agg.views WHERE view = 'guarded'::regclass;
DROP FOREIGN TABLE m CASCADE;
DROP TABLE m_copy;

-- Joins with ordinary tables: read as they are at the batch.
CREATE FOREIGN TABLE bookings (room int, nights int) SERVER stream_staged;
CREATE TABLE rooms (room int PRIMARY KEY, hotel text NOT NULL);
CREATE TABLE tags (hotel text, tag text);
INSERT INTO rooms VALUES (1, 'ritz'), (2, 'ritz'), (3, 'inn');
INSERT INTO tags VALUES ('ritz', 'lux'), ('ritz', 'spa'), ('inn', 'spa');
CREATE MATERIALIZED VIEW per_hotel WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT hotel, sum(nights) AS nights, count(*) AS n FROM bookings JOIN rooms USING (room) GROUP BY hotel;
CREATE MATERIALIZED VIEW per_hotel_left WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT r.hotel, sum(nights) AS nights, count(*) AS n, count(r.room) AS known FROM bookings b LEFT JOIN rooms r ON r.room = b.room GROUP BY 1;
CREATE MATERIALIZED VIEW per_hotel_right WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT r.hotel, sum(nights) AS nights FROM rooms r RIGHT JOIN bookings b ON r.room = b.room GROUP BY 1;
CREATE MATERIALIZED VIEW per_tag WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT tag, sum(nights) AS nights FROM bookings b, rooms r, tags t WHERE b.room = r.room AND r.hotel = t.hotel GROUP BY tag;
CREATE MATERIALIZED VIEW per_sub WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT big.hotel, sum(nights) AS nights FROM bookings b
	JOIN (SELECT hotel, min(room) AS lo, max(room) AS hi FROM rooms GROUP BY hotel) big ON b.room BETWEEN lo AND hi
	WHERE b.room IN (SELECT room FROM rooms) AND EXISTS (SELECT FROM tags t WHERE t.hotel = big.hotel)
	GROUP BY big.hotel;
INSERT INTO bookings VALUES (1, 2), (2, 3), (3, 5), (9, 7), (NULL, 11);
CALL stream_agg.run('bookings');
SELECT * FROM per_hotel ORDER BY 1;
SELECT * FROM per_hotel_left ORDER BY 1;
SELECT * FROM per_hotel_right ORDER BY 1;
SELECT * FROM per_tag ORDER BY 1;
SELECT * FROM per_sub ORDER BY 1;
UPDATE rooms SET hotel = 'inn' WHERE room = 2;
INSERT INTO rooms VALUES (9, 'new');
DELETE FROM tags WHERE hotel = 'ritz';
ALTER TABLE rooms ADD COLUMN note text;
CREATE INDEX ON tags (hotel);
ANALYZE rooms;
INSERT INTO bookings VALUES (1, 20), (2, 30), (3, 50), (9, 70), (NULL, 110);
CALL stream_agg.run('bookings');
SELECT * FROM per_hotel ORDER BY 1;
SELECT * FROM per_hotel_left ORDER BY 1;
SELECT * FROM per_hotel_right ORDER BY 1;
SELECT * FROM per_tag ORDER BY 1;
SELECT * FROM per_sub ORDER BY 1;
-- An event is counted once, however many rows it joined.
SELECT view, read, filtered, accepted FROM stream_agg.views ORDER BY view::text COLLATE "C";
TRUNCATE rooms;
INSERT INTO bookings VALUES (1, 1000);
CALL stream_agg.run('bookings');
SELECT * FROM per_hotel ORDER BY 1;
SELECT * FROM per_hotel_left ORDER BY 1;
DROP FOREIGN TABLE bookings CASCADE;
DROP TABLE rooms, tags;
