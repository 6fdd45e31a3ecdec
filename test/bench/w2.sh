# shellcheck shell=bash disable=SC2034
#
# w2.sh: synthetic events of 100,000 customers, 5-minute windows, 400,000 events a window. Many groups are
# open, and each transaction changes nearly as many of them as it has events.
# Amounts are float8, all of them multiples of 1/4, so that their sums do not depend on the order.

title='100,000 customers; per customer and 5 minutes: count(*), sum(amount), amount float8'
columns='event_id bigint NOT NULL, customer_id int NOT NULL, at timestamptz NOT NULL, kind text, amount float8'
event_time=at
watermark='1 minute'
default_rows=2000000

view="SELECT customer_id, window_start, window_end, count(*) AS n, sum(amount) AS total
    FROM events, tumble(at, '5 minutes')
    GROUP BY 1, 2, 3"

totals='customer_id int, window_start timestamptz, n bigint NOT NULL, total float8,
    PRIMARY KEY (window_start, customer_id)'
upsert="INSERT INTO totals
    SELECT customer_id, date_bin('5 minutes', at, '1970-01-01 00:00Z'), count(*), sum(amount)
    FROM arrived GROUP BY 1, 2
    ON CONFLICT (window_start, customer_id) DO UPDATE SET n = totals.n + excluded.n,
        total = totals.total + excluded.total"

view_answer='SELECT customer_id, window_start, n, total FROM totals'
totals_answer=$view_answer
batch_answer="SELECT customer_id, date_bin('5 minutes', at, '1970-01-01 00:00Z'), count(*), sum(amount)
    FROM events GROUP BY 1, 2"

generate() {
    query -c "CREATE VIEW generated AS
        SELECT i AS event_id, 1 + floor(100000 * random())::int AS customer_id,
               timestamptz '2024-01-01' + i * interval '750 microseconds' - random() * interval '10 seconds' AS at,
               (ARRAY['page_view', 'purchase', 'refund', 'search'])[1 + i % 4] AS kind,
               floor(random() * 40000) / 4 AS amount
        FROM generate_series(0, $1 - 1) i"
}
