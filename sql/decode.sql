--
-- What becomes of a record: JSON, csv and raw bytes as the columns of a stream. Nothing here meets a broker.
-- Beside this, test/t/070_decode.pl holds random records against the server's own json and COPY.
--
SET timezone = 'UTC';
SET datestyle = 'ISO';
SET bytea_output = 'hex';
SET extra_float_digits = 1;
\pset format unaligned
\pset tuples_only on
CREATE SERVER decode_kafka FOREIGN DATA WRAPPER stream_agg OPTIONS (type 'kafka', bootstrap_servers 'nowhere:1');
-- The event without its NULLs, or the error.
CREATE FUNCTION try(stream regclass, record text, key bytea DEFAULT NULL) RETURNS text LANGUAGE sql AS
	$$SELECT coalesce(json_strip_nulls(event)::text, 'ERROR: ' || error) FROM stream_agg.try_decode(stream, convert_to(record, 'UTF8'), key)$$;
-- The same in one run.
CREATE FUNCTION try_all(stream regclass, VARIADIC records text[]) RETURNS TABLE (record text, result text) LANGUAGE sql AS $$
	SELECT records[ordinal], coalesce(json_strip_nulls(event)::text, 'ERROR: ' || error)
	FROM stream_agg.try_decode_all(stream, (SELECT array_agg(convert_to(r, 'UTF8') ORDER BY n) FROM unnest(records) WITH ORDINALITY u (r, n)))
$$;

--
-- Types
--
CREATE TYPE decode_mood AS ENUM ('sad', 'ok');
CREATE DOMAIN decode_positive AS int CHECK (VALUE > 0);
CREATE DOMAIN decode_given AS text NOT NULL;
CREATE DOMAIN decode_short AS varchar(3) CHECK (VALUE <> 'no');
CREATE FOREIGN TABLE typed (i2 int2, i4 int, i8 bigint, f4 real, f8 double precision, b boolean, t text, v varchar, v3 varchar(3), c3 char(3),
	ts timestamptz, tl timestamp, t0 timestamptz(0), d date, n numeric, n2 numeric(6,2), j json, jb jsonb, ia int[], ta text[], ja jsonb[],
	u uuid, m decode_mood, p decode_positive, s decode_short, by bytea, iv interval, ip inet, r int4range, bx box[], rc regclass)
	SERVER decode_kafka OPTIONS (topic 't');
-- Missing and null, extra keys, blanks.
SELECT * FROM stream_agg.try_decode('typed', '{}');
SELECT * FROM try_all('typed', '{"i4":null,"t":null,"j":null,"jb":null,"ia":null,"p":null}', '{"other":{"i4":1},"I4":2,"":3}',
	E' \t\r\n{ "i4" : 1 , "t" : "x" } \n', '{"ia":[null],"ja":[null]}');
-- Integers.
SELECT * FROM try_all('typed', '{"i2":-32768,"i4":2147483647,"i8":-9223372036854775808}', '{"i2":"12","i4":" 7 ","i8":"-0"}', '{"i8":9007199254740993}',
	'{"i2":32768}', '{"i4":2147483648}', '{"i8":9223372036854775808}', '{"i4":1.0}', '{"i4":1e2}', '{"i4":"NaN"}', '{"i4":true}', '{"i4":""}', '{"i4":"x"}', '{"i4":[1]}', '{"i4":{}}');
-- Floats.
SELECT * FROM try_all('typed', '{"f4":0.1,"f8":0.1}', '{"f4":16777217,"f8":9007199254740993}', '{"f4":-0.0,"f8":-0}', '{"f4":3.4028235e38,"f8":1.7976931348623157e308}',
	'{"f8":4.9e-324}', '{"f8":123456789012345.678901234567890}', '{"f4":"NaN","f8":"-Infinity"}', '{"f4":1e39}', '{"f8":1e309}', '{"f8":1e-400}', '{"f8":NaN}', '{"f8":"1,5"}');
