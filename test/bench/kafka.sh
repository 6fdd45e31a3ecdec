#!/usr/bin/env bash
#
# kafka.sh: the bench of Kafka topics as streams. Prints what stream_agg does beside what the parts of its
# work take alone, and beside what one would write by hand with the same reading; on one throw-away server and
# one throw-away broker. It judges nothing but the results: they must be equal.
#
#   test/bench/kafka.sh [-w 'k1 k2 latency'] [-c CONTESTANTS] [-r REPETITIONS] [-n EVENTS] [-d US] [-s SECONDS] [-q RETRIES] [-o 'name = value']...
#
#   -w    workloads: k1 has 1,000 customers, k2 100,000; latency: 20,000 events a second, until they are visible
#   -c    contestants of k1 and k2, by default all:
#           consume      the client library alone, with the settings that streams give it
#           decode       and batches of events made of its records
#           fold         and those folded into groups; nothing is written
#           write        and results and positions written; all of it in one session, which tells what each part took
#           update       stream_agg: a view in update mode, a run() call for all that there is
#           append       the same in append mode
#           statement    batches as in decode, each taken by INSERT ... SELECT ... GROUP BY ... ON CONFLICT
#         The first four and the last are the extension's own code, called in a session: modules/kafka_parts.c.
#   -r    repetitions, of which the medians count (default 3)
#   -n    events of k1 and k2 (default 2,000,000)
#   -d    microseconds of event time between two of them (default 1800: 12 windows for 2,000,000)
#   -s    seconds of latency (default 20)
#   -q    so often a run is repeated that other processes disturbed, with more than 10 % of a core (default 0)
#   -o    a server setting
#   SA_PERF=DIR        keeps a profile of the worker during each run of update and append, where perf works
#   KAFKA_RIG=mock     librdkafka's mock cluster although there is a real broker. It keeps 5 MiB a partition, so
#                      there are many more than four
#
# What is counted: from the call until all is committed, the client library's first connection included; the
# CPU time of the worker or session with the library's threads, not the broker's.
#
set -euo pipefail
# shellcheck source=test/server.sh
. "$(dirname "${BASH_SOURCE[0]}")/../server.sh"
bench=$top/test/bench
# shellcheck source=test/bench/lib.sh
. "$bench/lib.sh"
# shellcheck source=test/kafka/rig.sh
. "$top/test/kafka/rig.sh"

workloads='k1 k2 latency'
contestants='consume decode fold write update append statement'
repetitions=3
retries=0
events=2000000
distance_us=1800
latency_seconds=20
latency_rate=20000
record_bytes=220        # of a record in the broker, at most

# ---- the library with the parts, in the place of the one installed

install_parts() {
    mkdir "$scratch/module"
    locked_make -s -C "$scratch/module" -f "$bench/modules/Makefile" all &&
        locked_make -s -C "$scratch/module" -f "$bench/modules/Makefile" install DESTDIR="$stage"
}

# ---- streams, views and results

columns='customer_id text, event_type text, event_time timestamptz, event_id uuid, amount float8'
view="SELECT customer_id, window_start, window_end, count(*) AS n, sum(amount) AS total
    FROM events, tumble(event_time, '5 minutes')
    GROUP BY 1, 2, 3"
upsert="INSERT INTO totals
    SELECT customer_id, date_bin('5 minutes', event_time, '1970-01-01 00:00Z'), count(*), sum(amount)
    FROM events GROUP BY 1, 2
    ON CONFLICT (window_start, customer_id) DO UPDATE SET n = totals.n + excluded.n,
        total = totals.total + excluded.total"

make_stream() {
    query -c "CREATE FOREIGN TABLE events ($columns ${2:-}) SERVER stream_kafka
              OPTIONS (bootstrap_servers '$bootstrap', topic '$1', event_time 'event_time', watermark '1 minute')"
}
# view_sql NAME MODE TRIGGER QUERY
view_sql() {
    say "CREATE MATERIALIZED VIEW $1 WITH (stream_agg.continuous, stream_agg.output_mode = '$2',
        stream_agg.trigger = '$3') AS $4;"
}
# One that no worker ever reads for.
make_paused() {
    query --single-transaction -c "$(view_sql "$1" update manual "$view")" -c "SELECT stream_agg.pause('$1')" >/dev/null
}
make_running() {
    query -c "$(view_sql totals "$1" manual "$view")"
    wait_until "SELECT count(*) = $partitions FROM stream_agg.partitions"
    sleep 0.3
    [ "$(query -c 'SELECT coalesce(max(read), 0) FROM stream_agg.views')" = 0 ] || die "the view reads before it is asked to"
}
make_totals() {
    query -c 'CREATE TABLE totals (customer_id text, window_start timestamptz,
        n bigint NOT NULL, total float8, PRIMARY KEY (window_start, customer_id)) WITH (fillfactor = 70)'
}
drop_all() {
    query -c 'SET client_min_messages = warning' -c 'DROP TABLE IF EXISTS totals CASCADE' -c 'DROP FOREIGN TABLE IF EXISTS events CASCADE'
}

