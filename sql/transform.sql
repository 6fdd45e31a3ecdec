--
-- Continuous transforms: no aggregation; filtered, projected, joined rows are appended.
--
SET timezone = 'UTC';
SET datestyle = 'ISO';

CREATE FOREIGN TABLE raw (id int NOT NULL, kind text, amount numeric, at timestamptz)
	SERVER stream_staged OPTIONS (event_time 'at', watermark '0');
CREATE TABLE kinds (kind text, label text);
INSERT INTO kinds VALUES ('a', 'Apple'), ('b', 'Banana'), ('b', 'Berry');

CREATE MATERIALIZED VIEW everything WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT * FROM raw;
CREATE MATERIALIZED VIEW filtered WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT id * 10 AS id10, upper(kind) AS kind, 'raw'::varchar(10) AS origin FROM raw WHERE amount > 1;
CREATE MATERIALIZED VIEW joined WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT id, label FROM raw JOIN kinds USING (kind);
CREATE MATERIALIZED VIEW left_joined WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT r.id, k.label FROM raw r LEFT JOIN kinds k ON k.kind = r.kind;
CREATE MATERIALIZED VIEW windows (n, starts, ends) WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT id, window_start, window_end FROM raw, hop(at, '2 minutes', '1 minute');
CREATE MATERIALIZED VIEW exploded WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT id, g FROM raw, generate_series(1, id) g;
-- A transform may read the clock and be volatile: each row is written once.
CREATE MATERIALIZED VIEW stamped WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT id, now() AS seen_at, clock_timestamp() AS clock, random() AS r, current_date AS today FROM raw;
-- Output modes: append says the same; complete has no meaning.
CREATE MATERIALIZED VIEW appended WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append') AS SELECT id FROM raw;
CREATE MATERIALIZED VIEW completed WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'complete') AS SELECT id FROM raw;
CALL stream_agg.run('raw');
INSERT INTO raw VALUES (1, 'a', 1, '2024-01-01 00:00:30'), (2, 'b', 2, '2024-01-01 00:05'), (3, 'c', 3, '2024-01-01 00:00:10'), (4, NULL, NULL, '2024-01-01 00:00:10');
CALL stream_agg.run('raw');
INSERT INTO raw VALUES (5, 'b', 5, '2024-01-01 00:00:20'), (6, 'a', 6, NULL), (7, 'a', 7, 'infinity');
CALL stream_agg.run('raw');
SELECT * FROM everything ORDER BY id;
SELECT * FROM filtered ORDER BY id10;
SELECT * FROM joined ORDER BY id, label;
SELECT * FROM left_joined ORDER BY id, label;
-- Nothing is late for a transform: nothing is closed.
SELECT * FROM windows ORDER BY n, starts;
SELECT id, array_agg(g ORDER BY g) FROM exploded GROUP BY id ORDER BY id;
SELECT count(*), count(DISTINCT id), bool_and(seen_at > '2024-01-02' AND seen_at <= clock AND r < 1 AND today IS NOT NULL) FROM stamped;
SELECT * FROM appended ORDER BY id;
SELECT view, read, null_time, filtered, late, accepted, groups FROM stream_agg.views ORDER BY view::text COLLATE "C";
\d filtered
\d windows
SELECT relreplident FROM pg_class WHERE oid = 'filtered'::regclass;
-- Joined tables change between runs.
UPDATE kinds SET label = 'Apricot' WHERE kind = 'a';
DELETE FROM kinds WHERE kind = 'b';
INSERT INTO raw VALUES (8, 'a', 1, '2024-01-01 00:10'), (9, 'b', 1, '2024-01-01 00:10');
CALL stream_agg.run('raw');
SELECT * FROM joined WHERE id > 7 ORDER BY id, label;
SELECT * FROM left_joined WHERE id > 7 ORDER BY id, label;

-- Rows of any type, wide ones too, many at once.
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE FOREIGN TABLE wide (i int, m mood, p pair, d positive, u uuid, j jsonb, a int[], t text, b bytea, r int4range, n name, c "char", ip inet)
	SERVER stream_staged;
CREATE MATERIALIZED VIEW wide_copy WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT * FROM wide;
INSERT INTO wide VALUES (1, 'happy', (1, 'x'), 5, '00000000-0000-0000-0000-000000000001', '{"a": [1, 2, null]}', '{1,2,NULL}', 'text', '\x00ff', '[1,5)', 'name', 'c', '10.0.0.1/8'),
	(2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO wide SELECT i, 'ok', ROW(i, repeat('y', 3000))::pair, i, NULL, to_jsonb(repeat('z', 100)), ARRAY(SELECT generate_series(1, 1000)),
	(SELECT string_agg(md5(i::text || g), '') FROM generate_series(1, 300) g), NULL, NULL, NULL, NULL, NULL FROM generate_series(3, 50) i;
CALL stream_agg.run('wide');
SELECT * FROM wide_copy WHERE i < 3 ORDER BY i;
SELECT count(*), sum(length(t)), sum(array_length(a, 1)), sum(length((p).b)), count(DISTINCT t) FROM wide_copy WHERE i > 2;
DROP FOREIGN TABLE wide CASCADE;
DROP TYPE pair;
DROP TYPE mood;
DROP DOMAIN positive;

-- No columns at all.
CREATE MATERIALIZED VIEW columnless WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT FROM raw;
CALL stream_agg.run('columnless');
SELECT count(*) FROM columnless;
-- A constant; the whole row; a sub-query over ordinary tables in the select list.
CREATE MATERIALIZED VIEW others WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT 1 AS one, raw AS whole, (SELECT max(label) FROM kinds WHERE kinds.kind = raw.kind) AS label FROM raw;
CALL stream_agg.run('others');
SELECT * FROM others ORDER BY (whole).id;
DROP FOREIGN TABLE raw CASCADE;
DROP TABLE kinds;
