#!/usr/bin/env bash
#
# run.sh: the bench. Prints what stream_agg does beside what an expert would write by hand, on one
# throw-away server, with equal settings. It judges nothing but the results: they must be equal.
#
#   test/bench/run.sh [-w 'w1 w2 latency insert'] [-c 'a s b d e'] [-r REPETITIONS] [-n ROWS] [-q RETRIES] [-o 'name = value']...
#
#   -w    workloads; latency: one row at a time, until it is visible; insert: pgbench, one row a transaction
#   -c    contestants: (a) COPY into a plain table, (s) into a staged stream without a view, (b) with one,
#         (d) a statement trigger with a transition table, (e) a queue table that a second session drains
#   -r    repetitions, of which the medians count (default 5)
#   -n    rows (default: w1 3,000,000; w2 2,000,000)
#   -q    so often a run is repeated that other processes disturbed, with more than 10 % of a core (default 0)
#   -o    a server setting
#   SA_FLIGHTS=FILE    real flights for w1 (/path/to/flights-3m.csv.xz)
#   SA_PERF=DIR        keeps a profile of the server during each run of (b), where perf works
#
# One session copies 10,000 rows a transaction, from files of the server's own machine, so that no client is
# the limit. What is counted: from the start of the first COPY until all rows are in the results; the CPU
# time of all the server's processes, without the one that looks how far the view is; WAL; and for each
# transaction the time from its commit until its rows are in the results.
#
set -euo pipefail
# shellcheck source=test/server.sh
. "$(dirname "${BASH_SOURCE[0]}")/../server.sh"
bench=$top/test/bench
# shellcheck source=test/bench/lib.sh
. "$bench/lib.sh"

workloads='w1 w2 latency insert'
contestants='a s b d e'
repetitions=5
retries=0
rows=
chunk_rows=10000

# ---- the view

# Until the view has all rows.
wait_for_view() {
    local seen_rows=0 before=0 deadline=$((SECONDS + 120))
    until [ "${seen_rows:-0}" = "$rows" ]; do
        [ "$SECONDS" -lt "$deadline" ] || die "the view has only ${seen_rows:-0} of $rows rows: $(
            query -c 'SELECT status, message, read FROM stream_agg.views')"
        sleep 0.02
        seen_rows=$(tail -n 2 seen | sed -n 's/^[0-9.]*|\([0-9]*\)$/\1/p' | tail -n 1)
        [ "$seen_rows" = "$before" ] || deadline=$((SECONDS + 120))
        before=$seen_rows
    done
}

# ---- the contestants

make_plain() { query -c "CREATE TABLE events ($columns)"; }
make_stream() {
    query -c "CREATE FOREIGN TABLE events ($columns) SERVER stream_staged
              OPTIONS (event_time '$event_time', watermark '$watermark')"
}
make_view() {
    query -c "CREATE MATERIALIZED VIEW totals
              WITH (stream_agg.continuous, stream_agg.output_mode = 'update', stream_agg.trigger = 'immediate') AS $view"
    wait_until "SELECT count(*) = 1 FROM stream_agg.streams WHERE status = 'running'"
}
make_totals() { query -c "CREATE TABLE totals ($totals) WITH (fillfactor = 70)"; }

create_a() { make_plain; }
create_s() { make_stream; }
create_b() { make_stream; make_view; }
create_d() {
    make_plain
    make_totals
    query -c "CREATE FUNCTION keep_totals() RETURNS trigger LANGUAGE plpgsql AS \$\$ BEGIN $upsert; RETURN NULL; END \$\$" \
        -c 'CREATE TRIGGER keep_totals AFTER INSERT ON events REFERENCING NEW TABLE AS arrived
            FOR EACH STATEMENT EXECUTE FUNCTION keep_totals()'
}
create_e() { make_plain; make_totals; }

drop_all() {
    query -c 'SET client_min_messages = warning' -c 'DROP TABLE IF EXISTS totals' -c "DO \$\$
        DECLARE kind \"char\" := (SELECT relkind FROM pg_class WHERE oid = to_regclass('events'));
        BEGIN
            IF kind = 'f' THEN DROP FOREIGN TABLE events CASCADE; ELSE DROP TABLE IF EXISTS events CASCADE; END IF;
        END \$\$" -c 'DROP FUNCTION IF EXISTS keep_totals()'
}

