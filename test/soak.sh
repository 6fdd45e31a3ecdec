#!/usr/bin/env bash
#
# soak.sh: a million events at constant groups through one view, batch by batch. After warm-up the worker's
# memory must not grow: neither what its memory contexts use (pg_log_backend_memory_contexts) nor its
# private memory as the system counts it. Prints both along the way; exits non-zero on growth.
#
#   SOAK_EVENTS=n    events (default 1000000)
#   SOAK_BATCH=n     events a batch (default 2000)
#
set -euo pipefail
# shellcheck source=test/server.sh
. "$(dirname "${BASH_SOURCE[0]}")/server.sh"

events=${SOAK_EVENTS:-1000000}
size=${SOAK_BATCH:-2000}
batches=$((events / size))
warm_up=$((batches * 2 / 5))
step=$((batches / 10))
bytes_allowed=24        # context bytes a batch: less than any chunk
private_allowed=1024    # kB in all

query() { psql -XqAt -v ON_ERROR_STOP=1 "$@"; }

create() {
    query <<'SQL'
CREATE EXTENSION stream_agg;
CREATE FOREIGN TABLE s (k int NOT NULL, ts timestamptz NOT NULL, v int, t text) SERVER stream_staged OPTIONS (event_time 'ts', watermark '1 minute');
CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.trigger = 'manual') AS
    SELECT k, count(*) AS n, sum(v) AS s, avg(v) AS a, max(t) AS t FROM s GROUP BY k;
SQL
}

# run_batches COUNT
run_batches() {
    local i
    for ((i = 0; i < $1; i++)); do
        say "INSERT INTO s SELECT g % 1000, '2024-01-01Z'::timestamptz + g * interval '1 ms', g % 97, 'text ' || g % 5000 FROM generate_series(1, $size) g;"
        say "CALL stream_agg.run('s');"
    done >batches.sql
    run query -f batches.sql
}

# Sets used (bytes; without what the source knows of staged rows, which goes when their segment does) and
# private (kB).
measure() {
    local log=$scratch/sock/server.log skip deadline=$((SECONDS + 60))
    skip=$(wc -c <"$log")
    query -c "SELECT pg_log_backend_memory_contexts($worker)" >/dev/null
    until tail -c "+$((skip + 1))" "$log" | grep -qF 'Grand total:'; do
        [ "$SECONDS" -lt "$deadline" ] || die "the worker does not log its memory"
        sleep 0.1
    done
    used=$(tail -c "+$((skip + 1))" "$log" | grep -F "[$worker]" | grep -vF 'stream_agg staged order' |
        sed -nE 's/.*level: .*; ([0-9]+) used.*/\1/p' | awk '{ sum += $1 } END { print sum }')
    private=$(sed -nE 's/^RssAnon:[[:space:]]+([0-9]+) kB/\1/p' "/proc/$worker/status")
}

report() { printf '%10d %14d %14d\n' "$done_batches" "$used" "$private"; }

prepare
server_start "stream_agg.segment_size = '1MB'"
create
run_batches "$warm_up"
worker=$(query -c "SELECT pid FROM pg_stat_activity WHERE backend_type = 'stream_agg worker'")
[ -n "$worker" ] || die "there is no worker"
done_batches=$warm_up
printf '%10s %14s %14s\n' batches 'context bytes' 'private kB'
measure
report
first_used=$used
first_private=$private
while [ "$done_batches" -lt "$batches" ]; do
    run_batches "$step"
    done_batches=$((done_batches + step))
    measure
    report
done

total=$(query -c 'SELECT sum(n) FROM v')
[ "$total" = $((done_batches * size)) ] || die "the view has counted $total events, not $((done_batches * size))"
[ "$(query -c "SELECT count(*) FROM pg_stat_activity WHERE pid = $worker")" = 1 ] || die "the worker has ended"
growth=$(((used - first_used) / (done_batches - warm_up)))
say "$total events in $done_batches batches: contexts grew by $growth bytes a batch, private memory by $((private - first_private)) kB"
if [ "$growth" -ge "$bytes_allowed" ] || [ $((private - first_private)) -ge "$private_allowed" ]; then
    die "memory grows"
fi
say "memory does not grow"
