--
-- dedup_key: an event whose key has been seen is a duplicate, for as long as the watermark says.
--
SET timezone = 'UTC';
SET datestyle = 'ISO';

CREATE FOREIGN TABLE clicks (id text, who text, amount int, at timestamptz)
	SERVER stream_staged OPTIONS (event_time 'at', watermark '1 minute');
CREATE MATERIALIZED VIEW once WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.dedup_key = 'id') AS
	SELECT who, window_start, count(*) AS n, sum(amount) AS total
	FROM clicks, tumble(at, '1 minute') WHERE amount > 0 GROUP BY who, window_start;
CREATE MATERIALIZED VIEW every WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT who, window_start, count(*) AS n, sum(amount) AS total
	FROM clicks, tumble(at, '1 minute') WHERE amount > 0 GROUP BY who, window_start;
-- Within a batch and over batches; the first one counts; NULL is nobody's duplicate.
INSERT INTO clicks VALUES ('a', 'ann', 1, '2024-01-01 00:00:10'), ('a', 'ann', 2, '2024-01-01 00:00:10'), ('b', 'bob', 4, '2024-01-01 00:00:20'),
	(NULL, 'nil', 1, '2024-01-01 00:00:20'), (NULL, 'nil', 1, '2024-01-01 00:00:20');
CALL stream_agg.run('clicks');
INSERT INTO clicks VALUES ('b', 'bob', 8, '2024-01-01 00:00:59'), ('a', 'ann', 16, '2024-01-01 00:01:30'), ('c', 'ann', 32, '2024-01-01 00:01:30');
CALL stream_agg.run('clicks');
SELECT * FROM once ORDER BY window_start, who;
SELECT * FROM every ORDER BY window_start, who;
-- Judged before WHERE: the first event of d is filtered, the second one a duplicate.
INSERT INTO clicks VALUES ('d', 'dan', -1, '2024-01-01 00:01:40'), ('d', 'dan', 1, '2024-01-01 00:01:40');
CALL stream_agg.run('clicks');
SELECT view, read, duplicate, filtered, late, accepted FROM stream_agg.views ORDER BY view::text COLLATE "C";
-- a was seen in [00:00, 00:01): until the watermark is at 00:01, not a microsecond longer.
INSERT INTO clicks VALUES ('e', 'eve', 1, '2024-01-01 00:01:59.999999'), ('a', 'not', 1, '2024-01-01 00:01:59'),
	('f', 'eve', 1, '2024-01-01 00:02:00'), ('a', 'yes', 1, '2024-01-01 00:01:59'), ('a', 'not', 1, '2024-01-01 00:01:59');
CALL stream_agg.run('clicks');
-- A late event does not register its key.
INSERT INTO clicks VALUES ('g', 'late', 1, '2024-01-01 00:00:30'), ('g', 'gus', 1, '2024-01-01 00:02:30'), ('g', 'not', 1, '2024-01-01 00:00:30');
CALL stream_agg.run('clicks');
SELECT * FROM once WHERE who NOT IN ('ann', 'bob', 'nil') ORDER BY window_start, who;
SELECT view, read, duplicate, filtered, late, accepted FROM stream_agg.views ORDER BY view::text COLLATE "C";
-- Duplicates are no dead letters.
SELECT view, reason, event FROM stream_agg.dead_letters WHERE view = 'once'::regclass ORDER BY id;
-- Whatever the batches, the same.
CREATE MATERIALIZED VIEW one_by_one WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.dedup_key = 'id',
	stream_agg.max_batch_rows = 1) AS
	SELECT who, window_start, count(*) AS n, sum(amount) AS total
	FROM clicks, tumble(at, '1 minute') WHERE amount > 0 GROUP BY who, window_start;
CREATE MATERIALIZED VIEW at_once WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.trigger = 'manual',
	stream_agg.dedup_key = ' "id" , at2 ') AS
	SELECT who, window_start, count(*) AS n, sum(amount) AS total
	FROM clicks, tumble(at, '1 minute') WHERE amount > 0 GROUP BY who, window_start;