-- Booleans.
SELECT * FROM try_all('typed', '{"b":true}', '{"b":false}', '{"b":"yes"}', '{"b":" off "}', '{"b":1}', '{"b":2}', '{"b":"maybe"}');
-- Text: whatever the value is, it has a text.
SELECT * FROM try_all('typed', '{"t":"a\"\\\/\b\f\n\r\tz"}', '{"t":"\u00e4\u20ac\ud83d\ude00"}', '{"t":"ä€😀"}', '{"t":12.50}', '{"t":true}', '{"t":{"a" : [1, 2]}}', '{"v":[ 1 ]}', '{"t":""}',
	'{"v3":"abc"}', '{"v3":"abc  "}', '{"v3":"abcd"}', '{"c3":"a"}', '{"t":"\u0000"}', '{"t":"a\ud800"}', '{"t":"\ude00\ud83d"}');
-- Times.
SELECT * FROM try_all('typed', '{"ts":"2026-01-02T03:04:05.678901Z"}', '{"ts":"2026-01-02 03:04:05+05:30"}', '{"ts":"2026-01-02T03:04:05-0800"}', '{"ts":"2026-01-02T03:04:05"}', '{"ts":"2026-01-02"}',
	'{"ts":"2024-02-29T23:59:59.9999996Z"}', '{"ts":"2026-01-02T24:00:00Z"}', '{"ts":"Jan 2 2026 3:04 PM PST"}', '{"ts":"infinity"}', '{"ts":"0001-01-01T00:00:00Z"}',
	'{"ts":"2025-02-29T00:00:00Z"}', '{"ts":"2026-13-01T00:00:00Z"}', '{"ts":"2026-01-02T03:04:61Z"}', '{"ts":"2026-01-02T03:04:05+25:00"}', '{"ts":1767322800}', '{"ts":""}',
	'{"tl":"2026-01-02T03:04:05.5"}', '{"tl":"2026-01-02T03:04:05+05"}', '{"t0":"2026-01-02T03:04:05.5Z"}', '{"d":"2026-01-02"}', '{"d":"2026-01-02T23:00:00-05"}', '{"d":"2026-02-30"}');
SET timezone = 'America/New_York';
SELECT * FROM try_all('typed', '{"ts":"2026-01-02T03:04:05"}', '{"ts":"2026-07-02T03:04:05Z"}', '{"tl":"2026-01-02T03:04:05Z"}');
SET timezone = 'UTC';
-- Everything else through the type's input function.
SELECT * FROM try_all('typed', '{"n":12345678901234567890.12345678901234567890}', '{"n":1e3}', '{"n":"NaN"}', '{"n2":1.005}', '{"n2":12345.6}', '{"n":"1,5"}',
	'{"u":"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"}', '{"u":1}', '{"m":"ok"}', '{"m":"glad"}', '{"by":"\\x6162"}', '{"by":"\\x6"}', '{"iv":"1 day"}', '{"ip":"::1"}', '{"r":"[1,5)"}', '{"r":"[5,1)"}', '{"rc":"no_such_table"}');
SELECT * FROM try_all('typed', '{"j":{"b" : 1,"a":2,"a":3}}', '{"j":"x\u0041"}', '{"j":0.10}', '{"jb":{"b" : 1,"a":2,"a":3}}', '{"jb":"x\u0041"}', '{"jb":"\u0000"}', '{"jb":["\ud800"]}', '{"jb":0.10}', '{"jb":[true,null]}');
SELECT event::text LIKE '%"j":"\\u0000",%' FROM stream_agg.try_decode('typed', convert_to('{"j":"\u0000"}', 'UTF8'));
-- Arrays, from JSON arrays or as text.
SELECT * FROM try_all('typed', '{"ia":[1, -2,"3",null]}', '{"ia":[]}', '{"ia":[[1,2],[3,4]]}', '{"ia":[[],[]]}', '{"ia":"{1,2}"}', '{"ia":[1,[2]]}', '{"ia":[[1],[2,3]]}', '{"ia":[[1],2]}', '{"ia":[1.5]}', '{"ia":{}}', '{"ia":1}',
	'{"ia":[[[[[[[1]]]]]]]}', '{"ta":["a,b","c\"d","e\\f","","NULL","null",null," x ",1.50,true,{"k":"}"},"\u00e4"]}', '{"ta":["a",[1, "]"]]}', '{"ta":["\u0000"]}', '{"ja":["a",{"b":[1,"]"]},null,3,"\""]}', '{"bx":["(1,2),(3,4)","(5,6),(7,8)"]}');
