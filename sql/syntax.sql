-- CREATE STREAM, CREATE CONTINUOUS VIEW and their like, as statements
SHOW stream_agg.syntax;

-- 1. the words as names, as ever
CREATE SCHEMA syntax;
SET search_path = syntax, public;
CREATE TABLE stream (continuous int, stream int, drop int);
CREATE TABLE t (stream int, a int, drop int);
INSERT INTO stream VALUES (1, 2, 3);
INSERT INTO t VALUES (1, 2, 3);
SELECT stream, continuous AS stream, drop stream, stream.drop stream, stream.stream, continuous continuous FROM stream;
SELECT a stream FROM t stream WHERE stream.stream = 1;
SELECT t.drop stream, t.create stream FROM (SELECT a AS create, drop FROM t) t;
ALTER TABLE t DROP stream;
ALTER TABLE t ADD stream int;
ALTER TABLE t ADD continuous int;
ALTER TABLE t RENAME stream TO continuous2;
CREATE TABLE continuous (a int);
DROP TABLE continuous, stream;
CREATE FUNCTION stream(a int) RETURNS int LANGUAGE sql AS 'SELECT a';
SELECT stream(1) AS continuous, stream(2) stream;
DROP FUNCTION stream(int);
SELECT quote_ident('stream'), quote_ident('continuous'), quote_ident('view');
SELECT count(*) FROM pg_get_keywords() WHERE word IN ('stream', 'continuous');
WITH stream AS MATERIALIZED (SELECT 1 AS a) SELECT * FROM stream;
PREPARE stream(int) AS SELECT $1 AS continuous;
EXECUTE stream(7);
DEALLOCATE stream;
SELECT $$CREATE STREAM x (a int);$$ AS q, E'a\';CREATE STREAM x (a int)' AS r; -- CREATE STREAM x (a int);
SELECT to_regtype('stream'), to_regtype('continuous'), to_regtype('double precision');
-- a name that is too long is told once
SELECT 1 AS stream_with_a_name_that_is_much_longer_than_the_sixty_three_bytes_of_a_name;

-- 2. streams
CREATE "STREAM" x (a int);
CREATE Stream "We;ird ""S" ("a;b" int, c text DEFAULT 'x;y', at timestamptz) WITH (event_time = 'at', "max_future" = $q$2 hours$q$);
/* c1 ; /* nested */ */ CREATE /* c2 */ STREAM -- c3 ;
  s2 (a int);
CREATE STREAM s (a int NOT NULL CHECK (a > 0), path text, at timestamptz) WITH (source = staged, event_time = at, watermark = '5 s');
CREATE STREAM IF NOT EXISTS s (a int);
CREATE STREAM syntax.k (a int OPTIONS (path 'x.y') NOT NULL) WITH (server = 'stream_kafka', topic = 'no-such-topic', bootstrap_servers = 'localhost:1');
SELECT c.relname, s.srvname, f.ftoptions FROM pg_foreign_table f JOIN pg_class c ON c.oid = f.ftrelid
	JOIN pg_foreign_server s ON s.oid = f.ftserver WHERE c.relnamespace = 'syntax'::regnamespace ORDER BY 1;
DROP STREAM "We;ird ""S", s2, k;
DROP STREAM IF EXISTS nosuch, no.such;
DROP STREAM nosuch;
CREATE STREAM x (a int) WITH (source = 'nosuch');
CREATE STREAM x (a int) WITH (server = 'nosuch');
CREATE STREAM x (a int) WITH (source = 'staged', server = 'stream_staged');
CREATE STREAM x (a int) WITH (watermark = '5 s', colour = 'blue');
CREATE STREAM x (a int) WITH (stream_agg.watermark = '5 s');
CREATE STREAM x (a int) WITH (watermark);

-- 3. continuous views
CREATE CONTINUOUS VIEW v (k, n) WITH (output_mode = 'update', trigger = manual, fillfactor = 70, autovacuum_enabled = off) AS
	SELECT a, count(*) FROM s GROUP BY a;
