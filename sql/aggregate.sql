--
-- Aggregates and grouping keys of every kind; the answer is the query's own over a table.
--
SET timezone = 'UTC';
SET datestyle = 'ISO';
CREATE SCHEMA aggregates;
SET search_path = aggregates, public;

-- check(view, query): rows that only one of them has.
CREATE FUNCTION differences(view regclass, query text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	n bigint;
BEGIN
	EXECUTE format('SELECT count(*) FROM ((TABLE %s EXCEPT ALL (%s)) UNION ALL ((%2$s) EXCEPT ALL TABLE %1$s)) x', view, query) INTO n;
	RETURN n;
END
$$;

CREATE FOREIGN TABLE e (k int, i2 int2, i4 int4, i8 int8, f4 float4, f8 float8, n numeric, t text, b bool, ts timestamptz, iv interval, d date, bt bit(8), m money, ip inet)
	SERVER stream_staged;
CREATE TABLE copy (LIKE e);

-- Built-in aggregates: states by value, arrays, internal ones with serialization functions.
CREATE MATERIALIZED VIEW builtin WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT k, count(*) AS c, count(i4) AS ci, sum(i2) AS s2, sum(i4) AS s4, sum(i8) AS s8, sum(n) AS sn, sum(f8) AS sf8, sum(f4) AS sf4,
		sum(m) AS sm, sum(iv) AS si, avg(i2) AS a2, avg(i4) AS a4, avg(i8) AS a8, avg(n) AS an, avg(f8) AS af8, avg(iv) AS ai,
		min(t) AS mit, max(t) AS mat, min(n) AS mn, max(ts) AS mts, max(d) AS md, min(ip) AS mip, max(i8) AS m8, min(f4) AS mf4, max(iv) AS miv,
		bool_and(b) AS ba, bool_or(b) AS bo, every(b) AS ev, bit_and(i4) AS bia, bit_or(i8) AS bio, bit_xor(bt) AS bix,
		stddev(i4) AS sd4, stddev_pop(n) AS sdn, variance(i8) AS v8, var_pop(f8) AS vf8, stddev(f4) AS sdf4,
		corr(f8, i4) AS co, covar_pop(f8, f4) AS cp, regr_count(f8, i4) AS rc, regr_slope(f8, i4) AS rs, regr_avgx(i4, f8) AS rax
	FROM e GROUP BY k;
INSERT INTO copy SELECT i % 7, i % 100, i * 3, i::int8 * 10000000000, (i % 16) / 4.0, i / 8.0, i * 1.5 - 100, md5((i % 50)::text), i % 11 <> 0,
	'2024-01-01'::timestamptz + i * interval '1 minute', i * interval '1 minute', '2024-01-01'::date + i % 30, (i % 256)::bit(8), i::money, ('10.0.0.' || i % 256)::inet
FROM generate_series(1, 300) i;
INSERT INTO copy (k) VALUES (NULL), (NULL), (1), (99);
INSERT INTO e SELECT * FROM copy WHERE i4 < 300 OR i4 IS NULL;
CALL stream_agg.run('e');
INSERT INTO e SELECT * FROM copy WHERE i4 >= 300;
CALL stream_agg.run('e');
SELECT count(*) FROM builtin;
SELECT * FROM builtin WHERE k IS NULL OR k = 99 ORDER BY k;
SELECT differences('builtin', 'SELECT k, count(*) AS c, count(i4) AS ci, sum(i2) AS s2, sum(i4) AS s4, sum(i8) AS s8, sum(n) AS sn, sum(f8) AS sf8, sum(f4) AS sf4,
		sum(m) AS sm, sum(iv) AS si, avg(i2) AS a2, avg(i4) AS a4, avg(i8) AS a8, avg(n) AS an, avg(f8) AS af8, avg(iv) AS ai,
		min(t) AS mit, max(t) AS mat, min(n) AS mn, max(ts) AS mts, max(d) AS md, min(ip) AS mip, max(i8) AS m8, min(f4) AS mf4, max(iv) AS miv,
		bool_and(b) AS ba, bool_or(b) AS bo, every(b) AS ev, bit_and(i4) AS bia, bit_or(i8) AS bio, bit_xor(bt) AS bix,
		stddev(i4) AS sd4, stddev_pop(n) AS sdn, variance(i8) AS v8, var_pop(f8) AS vf8, stddev(f4) AS sdf4,
		corr(f8, i4) AS co, covar_pop(f8, f4) AS cp, regr_count(f8, i4) AS rc, regr_slope(f8, i4) AS rs, regr_avgx(i4, f8) AS rax
	FROM copy GROUP BY k');
-- Where their states are kept.
SELECT * FROM stream_agg.explain('builtin') l WHERE l LIKE 'State%';

-- Aggregates of one's own: SQL and PL/pgSQL, strict or not, with and without an initial value, by reference.
CREATE FUNCTION add_or_null(int, int) RETURNS int LANGUAGE sql IMMUTABLE STRICT AS $$ SELECT CASE WHEN $2 = 13 THEN NULL ELSE $1 + $2 END $$;
CREATE AGGREGATE sum_strict_null(int) (SFUNC = add_or_null, STYPE = int);
CREATE AGGREGATE sum_strict_init(int) (SFUNC = add_or_null, STYPE = int, INITCOND = '100');
CREATE FUNCTION add_loose(int, int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN coalesce($1, 0) + coalesce($2, -1); END $$;
CREATE AGGREGATE sum_loose(int) (SFUNC = add_loose, STYPE = int);
CREATE AGGREGATE sum_loose_init(int) (SFUNC = add_loose, STYPE = int, INITCOND = '7');
CREATE FUNCTION cat(text, text) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT coalesce($1 || ',', '') || coalesce($2, '-') $$;
CREATE AGGREGATE cat_all(text) (SFUNC = cat, STYPE = text);
CREATE AGGREGATE cat_all_init(text) (SFUNC = cat, STYPE = text, INITCOND = 'x');
CREATE FUNCTION longer(text, text) RETURNS text LANGUAGE sql IMMUTABLE STRICT AS $$ SELECT CASE WHEN length($2) > length($1) THEN $2 ELSE $1 END $$;
CREATE AGGREGATE longest(text) (SFUNC = longer, STYPE = text);
CREATE FUNCTION append_any(anyarray, anyelement) RETURNS anyarray LANGUAGE sql IMMUTABLE AS $$ SELECT array_append($1, $2) $$;
CREATE AGGREGATE collect(anyelement) (SFUNC = append_any, STYPE = anyarray, INITCOND = '{}');
CREATE AGGREGATE collect_null(anycompatible) (SFUNC = array_append, STYPE = anycompatiblearray);
CREATE FUNCTION push(int[], int) RETURNS int[] LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN $1[1] := coalesce($1[1], 0) + 1; $1 := $1 || $2; RETURN $1; END $$;
CREATE AGGREGATE push_all(int) (SFUNC = push, STYPE = int[], INITCOND = '{0}');
CREATE AGGREGATE push_all_null(int) (SFUNC = push, STYPE = int[]);
CREATE FUNCTION range_step(numeric[], numeric) RETURNS numeric[] LANGUAGE sql IMMUTABLE STRICT AS $$ SELECT ARRAY[least($1[1], $2), greatest($1[2], $2)] $$;
CREATE FUNCTION range_final(numeric[]) RETURNS numeric LANGUAGE sql IMMUTABLE STRICT AS $$ SELECT $1[2] - $1[1] $$;
CREATE AGGREGATE spread(numeric) (SFUNC = range_step, STYPE = numeric[], INITCOND = '{NULL,NULL}', FINALFUNC = range_final);
CREATE TYPE acc AS (n int, names text[]);
CREATE FUNCTION acc_step(acc, text, int) RETURNS acc LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	RETURN ROW(coalesce(($1).n, 0) + coalesce($3, 0), coalesce(($1).names, '{}') || left($2, 3))::aggregates.acc;	-- for workers do not have it in their search_path
END $$;
CREATE FUNCTION acc_final(acc) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT ($1).n || ':' || array_to_string(($1).names, '+') $$;
CREATE AGGREGATE accumulate(text, int) (SFUNC = acc_step, STYPE = acc, FINALFUNC = acc_final);
-- Final functions that want to have the state for themselves, and ones that take the arguments' types.
CREATE AGGREGATE cat_shareable(text) (SFUNC = cat, STYPE = text, FINALFUNC = upper, FINALFUNC_MODIFY = SHAREABLE);
CREATE AGGREGATE cat_writing(text) (SFUNC = cat, STYPE = text, FINALFUNC = upper, FINALFUNC_MODIFY = READ_WRITE);
CREATE FUNCTION array_final(int[], int) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN $1[1] := -1; RETURN $1::text || coalesce($2, 0); END $$;
CREATE AGGREGATE push_extra(int) (SFUNC = push, STYPE = int[], INITCOND = '{0}', FINALFUNC = array_final, FINALFUNC_EXTRA, FINALFUNC_MODIFY = READ_WRITE);
CREATE AGGREGATE avg_writing(int8) (SFUNC = int8_avg_accum, STYPE = internal, FINALFUNC = numeric_poly_avg, FINALFUNC_MODIFY = READ_WRITE,
	SERIALFUNC = int8_avg_serialize, DESERIALFUNC = int8_avg_deserialize, COMBINEFUNC = int8_avg_combine, PARALLEL = SAFE);
CREATE FUNCTION add_variadic(int, VARIADIC int[]) RETURNS int LANGUAGE sql IMMUTABLE AS $$ SELECT $1 + (SELECT coalesce(sum(x), 0)::int FROM unnest($2) x) $$;
CREATE AGGREGATE sum_variadic(VARIADIC int[]) (SFUNC = add_variadic, STYPE = int, INITCOND = '0');
CREATE FUNCTION int4inc(int) RETURNS int LANGUAGE sql IMMUTABLE STRICT AS $$ SELECT $1 + 1 $$;
CREATE AGGREGATE tally(*) (SFUNC = int4inc, STYPE = int4, INITCOND = '0');

CREATE FOREIGN TABLE u (k int, v int, t text, c "char") SERVER stream_staged;
CREATE TABLE u_copy (LIKE u);
SELECT $$SELECT k, sum_strict_null(v) AS a, sum_strict_init(v) AS b, sum_loose(v) AS c, sum_loose_init(v) AS d, cat_all(t) AS e, cat_all_init(t) AS f,
	longest(t) AS g, collect(v) AS h, collect(t) AS i, collect_null(v) AS j, push_all(v) AS l, push_all_null(v) AS m, spread(v) AS n,
	accumulate(t, v) AS o, cat_shareable(t) AS p, cat_writing(t) AS q, push_extra(v) AS r, avg_writing(v) AS s, sum_variadic(v, 1, v) AS w, tally(*) AS x,
	sum_strict_null(v) + 1 AS a1, collect(v) FILTER (WHERE v > 3) AS hf, upper(cat_all(t)) AS eu, avg_writing(v) + 1 AS s1$$ AS columns \gset
CREATE MATERIALIZED VIEW own WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	:columns FROM u GROUP BY k;
CREATE MATERIALIZED VIEW own_batches WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.max_batch_rows = 1) AS
	:columns FROM u GROUP BY k;
CREATE MATERIALIZED VIEW own_all WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT sum_strict_null(v) AS a, sum_strict_init(v) AS b, sum_loose(v) AS c, sum_loose_init(v) AS d, cat_all(t) AS e, cat_all_init(t) AS f, collect(v) AS g, push_all(v) AS h,
		spread(v) AS i, avg_writing(v) AS j, accumulate(t, v) AS l FROM u;
CALL stream_agg.run('u');
SELECT * FROM own_all;
INSERT INTO u_copy SELECT i % 3, CASE WHEN i % 5 <> 0 THEN i END, CASE WHEN i % 4 <> 0 THEN repeat(chr(97 + i), i % 6) END FROM generate_series(1, 24) i;
INSERT INTO u_copy VALUES (NULL, NULL, NULL), (5, 13, 'only'), (6, NULL, NULL), (6, 1, 'one'), (7, 1, 'one'), (7, 13, 'two'), (7, 2, 'three');
INSERT INTO u SELECT * FROM u_copy LIMIT 9;
CALL stream_agg.run('u');
INSERT INTO u SELECT * FROM u_copy OFFSET 9;
CALL stream_agg.run('u');
\x
SELECT * FROM own WHERE k IN (0, 6, 7) ORDER BY k;
SELECT * FROM own_all;
\x
SELECT differences('own', :'columns' || ' FROM u_copy GROUP BY k');
SELECT differences('own_batches', :'columns' || ' FROM u_copy GROUP BY k');
SELECT differences('own_all', 'SELECT sum_strict_null(v) AS a, sum_strict_init(v) AS b, sum_loose(v) AS c, sum_loose_init(v) AS d, cat_all(t) AS e, cat_all_init(t) AS f, collect(v) AS g, push_all(v) AS h,
	spread(v) AS i, avg_writing(v) AS j, accumulate(t, v) AS l FROM u_copy');
-- The states survive the worker's memory: another table file makes it read everything again.
VACUUM FULL own;
VACUUM FULL own_batches;
INSERT INTO u_copy VALUES (7, 3, 'four'), (6, 2, 'two'), (NULL, 1, NULL);
INSERT INTO u VALUES (7, 3, 'four'), (6, 2, 'two'), (NULL, 1, NULL);
CALL stream_agg.run('u');
SELECT differences('own', :'columns' || ' FROM u_copy GROUP BY k');
SELECT differences('own_batches', :'columns' || ' FROM u_copy GROUP BY k');
DROP FOREIGN TABLE u CASCADE;

-- Keys: collations, types whose equal values look different, arrays, composites, ranges, jsonb, enums, domains.
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN shout AS text CHECK (VALUE = upper(VALUE));
CREATE FOREIGN TABLE keys (t text, n numeric, f float8, c char(5), m mood, u uuid, j jsonb, a int[], p pair, r int4range, v varchar(10), nm name, s shout,
	bt bytea, iv interval, ip inet, tz timetz, b bool, ch "char", bits bit varying, d date, tt text[], big numeric) SERVER stream_staged;
CREATE TABLE keys_copy (LIKE keys);
INSERT INTO keys_copy
SELECT 't' || i % 3, (i % 3)::numeric(10, 2), i % 3 - 1.0, 'c' || i % 3, (ARRAY['sad', 'ok', 'happy']::mood[])[i % 3 + 1], ('00000000-0000-0000-0000-00000000000' || i % 3)::uuid,
	jsonb_build_object('k', i % 3), ARRAY[i % 3, NULL, 7], (i % 3, 'x')::pair, int4range(i % 3, 5), 'v' || i % 3, ('n' || i % 3)::name, 'S' || i % 3,
	decode('0' || i % 3, 'hex'), i % 3 * interval '1 day', ('10.0.0.' || i % 3)::inet, ('10:00:0' || i % 3 || '+02')::timetz, i % 3 = 0, (i % 3)::text::"char", (i % 3)::bit(4), '2024-01-01'::date + i % 3,
	ARRAY['a', 'b' || i % 3], 10 ^ (i % 3 * 20)
FROM generate_series(1, 30) i;
INSERT INTO keys_copy (n) VALUES (1.0), (1.00), (1), ('NaN'), ('NaN'), ('Infinity'), (NULL);
INSERT INTO keys_copy (f) VALUES ('-0'), ('0'), ('NaN'), ('NaN'), ('infinity');
INSERT INTO keys_copy (c) VALUES ('c1'), ('c1   '), ('');
INSERT INTO keys_copy (iv) VALUES ('24 hours'), ('1 day'), ('30 days'), ('1 month');
INSERT INTO keys_copy (p) VALUES ((NULL, NULL)), ((NULL, 'x')), ((1, 'x'));
INSERT INTO keys_copy (a, tt) VALUES ('{}', '{}'), ('{NULL}', '{NULL}'), ('[5:6]={1,2}', NULL), ('{1,2}', NULL);
INSERT INTO keys_copy (j) VALUES ('null'), ('1.0'), ('1'), ('1.00');
DO $$
DECLARE
	col text;
BEGIN
	FOR col IN SELECT attname FROM pg_attribute WHERE attrelid = 'keys'::regclass AND attnum > 0 ORDER BY attnum
	LOOP
		EXECUTE format('CREATE MATERIALIZED VIEW by_%s WITH (stream_agg.continuous, stream_agg.trigger = ''manual'') AS SELECT %1$I, count(*) AS cnt, avg(f) AS mean FROM keys GROUP BY %1$I', col);
	END LOOP;
END
$$;
CREATE MATERIALIZED VIEW by_all WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT t, n, f, c, m, u, j, a, p, r, v, nm, s, bt, iv, ip, tz, b, ch, bits, d, tt, big, count(*) AS cnt FROM keys GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23;
INSERT INTO keys SELECT * FROM keys_copy LIMIT 10;
CALL stream_agg.run('keys');
INSERT INTO keys SELECT * FROM keys_copy OFFSET 10;
CALL stream_agg.run('keys');
-- Groups that differ, by view; none.
SELECT a.attname, differences(('by_' || attname)::regclass, format('SELECT %I, count(*) AS cnt, avg(f) AS mean FROM keys_copy GROUP BY 1', attname)) AS differences
FROM pg_attribute a WHERE attrelid = 'keys'::regclass AND attnum > 0 ORDER BY attnum;
SELECT n, cnt FROM (SELECT n, sum(cnt) AS cnt FROM by_all GROUP BY n) x ORDER BY n;
SELECT count(*), sum(cnt) FROM by_all;
SELECT (SELECT count(*) FROM (SELECT DISTINCT * FROM keys_copy) x) AS groups;
SELECT * FROM by_f ORDER BY f;
SELECT * FROM by_iv ORDER BY iv;
SELECT view, failed, accepted FROM stream_agg.views WHERE stream = 'keys'::regclass AND (failed > 0 OR accepted <> read);
DROP FOREIGN TABLE keys CASCADE;
DROP TABLE keys_copy;

-- A type without a btree class; a key too wide for an index.
CREATE FOREIGN TABLE x (j json, p point, x xid, t text) SERVER stream_staged;
CREATE MATERIALIZED VIEW vx WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT j, count(*) FROM x GROUP BY j;
CREATE MATERIALIZED VIEW vx WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT p, count(*) FROM x GROUP BY p;
CREATE MATERIALIZED VIEW vx WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT x, count(*) FROM x GROUP BY x;
CREATE MATERIALIZED VIEW vx WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT t, count(*) FROM x GROUP BY t;
INSERT INTO x (t) VALUES ('short'), ((SELECT string_agg(md5(g::text), '') FROM generate_series(1, 300) g)), ('short'), (repeat('compressible', 1000));
CALL stream_agg.run('x');
SELECT left(t, 12) AS t, count FROM vx ORDER BY 1;
SELECT status, read, failed, accepted FROM stream_agg.views WHERE view = 'vx'::regclass;
SELECT view, reason, position, message FROM stream_agg.dead_letters WHERE stream = 'x'::regclass ORDER BY position;
DROP FOREIGN TABLE x CASCADE;

-- string_agg and array_agg have no serialization functions before version 16.
CREATE FOREIGN TABLE s (k int, t text) SERVER stream_staged;
CREATE MATERIALIZED VIEW vs WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT k, string_agg(t, ',') AS all FROM s GROUP BY k;
CREATE MATERIALIZED VIEW va WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT k, array_agg(t) AS all FROM s GROUP BY k;
CREATE MATERIALIZED VIEW vj WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT k, jsonb_agg(t) AS all FROM s GROUP BY k;
DROP FOREIGN TABLE s CASCADE;

-- Overflow: the event at which an aggregate fails is kept aside, the others count.
CREATE FOREIGN TABLE o (i int8) SERVER stream_staged;
CREATE AGGREGATE bigsum(int8) (SFUNC = int8pl, STYPE = int8, INITCOND = '0');
CREATE MATERIALIZED VIEW overflowing WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT count(*) AS n, bigsum(i) AS s FROM o;
INSERT INTO o VALUES (1), (9223372036854775807), (-1), (9223372036854775800), (5);
CALL stream_agg.run('o');
SELECT * FROM overflowing;
SELECT view, reason, position, message, event FROM stream_agg.dead_letters WHERE stream = 'o'::regclass ORDER BY position;
SELECT read, failed, accepted FROM stream_agg.views WHERE view = 'overflowing'::regclass;
DROP FOREIGN TABLE o CASCADE;
DROP AGGREGATE bigsum(int8);
DROP FOREIGN TABLE e CASCADE;
DROP TABLE copy;
SET client_min_messages = warning;
DROP SCHEMA aggregates CASCADE;
