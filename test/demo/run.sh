#!/usr/bin/env bash
#
# run.sh: the demo. 20,000 real flights, in the order they departed, flow into a stream on a throw-away
# server; three continuous views fill while they arrive; at the end each view is compared with the batch
# answer. Exits non-zero if they differ. DEMO_SECONDS sets the pace (default 20; 0: as fast as it goes).
#
#   test/demo/run.sh            they are copied into a staged stream
#   test/demo/run.sh kafka      they are produced, as JSON, to a topic with four partitions: of a throw-away broker,
#                               or of librdkafka's mock where there is none
#
set -euo pipefail
# shellcheck source=test/server.sh
. "$(dirname "${BASH_SOURCE[0]}")/../server.sh"
# shellcheck source=test/kafka/rig.sh
. "$top/test/kafka/rig.sh"

source=${1:-staged}
demo=$top/test/demo
pace=${DEMO_SECONDS:-20}
partitions=1
columns=(flight_id origin destination scheduled departed delay distance)
screen=         # not empty: a terminal that can be drawn on
total=0
feeder=

query() { psql -XqAt -F '|' -v ON_ERROR_STOP=1 "$@"; }

# ---- the progress bar and the screen

bar() {
    local rows=$1 width=40 full text
    full=$((width * rows / total))
    printf -v text '%*s' "$full" ''
    text=${text// /#}
    printf '[%s%*s] %3d %%' "$text" $((width - full)) '' $((100 * rows / total))
}

# Draws over what is there, line by line, cut to the terminal, so that nothing flickers.
draw() {
    local rows cols
    read -r rows cols < <(stty size 2>/dev/null </dev/tty || echo '24 80')
    printf '\e[H'
    head -n $((rows - 2)) | cut -c "1-$cols" | sed $'s/$/\e[K/'
    printf '\e[J'
}

show() {
    local read accepted late watermark lag
    IFS='|' read -r read accepted late watermark lag < <(query -f "$demo/progress.sql")
    read=${read:-0}
    if [ -n "$screen" ]; then
        {
            say "stream_agg: US flights of early 2001, by scheduled time, in the order they departed"
            say "$(bar "$read")  $read of $total rows read, lag $lag, watermark $watermark"
            say
            psql -Xq -f "$demo/screen.sql"
        } >"$scratch/screen" 2>&1
        draw <"$scratch/screen"
    elif [ "$read" != "${shown:-}" ]; then
        say "$(bar "$read")  read $read of $total, accepted $accepted, late $late, lag $lag, watermark $watermark"
        shown=$read
    fi
}

begin_screen() {
    if [ -t 1 ] && [ "${TERM:-dumb}" != dumb ]; then screen=yes; fi
    if [ -n "$screen" ]; then
        printf '\e[?25l\e[2J'
    else
        say "accepted and late below: of origin_hours / route_days / state_hours"
    fi
}
# shellcheck disable=SC2317
end_screen() {
    local status=$?
    [ -z "$screen" ] || printf '\e[?25h'
    cleanup
    exit "$status"
}

# ---- the steps

create() {
    local where=()
    if [ "$source" = kafka ]; then
        partitions=4
        kafka_topic flights "$partitions"
        where=(-v bootstrap="$bootstrap")
    fi
    query ${where[@]+"${where[@]}"} -f "$demo/airports.sql" -f "$demo/schema.sql"
    gzip -dc "$top/test/data/flights-20k.jsonl.gz" >flights.json
    perl "$demo/to_copy.pl" "${columns[@]}" <flights.json >flights.copy
    total=$(wc -l <flights.copy)
}

feed() {
    if [ "$source" = kafka ]; then
        { say 'lines flights spread all' && perl "$demo/feed.pl" flights.json "$pace" plain; } | kafka_tool
    else
        perl "$demo/feed.pl" flights.copy "$pace" | query
    fi >/dev/null
}

# The rows flow in the background; what is shown is read from the server's own views.
run_and_show() {
    local interval=0.25
    [ -n "$screen" ] || interval=1
    feed &
    feeder=$!
    job=$feeder         # ended with the script
    while kill -0 "$feeder" 2>/dev/null; do
        show
        sleep "$interval"
    done
    wait "$feeder" || die "feeding the stream failed"
    job=
    run query -c "CALL stream_agg.run('flights')"
    show
    [ -n "$screen" ] || psql -Xq -f "$demo/screen.sql"
}

# The same events in the same order, as an ordinary table.
compare() {
    local list
    list=$(IFS=,; say "${columns[*]}")
    query -c 'CREATE TABLE flights_log (ord bigint GENERATED ALWAYS AS IDENTITY, flight_id int, origin text,
        destination text, scheduled timestamptz, departed timestamptz, delay int, distance int)'
    query -c "COPY flights_log ($list) FROM STDIN" <flights.copy
    say
    say "Every view against the batch answer over the accepted events:"
    psql -Xq -v partitions="$partitions" -f "$demo/verify.sql"
    [ "$(query -c 'SELECT count(*) = 3 AND bool_and(same) FROM verdict')" = t ]
}

say "building, and starting a throw-away server ..."
prepare
trap end_screen EXIT
server_start
[ "$source" != kafka ] || kafka_start
create
[ "$source" != kafka ] || say "flights come from $kafka_what, in $partitions partitions"
begin_screen
run_and_show
if compare; then
    say "VERDICT: good. Every view holds exactly the batch answer."
else
    say "VERDICT: BAD. A view differs from the batch answer."
    exit 1
fi
