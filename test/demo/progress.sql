-- One line for the progress bar: rows read by the slowest view, accepted and late of each view,
-- watermark, lag.
SELECT min(read), string_agg(accepted::text, '/' ORDER BY view::text),
       string_agg(late::text, '/' ORDER BY view::text),
       coalesce(to_char(min(watermark), 'YYYY-MM-DD HH24:MI'), '-'),
       (SELECT coalesce(max(lag), 0) FROM stream_agg.partitions)
FROM stream_agg.views;
