-- The batch answer: what each view must hold, in plain SQL without anything of the extension, over an
-- ordinary table flights_log with the same events in the same order (ord, from 1), dealt out in turn to the
-- stream's partitions (:partitions, default 1). Leaves a row per view in verdict.
\set ON_ERROR_STOP on
SET client_min_messages = warning;
\if :{?partitions}
\else
\set partitions 1
\endif

-- The watermark before each event: the running maximum of the event times before it in its partition, minus the
-- delay.
CREATE TEMP VIEW timed AS
SELECT *, max(scheduled) OVER (PARTITION BY ord % :partitions ORDER BY ord ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
          - interval '1 hour' AS watermark
FROM flights_log;

-- The view's in the end: that of the partition that is least far.
CREATE TEMP VIEW last_watermark AS
SELECT min(latest) - interval '1 hour' AS watermark
FROM (SELECT max(scheduled) AS latest FROM flights_log GROUP BY ord % :partitions) x;

-- Each view's (event, window) pairs, its WHERE and join included. A pair is late when its window had
-- closed by then.
CREATE TEMP VIEW pairs AS
SELECT 'origin_hours' AS view, ord, w AS window_start, w + interval '1 hour' AS window_end, watermark
FROM timed, date_bin('1 hour', scheduled, '1970-01-01 00:00Z') w
UNION ALL
SELECT 'route_days', ord, w, w + interval '24 hours', watermark
FROM timed, date_bin('24 hours', scheduled, '1970-01-01 00:00Z') w
UNION ALL
SELECT 'state_hours', ord, w, w + interval '3 hours', watermark
FROM timed JOIN airports ON code = origin AND state NOT IN ('AK', 'HI'),
     generate_series(0, 2) step,
     LATERAL (SELECT date_bin('1 hour', scheduled, '1970-01-01 00:00Z') - step * interval '1 hour') s(w);

CREATE TEMP TABLE kept AS
SELECT * FROM pairs WHERE watermark IS NULL OR window_end > watermark;

-- The batch answers. In append mode only windows that the last watermark closed have appeared.
CREATE TEMP VIEW batch_origin_hours AS
SELECT origin, window_start, window_end, count(*) AS flights, round(avg(delay), 1) AS mean_delay
FROM kept JOIN flights_log USING (ord) WHERE view = 'origin_hours'
GROUP BY origin, window_start, window_end
HAVING window_end <= (SELECT watermark FROM last_watermark);

CREATE TEMP VIEW batch_route_days AS
SELECT origin, destination, window_start, window_end, count(*) AS flights, max(delay) AS worst_delay
FROM kept JOIN flights_log USING (ord) WHERE view = 'route_days'
GROUP BY origin, destination, window_start, window_end;

CREATE TEMP VIEW batch_state_hours AS
SELECT state, window_start, window_end, count(*) AS flights,
       count(*) FILTER (WHERE delay >= 15) AS delayed, sum(distance) AS miles
FROM kept JOIN flights_log USING (ord) JOIN airports ON code = origin WHERE view = 'state_hours'
GROUP BY state, window_start, window_end;

-- Rows that are in one and not in the other.
CREATE TEMP VIEW compared AS
SELECT 'origin_hours' AS view, (SELECT count(*) FROM origin_hours) AS rows,
       (SELECT count(*) FROM batch_origin_hours) AS batch_rows,
       (SELECT count(*) FROM (TABLE origin_hours EXCEPT ALL TABLE batch_origin_hours) x)
       + (SELECT count(*) FROM (TABLE batch_origin_hours EXCEPT ALL TABLE origin_hours) x) AS different
UNION ALL
SELECT 'route_days', (SELECT count(*) FROM route_days),
       (SELECT count(*) FROM batch_route_days),
       (SELECT count(*) FROM (TABLE route_days EXCEPT ALL TABLE batch_route_days) x)
       + (SELECT count(*) FROM (TABLE batch_route_days EXCEPT ALL TABLE route_days) x)
UNION ALL
SELECT 'state_hours', (SELECT count(*) FROM state_hours),
       (SELECT count(*) FROM batch_state_hours),
       (SELECT count(*) FROM (TABLE state_hours EXCEPT ALL TABLE batch_state_hours) x)
       + (SELECT count(*) FROM (TABLE batch_state_hours EXCEPT ALL TABLE state_hours) x);

-- How events should have been counted: accepted when any of its windows was still open, else late;
-- filtered when the WHERE or the join left none.
CREATE TEMP VIEW counted AS
SELECT view, (SELECT count(*) FROM flights_log) AS read,
       count(DISTINCT kept.ord) AS accepted,
       count(DISTINCT pairs.ord) - count(DISTINCT kept.ord) AS late,
       (SELECT count(*) FROM flights_log) - count(DISTINCT pairs.ord) AS filtered
FROM pairs LEFT JOIN kept USING (view, ord, window_start) GROUP BY view;

CREATE TABLE verdict AS
SELECT view, c.rows, c.batch_rows, c.different, v.read, v.accepted, v.late, v.filtered,
       (v.read, v.accepted, v.late, v.filtered) = (n.read, n.accepted, n.late, n.filtered) AS counts_agree,
       c.different = 0 AND c.rows > 0
       AND (v.read, v.accepted, v.late, v.filtered) = (n.read, n.accepted, n.late, n.filtered) AS same
FROM compared c JOIN counted n USING (view)
LEFT JOIN (SELECT view::text AS view, read, accepted, late, filtered FROM stream_agg.views) v USING (view);

\pset footer off
\pset border 0
SELECT view, rows, batch_rows, different, read, accepted, late, filtered, counts_agree,
       CASE WHEN same THEN 'equal' ELSE 'DIFFERENT' END AS verdict
FROM verdict ORDER BY view;
