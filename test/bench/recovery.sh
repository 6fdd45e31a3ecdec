#!/usr/bin/env bash
#
# recovery.sh: what it takes to have the state of a view back, and to keep it. On one throw-away server; it judges
# nothing but the results, which must be those of the batch query.
#
#   test/bench/recovery.sh [-w 'restart rebuild batch close'] [-g GROUPS] [-r REPETITIONS] [-o 'name = value']...
#
#   -w    restart: from the server being ready until the first batch is committed, with that many groups open, after an
#         orderly stop and after kill -9 of the postmaster
#         rebuild: unlogged state, read again after kill -9, against reading the same records the first time
#         batch: what a batch costs that touches 100,000 groups, heap and unlogged state, update and append mode
#         close: what it costs to close windows of 1,000, 10,000 and 100,000 groups while many more are open
#   -g    groups that are open (default 1,000,000)
#   -r    repetitions, of which the medians count (default 5)
#   -o    a server setting
#   SA_PERF=DIR    keeps a profile of the server during each start, where perf works
#
# fsync is off, and the system keeps its cache when the postmaster is killed: it measures the work, not the disk.
#
set -euo pipefail
# shellcheck source=test/server.sh
. "$(dirname "${BASH_SOURCE[0]}")/../server.sh"
# shellcheck source=test/bench/lib.sh
. "$top/test/bench/lib.sh"

parts='restart rebuild batch close'
groups=1000000
repetitions=5
settings+=("stream_agg.state_memory = '4GB'")
keys=100000
batches=20
wrong=0

# What is aggregated decides where the state is: in the result (update mode), or in the view's log.
in_result='count(*) AS n, sum(v) AS total, max(v) AS top'
in_log='count(*) AS n, avg(v) AS mean, stddev(v) AS deviation'

# ---- the view and its events

# make_view OUTPUT_MODE STATE AGGREGATES: of a new stream, read only by run(). False where that state is not there yet.
make_view() {
    local state="stream_agg.state = '$2',"
    [ "$2" != heap ] || state=
    query -c 'SET client_min_messages = warning' -c 'DROP FOREIGN TABLE IF EXISTS s CASCADE' \
        -c "CREATE FOREIGN TABLE s (k int NOT NULL, at timestamptz NOT NULL, v int) SERVER stream_staged
            OPTIONS (event_time 'at', watermark '1 hour')"
    query -c "CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, $state stream_agg.output_mode = '$1', stream_agg.trigger = 'manual',
              stream_agg.max_batch_rows = $keys) AS
              SELECT window_start, k, $3 FROM s, tumble(at, '5 minutes') GROUP BY window_start, k" >created 2>&1 && return
    grep -q 'not supported yet' created || die "$(cat created)"
    return 1
}

# events COUNT ROUND: a query for that many, of all keys in turn; a round of keys takes ROUND of event time.
events() {
    say "SELECT i % $keys AS k, timestamptz '2024-01-01 00:00Z' + i / $keys * interval '$2' AS at, i % 1000 AS v
         FROM generate_series(0, $1 - 1) i"
}
stage() { query -c "INSERT INTO s $(events "$@")"; }
run_stream() { query -c "CALL stream_agg.run('s', '10 minutes')"; }

# One more event of the first key, in the window of that start.
one_more() { query -c "INSERT INTO s VALUES (0, timestamptz '2024-01-01 00:00Z' + interval '$1', 0)"; }

# check AGGREGATES COUNT ROUND [QUERY]: the view, and the answer from the events and those of a query beside, less what is still open in
# append mode.
check() {
    local different
    different=$(query -c 'SET work_mem = "512MB"' -c "WITH answer AS MATERIALIZED (
            SELECT date_bin('5 minutes', at, '2024-01-01 00:00Z') AS window_start, k, $1
            FROM ($(events "$2" "$3") ${4:+UNION ALL $4}) s GROUP BY 1, 2)
        SELECT (SELECT count(*) FROM (TABLE v EXCEPT TABLE answer) x) +
            CASE output_mode WHEN 'append' THEN 0 ELSE (SELECT count(*) FROM (TABLE answer EXCEPT TABLE v) x) END
        FROM stream_agg.views WHERE view = 'v'::regclass")
    [ "$different" = 0 ] && return
    say "A RESULT IS WRONG: $different rows differ from the batch answer"
    wrong=$((wrong + 1))
}

