--
-- What other commands do to streams and continuous views.
--
SET timezone = 'UTC';
SET datestyle = 'ISO';
\set SHOW_CONTEXT never

-- Relations in schema stream_agg that belong to a view or stream, and rows about them.
CREATE VIEW leftovers AS
SELECT (SELECT count(*) FROM stream_agg.view_config) AS views,
	(SELECT count(DISTINCT view_id) FROM stream_agg.view_position) AS positions,
	(SELECT count(*) FROM stream_agg.dead_letter) AS dead_letters,
	(SELECT count(*) FROM stream_agg.staged_stream) AS streams,
	(SELECT count(*) FROM stream_agg.staged_order) > 0 AS orders,
	(SELECT count(*) FROM stream_agg.staged_segment) > 0 AS segments,
	(SELECT count(*) FROM stream_agg.stream_counter) AS counters,
	(SELECT count(*) FROM pg_class WHERE relnamespace = 'stream_agg'::regnamespace AND relname ~ '^definition_[0-9]+$') AS definitions,
	(SELECT count(*) FROM pg_class WHERE relnamespace = 'stream_agg'::regnamespace AND relname ~ '^state_[0-9]+$') AS states,
	(SELECT count(*) FROM pg_class c WHERE c.relnamespace = 'stream_agg'::regnamespace AND c.relkind IN ('r', 'S', 'v')
		AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype IN ('e', 'i'))) AS others;
SELECT * FROM leftovers;

-- Renaming the stream, its columns, the view, its columns and the schema keeps everything running.
CREATE FOREIGN TABLE s (k int, v numeric, at timestamptz) SERVER stream_staged OPTIONS (event_time 'at', watermark '1 minute');
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT k, window_start, count(*) AS n, avg(v) AS mean FROM s, tumble(at, '1 minute') GROUP BY k, window_start;
CREATE MATERIALIZED VIEW w WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append') AS
	SELECT window_start, window_end, count(*) AS n, avg(v) AS mean FROM s, tumble(at, '1 minute') GROUP BY 1, 2;
INSERT INTO s VALUES (1, 10, '2024-01-01 00:00:01'), (2, 20, '2024-01-01 00:00:02');
CALL stream_agg.run('s');
ALTER FOREIGN TABLE s RENAME TO renamed_stream;
ALTER FOREIGN TABLE renamed_stream RENAME COLUMN v TO volume;
ALTER FOREIGN TABLE renamed_stream RENAME COLUMN k TO "Key";
ALTER TABLE v RENAME TO "Renamed View";
ALTER TABLE "Renamed View" RENAME COLUMN k TO "the key";
ALTER TABLE "Renamed View" RENAME COLUMN mean TO "average";
ALTER TABLE "Renamed View" RENAME COLUMN window_start TO since;
CREATE SCHEMA "Other Schema";
ALTER TABLE "Renamed View" SET SCHEMA "Other Schema";
ALTER FOREIGN TABLE renamed_stream SET SCHEMA "Other Schema";
INSERT INTO "Other Schema".renamed_stream VALUES (1, 30, '2024-01-01 00:00:03'), (3, 40, '2024-01-01 00:01:04');
CALL stream_agg.run('"Other Schema".renamed_stream');
SELECT * FROM "Other Schema"."Renamed View" ORDER BY since, 1;
ALTER SCHEMA "Other Schema" RENAME TO moved;
ALTER FOREIGN TABLE moved.renamed_stream ADD COLUMN extra text DEFAULT 'x';
ALTER FOREIGN TABLE moved.renamed_stream ALTER COLUMN extra SET DEFAULT 'y';
INSERT INTO moved.renamed_stream VALUES (3, 50, '2024-01-01 00:02:05');
CALL stream_agg.run('moved.renamed_stream');
SELECT * FROM moved."Renamed View" ORDER BY since, 1;
SELECT * FROM w ORDER BY 1;
-- The worker must find its state again under the new names.
VACUUM FULL moved."Renamed View";
INSERT INTO moved.renamed_stream VALUES (3, 70, '2024-01-01 00:02:06'), (NULL, NULL, '2024-01-01 00:02:07');
CALL stream_agg.run('moved."Renamed View"');
SELECT * FROM moved."Renamed View" ORDER BY since, 1;
SELECT view, stream FROM stream_agg.views ORDER BY view::text COLLATE "C";
-- The event time's column: the option names it.
ALTER FOREIGN TABLE moved.renamed_stream RENAME COLUMN at TO happened;
INSERT INTO moved.renamed_stream VALUES (3, 90, '2024-01-01 00:02:08');
ALTER FOREIGN TABLE moved.renamed_stream OPTIONS (SET event_time 'happened');
INSERT INTO moved.renamed_stream VALUES (3, 90, '2024-01-01 00:02:08');
CALL stream_agg.run('moved.renamed_stream');
SELECT * FROM moved."Renamed View" WHERE "the key" = 3 ORDER BY since;

