#!/usr/bin/env bash
#
# big_state.sh: many more groups are open than memory for state holds: ten million in 256 MB. They come into being in no
# order, come back at random, live through an orderly restart and kill -9 of the postmaster, and their one window closes.
# Prints what that costs; it judges nothing but the results, which must be those of the batch query.
#
#   test/bench/big_state.sh [-w 'result update append unlogged'] [-g GROUPS] [-m MEMORY] [-n EVENTS] [-o 'name = value']...
#
#   -w    result: update mode, states in the result; update: states in the log; append; unlogged: update mode, unlogged
#   -g    groups (default 10,000,000)
#   -m    stream_agg.state_memory (default 256MB)
#   -n    events of groups at random, before the restarts (default 1,000,000)
#   -o    a server setting
#
# test/t/045_big_state.pl does the same with few groups, and judges memory, too.
#
set -euo pipefail
# shellcheck source=test/server.sh
. "$(dirname "${BASH_SOURCE[0]}")/../server.sh"
# shellcheck source=test/bench/lib.sh
. "$top/test/bench/lib.sh"

kinds='result update append unlogged'
groups=10000000
memory=256MB
random=1000000
stride=1000000          # events that are staged at a time
wrong=0

in_result='count(*) AS n, sum(v) AS total, max(v) AS top'
in_log='count(*) AS n, avg(v) AS mean'

# ---- the view and its events

# make_view KIND
make_view() {
    local mode=update state=heap
    aggregates=$in_log
    case $1 in
    result) aggregates=$in_result ;;
    append) mode=append ;;
    unlogged) state=unlogged ;;
    update) ;;
    *) die "there is no kind $1" ;;
    esac
    query -c 'SET client_min_messages = warning' -c 'DROP FOREIGN TABLE IF EXISTS s CASCADE' \
        -c "CREATE FOREIGN TABLE s (k int NOT NULL, at timestamptz NOT NULL, v int) SERVER stream_staged
            OPTIONS (event_time 'at', watermark '1 hour', max_future 'infinity')" \
        -c "CREATE MATERIALIZED VIEW v WITH (stream_agg.continuous, stream_agg.state = '$state', stream_agg.output_mode = '$mode',
            stream_agg.trigger = 'manual') AS
            SELECT window_start, k, $aggregates FROM s, tumble(at, '1 day') GROUP BY window_start, k"
}

# events FIRST LAST: a query for these. The first ones make each group once, in no order; later ones are of any group.
events() {
    say "SELECT (CASE WHEN i < $groups THEN i::bigint * 7919 ELSE abs(hashint8(i)::bigint) END % $groups)::int AS k,
            timestamptz '2024-01-01 00:00Z' + i % 1000 * interval '1 minute' AS at, i % 1000 AS v FROM generate_series($1, $2) i"
}

# feed COUNT: the next so many, and sets `seconds` to how long reading took. The worker's memory is looked at after each part.
feed() {
    local last=$((fed + $1)) next begin
    seconds=0
    while [ "$fed" -lt "$last" ]; do
        next=$((fed + stride < last ? fed + stride : last))
        query -c "INSERT INTO s $(events "$fed" $((next - 1)))"
        begin=$(query -c "$now")
        run_stream
        seconds=$(calc "$seconds + $(query -c "$now") - $begin")
        fed=$next
        look
    done
}
run_stream() { query -c "CALL stream_agg.run('s', '1 hour')"; }

# The most so far, in MB: private memory of the worker, what the view says of its groups.
look() {
    local private bytes
    private=$(sed -nE 's/^RssAnon:[[:space:]]+([0-9]+) kB/\1/p' "/proc/$(query -c "SELECT pid FROM stream_agg.streams WHERE stream = 's'::regclass")/status")
    bytes=$(query -c "SELECT max(state_bytes) / 1048576 FROM stream_agg.progress")
    rss=$((private / 1024 > rss ? private / 1024 : rss))
    state=$((bytes > state ? bytes : state))
}

