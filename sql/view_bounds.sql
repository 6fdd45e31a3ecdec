--
-- When views read, where they begin, and where they end.
--
SET timezone = 'UTC';
CREATE FOREIGN TABLE s (k int NOT NULL, at timestamptz) SERVER stream_staged OPTIONS (event_time 'at');
INSERT INTO s VALUES (1, '2024-01-01'), (2, '2024-01-02');

-- A manual view reads when run() asks for it, and not before, however much there is.
CREATE MATERIALIZED VIEW asked WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT count(*) AS n FROM s;
CREATE MATERIALIZED VIEW eager WITH (stream_agg.continuous) AS SELECT count(*) AS n FROM s;
CALL stream_agg.run('eager');
SELECT view, read FROM stream_agg.views ORDER BY view::text;
SELECT * FROM asked;
CALL stream_agg.run('s');
SELECT view, read FROM stream_agg.views ORDER BY view::text;
DROP MATERIALIZED VIEW eager;

-- Up to what is there when the worker first sees it, and no further.
CREATE MATERIALIZED VIEW bounded WITH (stream_agg.continuous, stream_agg."end" = 'latest') AS SELECT count(*) AS n, sum(k) AS total FROM s;
CREATE MATERIALIZED VIEW later WITH (stream_agg.continuous, stream_agg.trigger = 'manual', stream_agg.start = 'latest') AS SELECT count(*) AS n, sum(k) AS total FROM s;
CALL stream_agg.run('s');
INSERT INTO s VALUES (10, '2024-01-03'), (20, '2024-01-04');
CALL stream_agg.run('s');
SELECT view, status, read FROM stream_agg.views ORDER BY view::text;
SELECT view, position, stops_at, lag FROM stream_agg.partitions ORDER BY view::text;
SELECT * FROM bounded;
SELECT * FROM later;
-- Resumed, it is at its end again.
SELECT stream_agg.resume('bounded');
CALL stream_agg.run('s');
SELECT status, read FROM stream_agg.views WHERE view = 'bounded'::regclass;
-- Nothing to begin with is an end as well.
CREATE MATERIALIZED VIEW nothing WITH (stream_agg.continuous, stream_agg.start = 'latest', stream_agg."end" = 'latest') AS SELECT count(*) AS n FROM s;
CALL stream_agg.run('s');
SELECT status, read FROM stream_agg.views WHERE view = 'nothing'::regclass;
SELECT * FROM nothing;

-- Staged rows have no times and offsets to begin or end at.
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.start = '2024-01-02') AS SELECT count(*) AS n FROM s;
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg."end" = '{"t": {"0": 1}}') AS SELECT count(*) AS n FROM s;
DROP FOREIGN TABLE s CASCADE;
