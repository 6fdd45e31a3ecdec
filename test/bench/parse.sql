-- See parse.sh, and test/syntax/syntax_tools.c for bench().
CREATE TABLE t (id int PRIMARY KEY, stream int, payload text);
CREATE TABLE texts (what text, statement text, n int);
INSERT INTO texts VALUES
	('SELECT 1', 'SELECT 1', 3000),
	('SELECT by key', 'SELECT payload FROM t WHERE id = 42', 1500),
	('UPDATE by key', 'UPDATE t SET payload = ''x'' WHERE id = 42', 1500),
	('INSERT of 100 rows', 'INSERT INTO t (id, payload) VALUES ' ||
		(SELECT string_agg(format('(%s, ''payload of number %s'')', g, g), ', ') FROM generate_series(1, 100) g), 50),
	('INSERT of 1 MB', 'INSERT INTO t (id, payload) VALUES (1, ''' || repeat('Costs some scanning ', 50000) || ''')', 5),
	('SELECT that says stream', 'SELECT stream FROM t WHERE id = 42', 1500);
CREATE TEMP TABLE times AS
	SELECT what, round, bench('stock', statement, n) AS stock, bench('server', statement, n) AS server,
		bench('plan', statement, n) AS plan
	FROM texts, generate_series(1, :rounds) round;
CREATE TEMP TABLE least AS
	SELECT what, min(stock) AS stock, min(server) AS server, min(plan) AS plan FROM times GROUP BY what;
SELECT what, length(statement) AS bytes, round(stock) AS "stock, ns", round(server) AS "redirected, ns",
	round(server - stock) AS "more, ns", round(plan) AS "parse and plan, ns",
	round((100 * (server - stock) / plan)::numeric, 2) AS "%"
FROM least JOIN texts USING (what) ORDER BY bytes, what;
