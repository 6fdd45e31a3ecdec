-- Per view: how much it has read, and how many of its rows differ from the answer over just that; of append
-- mode over the windows that have closed.
SET ROLE keeper;
SET search_path = shop, public;
SET timezone = 'America/New_York';
SET max_parallel_workers_per_gather = 0;    -- floats are added up in their order
CREATE FUNCTION pg_temp.check_view(a answers, OUT status text, OUT "read" bigint, OUT differing bigint) LANGUAGE plpgsql AS $$
DECLARE
	watermark timestamptz;
BEGIN
	SELECT v.status, v.read, v.watermark INTO status, "read", watermark FROM stream_agg.views v WHERE v.view = a.view::regclass;
	EXECUTE format('CREATE OR REPLACE TEMP VIEW events AS SELECT * FROM log WHERE ord < %s', "read");
	EXECUTE format(
		'WITH have AS (SELECT t::text FROM %I t), want AS (SELECT t::text FROM (%s) t WHERE %s)
		SELECT count(*) FROM ((TABLE have EXCEPT ALL TABLE want) UNION ALL (TABLE want EXCEPT ALL TABLE have)) d',
		a.view, a.query, CASE WHEN a.options LIKE '%append%' THEN format('window_end <= %L', watermark) ELSE 'true' END) INTO differing;
END $$;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT a.view, c.* FROM answers a, LATERAL pg_temp.check_view(a) c ORDER BY a.view;
COMMIT;