-- What the definition uses cannot be dropped or retyped, as with views.
ALTER FOREIGN TABLE moved.renamed_stream DROP COLUMN volume;
DO $$
BEGIN
	ALTER FOREIGN TABLE moved.renamed_stream ALTER COLUMN volume TYPE float8;
EXCEPTION WHEN feature_not_supported THEN
	RAISE NOTICE 'refused';
END
$$;
ALTER FOREIGN TABLE moved.renamed_stream DROP COLUMN extra;
INSERT INTO moved.renamed_stream VALUES (3, 90, '2024-01-01 00:02:09');
CALL stream_agg.run('moved.renamed_stream');
SELECT * FROM moved."Renamed View" WHERE "the key" = 3 ORDER BY since;
DROP FUNCTION tumble(timestamptz, interval, timestamptz, text);
DROP FOREIGN TABLE moved.renamed_stream;
DROP SCHEMA moved;
DROP SERVER stream_staged;
-- With CASCADE everything goes.
SELECT * FROM leftovers;
DROP FOREIGN TABLE moved.renamed_stream CASCADE;
SELECT * FROM leftovers;
SELECT to_regclass('w'), to_regclass('moved."Renamed View"');
DROP SCHEMA moved;

-- Dropping views, in every way.
CREATE FOREIGN TABLE s (k int, v numeric, at timestamptz) SERVER stream_staged OPTIONS (event_time 'at', watermark '1 minute');
CREATE SCHEMA sch;
CREATE MATERIALIZED VIEW v1 WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT k, count(*) AS n, avg(v) AS m FROM s GROUP BY k;
CREATE MATERIALIZED VIEW v2 WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT k, count(*) AS n, avg(v) AS m FROM s GROUP BY k;
CREATE MATERIALIZED VIEW v3 WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT k, count(*) AS n, avg(v) AS m FROM s GROUP BY k;
CREATE MATERIALIZED VIEW v4 WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT k, count(*) AS n, avg(v) AS m FROM s GROUP BY k;
CREATE MATERIALIZED VIEW v5 WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT k, count(*) AS n, 1 / k AS m FROM s GROUP BY k;
CREATE MATERIALIZED VIEW sch.v6 WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT k, count(*) AS n, avg(v) AS m FROM s GROUP BY k;
CREATE MATERIALIZED VIEW ordinary AS SELECT 1 AS one;
INSERT INTO s VALUES (1, 1, '2024-01-01'), (0, 2, NULL), (1, 2, '2024-01-01');
CALL stream_agg.run('s');
SELECT * FROM leftovers;
DROP TABLE v1;
DROP MATERIALIZED VIEW v2;
SELECT stream_agg.drop_view('v3');
DROP MATERIALIZED VIEW v4, ordinary;
SELECT * FROM leftovers;
-- With a dependent view: refused, then cascading.
CREATE VIEW on_v5 AS SELECT * FROM v5;
DROP MATERIALIZED VIEW v5;
DROP TABLE v5;
SELECT stream_agg.drop_view('v5');
DROP MATERIALIZED VIEW v5 CASCADE;
SELECT to_regclass('on_v5');
DROP SCHEMA sch CASCADE;
SELECT * FROM leftovers;
DROP MATERIALIZED VIEW nothing;
DROP MATERIALIZED VIEW IF EXISTS nothing;
SELECT stream_agg.drop_view('s');
SELECT stream_agg.drop_view('leftovers');
-- Views gone, stream stays and runs.
INSERT INTO s VALUES (2, 2, '2024-01-01');
CALL stream_agg.run('s');
-- The parts cannot be dropped by themselves.
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT k, count(*) AS n, avg(v) AS m FROM s GROUP BY k;
DO $$
DECLARE
	part regclass;