CREATE CONTINUOUS VIEW IF NOT EXISTS v AS SELECT a FROM s;
CREATE CONTINUOUS VIEW v2 USING heap WITH (trigger = manual, toast.autovacuum_enabled = false) TABLESPACE pg_default AS SELECT a, path FROM s;
SELECT view, output_mode, trigger, options FROM stream_agg.views WHERE view::text IN ('v', 'v2') ORDER BY 1;
SELECT c.relname, c.relkind, c.reloptions, t.reloptions AS toast FROM pg_class c LEFT JOIN pg_class t ON t.oid = c.reltoastrelid
	WHERE c.oid IN ('v'::regclass, 'v2'::regclass) ORDER BY 1;
INSERT INTO s (a, at) VALUES (1, '2024-01-01'), (1, '2024-01-01'), (2, '2024-01-01');
CALL stream_agg.run('s');
SELECT * FROM v ORDER BY k;
EXPLAIN CONTINUOUS VIEW v;
EXPLAIN CONTINUOUS VIEW syntax."v";
EXPLAIN CONTINUOUS VIEW nosuch;
EXPLAIN CONTINUOUS VIEW v ORDER BY 1;
EXPLAIN CONTINUOUS VIEW;
CREATE CONTINUOUS VIEW x WITH (fillfaktor = 70) AS SELECT a FROM s;
CREATE CONTINUOUS VIEW x WITH (fillfactor = 7) AS SELECT a FROM s;
CREATE CONTINUOUS VIEW x WITH (toast.colour = 'blue') AS SELECT a FROM s;
CREATE CONTINUOUS VIEW x AS SELECT a FROM s WITH NO DATA;
CREATE CONTINUOUS VIEW x AS SELECT a FROM t;

-- 4. altering streams
ALTER STREAM s SET (watermark = '7 s', max_future = '2 hours');
ALTER STREAM s SET (max_future = '3 hours'), RESET (watermark, staged_limit);
SELECT ftoptions FROM pg_foreign_table WHERE ftrelid = 's'::regclass;
ALTER STREAM s RESET (watermark), SET (watermark = '8 s'), RESET (max_future), SET (watermark = '9 s');
SELECT ftoptions FROM pg_foreign_table WHERE ftrelid = 's'::regclass;
ALTER STREAM s SET (max_future = '4 hours', watermark = 'soon');
ALTER STREAM s SET (colour = 'blue');
ALTER STREAM s RESET (watermark = '8 s');
ALTER STREAM s SET (source = 'kafka');
ALTER STREAM s SET (stream_agg.watermark = '1 s');
ALTER STREAM s OPTIONS (SET watermark '10 s', ADD max_future '5 hours');
ALTER FOREIGN TABLE s SET (watermark = '11 s');
ALTER TABLE s RESET (max_future);
SELECT ftoptions FROM pg_foreign_table WHERE ftrelid = 's'::regclass;
ALTER STREAM s RENAME COLUMN path TO road;
ALTER STREAM s ADD COLUMN b int DEFAULT 5;
ALTER STREAM s ALTER COLUMN road OPTIONS (ADD path 'y.z');
ALTER STREAM s ADD COLUMN c text NOT NULL DEFAULT 'c', ALTER COLUMN b DROP DEFAULT;
ALTER STREAM s ALTER COLUMN b TYPE bigint;
ALTER STREAM s DROP COLUMN c;
CREATE CONTINUOUS VIEW v3 WITH (trigger = manual) AS SELECT b, count(*) FROM s WHERE b IS NOT NULL GROUP BY b;
INSERT INTO s (a, b, at) VALUES (3, 30, '2024-01-01');
CALL stream_agg.run('s');
INSERT INTO s (a, b, at) VALUES (3, 30, '2024-01-01'), (4, 40, '2024-01-01');
CALL stream_agg.run('s');
SELECT * FROM v ORDER BY k;
SELECT * FROM v3 ORDER BY b;
ALTER STREAM s DROP COLUMN b;
\set VERBOSITY terse
ALTER STREAM s ALTER COLUMN b TYPE text;
\set VERBOSITY default
ALTER STREAM s DROP COLUMN at;
ALTER STREAM s RENAME TO s_renamed;
ALTER STREAM IF EXISTS nosuch RENAME TO x;
ALTER STREAM s_renamed SET SCHEMA public;
ALTER STREAM public.s_renamed SET SCHEMA syntax;
CREATE ROLE regress_syntax;
ALTER STREAM s_renamed OWNER TO regress_syntax;
SELECT relowner::regrole, relkind FROM pg_class WHERE oid = 's_renamed'::regclass;
ALTER STREAM s_renamed OWNER TO CURRENT_USER;
GRANT SELECT, INSERT ON s_renamed TO regress_syntax;
GRANT SELECT ON TABLE v TO regress_syntax;
SELECT has_table_privilege('regress_syntax', 's_renamed', 'INSERT'), has_table_privilege('regress_syntax', 'v', 'SELECT');
COMMENT ON STREAM s_renamed IS 'a stream';
SELECT obj_description('s_renamed'::regclass);
SET ROLE regress_syntax;
ALTER STREAM syntax.s_renamed SET (watermark = '1 s');
RESET ROLE;
ALTER STREAM s_renamed RENAME TO s;
REVOKE ALL ON s, v FROM regress_syntax;