CREATE MATERIALIZED VIEW at_once WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.dedup_key = ' "id" ') AS
	SELECT who, window_start, count(*) AS n, sum(amount) AS total
	FROM clicks, tumble(at, '1 minute') WHERE amount > 0 GROUP BY who, window_start;
CALL stream_agg.run('clicks');
SELECT * FROM one_by_one EXCEPT ALL SELECT * FROM once;
SELECT * FROM once EXCEPT ALL SELECT * FROM one_by_one;
SELECT * FROM at_once EXCEPT ALL SELECT * FROM once;
SELECT count(DISTINCT ROW(read, duplicate, filtered, late, accepted)) FROM stream_agg.views WHERE view <> 'every'::regclass;
-- Keys that are forgotten are gone from their log.
INSERT INTO clicks VALUES ('z', 'zoe', 1, '2024-01-02 00:00:00');
CALL stream_agg.run('clicks');
INSERT INTO clicks VALUES ('y', 'zoe', 1, '2024-01-02 00:00:00');
CALL stream_agg.run('clicks');
SELECT dedup AS log FROM stream_agg.view_config WHERE view = 'once'::regclass \gset
SELECT bool_and(stream_agg.to_time(window_end) > '2024-01-02'), count(*) < 4 AS few FROM :log;
-- Anew from the start: keys too.
SELECT stream_agg.reset('once');
CALL stream_agg.run('once');
SELECT * FROM at_once EXCEPT ALL SELECT * FROM once;
SELECT count(DISTINCT ROW(read, duplicate, filtered, late, accepted)) FROM stream_agg.views WHERE view <> 'every'::regclass;
-- Another query goes on with the keys.
CREATE MATERIALIZED VIEW once WITH (stream_agg.continuous, stream_agg.replace) AS
	SELECT who, window_start, count(*) AS n, sum(amount) AS total, max(id) AS top
	FROM clicks, tumble(at, '1 minute') WHERE amount > 0 GROUP BY who, window_start;
INSERT INTO clicks VALUES ('z', 'zoe', 1, '2024-01-02 00:00:30'), ('x', 'zoe', 1, '2024-01-02 00:00:00');
CALL stream_agg.run('clicks');
SELECT * FROM once WHERE who = 'zoe';
-- Columns that tell events apart stay as they are.
ALTER FOREIGN TABLE clicks DROP COLUMN id;
ALTER FOREIGN TABLE clicks ALTER COLUMN id TYPE bytea USING NULL;
ALTER FOREIGN TABLE clicks RENAME COLUMN id TO "Event, ID";
SELECT view, options FROM stream_agg.views ORDER BY view::text COLLATE "C";
INSERT INTO clicks VALUES ('z', 'zoe', 1, '2024-01-02 00:00:30'), ('w', 'zoe', 1, '2024-01-02 00:00:00');
CALL stream_agg.run('clicks');
SELECT * FROM once WHERE who = 'zoe';
ALTER FOREIGN TABLE clicks DROP COLUMN "Event, ID" CASCADE;
ALTER FOREIGN TABLE clicks OPTIONS (DROP watermark);
ALTER MATERIALIZED VIEW once SET (stream_agg.dedup_key = 'who');
SELECT count(*) FROM pg_class WHERE relname ~ '^dedup_';
DROP FOREIGN TABLE clicks CASCADE;
SELECT count(*) FROM pg_class WHERE relname ~ '^dedup_';

-- Several columns of several types; equality is that of the types; allowed lateness; hopping and cumulating windows.
CREATE FOREIGN TABLE parts (a numeric, b text, c date, at timestamptz) SERVER stream_staged OPTIONS (event_time 'at', watermark '0');
CREATE MATERIALIZED VIEW hopping WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.dedup_key = 'a, b, c') AS
	SELECT window_start, window_end, count(*) AS n FROM parts, hop(at, '10 minutes', '5 minutes') GROUP BY 1, 2;
CREATE MATERIALIZED VIEW lenient WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.trigger = 'manual',
	stream_agg.dedup_key = 'a, b, c', stream_agg.allowed_lateness = '1 hour') AS
	SELECT window_start, window_end, count(*) AS n FROM parts, cumulate(at, '5 minutes', '10 minutes') GROUP BY 1, 2;