BEGIN
	FOR part IN SELECT definition FROM stream_agg.view_config UNION ALL SELECT state FROM stream_agg.view_config LOOP
		BEGIN
			EXECUTE format('DROP %s %s', CASE WHEN part::text LIKE '%definition%' THEN 'VIEW' ELSE 'TABLE' END, part);
		EXCEPTION WHEN dependent_objects_still_exist THEN
			RAISE NOTICE '%', regexp_replace(SQLERRM, '[0-9]+', 'N');
		END;
	END LOOP;
END
$$;
-- In a transaction: rolled back, nothing happened; committed, it is gone.
BEGIN;
DROP MATERIALIZED VIEW v;
ROLLBACK;
CALL stream_agg.run('s');
SELECT * FROM v ORDER BY k;
BEGIN;
SAVEPOINT a;
DROP TABLE v;
ROLLBACK TO a;
COMMIT;
CALL stream_agg.run('s');
SELECT count(*) FROM v;
BEGIN;
DROP FOREIGN TABLE s CASCADE;
ROLLBACK;
INSERT INTO s VALUES (5, 5, '2024-01-01');
CALL stream_agg.run('s');
SELECT * FROM v ORDER BY k;
-- CREATE in a transaction that rolls back leaves nothing; one that commits starts then.
BEGIN;
CREATE FOREIGN TABLE s9 (k int) SERVER stream_staged;
CREATE MATERIALIZED VIEW v9 WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT k, avg(k) AS m FROM s9 GROUP BY k;
INSERT INTO s9 VALUES (1);
SELECT * FROM v9;
ROLLBACK;
SELECT * FROM leftovers;
BEGIN;
CREATE FOREIGN TABLE s9 (k int) SERVER stream_staged;
INSERT INTO s9 VALUES (1);
SAVEPOINT a;
CREATE MATERIALIZED VIEW v9 WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT k, avg(k) AS m FROM s9 GROUP BY k;
ROLLBACK TO a;
CREATE MATERIALIZED VIEW v9 WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT k, avg(k) AS mean FROM s9 GROUP BY k;
INSERT INTO s9 VALUES (2);
COMMIT;
CALL stream_agg.run('s9');
SELECT * FROM v9 ORDER BY k;
BEGIN;
CREATE MATERIALIZED VIEW v10 WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT k, avg(k) AS m FROM s9 GROUP BY k;
DROP TABLE v10;
COMMIT;
DROP FOREIGN TABLE s9 CASCADE;
SELECT * FROM leftovers;
DROP FOREIGN TABLE s CASCADE;
SELECT * FROM leftovers;