-- altering continuous views
ALTER CONTINUOUS VIEW v SET (max_batch_rows = 500, fillfactor = 60), RESET (trigger);
ALTER CONTINUOUS VIEW v SET (trigger = manual);
SELECT options, reloptions FROM stream_agg.views, pg_class WHERE view = 'v'::regclass AND oid = view;
ALTER CONTINUOUS VIEW v RESET (max_batch_rows, fillfactor, autovacuum_enabled);
SELECT options, reloptions FROM stream_agg.views, pg_class WHERE view = 'v'::regclass AND oid = view;
ALTER CONTINUOUS VIEW v SET (fillfaktor = 60);
ALTER CONTINUOUS VIEW v SET (output_mode = complete);
ALTER CONTINUOUS VIEW v RENAME COLUMN n TO events;
ALTER CONTINUOUS VIEW v RENAME TO "V;w";
COMMENT ON CONTINUOUS VIEW "V;w" IS 'a view';
SELECT obj_description('"V;w"'::regclass);
ALTER CONTINUOUS VIEW /* ; */ syntax."V;w" (k, events, most) AS SELECT a, count(*), max(b) FROM s GROUP BY a;
ALTER CONTINUOUS VIEW "V;w" RENAME TO v;
INSERT INTO s (a, b, at) VALUES (1, 100, '2024-01-01');
CALL stream_agg.run('s');
SELECT * FROM v ORDER BY k;
ALTER CONTINUOUS VIEW v AS SELECT a AS k, count(*) AS events, max(nosuch) AS most FROM s GROUP BY a \; SELECT 1;
SELECT 1 AS one \; ALTER CONTINUOUS VIEW nosuch AS SELECT a FROM s;
ALTER CONTINUOUS VIEW IF EXISTS v AS SELECT a FROM s;
ALTER CONTINUOUS VIEW v;
ALTER CONTINUOUS VIEW v (a b c;
);
ALTER CONTINUOUS VIEW IF EXISTS nosuch SET (trigger = manual);
ALTER CONTINUOUS VIEW v SET SCHEMA public;
ALTER CONTINUOUS VIEW public.v SET SCHEMA syntax;
ALTER CONTINUOUS VIEW v OWNER TO CURRENT_USER;