INSERT INTO parts VALUES (1, 'x', '2024-01-01', '2024-01-01 00:07'), (1.00, 'x', '2024-01-01', '2024-01-01 00:07'), (1, 'y', '2024-01-01', '2024-01-01 00:07'),
	(1, NULL, '2024-01-01', '2024-01-01 00:07'), (1, NULL, '2024-01-01', '2024-01-01 00:07'),
	(2, 'x', '2024-01-01', '2024-01-01 00:14:59'), (1, 'x', '2024-01-01', '2024-01-01 00:14'),
	(3, 'x', '2024-01-01', '2024-01-01 00:15'), (1, 'x', '2024-01-01', '2024-01-01 00:14');
CALL stream_agg.run('parts');
SELECT * FROM hopping ORDER BY 1, 2;
SELECT * FROM lenient ORDER BY 1, 2;
SELECT view, read, duplicate, late, accepted, corrections FROM stream_agg.views ORDER BY view::text COLLATE "C";
DROP FOREIGN TABLE parts CASCADE;

-- Without a window: an event behind the watermark is late.
CREATE FOREIGN TABLE plain (id int, v int, at timestamptz) SERVER stream_staged OPTIONS (event_time 'at', watermark '1 minute');
CREATE MATERIALIZED VIEW running WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.dedup_key = 'id') AS
	SELECT count(*) AS n, sum(v) AS total FROM plain;
CREATE MATERIALIZED VIEW passed WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.dedup_key = 'id', stream_agg.max_batch_rows = 1) AS
	SELECT id, v, 12 / v AS share FROM plain;
INSERT INTO plain VALUES (1, 1, '2024-01-01 00:00'), (1, 2, '2024-01-01 00:00'), (2, 4, '2024-01-01 00:01'), (1, 8, '2024-01-01 00:00'),
	(3, 16, '2024-01-01 00:01:00.000001'), (1, 32, '2024-01-01 00:00:30'), (4, 64, '2024-01-01 00:00'), (4, 1, '2024-01-01 00:01'), (5, 0, '2024-01-01 00:01'),
	(5, 2, '2024-01-01 00:01');
CALL stream_agg.run('plain');
SELECT * FROM running;
SELECT * FROM passed ORDER BY id;
SELECT view, read, duplicate, failed, late, accepted FROM stream_agg.views ORDER BY view::text COLLATE "C";
SELECT view, reason, event FROM stream_agg.dead_letters ORDER BY view::text COLLATE "C", id;
-- The key of an event that has failed is seen, but it is no duplicate of itself when it is replayed.
SELECT stream_agg.replay_dead_letters('passed');
CALL stream_agg.run('passed');
SELECT reason, event FROM stream_agg.dead_letters WHERE view = 'passed'::regclass ORDER BY id;
CREATE MATERIALIZED VIEW passed WITH (stream_agg.continuous, stream_agg.replace) AS SELECT id, v, 12 / nullif(v, 0) AS share FROM plain;
SELECT stream_agg.replay_dead_letters('passed');
INSERT INTO plain VALUES (5, 7, '2024-01-01 00:01');
CALL stream_agg.run('passed');
SELECT reason, event FROM stream_agg.dead_letters WHERE view = 'passed'::regclass ORDER BY id;
SELECT * FROM passed WHERE id = 5;
SELECT read, duplicate, failed, late, accepted, replayed FROM stream_agg.views WHERE view = 'passed'::regclass;
DROP FOREIGN TABLE plain CASCADE;

-- Of letters that fail in a body, for a reason of the view's own, no key has been seen.
CREATE FOREIGN TABLE ahead (id int, v int, at timestamptz) SERVER stream_staged OPTIONS (event_time 'at', watermark '1 minute', max_future '1 hour');
CREATE MATERIALIZED VIEW guarded WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.dedup_key = 'id') AS
	SELECT v, count(*) AS n FROM ahead GROUP BY 1;
