-- Staged streams: what writers and readers of a stream see.
SET client_min_messages = warning;
SET timezone = 'UTC';
\set VERBOSITY default

CREATE FOREIGN TABLE staged (
	id int NOT NULL,
	at timestamptz,
	amount numeric DEFAULT 1.5 CHECK (amount > 0),
	doubled numeric GENERATED ALWAYS AS (amount * 2) STORED,
	note text
) SERVER stream_staged OPTIONS (event_time 'at', watermark '5 s', max_future 'infinity');

--
-- Forms of INSERT
--
INSERT INTO staged VALUES (1, '2024-01-01 00:00:00Z', 10);
INSERT INTO staged (id, at) VALUES (2, '2024-01-01 00:00:01Z'), (3, '2024-01-01 00:00:02Z');
INSERT INTO staged (at, id) SELECT '2024-01-01Z'::timestamptz + g * interval '1 s', g FROM generate_series(4, 6) g;
INSERT INTO staged (id, amount, note) VALUES (7, DEFAULT, 'returned') RETURNING id, amount, doubled, note;
INSERT INTO staged (id, amount) SELECT g, g FROM generate_series(8, 9) g RETURNING doubled;
WITH x AS (INSERT INTO staged (id) VALUES (10), (11) RETURNING id) SELECT sum(id) FROM x;
COPY staged (id, at, amount, note) FROM stdin;
12	2024-01-01 00:00:12Z	3	copied
13	\N	4	\N
\.
PREPARE put(int, text) AS INSERT INTO staged (id, note) VALUES ($1, $2);
EXECUTE put(14, 'prepared');
EXECUTE put(15, 'prepared');
SELECT * FROM staged ORDER BY id;

-- A query sees what earlier commands of its transaction have written, and not what it writes itself.
BEGIN;
INSERT INTO staged (id) VALUES (16);
SELECT count(*) FROM staged;
INSERT INTO staged (id) SELECT id + 100 FROM staged;
SELECT count(*) FROM staged;
SAVEPOINT a;
INSERT INTO staged (id) VALUES (17);
SELECT count(*) FROM staged;
ROLLBACK TO a;
SELECT count(*) FROM staged;
ROLLBACK;
SELECT count(*) FROM staged;
DO $$
BEGIN
	FOR i IN 1..3 LOOP
		BEGIN
			INSERT INTO staged (id) VALUES (200 + i);
			IF i = 2 THEN RAISE division_by_zero; END IF;
		EXCEPTION WHEN division_by_zero THEN NULL;
		END;
	END LOOP;
END
$$;
SELECT id FROM staged WHERE id > 200 ORDER BY id;

-- A function that reads the stream while the statement that calls it is writing.
CREATE FUNCTION staged_count() RETURNS bigint LANGUAGE sql VOLATILE AS 'SELECT count(*) FROM staged';
BEGIN;
INSERT INTO staged (id, note) SELECT g, staged_count() FROM generate_series(301, 303) g;
SELECT id, note FROM staged WHERE id > 300 ORDER BY id;
ROLLBACK;

-- Wide values, and more rows than go into one chunk.
BEGIN;
INSERT INTO staged (id, note) SELECT g, repeat(g::text, 10000) FROM generate_series(1000, 1002) g;
INSERT INTO staged (id) SELECT g FROM generate_series(2001, 4500) g;
SELECT id, length(note), note = repeat(id::text, 10000) FROM staged WHERE id BETWEEN 1000 AND 1002 ORDER BY id;
SELECT count(*), count(DISTINCT id) FROM staged WHERE id > 2000;
ROLLBACK;

-- Joins that scan the stream more than once.
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET enable_material = off;
SELECT count(*) FROM staged a JOIN staged b USING (id);
RESET ALL;
SET client_min_messages = warning;
SET timezone = 'UTC';
SELECT id FROM staged WHERE id < 3 ORDER BY id LIMIT 1;

--
-- What is refused to the writer
--
INSERT INTO staged (id) VALUES (NULL);
INSERT INTO staged (id, amount) VALUES (20, 0);
INSERT INTO staged (id, amount) VALUES (20, 1), (21, -1);
INSERT INTO staged (id, doubled) VALUES (20, 1);
INSERT INTO staged (id, at) VALUES (20, 'no time');
COPY staged (id, amount) FROM stdin;
20	1
21	-1
\.
UPDATE staged SET note = 'x';
DELETE FROM staged WHERE id = 1;
MERGE INTO staged s USING (VALUES (1)) v (id) ON s.id = v.id WHEN MATCHED THEN DELETE;
INSERT INTO staged (id) VALUES (20) ON CONFLICT (id) DO UPDATE SET note = 'x';
INSERT INTO staged (id) VALUES (19) ON CONFLICT DO NOTHING RETURNING id;
SELECT count(*) FROM staged WHERE id IN (20, 21);