-- 5. things are what the statements call them
CREATE MATERIALIZED VIEW mv AS SELECT 1 AS a;
CREATE FOREIGN DATA WRAPPER other;
CREATE SERVER other FOREIGN DATA WRAPPER other;
CREATE FOREIGN TABLE ft (a int) SERVER other;
CREATE VIEW pv AS SELECT 1 AS a;
DROP STREAM t;
DROP STREAM ft;
DROP STREAM pv;
DROP STREAM IF EXISTS s, v;
DROP CONTINUOUS VIEW mv;
DROP CONTINUOUS VIEW v, mv;
DROP CONTINUOUS VIEW s;
DROP MATERIALIZED VIEW s;
ALTER STREAM ft RENAME TO x;
ALTER STREAM ft ADD COLUMN b int;
ALTER STREAM t SET SCHEMA public;
ALTER STREAM v RENAME TO x;
ALTER CONTINUOUS VIEW mv RENAME TO x;
ALTER CONTINUOUS VIEW s SET (trigger = manual);
ALTER CONTINUOUS VIEW pv SET SCHEMA public;
ALTER CONTINUOUS VIEW mv AS SELECT a FROM s;
COMMENT ON CONTINUOUS VIEW t IS 'x';
COMMENT ON STREAM t IS 'x';
CREATE STREAM x (a int) WITH (server = 'other');
DROP SERVER other CASCADE;
DROP FOREIGN DATA WRAPPER other;
DROP VIEW pv;
DROP MATERIALIZED VIEW mv;

-- 6. what makes no sense, and what to do
CREATE STREAM;
CREATE STREAM x (a int,) WITH (watermark = '1 s');
CREATE STREAM x (a int) WITH (watermark =);
CREATE STREAM x (a nosuchtype) WITH (watermark = '1 s');
CREATE STREAM x (a int) SERVER stream_staged;
CREATE STREAM x (a int) OPTIONS (watermark '1 s');
CREATE STREAM x (a int PRIMARY KEY);
CREATE STREAM x (a int) INHERITS (t);
CREATE STREAM x PARTITION OF t DEFAULT;
CREATE STREAM x (a int) PARTITION BY LIST (a);
CREATE STREAM x OF pg_type;
CREATE STREAM x (a int) USING heap;
CREATE STREAM x (a int) TABLESPACE pg_default;
CREATE STREAM x (a int) ON COMMIT DROP;
CREATE STREAM x AS SELECT 1 AS a;
CREATE TEMP STREAM x (a int);
SELECT 1 AS one \; CREATE UNLOGGED STREAM x (a int);
CREATE LOCAL TEMPORARY STREAM x (a int);
CREATE OR REPLACE STREAM x (a int);
CREATE UNLOGGED CONTINUOUS VIEW x AS SELECT 1;
CREATE OR REPLACE CONTINUOUS VIEW x AS SELECT 1;
CREATE CONTINUOUS TABLE x (a int);
CREATE CONTINUOUS VIEW x WITH (output_mode = 'append') AS SELECT nosuch FROM s;
CREATE CONTINUOUS VIEW x WITH (output_mode = 'append') AS SELECT a FROM nosuch;
CREATE CONTINUOUS VIEW x WITH (output_mode = 'append') AS SELEC a FROM nosuch;
CREATE SCHEMA sch1 CREATE STREAM x (a int);
SELECT CREATE STREAM;
GRANT CREATE STREAM;
DROP STREAM;
EXPLAIN CREATE CONTINUOUS VIEW x AS SELECT 1;
ALTER STREAM ALL IN TABLESPACE pg_default SET TABLESPACE pg_default;
-- the first error of a text is told, as ever
DO $do$
DECLARE
	text text;