-- The result table: no direct changes.
CREATE FOREIGN TABLE s (k int NOT NULL, v int, at timestamptz NOT NULL) SERVER stream_staged OPTIONS (event_time 'at', watermark '1 minute');
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT window_start, window_end, k, count(*) AS n, sum(v) AS total FROM s, tumble(at, '1 hour') GROUP BY k, window_start, window_end;
\d v
INSERT INTO s VALUES (1, 10, '2024-01-01 00:10'), (2, 20, '2024-01-01 00:20');
CALL stream_agg.run('s');
INSERT INTO v (k) VALUES (1);
UPDATE v SET n = 0;
DELETE FROM v;
TRUNCATE v;
TRUNCATE s, v;
COPY v FROM stdin;
\.
MERGE INTO v USING (SELECT 1 AS k) x ON v.k = x.k WHEN MATCHED THEN DELETE;
WITH d AS (DELETE FROM v RETURNING *) SELECT count(*) FROM d;
REFRESH MATERIALIZED VIEW v;
-- Not even by switching the guard off, short of a superuser who means it.
CREATE FUNCTION trg() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
CREATE TRIGGER t BEFORE INSERT ON v FOR EACH ROW EXECUTE FUNCTION trg();
CREATE TRIGGER t BEFORE UPDATE OR DELETE ON v FOR EACH ROW EXECUTE FUNCTION trg();
CREATE OR REPLACE TRIGGER t BEFORE UPDATE ON v FOR EACH ROW EXECUTE FUNCTION trg();
CREATE TRIGGER t AFTER INSERT ON v REFERENCING NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION trg();
CREATE TRIGGER t AFTER UPDATE ON v REFERENCING OLD TABLE AS o FOR EACH ROW EXECUTE FUNCTION trg();
SELECT tgname AS guard FROM pg_trigger WHERE tgrelid = 'v'::regclass AND tgfoid = 'stream_agg.guard()'::regprocedure \gset
ALTER TABLE v DISABLE TRIGGER :"guard";
ALTER TABLE v DISABLE TRIGGER ALL;
ALTER TABLE v DISABLE TRIGGER USER;
DROP TRIGGER :"guard" ON v;
ALTER TRIGGER :"guard" ON v RENAME TO x;
SET session_replication_role = replica;
DELETE FROM v WHERE false;
RESET session_replication_role;
-- Own columns, the key, the kind of table.
ALTER TABLE v DROP COLUMN n;
ALTER TABLE v ALTER COLUMN n TYPE int;
ALTER TABLE v ALTER COLUMN k DROP NOT NULL;
ALTER TABLE v ALTER COLUMN n SET NOT NULL;
ALTER TABLE v ALTER COLUMN n DROP NOT NULL;
ALTER TABLE v DROP CONSTRAINT v_pkey;
ALTER TABLE v SET UNLOGGED;
DROP INDEX v_pkey;
CREATE TABLE parent (window_start timestamptz NOT NULL, window_end timestamptz NOT NULL, k int NOT NULL, n bigint, total bigint);
ALTER TABLE v INHERIT parent;
CREATE TABLE child () INHERITS (v);
CREATE TABLE child (LIKE v);
ALTER TABLE child INHERIT v;
DROP TABLE child;
CREATE TABLE ptable (window_start timestamptz NOT NULL, window_end timestamptz NOT NULL, k int NOT NULL, n bigint, total bigint) PARTITION BY LIST (k);
ALTER TABLE ptable ATTACH PARTITION v DEFAULT;
CREATE TABLE ptable2 (LIKE v) PARTITION BY LIST (k);
ALTER TABLE ptable2 ATTACH PARTITION v FOR VALUES IN (1);
DROP TABLE ptable, ptable2;
DROP TABLE parent;
ALTER TABLE v ALTER COLUMN n SET DEFAULT 1;
ALTER TABLE v ENABLE ROW LEVEL SECURITY;
ALTER TABLE v DISABLE ROW LEVEL SECURITY;
ALTER TABLE v FORCE ROW LEVEL SECURITY;
INSERT INTO s VALUES (1, 10, '2024-01-01 00:15');
CALL stream_agg.run('s');
SELECT * FROM v ORDER BY 1, 3;

-- What belongs to users: columns, indexes, triggers, foreign keys, storage options, grants, comments.
ALTER TABLE v ADD COLUMN note text, ADD COLUMN tag text DEFAULT 'new', ADD COLUMN created int DEFAULT 7 NOT NULL,
	ADD COLUMN twice bigint GENERATED ALWAYS AS (total * 2) STORED;
ALTER TABLE v ALTER COLUMN tag SET DEFAULT 'newer';
CREATE INDEX v_total ON v (total);
CREATE INDEX v_expr ON v ((total + n)) WHERE n > 1;
CREATE TABLE audit (id serial, what text);
CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql SET search_path = public AS $$
BEGIN
	IF TG_LEVEL = 'ROW' THEN
		INSERT INTO audit (what) VALUES (format('%s %s: %s -> %s', TG_NAME, TG_OP, OLD.total, NEW.total));
	ELSE
		INSERT INTO audit (what) VALUES (format('%s %s', TG_NAME, TG_OP));
	END IF;
	RETURN NULL;