-- Triggers and views upon a stream.
CREATE FUNCTION staged_trigger() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF NEW.note = 'skip' THEN RETURN NULL; END IF;
	NEW.note := coalesce(NEW.note, 'none') || '!';
	RETURN NEW;
END
$$;
CREATE TRIGGER t BEFORE INSERT ON staged FOR EACH ROW EXECUTE FUNCTION staged_trigger();
INSERT INTO staged (id, note) VALUES (21, 'a'), (22, 'skip'), (23, NULL) RETURNING id, note;
DROP TRIGGER t ON staged;
CREATE VIEW big_staged AS SELECT id, amount FROM staged WHERE amount > 100 WITH CHECK OPTION;
INSERT INTO big_staged VALUES (24, 101);
INSERT INTO big_staged VALUES (25, 99);
SELECT * FROM big_staged;
DROP VIEW big_staged;

-- A user with rights on the stream needs none on what lies behind it, and gets none.
CREATE ROLE regress_staged_user;
GRANT SELECT, INSERT ON staged TO regress_staged_user;
SET ROLE regress_staged_user;
INSERT INTO staged (id) VALUES (30);
SELECT id FROM staged WHERE id = 30;
SELECT count(*) FROM stream_agg.staged_segment;
CREATE FOREIGN TABLE pg_temp.mine (id int) SERVER stream_staged;
INSERT INTO mine VALUES (1);
TABLE mine;
DROP FOREIGN TABLE mine;
RESET ROLE;
REVOKE ALL ON staged FROM regress_staged_user;
DROP ROLE regress_staged_user;

--
-- Partitions
--
CREATE TABLE parts (id int, kind text) PARTITION BY LIST (kind);
CREATE TABLE parts_table PARTITION OF parts FOR VALUES IN ('table');
CREATE FOREIGN TABLE parts_stream PARTITION OF parts FOR VALUES IN ('stream') SERVER stream_staged;
INSERT INTO parts VALUES (1, 'stream'), (2, 'table'), (3, 'stream');
COPY parts FROM stdin;
4	stream
5	table
\.
SELECT tableoid::regclass, * FROM parts ORDER BY id;
INSERT INTO parts_stream VALUES (6, 'table');
COPY parts_stream FROM stdin;
6	table
\.
UPDATE parts SET kind = 'stream' WHERE id = 2;
ALTER TABLE parts ADD COLUMN extra int;
INSERT INTO parts VALUES (7, 'stream', 77) RETURNING extra;
SELECT * FROM parts_stream ORDER BY id;
DROP TABLE parts;

--
-- Options
--
CREATE FOREIGN TABLE bad (at timestamptz) SERVER stream_staged OPTIONS (colour 'blue');
CREATE FOREIGN TABLE bad (at timestamptz) SERVER stream_staged OPTIONS (watermark 'soon');
CREATE FOREIGN TABLE bad (at timestamptz) SERVER stream_staged OPTIONS (watermark '-1 s');
CREATE FOREIGN TABLE bad (at timestamptz) SERVER stream_staged OPTIONS (watermark '1 month');
CREATE FOREIGN TABLE bad (at timestamptz) SERVER stream_staged OPTIONS (event_time 'when');
CREATE FOREIGN TABLE bad (at int) SERVER stream_staged OPTIONS (event_time 'at');
CREATE FOREIGN TABLE bad (at timestamptz) SERVER stream_staged OPTIONS (watermark '1 s');
CREATE FOREIGN TABLE bad (at timestamptz) SERVER stream_staged OPTIONS (on_data_loss 'panic');
CREATE FOREIGN TABLE bad (at timestamptz) SERVER stream_staged OPTIONS (staged_limit 'much');
CREATE FOREIGN TABLE bad (at timestamptz OPTIONS (path 'x')) SERVER stream_staged;
CREATE SERVER bad FOREIGN DATA WRAPPER stream_agg;
CREATE SERVER bad FOREIGN DATA WRAPPER stream_agg OPTIONS (type 'carrier pigeon');
CREATE USER MAPPING FOR CURRENT_USER SERVER stream_staged OPTIONS (password 'x');
SELECT to_regclass('bad');
CREATE FOREIGN TABLE good (event_time date, x int) SERVER stream_staged
	OPTIONS (watermark '1 day', max_future 'infinity', on_data_loss 'skip', staged_limit '10 MB');
