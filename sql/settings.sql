--
-- A view computes under the settings of its creation, whatever those of the server, of its readers
-- and of the writers are.
--
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
SET intervalstyle = 'postgres';
SET extra_float_digits = 1;
CREATE FOREIGN TABLE s (id int, at timestamptz, iv interval, f float8, d text) SERVER stream_staged OPTIONS (event_time 'at', watermark '1 hour');

CREATE MATERIALIZED VIEW plain WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT id, at::text AS at, at::date AS day, extract(hour FROM at) AS hour, date_trunc('day', at) AS midnight, iv::text AS iv, f::text AS f, d::date AS parsed,
		current_setting('TimeZone') AS zone FROM s;
SET timezone = 'America/New_York';
SET datestyle = 'German';
SET intervalstyle = 'iso_8601';
SET extra_float_digits = -5;
CREATE MATERIALIZED VIEW german WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT id, at::text AS at, at::date AS day, extract(hour FROM at) AS hour, date_trunc('day', at) AS midnight, iv::text AS iv, f::text AS f, d::date AS parsed,
		current_setting('TimeZone') AS zone FROM s;
CREATE MATERIALIZED VIEW german_days WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT at::date AS day, count(*) AS n, max(at::text) AS latest, min(iv)::text AS shortest FROM s GROUP BY at::date;
-- Of a transaction, of a function, of the role: what counts is what holds at CREATE.
RESET ALL;
BEGIN;
SET LOCAL timezone = 'Asia/Kolkata';
SET LOCAL datestyle = 'SQL, DMY';
SET LOCAL intervalstyle = 'sql_standard';
CREATE MATERIALIZED VIEW kolkata WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT id, at::text AS at, at::date AS day, extract(hour FROM at) AS hour, date_trunc('day', at) AS midnight, iv::text AS iv, f::text AS f, d::date AS parsed,
		current_setting('TimeZone') AS zone FROM s;
COMMIT;
CREATE FUNCTION make_view() RETURNS void LANGUAGE plpgsql SET timezone = 'Pacific/Auckland' AS $$
BEGIN
	CREATE MATERIALIZED VIEW auckland WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
		SELECT at::date AS day, count(*) AS n FROM s GROUP BY at::date;
END
$$;
SELECT make_view();
-- What sessions have set by default must not reach the worker.
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';
DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET timezone = ''Europe/Paris''', current_database()); END $$;
DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET datestyle = ''SQL, MDY''', current_database()); END $$;
DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = stream_agg', current_database()); END $$;
INSERT INTO s VALUES (1, '2024-06-30 23:30+00', '1 year 2 days 03:04:05', 1.0/3, '2024-02-03'), (2, '2024-07-01 03:30+00', '-1 day', 1e10, '04.03.2024'),
	(3, '2024-06-30 12:00+00', '90 minutes', 0.1, '05/04/2024');
CALL stream_agg.run('s');
SELECT * FROM plain ORDER BY id;
SELECT * FROM german ORDER BY id;
SELECT * FROM kolkata ORDER BY id;
SELECT * FROM german_days ORDER BY day;
SELECT * FROM auckland ORDER BY day;
SELECT view, reason, message, event ->> 'id' AS id FROM stream_agg.dead_letters ORDER BY view::text COLLATE "C", position;
SELECT view, (SELECT array_agg(s ORDER BY n) FROM unnest(settings) WITH ORDINALITY u(s, n) WHERE s !~ '^(lc_|default_text)') AS settings
FROM stream_agg.view_config ORDER BY view::text COLLATE "C";
-- The state is read again under those settings too.
VACUUM FULL german_days;
INSERT INTO s VALUES (4, '2024-06-30 23:45+00', '30 minutes', 2, '2024-02-03');
CALL stream_agg.run('german_days');
SELECT * FROM german_days ORDER BY day;

-- No name of the session's search_path is seen by the worker, but what was found at creation stays.
CREATE SCHEMA elsewhere;
SET search_path = elsewhere, public;
CREATE FUNCTION elsewhere.twice(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 * 2';
CREATE TABLE elsewhere.names (id int, name text);
INSERT INTO elsewhere.names VALUES (5, 'five');
CREATE MATERIALIZED VIEW here WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.start = 'latest') AS
	SELECT twice(id) AS id2, name FROM s JOIN names USING (id);
RESET search_path;
CALL stream_agg.run('s');
CREATE FUNCTION public.twice(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 * 3';
INSERT INTO s VALUES (5, '2024-07-01 04:00+00', NULL, NULL, NULL);
CALL stream_agg.run('s');
SELECT * FROM elsewhere.here;
DROP FUNCTION public.twice(int);

DO $$ BEGIN EXECUTE format('ALTER DATABASE %I RESET timezone', current_database()); END $$;
DO $$ BEGIN EXECUTE format('ALTER DATABASE %I RESET datestyle', current_database()); END $$;
DO $$ BEGIN EXECUTE format('ALTER DATABASE %I RESET search_path', current_database()); END $$;
DROP FOREIGN TABLE s CASCADE;
DROP SCHEMA elsewhere CASCADE;
DROP FUNCTION make_view();
