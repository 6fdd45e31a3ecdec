-- The demo's stream and views. The table airports is there already.
CREATE EXTENSION stream_agg;

-- Flights become known at their departure, so scheduled times arrive out of order; the watermark waits an
-- hour for them.
\if :{?bootstrap}

-- A Kafka topic of JSON objects whose fields are named like the columns.
CREATE SERVER kafka FOREIGN DATA WRAPPER stream_agg OPTIONS (type 'kafka', bootstrap_servers :'bootstrap');

CREATE STREAM flights (
    flight_id   int NOT NULL,
    origin      text NOT NULL,
    destination text NOT NULL,
    scheduled   timestamptz NOT NULL,
    departed    timestamptz,
    delay       int,
    distance    int
) WITH (server = 'kafka', topic = 'flights', event_time = 'scheduled', watermark = '1 hour');

\else

-- A staged stream: rows come through INSERT or COPY.
CREATE STREAM flights (
    flight_id   int NOT NULL,
    origin      text NOT NULL,
    destination text NOT NULL,
    scheduled   timestamptz NOT NULL,
    departed    timestamptz,
    delay       int,
    distance    int
) WITH (event_time = 'scheduled', watermark = '1 hour');

\endif

-- Flights and mean delay per origin and hour: a row appears once, when its hour closes.
CREATE CONTINUOUS VIEW origin_hours
WITH (output_mode = 'append', trigger = 'immediate') AS
SELECT origin, window_start, window_end, count(*) AS flights, round(avg(delay), 1) AS mean_delay
FROM flights, tumble(scheduled, '1 hour')
GROUP BY origin, window_start, window_end;

-- The busiest routes of the running day: always the current values.
CREATE CONTINUOUS VIEW route_days
WITH (output_mode = 'update', trigger = 'immediate') AS
SELECT origin, destination, window_start, window_end, count(*) AS flights, max(delay) AS worst_delay
FROM flights, tumble(scheduled, '1 day')
GROUP BY origin, destination, window_start, window_end;

-- Three hours in steps of one, by state, joined with an ordinary table; the mainland only.
CREATE CONTINUOUS VIEW state_hours
WITH (output_mode = 'update', trigger = '1 second') AS
SELECT a.state, window_start, window_end, count(*) AS flights,
       count(*) FILTER (WHERE delay >= 15) AS delayed, sum(distance) AS miles
FROM flights JOIN airports a ON a.code = flights.origin, hop(scheduled, '3 hours', '1 hour')
WHERE a.state NOT IN ('AK', 'HI')
GROUP BY a.state, window_start, window_end;