# The answer is the server's own: the lines through json_populate_record.
make_answer() {
    query -c 'SET client_min_messages = warning' -c 'DROP TABLE IF EXISTS answer' -c 'CREATE UNLOGGED TABLE lines (line text)'
    query -c 'COPY lines FROM STDIN' <events
    query -c "CREATE TABLE answer AS
        SELECT customer_id, date_bin('5 minutes', event_time, '1970-01-01 00:00Z') AS window_start, count(*) AS n, sum(amount) AS total
        FROM lines, json_populate_record(NULL::event, line::json) GROUP BY 1, 2" -c 'DROP TABLE lines'
}

verify() {
    local result='SELECT customer_id, window_start, n, total FROM totals' condition=true different
    case $1 in
    update | write | statement) ;;
    append) condition="window_start + interval '5 minutes' <= (SELECT watermark FROM stream_agg.views)" ;;
    *) return 0 ;;
    esac
    different=$(query -c "SELECT (SELECT count(*) FROM ($result EXCEPT ALL SELECT * FROM answer WHERE $condition) x)
                               + (SELECT count(*) FROM (SELECT * FROM answer WHERE $condition EXCEPT ALL $result) x)")
    if [ "$different" != 0 ]; then
        say "$1 IS WRONG: $different rows differ from the batch answer"
        wrong=$((wrong + 1))
    fi
}

# ---- the contestants: each leaves `run`: batches, seconds, CPU seconds, result rows written for each event, and
# the shares of reading, folding, writing and committing, or -

run_view() {
    local pid cpu_before begin end cpu
    make_running "$1"
    pid=$(query -c 'SELECT pid FROM stream_agg.streams')
    start_profile "$pid" "$1"
    cpu_before=$(process_cpu "$pid")
    begin=$(query -c "$now")
    run query -c "CALL stream_agg.run('events')" || die "the view cannot be brought up to date"
    end=$(query -c "$now")
    cpu=$(calc "$(process_cpu "$pid") - $cpu_before")
    stop_profile
    [ "$(query -c 'SELECT read FROM stream_agg.views')" = "$events" ] || die "the view has not read all events: $(
        query -c 'SELECT status, message, read FROM stream_agg.views')"
    run="$(query -F ' ' -c "SELECT $events / avg(read), $end - $begin, $cpu, sum(written) / sum(read) FROM stream_agg.progress
        WHERE view = 'totals'::regclass AND read > 0") - - - -"
}

run_part() {
    local line n batches seconds cpu reading folding writing committing written name=totals
    if [ "$1" = statement ]; then
        make_totals
        name=shape      # only its options count
    fi
    make_paused "$name"
    line=$(query -c "SET work_mem = '64MB'" -c 'SET synchronous_commit = off' \
        -c "CALL kafka_part('$1', '$name', \$\$$upsert\$\$, NULL)")
    read -r n batches seconds cpu reading folding writing committing written <<<"$line"
    [ "$n" = "$events" ] || die "$1 took $n events of $events"
    run="$batches $seconds $cpu $(calc "$written / $n") $(calc "$reading / $seconds") $(calc "$folding / $seconds") $(
        calc "$writing / $seconds") $(calc "$committing / $seconds")"
}

own_cpu() { calc "$(server_cpu) + $(process_cpu "$kafka_pid")"; }

start_profile() {
    profile=
    [ -n "${SA_PERF:-}" ] || return 0
    mkdir -p "$SA_PERF"
    perf record -q -F 999 -g -p "$1" -o "$SA_PERF/$workload.$2.perf" >/dev/null 2>&1 &
    profile=$!
    sleep 0.5
}
stop_profile() {
    [ -n "$profile" ] || return 0
    kill -INT "$profile"
    wait "$profile" 2>/dev/null || true
    profile=
}

contest() {
    local contestant=$1 attempt own_before machine_before begin others
    for ((attempt = 0; attempt <= retries; attempt++)); do
        drop_all
        make_stream "$workload"
        query -c CHECKPOINT
        machine_before=$(machine_cpu)
        own_before=$(own_cpu)
        begin=$(query -c "$now")
        case $contestant in
        update | append) run_view "$contestant" ;;
        *) run_part "$contestant" ;;
        esac
        others=$(calc "($(machine_cpu) - $machine_before - $(own_cpu) + $own_before) / ($(query -c "$now") - $begin)")
        verify "$contestant"
        if [ "$(calc "$others > 0.1")" = 0.000000 ]; then break; fi
    done
    say "$contestant $events $run $others" | tee -a "$workload.runs" >&3
}

# ---- k1 and k2