-- Domains.
SELECT * FROM try_all('typed', '{"p":5}', '{"p":0}', '{"p":"x"}', '{"s":"yes"}', '{"s":"no"}', '{"s":"long"}', '{"p":1}');

--
-- What is JSON
--
SELECT * FROM try_all('typed', '', ' ', '{', '{"i4"', '{"i4":', '{"i4":1', '{"i4":1,', '{"i4":1,}', '{,}', '{"i4":1 "t":2}', '{i4:1}', '{''i4'':1}', '{"i4":01}', '{"i4":+1}', '{"i4":1.}', '{"i4":.5}', '{"i4":1e}', '{"i4":-}',
	'{"i4":0x1F}', '{"i4":tru}', '{"i4":nulll}', '{"i4":True}', '{"t":"a', '{"t":"a\', '{"t":"\x"}', '{"t":"\u12"}', '{"t":"\u12g4"}', E'{"t":"a\nb"}', '{"x":[1,2}', '{"x":[1,,2]}', '{"x":[1,]}', '{"x":{"y":1]}', '{"x":[', '{} {}', '{}x', '/* */ {}');
SELECT * FROM try_all('typed', '[]', '[{"i4":1}]', '1', '"a"', 'null', 'true', '[1');
-- What nobody wants must be JSON, but need not be text.
SELECT * FROM try_all('typed', '{"x":"\u0000\ud800","i4":1}', '{"\u0000":1,"\ud800":2,"i4":3}', '{"x":{"y":"\u0000"},"i4":4}');
-- Keys with escapes.
SELECT * FROM try_all('typed', '{"\u0069\u0034":1}', '{"i4\u0000":1}', '{"i\/4":1}');
-- Duplicates: the last counts, even if it is null; what the others hold does not matter.
SELECT * FROM try_all('typed', '{"i4":1,"i4":2}', '{"i4":"x","i4":2}', '{"i4":2,"i4":null}', '{"i4":2,"i4":"x"}', '{"i4":1,"\u00694":3}');
-- Bytes that are no text.
SELECT encode(record, 'escape'), error FROM unnest('{"\\x7b2274223a2261ff227d","\\x7b2274223a22c080227d","\\x7b2274223a22eda080227d","\\x7b2274223a22f4908080227d","\\x7b2274223a2261c3227d","\\x7b7d00","\\xefbbbf7b7d","\\x7b2278223a22ff227d","\\xff"}'::bytea[]) record,
	stream_agg.try_decode('typed', record);
-- Deep nesting, wanted and not.
SELECT try('typed', '{"x":' || repeat('[', 100000) || repeat(']', 100000) || ',"i4":1}');
SELECT left(try('typed', '{"x":' || repeat('{"a":[', 100000)), 100);
SELECT length(try('typed', '{"t":' || repeat('[', 100000) || repeat(']', 100000) || '}'));
SELECT length(try('typed', '{"j":' || repeat('[', 1000) || repeat(']', 1000) || '}'));
SELECT column_name, try('typed', format('{"%s":', column_name) || repeat('[', 100000) || repeat(']', 100000) || '}') FROM unnest('{j,jb,ja}'::text[]) column_name;

--
-- Paths
--
CREATE FOREIGN TABLE paths (top text OPTIONS (path 'a'), whole jsonb OPTIONS (path 'a'), b int OPTIONS (path 'a.b'), b_text text OPTIONS (path 'a.b'),
	c text OPTIONS (path 'a.b.c'), d text OPTIONS (path 'x.y.z'), dotted text OPTIONS (path '"a.b"'), "ä" text) SERVER decode_kafka OPTIONS (topic 't');
SELECT * FROM try_all('paths', '{"a":{"b":1}}', '{"a":{"b":{"c":[1]}}}', '{"a":{"b":"2"},"x":{"y":{"z":3}}}', '{"a":[{"b":1}]}', '{"a":5}', '{"a":null}', '{"a.b":1,"ä":2}', '{"a":{"\u0062":1,"other":{"b":2}}}',
	'{"a":{"b":1},"a":{}}', '{"a":{"b":1},"a":5}', '{"a":5,"a":{"b":1}}', '{"a":{"b":1,"b":2}}', '{"a":{"b":{"c":1},"b":{}}}', '{"x":{"y":{"z":1}},"x":{"y":{}}}', '{"a":{"b":1}', '{"a":{"b":1},"x":{"y"}}');
-- The same as a chain of ->, for the last record too.
SELECT record->'a'->'b', record->'x'->'y'->>'z' FROM (VALUES ('{"a":{"b":1},"a":{},"x":{"y":{"z":1},"y":{"z":2}}}'::json)) AS v (record);
SELECT try('paths', '{"a":{"b":1},"a":{},"x":{"y":{"z":1},"y":{"z":2}}}');

--
-- NOT NULL, generated and dropped columns, defaults
--
CREATE FOREIGN TABLE strict (id int NOT NULL, gone int, city text OPTIONS (path 'address.city') NOT NULL, given decode_given, doubled int GENERATED ALWAYS AS (id * 2) STORED, n int DEFAULT 7)
	SERVER decode_kafka OPTIONS (topic 't');
ALTER FOREIGN TABLE strict DROP COLUMN gone;
SELECT * FROM try_all('strict', '{"id":1,"address":{"city":"Rome"},"given":"x"}', '{"address":{"city":"Rome"},"given":"x"}', '{"id":null,"address":{"city":"Rome"},"given":"x"}', '{"id":1,"address":{},"given":"x"}',
	'{"id":1,"address":"Rome","given":"x"}', '{"id":1,"address":{"city":"Rome"}}', '{"id":1,"address":{"city":"Rome"},"given":null}', '{"id":1,"address":{"city":"Rome"},"given":"x","doubled":5,"n":null}');

--
-- Numbers that are times
--
CREATE FOREIGN TABLE epochs (s timestamptz OPTIONS (timestamp_format 'epoch_s'), ms timestamptz OPTIONS (timestamp_format 'epoch_ms'), us timestamptz OPTIONS (timestamp_format 'epoch_us'),
	l timestamp OPTIONS (timestamp_format 'epoch_ms'), d date OPTIONS (timestamp_format 'epoch_s'), p timestamptz(1) OPTIONS (timestamp_format 'epoch_ms'), i timestamptz OPTIONS (timestamp_format 'iso8601'))
	SERVER decode_kafka OPTIONS (topic 't');
SET timezone = 'Asia/Tokyo';
SELECT * FROM try_all('epochs', '{"s":1767322800,"ms":1767322800123,"us":1767322800123456,"l":1767322800123,"d":1767322800,"i":"2026-01-02T03:00:00Z"}', '{"s":1.5,"ms":1.5,"us":1.5}', '{"s":0.0000004,"ms":0.0005,"us":-0.5}',
	'{"s":"1767322800","ms":"1767322800123"}', '{"s":1.7673228E9,"ms":1.767322800123e+12,"us":17673228001234560e-1}', '{"s":0,"ms":-1,"us":-1}', '{"s":-62135596800,"d":-1}', '{"s":0e999999999999}', '{"s":1e-999999999999}',
	'{"s":1767322800.1234567890123456789012345678901234567890}', '{"p":1767322800149}', '{"s":9223372036854}', '{"s":9223372036855}', '{"s":-210866803200}', '{"s":-210866803201}', '{"ms":99999999999999999999}', '{"s":1e999999999999}', '{"s":1e18}');
SELECT * FROM try_all('epochs', '{"s":"x"}', '{"ms":""}', '{"ms":true}', '{"us":"1."}', '{"us":" 1"}', '{"us":[1]}', '{"s":"2026-01-02T03:00:00Z"}', '{"s":"infinity"}', '{"i":1767322800}', '{"s":"\u0031"}');
-- Seconds taken for milliseconds.
SELECT * FROM try_all('epochs', '{"ms":1767322800}', '{"ms":99999999}', '{"ms":100000000}', '{"ms":31535999999}', '{"ms":31536000000}', '{"ms":-1767322800}', '{"us":1767322800123}', '{"s":1767322800}');
SET timezone = 'UTC';

--
-- Metadata
--
CREATE DOMAIN decode_late AS bigint CHECK (VALUE > 0);
CREATE FOREIGN TABLE meta (v text, topic text OPTIONS (metadata 'topic'), part int OPTIONS (metadata 'partition'), part8 bigint OPTIONS (metadata 'partition'), pos bigint OPTIONS (metadata 'offset'),
	at timestamptz OPTIONS (metadata 'timestamp'), kind varchar OPTIONS (metadata 'timestamp_type'), key text OPTIONS (metadata 'key'), key_bytes bytea OPTIONS (metadata 'key'), headers jsonb OPTIONS (metadata 'headers'))
	SERVER decode_kafka OPTIONS (topic 't');
-- A record that is tried has no place.
SELECT try('meta', '{"v":"a","key":"no","part":5}', 'kä'), try('meta', '{}', '');
SELECT try('meta', '{"v":"a"}', '\xff');
CREATE FOREIGN TABLE key_only (v text, key varchar(3) OPTIONS (metadata 'key') NOT NULL, pos decode_late OPTIONS (metadata 'offset')) SERVER decode_kafka OPTIONS (topic 't');
SELECT try('key_only', '{}', 'abc'), try('key_only', '{}', NULL), try('key_only', '{}', 'abcd');
ALTER FOREIGN TABLE key_only DROP COLUMN pos;
SELECT try('key_only', '{}', 'abc'), try('key_only', '{}', NULL), try('key_only', '{}', 'abcd'), try('key_only', '{}', 'a\000b');
DO $$
DECLARE
	metadata text;
	message text;
	hint text;
BEGIN
	FOREACH metadata IN ARRAY '{topic,partition,offset,timestamp,timestamp_type,key,headers}'::text[] LOOP
		BEGIN
			EXECUTE format('CREATE FOREIGN TABLE bad_meta (x point OPTIONS (metadata %L)) SERVER decode_kafka OPTIONS (topic ''t'')', metadata);
			PERFORM try('bad_meta', '{}');
			RAISE EXCEPTION 'metadata % fits', metadata;
		EXCEPTION WHEN datatype_mismatch THEN
			GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
			RAISE NOTICE '%. %', message, hint;
		END;
	END LOOP;
END$$;

--
-- csv
--
CREATE FOREIGN TABLE comma (a int, part int OPTIONS (metadata 'partition'), b text, c timestamptz) SERVER decode_kafka OPTIONS (topic 't', format 'csv');
SELECT * FROM try_all('comma', '1,x,2026-01-02T03:04:05Z', '1,,', '1,"",', ',"a,b",', '1,"say ""hi""",', '1,a"b,c"d,', E'1,x,\n', E'1,x,\r\n', E'1,"two\nlines",\n', '1, x ,', '"1","x","2026-01-02"', '1,NULL,', '1,\N,',
	'', '1,x', '1,x,,', E'1,x,\n2,y,', '1,"x,', 'x,y,', '1,x,never');
SELECT encode(record, 'escape'), error FROM unnest('{"\\x312cff2c","\\x312c002c"}'::bytea[]) record, stream_agg.try_decode('comma', record);
CREATE FOREIGN TABLE semicolon (a numeric, b text) SERVER decode_kafka OPTIONS (topic 't', format 'csv', delimiter ';', quote '''');
SELECT * FROM try_all('semicolon', '1.5;''a;b''''c''', '1,5;x', '2;"x"');
CREATE FOREIGN TABLE unquoted (a text, b text, j jsonb, ia int[]) SERVER decode_kafka OPTIONS (topic 't', format 'csv', delimiter '|', quote '');
SELECT * FROM try_all('unquoted', '"a"|b|{"x": 1}|{1,2}', 'a||[|', '|""||[1]');
CREATE FOREIGN TABLE one_field (a text) SERVER decode_kafka OPTIONS (topic 't', format 'csv');
SELECT * FROM try_all('one_field', '', '""', E'\n', 'a');

--
-- raw
--
CREATE FOREIGN TABLE raw_text (t text, key bytea OPTIONS (metadata 'key')) SERVER decode_kafka OPTIONS (topic 't', format 'raw');
CREATE FOREIGN TABLE raw_bytes (b bytea) SERVER decode_kafka OPTIONS (topic 't', format 'raw');
CREATE FOREIGN TABLE raw_json (j jsonb NOT NULL) SERVER decode_kafka OPTIONS (topic 't', format 'raw');
SELECT try('raw_text', E'any "text"\n', 'k'), try('raw_text', ''), try('raw_bytes', 'ä'), try('raw_bytes', ''), try('raw_json', ' [1, 2]'), try('raw_json', '{'), try('raw_json', ''), try('raw_json', 'null');
SELECT event, error FROM stream_agg.try_decode('raw_bytes', '\x00ff');
SELECT event, error FROM stream_agg.try_decode('raw_text', '\x61ff'), stream_agg.try_decode('raw_bytes', NULL) AS tombstone (e, f);
CREATE FOREIGN TABLE raw_two (a text, b text) SERVER decode_kafka OPTIONS (topic 't', format 'raw');
CREATE FOREIGN TABLE raw_int (a int) SERVER decode_kafka OPTIONS (topic 't', format 'raw');
CREATE FOREIGN TABLE raw_none (k text OPTIONS (metadata 'key')) SERVER decode_kafka OPTIONS (topic 't', format 'raw');
SELECT try('raw_none', 'x', 'k');

--
-- Size
--
CREATE FOREIGN TABLE small (t text) SERVER decode_kafka OPTIONS (topic 't', max_record_bytes '1kB');
SELECT try('small', format('{"t":"%s"}', repeat('x', 1024))), length(try('small', format('{"t":"%s"}', repeat('x', 1016))));
-- Errors quote little of a record.
SELECT try('typed', format('{"i4":"%s"}', repeat('ä', 1000)));
SELECT try('typed', E'{"i4":"a\\nb"}'), try('epochs', format('{"s":"%s"}', repeat('x', 1000)));

--
-- Many columns, many records
--
DO $$BEGIN EXECUTE 'CREATE FOREIGN TABLE wide (' || (SELECT string_agg(format('c%s %s', i, (ARRAY['int','text','float8','numeric'])[i % 4 + 1]), ', ') FROM generate_series(1, 500) i)
	|| $x$) SERVER decode_kafka OPTIONS (topic 't')$x$; END$$;
SELECT count(*), sum(value::int), bool_and(substr(key, 2) = value) FROM stream_agg.try_decode('wide', convert_to((SELECT json_object_agg('c' || i, i)::text FROM generate_series(500, 1, -1) i), 'UTF8')), json_each_text(event);
-- One bad record in a thousand, wherever it is, and all of them.
SELECT bad, count(event), count(error), bool_and((event->>'i4')::int = ordinal), min(ordinal) FILTER (WHERE error IS NOT NULL), min(error)
	FROM unnest('{1,2,500,999,1000,0,-1}'::int[]) bad,
	LATERAL (SELECT array_agg(convert_to(CASE WHEN i = bad OR bad < 0 THEN '{"n":"x","i4":1}' ELSE format('{"i4":%s,"n":1.5,"p":1}', i) END, 'UTF8') ORDER BY i) AS records FROM generate_series(1, 1000) i) r,
	stream_agg.try_decode_all('typed', records) GROUP BY bad ORDER BY bad;
SELECT * FROM stream_agg.try_decode_all('typed', '{}'), stream_agg.try_decode_all('typed', '{NULL,"{\"i4\":1}"}') AS other (ordinal, event, error);
SELECT ordinal, json_strip_nulls(event) FROM stream_agg.try_decode_all('typed', '{NULL,"{}",NULL}');

--
-- What is not the record's fault is raised
--
CREATE FUNCTION decode_cancel(int) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN
	IF $1 = 1 THEN RAISE EXCEPTION 'not this one'; END IF;
	IF $1 = 2 THEN RAISE EXCEPTION USING errcode = 'query_canceled', message = 'cancelled'; END IF;
	IF $1 = 3 THEN RAISE EXCEPTION USING errcode = 'out_of_memory', message = 'no memory'; END IF;
	IF $1 = 4 THEN RAISE EXCEPTION USING errcode = 'deadlock_detected', message = 'deadlock'; END IF;
	IF $1 = 5 THEN PERFORM 1 / 0; END IF;
	RETURN true;
END$$;
CREATE DOMAIN decode_moody AS int CHECK (public.decode_cancel(VALUE));
CREATE FOREIGN TABLE moody (x decode_moody) SERVER decode_kafka OPTIONS (topic 't');
SELECT * FROM try_all('moody', '{"x":0}', '{"x":1}', '{"x":5}', '{"x":6}');
SELECT try('moody', '{"x":2}');
SELECT * FROM try_all('moody', '{"x":1}', '{"x":3}');
BEGIN;
SAVEPOINT s;
SELECT * FROM try_all('moody', '{"x":1}', '{"x":4}');
ROLLBACK TO s;
SELECT try('moody', '{"x":1}');
COMMIT;

--
-- Who may try, and on what
--
CREATE FOREIGN TABLE staged_stream (x int) SERVER stream_staged;
CREATE TABLE no_stream (x int);
SELECT try('staged_stream', '{}');
SELECT try('no_stream', '{}');
SELECT try(0::oid::regclass, '{}');
SELECT event IS NULL AND error IS NULL FROM stream_agg.try_decode(NULL, '{}');
CREATE ROLE regress_decoder;
SET ROLE regress_decoder;
SELECT stream_agg.try_decode('typed', '{}');
RESET ROLE;
GRANT SELECT ON moody TO regress_decoder;
-- Code in domains runs with the rights of the stream's owner.
CREATE FUNCTION decode_user(int) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN RETURN current_user <> 'regress_decoder'; END$$;
CREATE DOMAIN decode_owned AS int CHECK (public.decode_user(VALUE));
CREATE FOREIGN TABLE owned (x decode_owned) SERVER decode_kafka OPTIONS (topic 't');
GRANT SELECT ON owned TO regress_decoder;
SET ROLE regress_decoder;
SELECT try('moody', '{"x":0}'), try('owned', '{"x":0}');
SELECT current_user;
RESET ROLE;
DROP FOREIGN TABLE typed, paths, strict, epochs, meta, key_only, comma, semicolon, unquoted, one_field, raw_text, raw_bytes, raw_json, raw_none,
	small, wide, moody, owned, staged_stream;
DROP TABLE no_stream;
DROP SERVER decode_kafka;
DROP FUNCTION try, try_all;
DROP DOMAIN decode_positive, decode_given, decode_short, decode_late, decode_moody, decode_owned;
DROP FUNCTION decode_cancel, decode_user;
DROP TYPE decode_mood;
DROP ROLE regress_decoder;
