-- What the demo shows while it runs.
\pset footer off
\pset null '-'
\pset border 0

\echo 'stream_agg.views'
SELECT view, output_mode AS mode, status, read, accepted, filtered, late, late_windows, windows, groups,
       to_char(watermark, 'YYYY-MM-DD HH24:MI') AS watermark
FROM stream_agg.views ORDER BY view::text;

\echo 'stream_agg.progress, the last batch of each view'
SELECT DISTINCT ON (view::text)
       view, to_char(finished_at, 'HH24:MI:SS.MS') AS finished, read, accepted, late, lag,
       round(extract(epoch FROM duration) * 1000, 1) AS ms
FROM stream_agg.progress ORDER BY view::text, finished_at DESC;

\echo 'origin_hours (append): the busiest of the last hour that closed'
SELECT origin, city, to_char(window_start, 'Mon DD HH24:MI') AS hour, flights, mean_delay
FROM origin_hours JOIN airports ON code = origin
WHERE window_start = (SELECT max(window_start) FROM origin_hours)
ORDER BY flights DESC, origin LIMIT 4;

\echo 'route_days (update): the busiest routes of the running day'
SELECT origin, destination, to_char(window_start, 'Mon DD') AS day, flights, worst_delay
FROM route_days
WHERE window_start = (SELECT max(window_start) FROM route_days)
ORDER BY flights DESC, origin, destination LIMIT 4;

\echo 'state_hours (update, three hours in steps of one): the busiest window of the running day'
SELECT state, to_char(window_start, 'Mon DD HH24:MI') AS starts, to_char(window_end, 'HH24:MI') AS ends,
       flights, delayed, miles
FROM state_hours
WHERE window_start >= (SELECT max(window_start) - interval '1 day' FROM state_hours)
ORDER BY flights DESC, window_start, state LIMIT 4;