END
$$;
CREATE TRIGGER a_row AFTER INSERT OR UPDATE OR DELETE ON v FOR EACH ROW EXECUTE FUNCTION audit();
CREATE TRIGGER a_when AFTER UPDATE ON v FOR EACH ROW WHEN (NEW.total > 100) EXECUTE FUNCTION audit();
CREATE CONSTRAINT TRIGGER a_deferred AFTER INSERT ON v DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION audit();
COMMENT ON TABLE v IS 'a continuous view';
INSERT INTO s VALUES (1, 100, '2024-01-01 00:15'), (3, 30, '2024-01-01 00:15');
CALL stream_agg.run('s');
SELECT * FROM v ORDER BY 1, 3;
SELECT what FROM audit ORDER BY what;
SELECT k FROM v WHERE total + n > 100 AND n > 1;
-- Values of users' columns stay over updates.
SELECT tgname FROM pg_trigger WHERE tgrelid = 'v'::regclass AND NOT tgisinternal ORDER BY 1;
DROP TRIGGER a_row ON v;
ALTER TABLE v DROP COLUMN note;
ALTER TABLE v DROP COLUMN twice;
ALTER TABLE v ALTER COLUMN created DROP NOT NULL;
ALTER TABLE v RENAME COLUMN tag TO label;
TRUNCATE audit;
INSERT INTO s VALUES (3, 1, '2024-01-01 00:16'), (4, 40, '2024-01-01 00:15');
CALL stream_agg.run('s');
SELECT * FROM v ORDER BY 1, 3;
DROP TRIGGER a_when ON v;
DROP TRIGGER a_deferred ON v;
DROP INDEX v_total;
DROP INDEX v_expr;
-- Check constraints of users hold.
ALTER TABLE v ADD CONSTRAINT small CHECK (total < 1000);
INSERT INTO s VALUES (3, 5000, '2024-01-01 00:16');
CALL stream_agg.run('s');
SELECT status, message FROM stream_agg.views WHERE view = 'v'::regclass;
ALTER TABLE v DROP CONSTRAINT small;
SELECT stream_agg.resume('v');
CALL stream_agg.run('s');
SELECT k, n, total FROM v ORDER BY 1;
SELECT status, read, accepted FROM stream_agg.views WHERE view = 'v'::regclass;
-- Foreign keys, both ways, deferred too.
CREATE TABLE keys (k int PRIMARY KEY);
INSERT INTO keys VALUES (1), (2), (3), (4);
ALTER TABLE v ADD CONSTRAINT fk FOREIGN KEY (k) REFERENCES keys DEFERRABLE INITIALLY DEFERRED;
CREATE TABLE notes (window_start timestamptz, window_end timestamptz, k int, note text,
	FOREIGN KEY (window_start, k) REFERENCES v (window_start, k));
INSERT INTO notes SELECT window_start, window_end, k, 'note' FROM v WHERE k = 1;
INSERT INTO s VALUES (1, 1, '2024-01-01 00:16');
CALL stream_agg.run('s');
INSERT INTO s VALUES (9, 1, '2024-01-01 00:16');
CALL stream_agg.run('s');
SELECT status, message FROM stream_agg.views WHERE view = 'v'::regclass;
INSERT INTO keys VALUES (9);
SELECT stream_agg.resume('v');
CALL stream_agg.run('s');
SELECT k, n, total FROM v ORDER BY 1;
DELETE FROM keys WHERE k = 9;
DROP TABLE notes;
ALTER TABLE v DROP CONSTRAINT fk;
-- Publications and replica identity.
SET client_min_messages = error;	-- wal_level
CREATE PUBLICATION pub FOR TABLE v;
RESET client_min_messages;
SELECT relreplident FROM pg_class WHERE oid = 'v'::regclass;
ALTER TABLE v REPLICA IDENTITY FULL;
INSERT INTO s VALUES (9, 1, '2024-01-01 00:17');
CALL stream_agg.run('s');
ALTER TABLE v REPLICA IDENTITY NOTHING;
INSERT INTO s VALUES (9, 1, '2024-01-01 00:18');
CALL stream_agg.run('s');
SELECT status, message FROM stream_agg.views WHERE view = 'v'::regclass;
ALTER TABLE v REPLICA IDENTITY DEFAULT;
SELECT stream_agg.resume('v');
CALL stream_agg.run('s');
SELECT k, n, total FROM v WHERE k = 9;
DROP PUBLICATION pub;
-- Storage options, clustering, moving.
ALTER TABLE v SET (fillfactor = 70, autovacuum_enabled = false);
CLUSTER v USING v_pkey;
INSERT INTO s VALUES (9, 1, '2024-01-01 00:19');
CALL stream_agg.run('s');
VACUUM (FULL) v;
REINDEX TABLE v;
INSERT INTO s VALUES (9, 1, '2024-01-01 00:20');
CALL stream_agg.run('s');
ALTER TABLE v ADD COLUMN rewritten float DEFAULT random();
INSERT INTO s VALUES (9, 1, '2024-01-01 00:20');
CALL stream_agg.run('s');
SELECT k, n, total, rewritten IS NOT NULL FROM v WHERE k = 9;
DROP FOREIGN TABLE s CASCADE;
CREATE FOREIGN TABLE s (k int, v int, at timestamptz NOT NULL) SERVER stream_staged OPTIONS (event_time 'at', watermark '1 minute');
CREATE MATERIALIZED VIEW IF NOT EXISTS v (a, b) WITH (stream_agg.continuous, stream_agg.trigger = 'manual', fillfactor = 30, toast.autovacuum_enabled = false) AS
	SELECT k, count(*), max(at)::text AS latest FROM s GROUP BY k;