# ---- reports

# median FILE LABEL COLUMN [DIVISOR]: of the lines that begin with the label; with another column as divisor, of their ratios.
median() {
    awk -v label="$2" -v column="$3" -v divisor="${4:-0}" '$1 == label { print divisor ? $column / $divisor : $column }' "$1" |
        sort -g | awk '{ v[NR] = $1 } END { if (NR) print (v[int((NR + 1) / 2)] + v[int((NR + 2) / 2)]) / 2; else print "-" }'
}

# note FILE WORD...: a line of measurements.
note() { local file=$1; shift; say "$*" | tee -a "$file" >&3; }

# ---- restart

start_profile() {
    profile=
    [ -n "${SA_PERF:-}" ] || return 0
    mkdir -p "$SA_PERF"
    perf record -q -F 499 -g -a -o "$SA_PERF/$1.perf" sleep 3600 >/dev/null 2>&1 &
    profile=$!
}
stop_profile() {
    [ -n "$profile" ] || return 0
    kill -INT "$profile"
    wait "$profile" 2>/dev/null || true
}

# measure_start NAME AT: starts the server, stages one event at that time, and sets `ready` and `first` to the seconds from
# the server being ready, and from the worker's start, until the batch with it is committed; `cpu` to what the worker took.
measure_start() {
    start_profile "$1"
    server_start
    one_more "$2"
    run_stream
    stop_profile
    cpu=$(process_cpu "$(query -c "SELECT pid FROM pg_stat_activity WHERE backend_type = 'stream_agg worker'")")
    ready_at=$(as_user sed -nE 's/^([^[]*) \[.*database system is ready to accept connections$/\1/p' "$scratch/sock/server.log" | tail -n 1)
    read -r ready first < <(query -F ' ' -c "SELECT extract(epoch FROM min(p.finished_at) - '$ready_at'), extract(epoch FROM min(p.finished_at) - min(a.backend_start))
        FROM stream_agg.progress p, pg_stat_activity a WHERE a.backend_type = 'stream_agg worker'")
}

restart_kind() {
    local label=$1 mode=$2 aggregates=$3 at=$4 repetition stop read_seconds begin extra='' size
    make_view "$mode" heap "$aggregates"
    stage "$groups" '5 minutes'
    begin=$(query -c "$now")
    run_stream
    read_seconds=$(calc "$(query -c "$now") - $begin")
    size=$(query -F ' ' -c "SELECT groups, windows, state_bytes / 1048576, pg_total_relation_size('v') / 1048576, coalesce(state_log_bytes, 0) / 1048576 FROM stream_agg.views")
    for ((repetition = 1; repetition <= repetitions; repetition++)); do
        for stop in orderly killed; do
            query -c CHECKPOINT
            if [ "$stop" = orderly ]; then server_stop; else kill_server; fi
            measure_start "$label.$stop.$repetition" "$at"
            note restart.runs "$label.$stop" "$ready" "$first" "$read_seconds" "$cpu"
            extra="$extra UNION ALL SELECT 0, timestamptz '2024-01-01 00:00Z' + interval '$at', 0"
        done
    done
    check "$aggregates" "$groups" '5 minutes' "${extra# UNION ALL }"
    read -r _ _ memory table log <<<"$size"
    for stop in orderly killed; do
        printf '    %-28s %-8s %7.2f %7.2f %7.2f %8.2f   memory %d MB, result %d MB, log %d MB\n' "$5" "$stop" \
            "$(median restart.runs "$label.$stop" 2)" "$(median restart.runs "$label.$stop" 3)" "$(median restart.runs "$label.$stop" 5)" \
            "$(median restart.runs "$label.$stop" 2 4)" "$memory" "$table" "$log"
    done
}

restart() {
    # the watermark is an hour behind the last round: as many groups stay open as there are
    local rounds=$(((groups + keys - 1) / keys)) last
    last="$(((rounds - 1) * 5)) minutes"
    [ "$rounds" -le 12 ] || die "at most $((12 * keys)) groups are open at a time"
    say
    say "restart: $groups groups open in $rounds windows; seconds until the first batch is committed"
    printf '    %-37s %7s %7s %7s %8s\n' '' 'ready' 'worker' 'CPU' 'reading'
    restart_kind result update "$in_result" "$last" 'update, states in the result'
    restart_kind log update "$in_log" "$last" 'update, states in the log'
    restart_kind append append "$in_log" "$last" 'append'
    say "    ready: since the server was ready; worker: since it began; CPU: of the worker; reading: of what reading the events took"
    say "    target: under 2 s"
}

# ---- rebuild

# rebuild_kind OUTPUT_MODE
rebuild_kind() {
    local begin reading count=$((batches * keys))
    make_view "$1" unlogged "$in_log" || return 0
    stage "$count" '1 second'
    begin=$(query -c "$now")
    run_stream
    reading=$(calc "$(query -c "$now") - $begin")
    query -c CHECKPOINT
    kill_server
    measure_start "rebuild.$1" '0 minutes'
    check "$in_log" "$count" '1 second' "SELECT 0, timestamptz '2024-01-01 00:00Z', 0"
    note rebuild.runs "$1" "$reading" "$first"
}

rebuild() {
    local repetition mode count=$((batches * keys))
    say
    say "rebuild: unlogged state of $keys groups after kill -9, read again from $count records; count, avg, stddev"
    for ((repetition = 1; repetition <= repetitions; repetition++)); do
        for mode in update append; do
            rebuild_kind "$mode"
        done
    done
    [ -s rebuild.runs ] || { say "    state = 'unlogged' is not there yet"; return; }
    for mode in update append; do
        printf '    %-8s reading %5.0f k events/s, rebuilding %5.0f k events/s, of reading %5.2f   target >= 0.80\n' "$mode" \
            "$(calc "$count / $(median rebuild.runs "$mode" 2) / 1000")" "$(calc "$count / $(median rebuild.runs "$mode" 3) / 1000")" \
            "$(median rebuild.runs "$mode" 2 3)"
    done
}

# ---- the cost of a batch

# batch_kind OUTPUT_MODE STATE
batch_kind() {
    local begin seconds wal duration count=$((batches * keys))
    make_view "$1" "$2" "$in_log" || return 0
    stage "$count" '1 second'
    query -c CHECKPOINT
    wal=$(wal_position)
    begin=$(query -c "$now")
    run_stream
    seconds=$(calc "$(query -c "$now") - $begin")
    wal=$(($(wal_position) - wal))
    duration=$(query -c "SELECT extract(epoch FROM percentile_cont(0.5) WITHIN GROUP (ORDER BY duration)) * 1000 FROM stream_agg.progress
                         WHERE \"read\" = $keys")
    check "$in_log" "$count" '1 second'
    note batch.runs "$1.$2" "$(calc "$count / $seconds")" "$duration" "$(calc "$wal / $batches")"
}

# batch_ratio MODE: events per second, unlogged of heap, as the median over the repetitions.
batch_ratio() {
    paste <(grep "^$1.unlogged" batch.runs) <(grep "^$1.heap" batch.runs) | awk '{ print "ratio", $2 / $6 }' >ratios
    median ratios ratio 2
}

batch() {
    local repetition mode state
    say
    say "batch: $keys groups touched in each of $batches batches of $keys events, the first of which creates them; count, avg, stddev"
    for ((repetition = 1; repetition <= repetitions; repetition++)); do
        for mode in update append; do
            for state in heap unlogged; do batch_kind "$mode" "$state"; done
        done
    done
    for mode in update append; do
        for state in heap unlogged; do
            if grep -q "^$mode.$state " batch.runs; then
                printf '    %-8s %-9s %8.0f k events/s %8.0f ms a batch %8.1f MB of WAL a batch\n' "$mode" "$state" \
                    "$(calc "$(median batch.runs "$mode.$state" 2) / 1000")" "$(median batch.runs "$mode.$state" 3)" \
                    "$(calc "$(median batch.runs "$mode.$state" 4) / 1048576")"
            else
                say "    $mode   $state: not there yet"
            fi
        done
    done
    if grep -q unlogged batch.runs; then
        printf '    update, events/s, unlogged of heap     %5.2f\n' "$(batch_ratio update)"
        printf '    append, events/s, unlogged of heap     %5.2f   target >= 1.50\n' "$(batch_ratio append)"
    fi
}

# ---- closing

# Windows of 1,000, 10,000 and 100,000 groups, then the many, then one event after another that closes one of them each.
close_kind() {
    local mode=$1 size start=0
    make_view "$mode" heap "$in_log"
    for size in 1000 10000 100000; do
        query -c "INSERT INTO s SELECT i, timestamptz '2024-01-01 00:00Z' + $start * interval '5 minutes', i % 1000 FROM generate_series(1, $size) i"
        start=$((start + 1))
    done
    query -c "INSERT INTO s SELECT i % $keys, timestamptz '2024-01-01 00:15Z' + i / $keys * interval '4 minutes', i % 1000 FROM generate_series(0, $groups - 1) i"
    run_stream
    for start in 64 65 70 75; do
        one_more "$start minutes"
        run_stream
    done
    query -F ' ' -c "SELECT round(extract(epoch FROM duration) * 1000, 2) FROM stream_agg.progress ORDER BY finished_at DESC LIMIT 4" |
        tac | paste -s -d ' ' | { read -r none one two three; note close.runs "$mode" "$none" "$one" "$two" "$three"; }
}

close() {
    local repetition mode
    say
    say "close: a batch of one event that closes a window of so many groups, while $groups others are open; ms"
    for ((repetition = 1; repetition <= repetitions; repetition++)); do
        for mode in update append; do close_kind "$mode"; done
    done
    printf '    %-8s %10s %10s %10s %10s\n' '' nothing '1,000' '10,000' '100,000'
    for mode in update append; do
        printf '    %-8s %10.1f %10.1f %10.1f %10.1f\n' "$mode" "$(median close.runs "$mode" 2)" "$(median close.runs "$mode" 3)" \
            "$(median close.runs "$mode" 4)" "$(median close.runs "$mode" 5)"
    done
}

# ---- all of it

while getopts 'w:g:r:o:' option; do
    case $option in
    w) parts=$OPTARG ;;
    g) groups=$OPTARG ;;
    r) repetitions=$OPTARG ;;
    o) settings+=("$OPTARG") ;;
    *) exit 2 ;;
    esac
done
exec 3>/dev/null
[ -z "${VERBOSE:-}" ] || exec 3>&2
say "building, and starting a throw-away server ..."
prepare
server_start "${settings[@]}"
query -c 'CREATE EXTENSION stream_agg'
say "PostgreSQL $(query -c 'SHOW server_version'), $(nproc) cores; fsync = $(query -c 'SHOW fsync'), $(IFS=,; say "${settings[*]}"); medians of $repetitions"
for part in $parts; do
    case $part in
    restart | rebuild | batch | close) "$part" ;;
    *) die "there is no part $part" ;;
    esac
done
say
if [ "$wrong" -gt 0 ]; then
    say "$wrong RESULTS WERE WRONG"
    exit 1
fi
say "All results were right."