ALTER FOREIGN TABLE good OPTIONS (SET watermark 'later');
ALTER FOREIGN TABLE good OPTIONS (ADD event_time 'x');
ALTER FOREIGN TABLE good OPTIONS (SET watermark '2 days');

--
-- The fixed order: read rows first, then the others
--
CREATE FOREIGN TABLE ordered (n int, at timestamptz DEFAULT '2024-01-01Z') SERVER stream_staged OPTIONS (event_time 'at');
INSERT INTO ordered VALUES (1), (2);
CREATE MATERIALIZED VIEW ordered_rows WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT n FROM ordered WHERE n < 1000;
CREATE MATERIALIZED VIEW ordered_count WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT count(*) AS n FROM ordered;
CALL stream_agg.run('ordered');
INSERT INTO ordered VALUES (5);
CALL stream_agg.run('ordered');
INSERT INTO ordered VALUES (3), (4);
SELECT n FROM ordered;
SELECT view, position, end_position FROM stream_agg.partitions WHERE view::text LIKE 'ordered%' ORDER BY 1;
CALL stream_agg.run('ordered');
TABLE ordered_rows;
TABLE ordered_count;

-- A view that comes later reads the same order from what is still kept; one that starts at the end does not.
CREATE MATERIALIZED VIEW ordered_later WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT n FROM ordered;
CREATE MATERIALIZED VIEW ordered_latest WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.start = 'latest') AS
	SELECT count(*) AS n FROM ordered;
CALL stream_agg.run('ordered');
TABLE ordered_later;
INSERT INTO ordered VALUES (6);
CALL stream_agg.run('ordered');
TABLE ordered_latest;
SELECT n FROM ordered;

--
-- TRUNCATE
--
INSERT INTO ordered VALUES (7), (8);
BEGIN;
TRUNCATE ordered;
SELECT n FROM ordered;
ROLLBACK;
SELECT n FROM ordered;
TRUNCATE ordered;
INSERT INTO ordered VALUES (9);
SELECT n FROM ordered;
CALL stream_agg.run('ordered');
SELECT view, "read", skipped, accepted FROM stream_agg.views WHERE stream = 'ordered'::regclass ORDER BY view::text COLLATE "C";
TABLE ordered_rows;
-- Within one transaction, with rows before and after.
BEGIN;
INSERT INTO ordered VALUES (10), (11);
TRUNCATE ordered;
INSERT INTO ordered VALUES (12);
COMMIT;
CALL stream_agg.run('ordered');
SELECT view, "read", skipped, accepted FROM stream_agg.views WHERE stream = 'ordered'::regclass ORDER BY view::text COLLATE "C";
TABLE ordered_later;
-- Without a view the rows go at once.
INSERT INTO staged (id) VALUES (40);
TRUNCATE staged;
SELECT count(*) FROM staged;
SELECT staged_bytes FROM stream_agg.streams WHERE stream = 'staged'::regclass;

