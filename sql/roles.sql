--
-- Roles and privileges: whose rights count, and what happens when owners and rights change.
-- (test/t/130_roles.pl has the rest, and the attacker.)
--
CREATE ROLE regress_sa_ann;
CREATE ROLE regress_sa_ben;
CREATE ROLE regress_sa_boss IN ROLE stream_agg_admin;
CREATE ROLE regress_sa_part_time NOINHERIT IN ROLE stream_agg_admin;
CREATE SCHEMA regress_sa_ann AUTHORIZATION regress_sa_ann;
CREATE SCHEMA regress_sa_ben AUTHORIZATION regress_sa_ben;
GRANT USAGE ON SCHEMA regress_sa_ann, regress_sa_ben TO PUBLIC;

-- What ALTER DEFAULT PRIVILEGES grants on tables of the extension's owner is not for those of its users.
ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO PUBLIC;
ALTER DEFAULT PRIVILEGES GRANT ALL ON SEQUENCES TO PUBLIC;
SET ROLE regress_sa_ann;
CREATE FOREIGN TABLE regress_sa_ann.s (k int, v int) SERVER stream_staged;
CREATE MATERIALIZED VIEW regress_sa_ann.v WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT k, count(*) AS n, avg(v) AS mean FROM regress_sa_ann.s GROUP BY k;
INSERT INTO regress_sa_ann.s VALUES (1, 10), (2, 20);
CALL stream_agg.run('regress_sa_ann.s');
RESET ROLE;
ALTER DEFAULT PRIVILEGES REVOKE ALL ON TABLES FROM PUBLIC;
ALTER DEFAULT PRIVILEGES REVOKE ALL ON SEQUENCES FROM PUBLIC;
SELECT count(*), count(relacl) AS granted, bool_and(relowner = 10) AS owned FROM pg_class
WHERE relnamespace = 'stream_agg'::regnamespace AND relname ~ '^(staged_\d|state_\d|definition_)';

-- Strangers.
SET ROLE regress_sa_ben;
SELECT * FROM regress_sa_ann.s;
SELECT * FROM regress_sa_ann.v;
INSERT INTO regress_sa_ann.s VALUES (1, 1);
CREATE MATERIALIZED VIEW regress_sa_ben.v WITH (stream_agg.continuous) AS SELECT k, count(*) AS n FROM regress_sa_ann.s GROUP BY k;
CREATE FOREIGN TABLE regress_sa_ann.t (k int) SERVER stream_staged;
CREATE FOREIGN TABLE regress_sa_ben.t (k int) SERVER stream_kafka OPTIONS (topic 't', bootstrap_servers 'x:1');
SELECT stream_agg.pause('regress_sa_ann.v');
SELECT stream_agg.drop_view('regress_sa_ann.v');
ALTER MATERIALIZED VIEW regress_sa_ann.v SET (stream_agg.max_batch_rows = 5);
ALTER MATERIALIZED VIEW regress_sa_ann.v OWNER TO regress_sa_ben;
SELECT (SELECT count(*) FROM stream_agg.streams) AS streams, (SELECT count(*) FROM stream_agg.views) AS views;

-- Administrators: members, by inheritance or as the role itself.
SET ROLE regress_sa_boss;
SELECT stream_agg.pause('regress_sa_ann.v');
SELECT view, status FROM stream_agg.views;
SELECT stream_agg.resume('regress_sa_ann.v');
SELECT stream_agg.drop_view('regress_sa_ann.v');
SELECT * FROM regress_sa_ann.v;
RESET ROLE;
SET SESSION AUTHORIZATION regress_sa_part_time;
SELECT stream_agg.pause('regress_sa_ann.v');
SET ROLE stream_agg_admin;
SELECT stream_agg.pause('regress_sa_ann.v');
SELECT stream_agg.resume('regress_sa_ann.v');
RESET SESSION AUTHORIZATION;