INSERT INTO ahead VALUES (1, 1, '2124-01-01'), (1, 1, '2124-01-01'), (2, 2, '2124-01-01'), (3, 0, '2024-01-01');
CALL stream_agg.run('ahead');
ALTER FOREIGN TABLE ahead OPTIONS (SET max_future 'infinity');
ALTER TABLE guarded ADD CHECK (v <> 2);
SELECT stream_agg.replay_dead_letters('ahead');
CALL stream_agg.run('ahead');
SELECT reason, message, event ->> 'id' AS id FROM stream_agg.dead_letters WHERE view = 'guarded'::regclass ORDER BY id;
SELECT stream_agg.replay_dead_letters('guarded', array_agg(id)) FROM stream_agg.dead_letters WHERE view = 'guarded'::regclass AND event ->> 'id' = '1';
CALL stream_agg.run('ahead');
INSERT INTO ahead VALUES (1, 5, '2124-01-01');
CALL stream_agg.run('ahead');
TABLE guarded ORDER BY 1;
SELECT read, future, duplicate, accepted, replayed FROM stream_agg.views;
DROP FOREIGN TABLE ahead CASCADE;

-- Sessions: as long as an event may be at all.
CREATE FOREIGN TABLE visits (id int, who text, at timestamptz) SERVER stream_staged OPTIONS (event_time 'at', watermark '1 minute');
CREATE MATERIALIZED VIEW sessions WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.dedup_key = 'id') AS
	SELECT who, window_start, window_end, count(*) AS n FROM visits, session(at, '30 seconds') GROUP BY 1, 2, 3;
INSERT INTO visits VALUES (1, 'ann', '2024-01-01 00:00'), (1, 'ann', '2024-01-01 00:00'), (2, 'ann', '2024-01-01 00:00:30'), (3, 'bob', '2024-01-01 00:01'),
	(1, 'ann', '2024-01-01 00:00'), (4, 'bob', '2024-01-01 00:01:00.000001'), (1, 'late', '2024-01-01 00:00'), (1, 'ann', '2024-01-01 00:00:50');
CALL stream_agg.run('visits');
SELECT * FROM sessions ORDER BY 1, 2;
SELECT read, duplicate, late, accepted FROM stream_agg.views;
DROP FOREIGN TABLE visits CASCADE;

-- seek: what has been seen stays seen; what was passed over, and was not late, is new.  reset: all is new.
CREATE FOREIGN TABLE again (id int, who text, at timestamptz) SERVER stream_staged OPTIONS (event_time 'at', watermark '1 minute');
CREATE MATERIALIZED VIEW windows WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.dedup_key = 'id') AS
	SELECT who, window_start, count(*) AS n FROM again, tumble(at, '1 minute') WHERE who <> 'dan' GROUP BY 1, 2;
CREATE MATERIALIZED VIEW plainly WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.dedup_key = 'id') AS
	SELECT who, count(*) AS n FROM again GROUP BY 1;
-- One that keeps all records, and one that says in which order they come.
CREATE MATERIALIZED VIEW holder WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT id FROM again;
CREATE MATERIALIZED VIEW reader WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT id FROM again;
SELECT stream_agg.pause('holder');
CREATE PROCEDURE run() LANGUAGE plpgsql AS $$
BEGIN
	CALL stream_agg.run('reader');
	CALL stream_agg.run('windows');
	CALL stream_agg.run('plainly');
END $$;
CREATE PROCEDURE seek_all("position" int) LANGUAGE sql AS
	'SELECT stream_agg.pause(view), stream_agg.seek(view, "position"::text), stream_agg.resume(view) FROM (SELECT * FROM stream_agg.views WHERE duplicate > 0 ORDER BY view::text) v';
CREATE VIEW counts AS SELECT view, read, duplicate, filtered, late, accepted FROM stream_agg.views WHERE duplicate > 0 ORDER BY view::text;
INSERT INTO again VALUES (1, 'ann', '2024-01-01 00:00:00'), (1, 'ann', '2024-01-01 00:00:00'), (2, 'bob', '2024-01-01 00:01:00'),
	(3, 'cat', '2024-01-01 00:02:00'), (4, 'dan', '2024-01-01 00:02:00'), (NULL, 'eve', '2024-01-01 00:02:00');
