#!/usr/bin/env bash
#
# decode.sh: nanoseconds that a JSON record takes: this decoder, beside json_populate_record and the server's
# parser over the same records. The decoder's files are compiled into a library of the bench's own
# (decode_bench.c), which a throw-away server loads; so what is measured is the decoder and nothing around it.
#
#   test/bench/decode.sh [-n RECORDS] [-r REPETITIONS] [-t TIMES]
#
#   -n    different records (default 1000: they stay in the processor's cache, as fetched ones nearly do)
#   -r    how often each is decoded in one measurement (default 300)
#   -t    measurements, of which the median counts (default 5)
#
set -euo pipefail
# shellcheck source=test/server.sh
. "$(dirname "${BASH_SOURCE[0]}")/../server.sh"

records=1000
repetitions=300
times=5
while getopts 'n:r:t:' option; do
    case $option in
    n) records=$OPTARG ;;
    r) repetitions=$OPTARG ;;
    t) times=$OPTARG ;;
    *) die 'usage: decode.sh [-n RECORDS] [-r REPETITIONS] [-t TIMES]' ;;
    esac
done

query() { psql -XqAt -v ON_ERROR_STOP=1 "$@"; }

build_library() {
    local file files=()
    for file in "$top"/src/decode*.c; do
        [ "$file" = "$top/src/decode_sql.c" ] || files+=("$file")
    done
    # -Bsymbolic: the server has the extension loaded too, with the same names.
    # shellcheck disable=SC2046
    gcc $("$PG_CONFIG" --cflags) -fPIC -shared -Wl,-Bsymbolic -I"$top/src" -I"$("$PG_CONFIG" --includedir-server)" \
        $("$PG_CONFIG" --cppflags) -o "$scratch/decode_bench.so" "$top/test/bench/decode_bench.c" "${files[@]}"
}

make_records() {
    query <<SQL
CREATE FUNCTION bench_decoder(regclass, text[], int) RETURNS float8 LANGUAGE C AS '$scratch/decode_bench';
CREATE FUNCTION bench_populate(regclass, text[], int) RETURNS float8 LANGUAGE C AS '$scratch/decode_bench';
CREATE FUNCTION bench_lexer(text[], int, boolean) RETURNS float8 LANGUAGE C AS '$scratch/decode_bench';
CREATE FUNCTION bench_verify(text[], int) RETURNS float8 LANGUAGE C AS '$scratch/decode_bench';
-- Tables stand for streams: only their columns count.
CREATE TABLE plain (customer_id text, event_type text, event_time timestamptz, amount float8);
CREATE TABLE exact (customer_id text, event_type text, event_time timestamptz, event_id uuid, amount numeric);
CREATE TABLE single (amount float8);
CREATE TABLE record AS
    SELECT format('{"customer_id":"C%s","event_type":"%s","event_time":"2026-01-%s:%s.%sZ","event_id":"%s","amount":%s}',
        lpad((i * 7919 % 100000)::text, 5, '0'), (ARRAY['page_view','purchase','add_to_cart'])[i % 3 + 1],
        to_char(timestamp '2026-01-02' + i * interval '61 seconds', 'DD"T"HH24:MI'), lpad((i % 60)::text, 2, '0'), lpad((i % 1000)::text, 3, '0'),
        md5(i::text)::uuid, round((i * 7 % 10000)::numeric / 100, 2)) AS value
    FROM generate_series(1, $records) i;
SQL
}

# Name, what is measured, and the call; {r} stands for the records and repetitions.
calls=(
    "verify|is it UTF-8?|bench_verify({r})"
    "parser|the server's parser, nothing kept|bench_lexer({r}, false)"
    "copying|the server's parser, strings copied|bench_lexer({r}, true)"
    "single|decoder: one float8 of five values|bench_decoder('single', {r})"
    "plain|decoder: text, text, timestamptz, float8|bench_decoder('plain', {r})"
    "plain_server|json_populate_record: the same|bench_populate('plain', {r})"
    "exact|decoder: text, text, timestamptz, uuid, numeric|bench_decoder('exact', {r})"
    "exact_server|json_populate_record: the same|bench_populate('exact', {r})"
)

# By turns, so that what else the machine does strikes all alike.
measure_all() {
    local call name what time i
    for ((i = 0; i < times; i++)); do
        for call in "${calls[@]}"; do
            IFS='|' read -r name what call <<<"$call"
            call=${call//\{r\}/(SELECT array_agg(value) FROM record), $repetitions}
            time=$(query -c "SELECT round(($call)::numeric, 1)")
            say "$time" >>"$scratch/times.$name"
        done
    done
}
median() { sort -n "$scratch/times.$1" | sed -n "$((times / 2 + 1))p"; }
ratio() { awk "BEGIN { printf \"%.1f\", $(median "$2") / $(median "$1") }"; }

main() {
    local call name what
    prepare
    build_library
    server_start
    make_records
    measure_all
    say "$records records of $(query -c 'SELECT round(avg(octet_length(value))) FROM record') bytes, $repetitions times, median of $times"
    for call in "${calls[@]}"; do
        IFS='|' read -r name what call <<<"$call"
        printf '%-62s %8.0f ns\n' "$what" "$(median "$name")"
    done
    say "the decoder is $(ratio plain plain_server) times as fast as json_populate_record; with uuid and numeric $(ratio exact exact_server) times"
}

main
