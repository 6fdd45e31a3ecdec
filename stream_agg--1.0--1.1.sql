/* stream_agg--1.0--1.1.sql */
\echo Use "ALTER EXTENSION stream_agg UPDATE TO '1.1'" to load this file. \quit

--
-- Statements
--

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
