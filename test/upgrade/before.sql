-- Streams and views of all kinds on the old server, under the names of a plain user and with settings of
-- their own; and all events, the first half of which is inserted here. No event is late: they are out of
-- order by less than the watermark's delay.
CREATE EXTENSION stream_agg;
CREATE ROLE keeper;
CREATE SCHEMA shop AUTHORIZATION keeper;
SET ROLE keeper;
SET search_path = shop, public;
SET timezone = 'America/New_York';

CREATE TYPE mood AS ENUM ('glad', 'sad');
CREATE DOMAIN cents AS bigint CHECK (value >= 0);
CREATE TABLE places (id int PRIMARY KEY, city text COLLATE "C");
INSERT INTO places SELECT g, 'city ' || g FROM generate_series(0, 6) g;
CREATE TABLE log (ord bigint PRIMARY KEY, who text, feeling mood, amount numeric(10, 2), price cents, weight float8, took interval,
	place int, note text, at timestamptz);
SELECT setseed(0.5);
INSERT INTO log
SELECT g, 'who ' || (random() * 20)::int, CASE g % 5 WHEN 0 THEN 'glad' WHEN 1 THEN 'sad' END::mood, (random() * 1000)::numeric(10, 2),
	(random() * 1000)::bigint, (random() * 1000)::int, make_interval(months => g % 3, secs => (random() * 1000)::int), g % 9,
	CASE WHEN g % 100 = 0 THEN repeat(md5(g::text), 200) END,
	'2024-03-10 00:00:00'::timestamptz + g * '3 s'::interval - (random() * 280)::int * '1 s'::interval
FROM generate_series(1, 12000) g;

CREATE FOREIGN TABLE events (ord bigint, who text, feeling mood, amount numeric(10, 2), price cents, weight float8, took interval,
	place int, note text, at timestamptz NOT NULL)
	SERVER stream_staged OPTIONS (event_time 'at', watermark '5 minutes');

-- Every one has its query in a table, which is the right answer over the log.
CREATE TABLE answers (view name PRIMARY KEY, options text, query text);
INSERT INTO answers VALUES
	('by_value', '', 'SELECT who, window_start, count(*) AS n, max(note) AS note, min(at) AS first, sum(price) AS price
		FROM events, tumble(at, ''10 minutes'') GROUP BY who, window_start'),
	('intervals', '', 'SELECT place, window_start, sum(took) AS took FROM events, tumble(at, ''1 hour'') GROUP BY place, window_start'),
	('by_state', '', 'SELECT who, window_start, avg(amount) AS a, avg(price) AS p, stddev(amount) AS s, var_pop(ord) AS v, corr(weight, ord) AS c,
		avg(took) AS t, sum(took) FILTER (WHERE place < 5) AS st, avg(weight) AS w FROM events, tumble(at, ''1 hour'') GROUP BY who, window_start'),
	('appended', 'stream_agg.output_mode = ''append''', 'SELECT feeling, window_end, count(*) AS n, avg(amount) AS a, sum(took) AS t
		FROM events, tumble(at, ''10 minutes'') GROUP BY feeling, window_end'),
	('hops', '', 'SELECT window_start, window_end, place, avg(amount) AS a FROM events, hop(at, ''20 minutes'', ''5 minutes'')
		GROUP BY window_start, window_end, place'),
	('days', '', 'SELECT window_start, city, count(*) AS n, avg(price) AS p
		FROM events LEFT JOIN places ON id = place, tumble(at, ''1 day'') GROUP BY window_start, city'),
	('totals', '', 'SELECT who, count(*) AS n, avg(amount) AS a, sum(price) AS p FROM events GROUP BY who'),
	('complete', 'stream_agg.output_mode = ''complete''', 'SELECT feeling, count(*) AS n, avg(took) AS t FROM events GROUP BY feeling'),
	('kept', '', 'SELECT ord, upper(who) AS who, feeling, note FROM events WHERE place = 3'),
	('on_demand', 'stream_agg.trigger = ''manual''', 'SELECT place, window_start, avg(amount) AS a FROM events, tumble(at, ''1 hour'')
		GROUP BY place, window_start'),
	('paused', '', 'SELECT who, window_start, avg(amount) AS a FROM events, tumble(at, ''1 hour'') GROUP BY who, window_start');
SELECT format('CREATE MATERIALIZED VIEW %I WITH (%s) AS %s', view, concat_ws(', ', 'stream_agg.continuous', nullif(options, '')), query)
FROM answers \gexec

-- The first is a dead letter. Two views stay behind, the others are about to read when the server stops.
INSERT INTO events (ord, at) VALUES (0, now() + '1 year');
INSERT INTO events SELECT * FROM log WHERE ord <= 2000 ORDER BY ord;
CALL stream_agg.run('events');
SELECT stream_agg.pause('paused');
SELECT format('INSERT INTO events SELECT * FROM log WHERE ord > %s AND ord <= %s ORDER BY ord', g, g + 400)
FROM generate_series(2000, 5600, 400) g \gexec
