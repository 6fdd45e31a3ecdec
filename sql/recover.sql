--
-- Groups that are had back from logs find their rows of the result when they are needed
--
SET client_min_messages = warning;
CREATE COLLATION ignore_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE TABLE l (at timestamptz, k text, n numeric, v int);
CREATE FOREIGN TABLE s (at timestamptz, k text, n numeric, v int) SERVER stream_staged OPTIONS (event_time 'at', watermark '1 hour');
CREATE PROCEDURE feed(first int, last int) LANGUAGE plpgsql AS $$
BEGIN
	WITH x AS (INSERT INTO l SELECT '2024-01-01Z'::timestamptz + i % 7 * interval '1 minute', nullif('k' || i % 5, 'k3'), nullif(i % 4, 2), i
		FROM generate_series(first, last) i RETURNING *)
	INSERT INTO s SELECT * FROM x;
END $$;

-- keys: none may be NULL, all may, of a collation of their own; one window column alone, both, none
CREATE MATERIALIZED VIEW plain WITH (stream_agg.continuous) AS
	SELECT window_start, coalesce(k, '') AS key, count(*) AS events, avg(v) AS mean, max(n) AS top
	FROM s, tumble(at, '2 minutes') GROUP BY window_start, coalesce(k, '');
CREATE MATERIALIZED VIEW nullable WITH (stream_agg.continuous) AS
	SELECT k, n, window_end, sum(v) AS total, stddev(v) AS spread FROM s, tumble(at, '2 minutes') GROUP BY k, n, window_end;
CREATE MATERIALIZED VIEW folded WITH (stream_agg.continuous) AS
	SELECT window_start, window_end, upper(k) COLLATE ignore_case AS key, min(v) AS low, avg(n) AS mean
	FROM s, hop(at, '4 minutes', '2 minutes') GROUP BY upper(k) COLLATE ignore_case, window_start, window_end;
CREATE MATERIALIZED VIEW running WITH (stream_agg.continuous) AS SELECT k, n, count(v) AS values, avg(v) AS mean FROM s GROUP BY n, k;
CREATE MATERIALIZED VIEW whole WITH (stream_agg.continuous) AS SELECT avg(v) AS mean, count(*) AS events FROM s;
CREATE MATERIALIZED VIEW mode WITH (stream_agg.continuous, stream_agg.output_mode = 'complete') AS
	SELECT window_start, k, avg(v) AS mean FROM s, tumble(at, '2 minutes') GROUP BY window_start, k;
-- some groups have no row
CREATE MATERIALIZED VIEW chosen WITH (stream_agg.continuous) AS
	SELECT k, n, sum(v) AS total FROM s GROUP BY k, n HAVING sum(v) % 3 <> 0;
CREATE MATERIALIZED VIEW unlogged WITH (stream_agg.continuous, stream_agg.state = 'unlogged') AS
	SELECT window_start, k, count(*) AS events, avg(v) AS mean FROM s, tumble(at, '2 minutes') GROUP BY window_start, k;

CREATE FUNCTION wrong() RETURNS TABLE (view text, rows bigint) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
	v record;
BEGIN
	FOR v IN SELECT c.view::text AS view, pg_get_viewdef(c.definition) AS query FROM stream_agg.view_config c ORDER BY 1 LOOP
		view := v.view;
		EXECUTE format('WITH answer AS (%2$s) SELECT count(*) FROM ((TABLE %1$I EXCEPT ALL TABLE answer) UNION ALL (TABLE answer EXCEPT ALL TABLE %1$I)) x',
			v.view, rtrim(regexp_replace(v.query, 'FROM s\M', 'FROM l s'), ';')) INTO rows;
		IF rows > 0 THEN RETURN NEXT; END IF;
	END LOOP;
END $$;

CALL feed(1, 60);
CALL stream_agg.run('s');
SELECT * FROM wrong();

-- a rewritten table has the groups read anew: some change, some do not, some are new
VACUUM FULL plain, nullable, folded, running, whole, mode, chosen, unlogged;
CALL feed(61, 63);
CALL stream_agg.run('s');
SELECT * FROM wrong();
CALL feed(64, 64);
CALL stream_agg.run('s');
SELECT * FROM wrong();
CALL feed(65, 140);
CALL stream_agg.run('s');
SELECT * FROM wrong();

-- after a batch that failed when some had been found
VACUUM FULL plain, nullable, folded, running, whole, mode, chosen, unlogged;
CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not now'; END $$;
CREATE TRIGGER fail AFTER UPDATE ON plain FOR EACH ROW EXECUTE FUNCTION fail();
CREATE TRIGGER fail AFTER UPDATE ON running FOR EACH ROW EXECUTE FUNCTION fail();
CALL feed(141, 150);
CALL stream_agg.run('plain');
CALL stream_agg.run('running');
SELECT view, status, message FROM stream_agg.views WHERE status <> 'running' ORDER BY view::text;
DROP TRIGGER fail ON plain;
DROP TRIGGER fail ON running;
SELECT stream_agg.resume('plain'), stream_agg.resume('running');
CALL feed(151, 170);
CALL stream_agg.run('s');
SELECT * FROM wrong();

-- other unique indexes, and a column that was renamed
ALTER TABLE plain RENAME COLUMN key TO name;
CREATE UNIQUE INDEX ON plain (upper(name), window_start);
CREATE UNIQUE INDEX ON plain (window_start, name) WHERE name <> 'k';
VACUUM FULL plain;
CALL feed(171, 190);
CALL stream_agg.run('s');
SELECT * FROM wrong();
DROP FOREIGN TABLE s CASCADE;
DROP FUNCTION wrong(), fail();
DROP PROCEDURE feed(int, int);
DROP TABLE l;
DROP COLLATION ignore_case;
