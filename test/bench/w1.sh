# shellcheck shell=bash disable=SC2034
#
# w1.sh: real flights, per origin and hour. Few groups are open, and most change in every transaction.
# All 20,000 of test/data are put on one day, and that day is repeated: as dense as the traffic that they
# are a sample of. SA_FLIGHTS names a CSV file with more of the same columns (.xz, .gz or plain) instead.

title='flights; per origin and hour: count(*), avg(delay), max(delay)'
columns='flight_id int NOT NULL, origin text NOT NULL, destination text NOT NULL,
    scheduled timestamptz NOT NULL, departed timestamptz, delay int, distance int'
event_time=scheduled
watermark='10 hours'
default_rows=3000000

view="SELECT origin, window_start, window_end, count(*) AS n, avg(delay) AS mean, max(delay) AS worst
    FROM events, tumble(scheduled, '1 hour')
    GROUP BY 1, 2, 3"

totals='origin text, window_start timestamptz, n bigint NOT NULL, delays bigint NOT NULL, delay_sum bigint,
    worst int, PRIMARY KEY (window_start, origin)'
upsert="INSERT INTO totals
    SELECT origin, date_bin('1 hour', scheduled, '1970-01-01 00:00Z'), count(*), count(delay), sum(delay), max(delay)
    FROM arrived GROUP BY 1, 2
    ON CONFLICT (window_start, origin) DO UPDATE SET n = totals.n + excluded.n,
        delays = totals.delays + excluded.delays,
        delay_sum = coalesce(totals.delay_sum + excluded.delay_sum, totals.delay_sum, excluded.delay_sum),
        worst = greatest(totals.worst, excluded.worst)"

# What the view and the table of totals must agree in, with the answer from all rows at once.
view_answer='SELECT origin, window_start, n, mean, worst FROM totals'
totals_answer='SELECT origin, window_start, n, delay_sum / nullif(delays, 0)::numeric, worst FROM totals'
batch_answer="SELECT origin, date_bin('1 hour', scheduled, '1970-01-01 00:00Z'), count(*), avg(delay), max(delay)
    FROM events GROUP BY 1, 2"

# generate ROWS: a table of the events in the order they arrive.
generate() {
    local rows=$1 unpack=cat
    query -c "CREATE UNLOGGED TABLE base ($columns)"
    if [ -n "${SA_FLIGHTS:-}" ]; then
        case $SA_FLIGHTS in
        *.xz) unpack=xzcat ;;
        *.gz) unpack=zcat ;;
        esac
        "$unpack" "$SA_FLIGHTS" | head -n $((rows + 1)) | query -c 'COPY base FROM STDIN (FORMAT csv, HEADER)'
        query -c 'CREATE VIEW generated AS SELECT * FROM base'
        return
    fi
    gzip -dc "$top/test/data/flights-20k.jsonl.gz" |
        perl "$top/test/demo/to_copy.pl" flight_id origin destination scheduled departed delay distance |
        query -c 'COPY base FROM STDIN'
    query -c "CREATE VIEW generated AS
        SELECT day * 20000 + flight_id AS id, origin, destination, at AS scheduled, at + delay * interval '1 minute' AS departed, delay, distance
        FROM generate_series(0, ($rows - 1) / 20000) day, base,
             LATERAL (SELECT timestamptz '2001-01-01' + day * interval '1 day'
                             + (scheduled - date_trunc('day', scheduled))) s(at)
        ORDER BY departed, id LIMIT $rows"
}
