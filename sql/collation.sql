--
-- Grouping under collations, also ones that call different strings equal.
--
SELECT NOT EXISTS (SELECT FROM pg_collation WHERE collprovider = 'i') OR getdatabaseencoding() <> 'UTF8' AS no_icu \gset
\if :no_icu
\quit
\endif
SET timezone = 'UTC';
SET datestyle = 'ISO';
CREATE COLLATION ignore_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE COLLATION ignore_accents (provider = icu, locale = 'und-u-ks-level1-kc-true', deterministic = false);
CREATE FOREIGN TABLE words (w text COLLATE ignore_case, x text, n numeric) SERVER stream_staged;
CREATE MATERIALIZED VIEW by_word WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT w, count(*) AS n, sum(n) AS total, avg(n) AS mean FROM words GROUP BY w;
CREATE MATERIALIZED VIEW by_accent WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT x COLLATE ignore_accents AS x, count(*) AS n, min(w) AS least, max(x COLLATE "de-x-icu") AS most FROM words GROUP BY 1;
CREATE MATERIALIZED VIEW by_x WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
	SELECT x COLLATE "C" AS x, count(*) AS n FROM words GROUP BY 1;
INSERT INTO words VALUES ('Hello', 'cote', 1), ('HELLO', 'coté', 2), ('world', 'Cote', 4), ('hello', 'côte', 8);
CALL stream_agg.run('words');
SELECT * FROM by_word ORDER BY w;
INSERT INTO words VALUES ('hELLo', 'cote', 16), ('World', 'zebra', 32), ('Ärger', 'Zebra', 64), (NULL, NULL, 128), ('ärger', '', 256);
CALL stream_agg.run('words');
-- The first spelling stays.
SELECT * FROM by_word ORDER BY w;
SELECT * FROM by_accent ORDER BY x;
SELECT * FROM by_x ORDER BY x;
\d by_word
-- So too when the worker has read its state again.
VACUUM FULL by_word;
INSERT INTO words VALUES ('HELLO', 'x', 1), ('wORLD', 'x', NULL), ('new', 'x', 0);
CALL stream_agg.run('words');
SELECT * FROM by_word ORDER BY w;
SELECT status, failed, accepted FROM stream_agg.views WHERE view = 'by_word'::regclass;
DROP FOREIGN TABLE words CASCADE;
DROP COLLATION ignore_case;
DROP COLLATION ignore_accents;
