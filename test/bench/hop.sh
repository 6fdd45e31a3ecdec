#!/usr/bin/env bash
#
# hop.sh: what windows cost that overlap. hop('1 hour', '1 minute') beside tumble('1 minute') in append mode, over the same
# staged events, on one throw-away server; for keys with few and with many events in a minute. It judges nothing but
# the results, which must be those of the batch query.
#
#   test/bench/hop.sh [-n ROWS] [-k KEYS] [-d 'EVENTS...'] [-r REPETITIONS] [-a AGGREGATES] [-o 'name = value']...
#
#   -n    rows (default 2,000,000)
#   -k    keys (default 1,000)
#   -d    events of a key in a minute (default '1 10 100')
#   -r    repetitions, of which the medians count (default 3)
#   -a    the aggregates (default count(*), sum(v), avg(f), max(v))
#   -o    a server setting
#
set -euo pipefail
# shellcheck source=test/server.sh
. "$(dirname "${BASH_SOURCE[0]}")/../server.sh"
# shellcheck source=test/bench/lib.sh
. "$top/test/bench/lib.sh"

rows=2000000
keys=1000
densities='1 10 100'
repetitions=3
aggregates='count(*) AS n, sum(v) AS total, avg(f) AS mean, max(v) AS top'
wrong=0

tumble="tumble(at, '1 minute')"
hop="hop(at, '1 hour', '1 minute')"

# stage DENSITY: a stream of that many events of each key in a minute.
stage() {
    query -c 'SET client_min_messages = warning' -c 'DROP FOREIGN TABLE IF EXISTS s CASCADE' \
        -c "CREATE FOREIGN TABLE s (k int NOT NULL, at timestamptz NOT NULL, v int, f float8) SERVER stream_staged
            OPTIONS (event_time 'at', watermark '10 seconds')" \
        -c "INSERT INTO s SELECT (hashint4(i) & 2147483647) % $keys, timestamptz '2024-01-01 00:00Z' + i * (interval '1 minute' / ($keys * $1)), i % 1000, i % 64
            FROM generate_series(0, $rows - 1) i"
}

# measure WINDOW: events per second of a view with that window, over all that is staged.
measure() {
    local start end
    query -c 'SET client_min_messages = warning' -c 'DROP MATERIALIZED VIEW IF EXISTS v' \
        -c "CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.output_mode = 'append', stream_agg.trigger = 'manual') AS
            SELECT window_start, k, $aggregates FROM s, $1 GROUP BY 1, 2"
    start=$(query -c "$now")
    query -c "CALL stream_agg.run('v', '10 minutes')"
    end=$(query -c "$now")
    calc "$rows / ($end - $start)"
}

# check WINDOW: the view holds the batch answer, as far as windows are closed; of some keys, for the batch query is slow.
check() {
    local different
    different=$(query -c 'SET work_mem = "512MB"' -c "WITH kept AS MATERIALIZED (SELECT * FROM s),
        closed AS MATERIALIZED (SELECT window_start, k, $aggregates FROM kept s, $1, stream_agg.views c
            WHERE k % 50 = 0 AND c.view = 'v'::regclass AND window_end <= c.watermark GROUP BY 1, 2),
        mine AS MATERIALIZED (SELECT * FROM v WHERE k % 50 = 0)
        SELECT count(*) FROM ((TABLE mine EXCEPT ALL TABLE closed) UNION ALL (TABLE closed EXCEPT ALL TABLE mine)) x")
    [ "$different" = 0 ] && return
    say "A RESULT IS WRONG: $different rows differ from the batch answer"
    wrong=$((wrong + 1))
}

median() { sort -g "$1" | awk '{ v[NR] = $1 } END { print (v[int((NR + 1) / 2)] + v[int((NR + 2) / 2)]) / 2 }'; }

while getopts 'n:k:d:r:a:o:' option; do
    case $option in
    n) rows=$OPTARG ;;
    k) keys=$OPTARG ;;
    d) densities=$OPTARG ;;
    r) repetitions=$OPTARG ;;
    a) aggregates=$OPTARG ;;
    o) settings+=("$OPTARG") ;;
    *) exit 2 ;;
    esac
done
say "building, and starting a throw-away server ..."
prepare
server_start "${settings[@]}"
query -c 'CREATE EXTENSION stream_agg'
say "PostgreSQL $(query -c 'SHOW server_version'), $(nproc) cores; $rows rows, $keys keys, $aggregates; medians of $repetitions"
printf '%-28s %16s %16s %10s\n' 'events per key and minute' 'tumble events/s' 'hop events/s' 'tumble/hop'
for density in $densities; do
    rm -f tumbled hopped
    stage "$density"
    query -c "CREATE MATERIALIZED VIEW keeps_rows WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS SELECT count(*) AS n FROM s"
    for ((i = 0; i < repetitions; i++)); do
        measure "$tumble" >>tumbled
        [ "$i" -gt 0 ] || check "$tumble"
        measure "$hop" >>hopped
        [ "$i" -gt 0 ] || check "$hop"
    done
    awk -v d="$density" -v t="$(median tumbled)" -v h="$(median hopped)" 'BEGIN { printf "%-28s %16.0f %16.0f %10.2f\n", d, t, h, t / h }'
done
say
if [ "$wrong" -gt 0 ]; then
    say "$wrong RESULTS WERE WRONG"
    exit 1
fi
say "All results were right."