# The script of the copying session: prints the time at the start, and after each commit.
load_script() {
    local chunk
    say "$now;"
    for chunk in chunks/*; do
        say "COPY events FROM '$scratch/$chunk';"
        say "$now;"
    done
}

# Loads and waits until all is in the results; leaves what it took in `seconds`, `cpu`, `wal` and
# `delays`, and in `others` what everything else on the machine took of its processors meanwhile.
load() {
    local contestant=$1 begin end cpu_before wal_before machine_before
    load_script >load.sql
    : >seen
    query -c CHECKPOINT
    case $contestant in
    b) start_watching 'SELECT extract(epoch FROM clock_timestamp()), sum(read) FROM stream_agg.views' ;;
    e)
        perl "$bench/drain.pl" "$rows" "$upsert" >seen 2>&1 &
        watcher=$!
        wait_for_line seen
        ;;
    esac
    wal_before=$(wal_position)
    machine_before=$(machine_cpu)
    cpu_before=$(server_cpu)
    run_to loaded query -f load.sql || die "loading failed: $(tail -n 3 loaded)"
    case $contestant in
    b) wait_for_view ;;
    e) wait "$watcher" || die "draining failed: $(tail -n 3 seen)" ;;
    esac
    sleep 0.1       # sessions that end count once the postmaster knows
    cpu=$(calc "$(server_cpu) - $cpu_before")
    others=$(calc "$(machine_cpu) - $machine_before - $cpu")
    wal=$(($(wal_position) - wal_before))
    if [ "$contestant" = b ]; then
        cpu=$(calc "$cpu - $(process_cpu "$(head -n 1 seen)")")
        stop_watching
    fi
    begin=$(head -n 1 loaded)
    if [ -s seen ]; then
        end=$(sed -n "s/|$rows\$//p" seen | head -n 1)
        delays=$(perl "$bench/delays.pl" loaded seen "$chunk_rows")
    else
        end=$(tail -n 1 loaded)
        delays='- -'
    fi
    seconds=$(calc "$end - $begin")
}

# The results, against the answer from all rows at once that (a)'s table gave.
verify() {
    local contestant=$1 answer different
    case $contestant in
    a)
        query -c 'SET client_min_messages = warning' -c 'DROP TABLE IF EXISTS answer' -c "CREATE TABLE answer AS $batch_answer"
        return
        ;;
    b) answer=$view_answer ;;
    d | e) answer=$totals_answer ;;
    *) return 0 ;;
    esac
    [ -n "$(query -c "SELECT to_regclass('answer')")" ] || return 0
    different=$(query -c "SELECT (SELECT count(*) FROM ($answer EXCEPT ALL TABLE answer) x)
                               + (SELECT count(*) FROM (TABLE answer EXCEPT ALL $answer) x)")
    if [ "$different" != 0 ]; then
        say "($contestant) IS WRONG: $different rows differ from the batch answer"
        wrong=$((wrong + 1))
    fi
}

start_profile() {
    profile=
    [ "$1" = b ] && [ -n "${SA_PERF:-}" ] || return 0
    mkdir -p "$SA_PERF"
    perf record -q -F 499 -g -a -o "$SA_PERF/$2.$3.perf" sleep 3600 >/dev/null 2>&1 &
    profile=$!
}
stop_profile() {
    [ -n "$profile" ] || return 0
    kill -INT "$profile"
    wait "$profile" 2>/dev/null || true
    profile=
}

contest() {
    local workload=$1 contestant=$2 repetition=$3 attempt
    for ((attempt = 0; attempt <= retries; attempt++)); do
        drop_all
        "create_$contestant"
        start_profile "$contestant" "$workload" "$repetition"
        load "$contestant"
        stop_profile
        verify "$contestant"
        if [ "$(calc "$others > 0.1 * $seconds")" = 0.000000 ]; then break; fi
    done
    say "$contestant $rows $seconds $cpu $wal $delays $others" | tee -a "$workload.runs" >&3
}

# Files of 10,000 rows each, in the order of arrival.
make_chunks() {
    local late
    rows=${asked_rows:-$default_rows}
    user_dir "$scratch/chunks"
    rm -f "$scratch"/chunks/*
    generate "$rows"
    query -c 'SET work_mem = "512MB"' -c 'SELECT setseed(0.5)' \
        -c "COPY (TABLE generated) TO PROGRAM 'split -a 5 -d -l $chunk_rows - $scratch/chunks/'"
    query -c 'SET client_min_messages = warning' -c 'DROP VIEW generated' -c 'DROP TABLE IF EXISTS base'
    rows=$(cat chunks/* | wc -l)
    make_plain
    for chunk in chunks/*; do say "COPY events FROM '$scratch/$chunk';"; done | query
    late=$(query -c "SELECT count(*) FROM (SELECT $event_time AS at, max($event_time) OVER (ORDER BY ctid) AS latest FROM events) x
                     WHERE at <= latest - interval '$watermark'")
    [ "$late" = 0 ] || die "$late events are late by more than $watermark: contestants would not agree"
    say "    $rows events in $(query -c "SELECT count(*) FROM ($batch_answer) x") groups, $(($(cat chunks/* | wc -c) / rows)) bytes each"
    drop_all
}

throughput() {
    local workload=$1 repetition contestant
    # shellcheck source=test/bench/w1.sh
    . "$bench/$workload.sh"
    say
    say "$workload: $title"
    make_chunks
    : >"$workload.runs"
    for ((repetition = 1; repetition <= repetitions; repetition++)); do
        for contestant in $contestants; do contest "$workload" "$contestant" "$repetition"; done
    done
    query -c 'DROP TABLE IF EXISTS answer'
    drop_all
    say
    perl "$bench/report.pl" "$workload" "$workload.runs"
}

# ---- one row at a time

latency() {
    local before
    . "$bench/w2.sh"
    say
    say "latency: one INSERT at a time until it is visible, trigger immediate, 200 rows, idle server"
    drop_all
    create_b
    query -c 'SET client_min_messages = warning' -v rows=200 -f "$bench/latency.sql" | sed 's/^/    /'
    say "    target: median <= 50 ms"
    sleep 2
    before=$(server_cpu)
    sleep 10
    say "    the idle server with its worker, launcher and stream: $(calc "100 * ($(server_cpu) - $before)") ms of CPU a second"
    drop_all
}

insert() {
    local contestant repetition tps
    . "$bench/w2.sh"
    say
    say "insert: one row a transaction, pgbench -c 4, 5 s each, medians of $repetitions"
    say "INSERT INTO events VALUES (1, 1 + (random() * 99999)::int, now(), 'purchase', 1);" >insert.sql
    : >insert.runs
    for ((repetition = 1; repetition <= repetitions; repetition++)); do
        for contestant in a s b; do
            [[ " $contestants " == *" $contestant "* ]] || continue
            drop_all
            "create_$contestant"
            query -c CHECKPOINT
            run_to pgbench.log pgbench -n -c 4 -j 2 -T 5 -f insert.sql || die "$(tail -n 3 pgbench.log)"
            tps=$(sed -n 's/^tps = \([0-9]*\).*/\1/p' pgbench.log)
            say "$contestant $tps" | tee -a insert.runs >&3
        done
    done
    drop_all
    perl -lane 'push @{ $r{$F[0]} }, $F[1];
        END { sub median { (sort { $a <=> $b } @_)[ $#_ / 2 ] }
              for my $c (sort { index("asb", $a) <=> index("asb", $b) } keys %r) {
                  my $of = $r{a} ? sprintf("%.2f of (a)", median(map { $r{$c}[$_] / $r{a}[$_] } 0 .. $#{ $r{$c} })) : "";
                  printf "(%s) %6d transactions/s  %s\n", $c, median(@{ $r{$c} }), $of } }' insert.runs
}

# ---- all of it

while getopts 'w:c:r:n:q:o:' option; do
    case $option in
    w) workloads=$OPTARG ;;
    c) contestants=$OPTARG ;;
    r) repetitions=$OPTARG ;;
    n) rows=$OPTARG ;;
    q) retries=$OPTARG ;;
    o) settings+=("$OPTARG") ;;
    *) exit 2 ;;
    esac
done
asked_rows=$rows
wrong=0
watcher=

exec 3>/dev/null
[ -z "${VERBOSE:-}" ] || exec 3>&2
if [[ " $contestants " != *" s "* && " $contestants " != *" b "* ]]; then
    build_and_install() { :; }      # only what is there without the extension
    settings+=("shared_preload_libraries = ''")
fi
say "building, and starting a throw-away server ..."
prepare
server_start "${settings[@]}"
[[ $(query -c 'SHOW shared_preload_libraries') != stream_agg ]] || query -c 'CREATE EXTENSION stream_agg'
say "PostgreSQL $(query -c 'SHOW server_version'), $(nproc) cores; fsync = $(query -c 'SHOW fsync'), $(IFS=,; say "${settings[*]}")"
for workload in $workloads; do
    case $workload in
    latency | insert) "$workload" ;;
    *) throughput "$workload" ;;
    esac
done
say
if [ "$wrong" -gt 0 ]; then
    say "$wrong RESULTS WERE WRONG"
    exit 1
fi
say "All results were equal."