# check KIND: the closed window in the view, and the answer from the events.
check() {
    local different
    different=$(query -c 'SET work_mem = "512MB"' -c "WITH answer AS MATERIALIZED (
            SELECT date_bin('1 day', at, '2024-01-01 00:00Z') AS window_start, k, $aggregates FROM ($(events 0 $((fed - 1)))) s GROUP BY 1, 2),
            got AS (SELECT * FROM v WHERE window_start < '2024-01-02')
        SELECT (SELECT count(*) FROM (TABLE answer EXCEPT ALL TABLE got) x) + abs((SELECT count(*) FROM got) - (SELECT count(*) FROM answer))")
    [ "$different" = 0 ] && return
    say "A RESULT IS WRONG, $1: $different rows differ from the batch answer"
    wrong=$((wrong + 1))
    return 1
}

# restart HOW: sets `seconds` from the server being ready until a batch of one event is committed.
restart() {
    local begin
    query -c CHECKPOINT
    if [ "$1" = orderly ]; then server_stop; else kill_server; fi
    server_start
    query -c "INSERT INTO s $(events "$fed" "$fed")"
    fed=$((fed + 1))
    begin=$(query -c "$now")
    run_stream
    seconds=$(calc "$(query -c "$now") - $begin")
    look
}

measure() {
    local kind=$1 fed=0 rss=0 state=0 seconds aggregates new any disk orderly killed closing verdict=right
    make_view "$kind"
    feed "$groups"
    new=$(calc "$groups / $seconds / 1000")
    feed "$random"
    any=$(calc "$random / $seconds / 1000")
    disk=$(query -c "SELECT (coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint + pg_total_relation_size('v')) / 1048576
                     FROM pg_class c WHERE relnamespace = 'stream_agg'::regnamespace AND relkind = 'r' AND relname ~ '_[0-9]+\$'")
    restart orderly
    orderly=$seconds
    restart killed
    killed=$seconds
    query -c "INSERT INTO s VALUES (0, '2024-01-03 02:00Z', 0)"
    seconds=$(query -c "$now")
    run_stream
    closing=$(calc "$(query -c "$now") - $seconds")
    check "$kind" || verdict=WRONG
    printf '    %-9s %10.0f %10.0f %8d %8d %8d %9.2f %9.2f %9.2f   %s\n' "$kind" "$new" "$any" "$rss" "$state" "$disk" "$orderly" "$killed" "$closing" "$verdict"
}

while getopts 'w:g:m:n:o:' option; do
    case $option in
    w) kinds=$OPTARG ;;
    g) groups=$OPTARG ;;
    m) memory=$OPTARG ;;
    n) random=$OPTARG ;;
    o) settings+=("$OPTARG") ;;
    *) exit 2 ;;
    esac
done
settings+=("stream_agg.state_memory = '$memory'")
say "building, and starting a throw-away server ..."
prepare
server_start "${settings[@]}"
query -c 'CREATE EXTENSION stream_agg'
say "PostgreSQL $(query -c 'SHOW server_version'), $(nproc) cores; fsync = $(query -c 'SHOW fsync'), $(IFS=,; say "${settings[*]}")"
say
say "$groups groups open in one window, then $random events of any of them"
printf '    %-9s %10s %10s %8s %8s %8s %9s %9s %9s\n' '' 'new k/s' 'any k/s' 'RSS MB' 'state MB' 'disk MB' 'orderly s' 'killed s' 'closing s'
for kind in $kinds; do measure "$kind"; done
say
say "    new, any: events read a second, of new groups and of groups at random; RSS: private memory of the worker, at most;"
say "    state: what stream_agg.progress says of it, at most; disk: result, state and staged rows; orderly, killed: until the first"
say "    batch is committed after an orderly stop and after kill -9; closing: a batch that closes the window"
say
if [ "$wrong" -gt 0 ]; then
    say "$wrong RESULTS WERE WRONG"
    exit 1
fi
say "All results were right."