SELECT reloptions FROM pg_class WHERE oid = 'v'::regclass;
SELECT t.reloptions FROM pg_class c JOIN pg_class t ON t.oid = c.reltoastrelid WHERE c.oid = 'v'::regclass;
\d v
SELECT relreplident FROM pg_class WHERE oid = 'v'::regclass;
DROP TABLE v;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.output_mode = 'append') AS
	SELECT window_end, k, count(*) FROM s, tumble(at, '1 minute') GROUP BY k, window_end;
\d+ v
DROP TABLE v;

-- Owners.
CREATE ROLE regress_sa_one;
CREATE ROLE regress_sa_two;
GRANT SELECT, INSERT ON s TO regress_sa_one, regress_sa_two;
GRANT CREATE ON SCHEMA public TO regress_sa_one, regress_sa_two;
SET ROLE regress_sa_one;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT k, current_user AS who, avg(v) AS mean FROM s WHERE current_user LIKE 'regress%' GROUP BY k;
RESET ROLE;
INSERT INTO s VALUES (1, 1, '2024-01-01');
CALL stream_agg.run('s');
SELECT * FROM v ORDER BY 1;
ALTER TABLE v OWNER TO regress_sa_two;
SELECT r.rolname FROM stream_agg.view_config c, pg_class p JOIN pg_roles r ON r.oid = p.relowner WHERE p.oid IN (c.view, c.definition, c.state) ORDER BY 1;
INSERT INTO s VALUES (1, 3, '2024-01-01');
CALL stream_agg.run('s');
SELECT * FROM v ORDER BY 1;
REASSIGN OWNED BY regress_sa_two TO regress_sa_one;
SELECT r.rolname FROM stream_agg.view_config c, pg_class p JOIN pg_roles r ON r.oid = p.relowner WHERE p.oid IN (c.view, c.definition, c.state) ORDER BY 1;
INSERT INTO s VALUES (1, 8, '2024-01-01');
CALL stream_agg.run('s');
SELECT * FROM v ORDER BY 1;
-- Without the right to read the stream the view fails, visibly.
REVOKE SELECT ON s FROM regress_sa_one;
INSERT INTO s VALUES (2, 1, '2024-01-01');
CALL stream_agg.run('s');
SELECT status, message, failed FROM stream_agg.views WHERE view = 'v'::regclass;
GRANT SELECT ON s TO regress_sa_one;
SELECT stream_agg.resume('v');
CALL stream_agg.run('s');
SELECT * FROM v ORDER BY 1;
DROP OWNED BY regress_sa_one;
SELECT * FROM leftovers;
DROP OWNED BY regress_sa_two;
DROP ROLE regress_sa_one, regress_sa_two;
DROP FOREIGN TABLE s CASCADE;
SELECT * FROM leftovers;
-- The extension itself.
CREATE FOREIGN TABLE s (k int) SERVER stream_staged;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT avg(k) AS mean FROM s;
DROP EXTENSION stream_agg;
BEGIN;
SET client_min_messages = warning;
DROP EXTENSION stream_agg CASCADE;
RESET client_min_messages;
SELECT to_regclass('s') AS s, to_regclass('v') AS v, to_regnamespace('stream_agg') AS schema;
ROLLBACK;
-- The workers come back.
INSERT INTO s VALUES (1);
CALL stream_agg.run('s');
SELECT * FROM v;
DROP FOREIGN TABLE s CASCADE;
DROP TABLE audit, keys;
DROP FUNCTION trg();
DROP FUNCTION audit();
DROP VIEW leftovers;
SET client_min_messages = warning;
CREATE FOREIGN TABLE s (k int) SERVER stream_staged;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT avg(k) AS mean FROM s;
DROP EXTENSION stream_agg CASCADE;
CREATE EXTENSION stream_agg;
CREATE FOREIGN TABLE s (k int) SERVER stream_staged;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous) AS SELECT avg(k) AS mean FROM s;
INSERT INTO s VALUES (1), (2);
CALL stream_agg.run('s');
SELECT * FROM v;
DROP FOREIGN TABLE s CASCADE;