-- A right that goes, and comes back.
GRANT SELECT ON regress_sa_ann.s TO regress_sa_ben;
SET ROLE regress_sa_ben;
CREATE TABLE regress_sa_ben.secrets (k int, secret text);
INSERT INTO regress_sa_ben.secrets VALUES (1, '100'), (2, 'hush');
CREATE MATERIALIZED VIEW regress_sa_ben.v WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT k, count(*) AS n, sum(secret::int) AS x FROM regress_sa_ann.s JOIN regress_sa_ben.secrets USING (k) GROUP BY k;
CALL stream_agg.run('regress_sa_ben.v');
SET ROLE regress_sa_ann;
REVOKE SELECT ON regress_sa_ann.s FROM regress_sa_ben;
INSERT INTO regress_sa_ann.s VALUES (1, 30);
CALL stream_agg.run('regress_sa_ann.s');
SET ROLE regress_sa_ben;
CALL stream_agg.run('regress_sa_ben.v');
SELECT status, message FROM stream_agg.views;
SET ROLE regress_sa_ann;
GRANT SELECT ON regress_sa_ann.s TO regress_sa_ben;
SET ROLE regress_sa_ben;
SELECT stream_agg.resume('regress_sa_ben.v');
CALL stream_agg.run('regress_sa_ben.v');
SELECT * FROM regress_sa_ben.v ORDER BY k;

-- The event is the stream owner's, why it failed in a view is the view owner's.
SELECT reason, message, event FROM stream_agg.dead_letters;
SET ROLE regress_sa_ann;
SELECT reason, message, event FROM stream_agg.dead_letters;
SET ROLE regress_sa_boss;
SELECT reason, message, event FROM stream_agg.dead_letters;

-- Owners that change.
RESET ROLE;
GRANT CREATE ON SCHEMA regress_sa_ann TO regress_sa_ben;
ALTER MATERIALIZED VIEW regress_sa_ann.v OWNER TO regress_sa_ben;
REVOKE SELECT ON regress_sa_ann.s FROM regress_sa_ben;
INSERT INTO regress_sa_ann.s VALUES (1, 50);
SET ROLE regress_sa_ben;
CALL stream_agg.run('regress_sa_ann.v');
RESET ROLE;
REASSIGN OWNED BY regress_sa_ann TO regress_sa_ben;
SET ROLE regress_sa_ben;
SELECT stream_agg.resume(view) FROM stream_agg.views WHERE status = 'failed';
CALL stream_agg.run('regress_sa_ann.s');
SELECT k, n, mean::int FROM regress_sa_ann.v ORDER BY k;
SELECT stream, owner, views FROM stream_agg.streams;

-- An aggregate keeps the type of its state while a view keeps states of it.
CREATE AGGREGATE regress_sa_ben.total(int) (sfunc = int4pl, stype = int, initcond = '0');
CREATE MATERIALIZED VIEW regress_sa_ben.w WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT k, regress_sa_ben.total(v) AS x FROM regress_sa_ann.s GROUP BY k;
CREATE OR REPLACE AGGREGATE regress_sa_ben.total(int) (sfunc = int84pl, stype = bigint, finalfunc = int4, initcond = '0');
DROP TABLE regress_sa_ben.w;
CREATE OR REPLACE AGGREGATE regress_sa_ben.total(int) (sfunc = int4mul, stype = int, initcond = '1');
DROP AGGREGATE regress_sa_ben.total(int);

-- Everything goes with its owner.
RESET ROLE;
DROP OWNED BY regress_sa_ann, regress_sa_ben CASCADE;
SELECT (SELECT count(*) FROM stream_agg.view_config) AS views, (SELECT count(*) FROM stream_agg.view_position) AS positions,
	(SELECT count(*) FROM stream_agg.staged_stream) AS streams, (SELECT count(*) FROM stream_agg.staged_segment) AS segments,
	(SELECT count(*) FROM stream_agg.dead_letter) AS letters,
	(SELECT count(*) FROM pg_class WHERE relnamespace = 'stream_agg'::regnamespace AND relname ~ '^(staged_\d|state_\d|definition_)') AS relations;
DROP ROLE regress_sa_ann, regress_sa_ben, regress_sa_boss, regress_sa_part_time;
