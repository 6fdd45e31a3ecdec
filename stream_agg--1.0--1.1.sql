/* stream_agg--1.0--1.1.sql */
\echo Use "ALTER EXTENSION stream_agg UPDATE TO '1.1'" to load this file. \quit

--
-- Statements
--

CREATE FUNCTION stream_agg.execute(statements text) RETURNS void
	LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sa_execute';
COMMENT ON FUNCTION stream_agg.execute(text) IS 'run statements such as CREATE STREAM where the server does not know them';

CREATE FUNCTION stream_agg.stream_sql_handler() RETURNS language_handler
	LANGUAGE C AS 'MODULE_PATHNAME', 'sa_stream_sql_handler';
COMMENT ON FUNCTION stream_agg.stream_sql_handler() IS 'of language stream_sql: there are no functions in it';

CREATE FUNCTION stream_agg.stream_sql_inline(internal) RETURNS void
	LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sa_stream_sql_inline';
COMMENT ON FUNCTION stream_agg.stream_sql_inline(internal) IS 'of language stream_sql: DO';

CREATE FUNCTION stream_agg.stream_sql_validator(oid) RETURNS void
	LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sa_stream_sql_validator';
COMMENT ON FUNCTION stream_agg.stream_sql_validator(oid) IS 'of language stream_sql: refuses functions';

CREATE TRUSTED LANGUAGE stream_sql HANDLER stream_agg.stream_sql_handler
	INLINE stream_agg.stream_sql_inline VALIDATOR stream_agg.stream_sql_validator;
COMMENT ON LANGUAGE stream_sql IS 'statements such as CREATE STREAM, by DO LANGUAGE stream_sql';

--
-- Changing continuous views
--

-- Where the view began, for reset(); NULL: not known.
ALTER TABLE stream_agg.view_position ADD COLUMN start_position bigint;

-- The columns of a definition are found in the result table by their names, so they follow RENAME COLUMN.
DO $$
DECLARE
	renamed record;
BEGIN
	FOR renamed IN
		SELECT c.relname, d.attnum, d.attname AS old, r.attname AS new
		FROM stream_agg.view_config v
			JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) v.definition::pg_catalog.oid
			JOIN pg_catalog.pg_attribute d ON d.attrelid OPERATOR(pg_catalog.=) c.oid AND d.attnum OPERATOR(pg_catalog.>) 0
			JOIN pg_catalog.pg_attribute r ON r.attrelid OPERATOR(pg_catalog.=) v.view::pg_catalog.oid
				AND r.attnum OPERATOR(pg_catalog.=) d.attnum
		WHERE d.attname OPERATOR(pg_catalog.<>) r.attname
		ORDER BY c.oid, d.attnum
	LOOP
		-- another column may still have the new name
		EXECUTE pg_catalog.format('ALTER VIEW stream_agg.%I RENAME COLUMN %I TO %I', renamed.relname, renamed.old,
			'stream_agg_column_' OPERATOR(pg_catalog.||) renamed.attnum::text);
	END LOOP;
	FOR renamed IN
		SELECT c.relname, d.attname AS old, r.attname AS new
		FROM stream_agg.view_config v
			JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) v.definition::pg_catalog.oid
			JOIN pg_catalog.pg_attribute d ON d.attrelid OPERATOR(pg_catalog.=) c.oid AND d.attnum OPERATOR(pg_catalog.>) 0
			JOIN pg_catalog.pg_attribute r ON r.attrelid OPERATOR(pg_catalog.=) v.view::pg_catalog.oid
				AND r.attnum OPERATOR(pg_catalog.=) d.attnum
		WHERE d.attname OPERATOR(pg_catalog.<>) r.attname
		ORDER BY c.oid, d.attnum
	LOOP
		EXECUTE pg_catalog.format('ALTER VIEW stream_agg.%I RENAME COLUMN %I TO %I', renamed.relname, renamed.old, renamed.new);
	END LOOP;
END
$$;

CREATE FUNCTION stream_agg.reset(view regclass) RETURNS void
	LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sa_reset';
COMMENT ON FUNCTION stream_agg.reset(regclass) IS 'empty a continuous view and have it read from its start again';

CREATE FUNCTION stream_agg.seek(view regclass, "position" text) RETURNS void
	LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sa_seek';
COMMENT ON FUNCTION stream_agg.seek(regclass, text) IS 'have a paused continuous view go on elsewhere, whatever that does to its results';

CREATE FUNCTION stream_agg.swap(a regclass, b regclass) RETURNS void
	LANGUAGE C STRICT AS 'MODULE_PATHNAME', 'sa_swap';
COMMENT ON FUNCTION stream_agg.swap(regclass, regclass) IS 'exchange the names of two continuous views';

--
-- Roles
--

--
-- Dump, restore, upgrade
--