produce() {
    partitions=4
    [ "$kafka" = real ] || partitions=$((4 + events * record_bytes / 5000000))
    run_to events perl "$bench/kafka_events.pl" "$events" "$customers" "$distance_us"
    kafka_topic "$workload" "$partitions"
    say "file $workload spread $scratch/events" | kafka_tool >produced
    make_answer
    say "$workload: $events events of $customers customers in $partitions partitions, $(($(stat -c %s events) / events)) bytes each, $(
        query -c 'SELECT count(*) FROM answer') groups"
    rm events
}

throughput() {
    local repetition contestant
    say
    produce
    : >"$workload.runs"
    for ((repetition = 1; repetition <= repetitions; repetition++)); do
        for contestant in $contestants; do contest "$contestant"; done
    done
    drop_all
    say
    perl "$bench/kafka_report.pl" "$workload" "$workload.runs"
}

# ---- latency

# From the moment before events are given to the producer until they, and all those of the same millisecond, are
# visible. Beside the view, a small one tells how far its transaction has come.
latency() {
    local p50 p99 count
    partitions=4
    [ "$kafka" = real ] || partitions=20
    count=$((latency_rate * latency_seconds))
    say
    say "latency: $latency_rate events a second for $latency_seconds s, 1000 customers, in $partitions partitions, trigger immediate"
    drop_all
    kafka_topic latency "$partitions"
    make_stream latency ", part int OPTIONS (metadata 'partition')"
    query -c "$(view_sql totals update immediate "$view")" \
        -c "$(view_sql seen_so_far update immediate 'SELECT part, count(*) AS n FROM events GROUP BY part')"
    wait_until "SELECT count(*) = 2 * $partitions FROM stream_agg.partitions"
    # one for each, to have all connections there
    {
        say "lines latency spread $partitions"
        perl "$bench/kafka_pace.pl" "${partitions}000" 0.001 1000 /dev/null
    } | kafka_tool >produced
    wait_until "SELECT count(*) = $partitions FROM seen_so_far"
    start_watching "SELECT extract(epoch FROM clock_timestamp()), min(n) - 1 FROM seen_so_far" 0.005
    run_to produced pace "$count" || die "producing failed: $(tail -n 3 produced)"
    wait_until "SELECT sum(n) = $count + $partitions FROM seen_so_far"
    sleep 0.1
    stop_watching
    read -r p50 p99 < <(perl "$bench/delays.pl" ticks seen $((latency_rate / 1000 / partitions)))
    say "    produced at $(calc "$count / ($(tail -n 1 ticks) - $(head -n 1 ticks))" | sed 's/\..*//') events a second"
    report_target 'visible after, p50, ms' "$p50" 50
    report_target 'visible after, p99, ms' "$p99" 250
    say "latency $(query -F ' ' -c "SELECT avg(read), sum(written)::float8 / sum(read) FROM stream_agg.progress
        WHERE view = 'totals'::regclass AND read > 0")" >latency.batches
    drop_all
}
pace() {
    {
        say "lines latency spread $1"
        perl "$bench/kafka_pace.pl" "$latency_rate" "$latency_seconds" 1000 ticks
    } | kafka_tool
}
report_target() {
    local verdict=MISSED
    if [ "$2" -lt "$3" ]; then verdict=met; fi
    printf '    %-32s %6s   target %2s %-4s   %s\n' "$1" "$2" '<' "$3" "$verdict"
}

# ---- all of it

while getopts 'w:c:r:n:d:s:q:o:' option; do
    case $option in
    w) workloads=$OPTARG ;;
    c) contestants=$OPTARG ;;
    r) repetitions=$OPTARG ;;
    n) events=$OPTARG ;;
    d) distance_us=$OPTARG ;;
    s) latency_seconds=$OPTARG ;;
    q) retries=$OPTARG ;;
    o) settings+=("$OPTARG") ;;
    *) exit 2 ;;
    esac
done
wrong=0
watcher=
profile=
partitions=

exec 3>/dev/null
[ -z "${VERBOSE:-}" ] || exec 3>&2
say "building, and starting a throw-away server and broker ..."
prepare
logged module install_parts
kafka_start
server_start "${settings[@]}"
query -c 'CREATE EXTENSION stream_agg' -c "CREATE TYPE event AS ($columns)" \
    -c "CREATE PROCEDURE kafka_part(kind text, view regclass, statement text, OUT result text) LANGUAGE C AS '\$libdir/stream_agg'"
say "PostgreSQL $(query -c 'SHOW server_version'), $kafka_what, $(nproc) cores; fsync = $(query -c 'SHOW fsync'), $(
    IFS=,; say "${settings[*]}")"
for workload in $workloads; do
    case $workload in
    k1) customers=1000; throughput ;;
    k2) customers=100000; throughput ;;
    latency) latency ;;
    *) die "no such workload: $workload" ;;
    esac
done
say
perl "$bench/kafka_report.pl" batches
if [ "$wrong" -gt 0 ]; then
    say "$wrong RESULTS WERE WRONG"
    exit 1
fi
say "All results were equal."