--
-- ALTER
--
ALTER FOREIGN TABLE ordered ADD COLUMN label text DEFAULT 'new';
INSERT INTO ordered (n) VALUES (20);
CREATE MATERIALIZED VIEW ordered_labels WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT n, label FROM ordered WHERE n > 8;
CALL stream_agg.run('ordered');
INSERT INTO ordered VALUES (21, '2024-01-01Z', 'given');
CALL stream_agg.run('ordered');
TABLE ordered_labels;
ALTER FOREIGN TABLE ordered RENAME COLUMN n TO number;
ALTER FOREIGN TABLE ordered RENAME COLUMN at TO happened;
ALTER FOREIGN TABLE ordered RENAME TO sorted;
SELECT option_name, option_value FROM pg_options_to_table((SELECT ftoptions FROM pg_foreign_table WHERE ftrelid = 'sorted'::regclass));
INSERT INTO sorted VALUES (22, '2024-01-01Z', 'renamed');
CALL stream_agg.run('sorted');
SELECT * FROM ordered_labels WHERE n = 22;
ALTER FOREIGN TABLE good RENAME COLUMN event_time TO day;
SELECT option_name, option_value FROM pg_options_to_table((SELECT ftoptions FROM pg_foreign_table WHERE ftrelid = 'good'::regclass)) WHERE option_name = 'event_time';
ALTER FOREIGN TABLE sorted DROP COLUMN happened;
ALTER FOREIGN TABLE sorted ALTER COLUMN happened TYPE date;
ALTER FOREIGN TABLE sorted DROP COLUMN label;
ALTER FOREIGN TABLE sorted ADD COLUMN extra int;
INSERT INTO sorted VALUES (23, NULL, NULL, 5);
ALTER FOREIGN TABLE sorted ALTER COLUMN extra TYPE bigint;
ALTER FOREIGN TABLE sorted DROP COLUMN extra;
SELECT * FROM sorted WHERE number > 21;
CALL stream_agg.run('sorted');
SELECT DISTINCT "read" = skipped + null_time + filtered + accepted AS balanced, status FROM stream_agg.views WHERE stream = 'sorted'::regclass;

--
-- What a restore brings or leaves out: with check_function_bodies off, as pg_restore sets it, nothing is made
-- beforehand, and the first writer does it.
--
SET check_function_bodies = off;
CREATE FOREIGN TABLE lazy (n int) SERVER stream_staged;
SELECT count(*) FROM stream_agg.staged_stream WHERE stream = 'lazy'::regclass;
TRUNCATE lazy;
SELECT count(*) FROM lazy;
BEGIN;
SAVEPOINT a;
INSERT INTO lazy VALUES (1);
ROLLBACK TO a;
INSERT INTO lazy VALUES (2);
COMMIT;
ALTER FOREIGN TABLE lazy ADD COLUMN more text;
INSERT INTO lazy VALUES (3, 'three');
RESET check_function_bodies;
CREATE MATERIALIZED VIEW lazy_rows WITH (stream_agg.continuous) AS SELECT * FROM lazy;
CALL stream_agg.run('lazy');
SET check_function_bodies = off;
ALTER FOREIGN TABLE lazy ADD COLUMN evenmore int;
RESET check_function_bodies;
INSERT INTO lazy VALUES (4, 'four', 44);
CALL stream_agg.run('lazy');
TABLE lazy_rows;
TABLE lazy;
CREATE TABLE not_ours (stream regclass, segment regclass);
CREATE TRIGGER t AFTER INSERT ON not_ours FOR EACH ROW EXECUTE FUNCTION stream_agg.attach_restored();
INSERT INTO not_ours VALUES ('lazy', 'not_ours');
DROP TABLE not_ours;

--
-- Dropping a stream takes along what belongs to it, however it is dropped
--
CREATE SCHEMA staged_schema;
CREATE FOREIGN TABLE staged_schema.inner_stream (n int) SERVER stream_staged;
INSERT INTO staged_schema.inner_stream VALUES (1);
CREATE TEMP TABLE parts_of_streams AS
	SELECT stream::oid AS stream, chunks::oid AS part FROM stream_agg.staged_stream WHERE stream::text ~ '^(sorted|good|staged|lazy|staged_schema.inner_stream)$'
	UNION ALL
	SELECT stream::oid, segment::oid FROM stream_agg.staged_segment WHERE stream::text ~ '^(sorted|good|staged|lazy|staged_schema.inner_stream)$';
SELECT count(*) >= 10 FROM parts_of_streams;
DROP FOREIGN TABLE sorted;
DROP FOREIGN TABLE sorted CASCADE;
DROP FOREIGN TABLE good, staged, lazy CASCADE;
DROP SCHEMA staged_schema CASCADE;
DROP FUNCTION staged_trigger(), staged_count();
SELECT count(*) FROM parts_of_streams JOIN pg_class ON part = oid;
SELECT count(*) FROM parts_of_streams p JOIN stream_agg.staged_stream s ON s.stream::oid = p.stream;
SELECT count(*) FROM parts_of_streams p JOIN stream_agg.staged_segment s ON s.stream::oid = p.stream;
SELECT count(*) FROM parts_of_streams p JOIN stream_agg.staged_order s ON s.stream::oid = p.stream;
SELECT count(*) FROM parts_of_streams p JOIN pg_depend d ON d.objid = p.part OR d.refobjid = p.part OR d.objid = p.stream OR d.refobjid = p.stream;