CALL run();
TABLE counts;
CALL seek_all(0);
CALL run();
TABLE counts;
TABLE windows ORDER BY 1;
TABLE plainly ORDER BY 1;
INSERT INTO again VALUES (5, 'fay', '2024-01-01 00:02:30'), (6, 'gus', '2024-01-01 00:02:30'), (2, 'bob', '2024-01-01 00:01:30');
CALL stream_agg.run('reader');
CALL seek_all(8);
CALL run();
CALL seek_all(5);
CALL run();
TABLE counts;
TABLE windows ORDER BY 1;
TABLE plainly ORDER BY 1;
SELECT stream_agg.reset('windows');
CALL stream_agg.run('windows');
TABLE counts;
TABLE windows ORDER BY 1;
DROP VIEW counts;
DROP PROCEDURE seek_all, run;
DROP FOREIGN TABLE again CASCADE;

-- Times near the end of all time; many keys; keys wider than a page.
CREATE FOREIGN TABLE far (id text, at timestamptz) SERVER stream_staged OPTIONS (event_time 'at', watermark '1 day', max_future 'infinity');
CREATE MATERIALIZED VIEW far_away WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.dedup_key = 'id', stream_agg.max_batch_rows = 1000) AS
	SELECT window_start, count(*) AS n FROM far, tumble(at, '1 day') GROUP BY 1;
INSERT INTO far SELECT i % 3000, '2024-01-01'::timestamptz + i * interval '1 second' FROM generate_series(0, 9999) i;
INSERT INTO far SELECT repeat(i::text, 20000), '2024-01-01 12:00' FROM generate_series(1, 3) i, generate_series(1, 2);
INSERT INTO far VALUES ('end', '294276-12-31 23:59:59'), ('end', '294276-12-31 00:00');
INSERT INTO far VALUES ('late', '2024-01-03');
CALL stream_agg.run('far');
SELECT * FROM far_away ORDER BY 1;
SELECT read, duplicate, failed, late, accepted FROM stream_agg.views;
DROP FOREIGN TABLE far CASCADE;

-- What it needs, and what cannot be.
CREATE FOREIGN TABLE s (id int, j json, size interval, at timestamptz) SERVER stream_staged OPTIONS (event_time 'at');
CREATE MATERIALIZED VIEW wrong WITH (stream_agg.continuous, stream_agg.dedup_key = 'id') AS SELECT id FROM s;
CREATE MATERIALIZED VIEW fine WITH (stream_agg.continuous, stream_agg.watermark = '0', stream_agg.dedup_key = 'Id') AS SELECT id FROM s;
DROP TABLE fine;
CREATE MATERIALIZED VIEW wrong WITH (stream_agg.continuous, stream_agg.watermark = '0', stream_agg.dedup_key = '"Id"') AS SELECT id FROM s;
CREATE MATERIALIZED VIEW wrong WITH (stream_agg.continuous, stream_agg.watermark = '0', stream_agg.dedup_key = 'id, id') AS SELECT id FROM s;
CREATE MATERIALIZED VIEW wrong WITH (stream_agg.continuous, stream_agg.watermark = '0', stream_agg.dedup_key = '') AS SELECT id FROM s;
CREATE MATERIALIZED VIEW wrong WITH (stream_agg.continuous, stream_agg.watermark = '0', stream_agg.dedup_key = 'id,') AS SELECT id FROM s;
CREATE MATERIALIZED VIEW wrong WITH (stream_agg.continuous, stream_agg.watermark = '0', stream_agg.dedup_key = 'tableoid') AS SELECT id FROM s;
CREATE MATERIALIZED VIEW wrong WITH (stream_agg.continuous, stream_agg.watermark = '0', stream_agg.dedup_key = 'j') AS SELECT id FROM s;
CREATE MATERIALIZED VIEW wrong WITH (stream_agg.continuous, stream_agg.watermark = '0', stream_agg.output_mode = 'complete', stream_agg.dedup_key = 'id') AS
	SELECT count(*) FROM s;
CREATE MATERIALIZED VIEW wrong WITH (stream_agg.continuous, stream_agg.watermark = '0', stream_agg.dedup_key = 'id') AS
	SELECT window_start, window_end, count(*) FROM s, tumble(at, size) GROUP BY 1, 2;
DROP FOREIGN TABLE s CASCADE;
