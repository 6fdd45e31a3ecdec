-- How long one row takes from its commit to being visible in an update-mode view, in an otherwise idle
-- server. Looks every millisecond; the rows come at odd times. Prints the median and the 99th percentile.
CREATE TABLE latency (ms float8);

CREATE PROCEDURE measure_latency(rows int) LANGUAGE plpgsql AS $$
DECLARE
    committed timestamptz;
    seen bigint;
BEGIN
    FOR i IN 1..rows LOOP
        PERFORM pg_sleep(0.02 + 0.03 * random());
        INSERT INTO events VALUES (i, 1, '2024-01-01', 'purchase', 1);
        COMMIT;
        committed := clock_timestamp();
        LOOP
            SELECT sum(n) INTO seen FROM totals;
            EXIT WHEN seen >= i;
            IF clock_timestamp() > committed + interval '60 seconds' THEN
                RAISE 'row % is not visible after a minute', i;
            END IF;
            PERFORM pg_sleep(0.001);
            COMMIT;
        END LOOP;
        INSERT INTO latency VALUES (extract(epoch FROM clock_timestamp() - committed) * 1000);
        COMMIT;
    END LOOP;
END
$$;

CALL measure_latency(:rows);

SELECT format('median %s ms, 99th percentile %s ms, greatest %s ms',
              round(percentile_cont(0.5) WITHIN GROUP (ORDER BY ms)::numeric, 2),
              round(percentile_cont(0.99) WITHIN GROUP (ORDER BY ms)::numeric, 2),
              round(max(ms)::numeric, 2))
FROM latency;

DROP PROCEDURE measure_latency;
DROP TABLE latency;