BEGIN
	FOREACH text IN ARRAY ARRAY[$$ALTER CONTINUOUS VIEW v 'x$$, $$SELECT 1 FROM; CREATE STREAM x (a 'int$$, $$CREATE STREAM 'x$$,
		$$CREATE TEMP STREAM x 'a$$, $$CREATE STREAM x (a int); CREATE TEMP STREAM y (b int, $$, $$CREATE STREAM x (a int, ; CREATE TEMP STREAM y$$]
	LOOP
		BEGIN
			EXECUTE text;
		EXCEPTION WHEN syntax_error THEN
			RAISE NOTICE '%: %', text, sqlerrm;
		END;
	END LOOP;
END $do$;
SELECT 1 \; CREATE CONTINUOUS VIEW x AS SELECT 1 + nosuch FROM s;
CREATE FUNCTION f() RETURNS int LANGUAGE sql BEGIN ATOMIC SELECT 0; CREATE STREAM x (a int); SELECT 1; END;

-- 7. several in one string, transactions
SELECT 1 AS one \; CREATE STREAM m1 (a int) \; SELECT 'x;' AS two \; CREATE CONTINUOUS VIEW m2 WITH (trigger = manual) AS SELECT a FROM m1 \; DROP CONTINUOUS VIEW m2 \; DROP STREAM m1;
BEGIN;
CREATE STREAM tx (a int);
CREATE CONTINUOUS VIEW txv AS SELECT a FROM tx;
ROLLBACK;
SELECT to_regclass('tx'), to_regclass('txv');
BEGIN;
SELECT 1/0;
CREATE STREAM tx (a int);
ROLLBACK;
BEGIN READ ONLY;
CREATE STREAM tx (a int);
ROLLBACK;
BEGIN;
SAVEPOINT a;
CREATE STREAM tx (a int);
ROLLBACK TO a;
CREATE STREAM tx (b int);
COMMIT;
DROP STREAM tx;

-- 8. inside functions
DO $$
DECLARE
	stream int := 1;
	continuous text;
BEGIN
	CREATE STREAM d1 (a int) WITH (max_future = 'infinity', staged_limit = '1 GB');
	EXECUTE 'CREATE CONTINUOUS VIEW d2 AS SELECT a FROM d1';
	stream := stream + 1;
	SELECT 'z' INTO continuous;
	RAISE NOTICE '% %', stream, continuous;
	FOR stream IN SELECT 7 LOOP RAISE NOTICE '%', stream; END LOOP;
	DROP CONTINUOUS VIEW d2;
	DROP STREAM d1;
END $$;
CREATE FUNCTION f1() RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	r t%rowtype;
	stream int = 3;
BEGIN
	CREATE STREAM d1 (a int);
	CREATE CONTINUOUS VIEW d2 WITH (trigger = manual) AS SELECT a FROM d1;
	ALTER STREAM d1 SET (max_future = '1 day');
	DROP CONTINUOUS VIEW d2;
	DROP STREAM d1;
	RETURN stream;
END $$;
SELECT f1();
SELECT f1();
CREATE FUNCTION f2() RETURNS int LANGUAGE sql AS $$ CREATE STREAM d1 (a int); DROP STREAM d1; SELECT 1; $$;
SELECT f2();
SELECT f2();
DO $$ BEGIN CREATE STREAM d1 (a int,); END $$;
DO $$ BEGIN CREATE TEMP STREAM d1 (a int); END $$;
DO $$ BEGIN CREATE CONTINUOUS VIEW d1 AS SELECT nosuch FROM s; END $$;
DO $$ BEGIN EXECUTE 'CREATE STREAM d1 (a nosuch)'; END $$;
DROP FUNCTION f1(), f2();

-- 9. event triggers see what PostgreSQL makes of them
CREATE FUNCTION etf() RETURNS event_trigger LANGUAGE plpgsql AS $$
DECLARE
	r record;
BEGIN
	IF tg_event = 'sql_drop' THEN
		FOR r IN SELECT * FROM pg_event_trigger_dropped_objects() WHERE original LOOP
			RAISE NOTICE 'dropped by %: % %', tg_tag, r.object_type, r.object_identity;
		END LOOP;
	ELSE
		FOR r IN SELECT * FROM pg_event_trigger_ddl_commands() LOOP
			RAISE NOTICE '%: % % %', tg_tag, r.command_tag, r.object_type, regexp_replace(r.object_identity, '_\d+$', '_N');
		END LOOP;
	END IF;
END $$;
CREATE EVENT TRIGGER et1 ON ddl_command_end EXECUTE FUNCTION etf();
CREATE EVENT TRIGGER et2 ON sql_drop EXECUTE FUNCTION etf();
CREATE STREAM e1 (a int);
CREATE CONTINUOUS VIEW e2 WITH (trigger = manual) AS SELECT a FROM e1;
ALTER STREAM e1 SET (max_future = '1 day');
COMMENT ON STREAM e1 IS 'e';
DROP CONTINUOUS VIEW e2;
DROP STREAM e1;
DROP EVENT TRIGGER et1;
DROP EVENT TRIGGER et2;
DROP FUNCTION etf();

-- 10. strings in other shapes
SET standard_conforming_strings = off;
SET escape_string_warning = on;
CREATE STREAM x1 (a text DEFAULT 'a\\b');
INSERT INTO x1 VALUES (DEFAULT) RETURNING a;
DROP STREAM x1;
RESET standard_conforming_strings;
RESET escape_string_warning;
CREATE STREAM "xé" (a text DEFAULT 'é', b text DEFAULT U&'\0061');
INSERT INTO "xé" VALUES (DEFAULT) RETURNING a, b;
CREATE CONTINUOUS VIEW "vé" AS SELECT 'é' AS x, nosuch FROM "xé";
DROP STREAM "xé";

-- 11. the other doors
SELECT stream_agg.execute($$
	CREATE STREAM x (a int) WITH (max_future = '1 day');	-- several
	CREATE CONTINUOUS VIEW y WITH (trigger = manual) AS SELECT a, count(*) FROM x GROUP BY a;
	COMMENT ON STREAM x IS 'x'
$$);
SELECT stream, views FROM stream_agg.streams WHERE stream = 'x'::regclass;
DO LANGUAGE stream_sql $$ DROP CONTINUOUS VIEW y; DROP STREAM x; CREATE TABLE plain (a int); DROP TABLE plain $$;
SELECT stream_agg.execute('CREATE STREAM x (a int); CREATE STREAM x (a int)');
SELECT to_regclass('x');
SELECT stream_agg.execute('CREATE STREAM x (a int,)');
SELECT stream_agg.execute('CREATE STREAM x (a int); CREATE TEMP STREAM y (a int)');
SELECT stream_agg.execute('CREATE CONTINUOUS VIEW y AS SELECT nosuch FROM s');
DO LANGUAGE stream_sql $$ CREATE STREAM x (a nosuch) $$;
SELECT stream_agg.execute('');
SELECT stream_agg.execute(NULL);
SELECT stream_agg.execute('SELECT 1');
SELECT stream_agg.execute('EXPLAIN CONTINUOUS VIEW v');
SELECT stream_agg.execute('EXPLAIN SELECT 1');
SELECT stream_agg.execute('SHOW search_path');
SELECT stream_agg.execute('INSERT INTO s VALUES (1)');
SELECT stream_agg.execute('COMMIT');
SELECT stream_agg.execute('COPY s FROM STDIN');
SELECT stream_agg.execute('VACUUM');
SELECT stream_agg.execute($$ SELECT 1; CREATE STREAM x (a int) $$);
SELECT stream_agg.execute($$ DO LANGUAGE stream_sql 'CREATE STREAM x (a int)' $$);
DROP STREAM x;
CREATE FUNCTION f() RETURNS void LANGUAGE stream_sql AS 'CREATE STREAM x (a int)';
SET check_function_bodies = off;
CREATE FUNCTION f() RETURNS void LANGUAGE stream_sql AS 'CREATE STREAM x (a int)';
RESET check_function_bodies;
SET ROLE regress_syntax;
DO LANGUAGE stream_sql 'DROP STREAM syntax.s CASCADE';
SELECT stream_agg.execute('CREATE STREAM syntax.x (a int)');
RESET ROLE;

-- 12. the end
DROP STREAM s;
DROP STREAM s CASCADE;
SET client_min_messages = warning;
DROP SCHEMA syntax CASCADE;
DROP ROLE regress_syntax;
