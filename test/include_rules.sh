#!/usr/bin/env bash
#
# include_rules.sh: the rules of headers and direction.
#
#   - arrows point one way: a file includes headers of its own level or below (the table is just here)
#   - pipeline.c alone includes the headers of all stages
#   - a header is short, compiles on its own after postgres.h, and is no umbrella
#   - window and watermark are arithmetic: no SPI, no catalog, no clock
#   - only source_kafka* and sink_kafka* include rdkafka.h
#   - only compat.h asks for the server's version
#
set -uo pipefail

# Every file of src/ by its stem, from the ground up.
levels='
0   compat clock fault
1   codepatch grammar grammar_convert grammar_scan option option_view option_value option_kafka option_column option_boundary slot codec catalog advance mend stats owner
2   window window_calendar watermark sketch
3   source source_staged source_staged_catalog source_staged_segment source_staged_order source_staged_pass source_staged_peek source_staged_read source_staged_release source_staged_write source_kafka source_kafka_client source_kafka_peek decode decode_array decode_csv decode_json decode_metadata decode_run decode_time decode_value batch batch_scan deadletter dedup query agg cold state state_key state_log state_memory state_recover state_session state_pane state_row result window_sql window_call window_group
4   commit rebuild lateness replay duplicate
5   pipeline
6   worker
7   launcher
8   fdw ddl ddl_database ddl_alter ddl_guard ddl_kind ddl_part ddl_replace ddl_stream ddl_view admin change decode_sql estimate execute suggest letters
9   stream_agg
'
stages='query agg state result commit'
pure='window window_calendar watermark sketch'
umbrellas='stream_agg sa common all includes main types'
header_lines=80         # more than these: a warning
header_lines_max=130    # more than these: an error (compat.h grows with the versions)

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
PG_CONFIG=${PG_CONFIG:-pg_config}
errors=0
shopt -s nullglob

error() { printf 'error: %s\n' "$*"; errors=$((errors + 1)); }
warning() { printf 'warning: %s\n' "$*"; }
listed() { [[ " $2 " == *" $1 "* ]]; }

declare -A level
while read -r number stems; do
    for stem in $stems; do level[$stem]=$number; done
done <<<"$levels"

# Prints the stems of our own headers that a file includes.
own_includes() {
    sed -n 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*"\([a-z0-9_]*\)\.h".*/\1/p' "$1" |
        while read -r stem; do [ ! -e "src/$stem.h" ] || printf '%s\n' "$stem"; done
}

stem_of() {
    local stem=${1##*/}
    printf '%s' "${stem%.*}"
}

check_direction() {
    local file=$1 stem own included
    stem=$(stem_of "$file")
    own=${level[$stem]:-}
    if [ -z "$own" ]; then
        error "$file: '$stem' has no level; give it one in test/include_rules.sh"
        return
    fi
    for included in $(own_includes "$file"); do
        if [ "${level[$included]:-0}" -gt "$own" ]; then
            error "$file (level $own) includes $included.h (level ${level[$included]})"
        fi
    done
}

check_stages() {
    local file=$1 stage includes
    [ "$file" != src/pipeline.c ] || return
    includes=" $(own_includes "$file" | tr '\n' ' ')"
    for stage in $stages; do
        [ "$stage" = "$(stem_of "$file")" ] || listed "$stage" "$includes" || return
    done
    error "$file includes every stage; only pipeline.c may"
}

check_places() {
    local file=$1
    case $file in
    src/source_kafka* | src/sink_kafka*) ;;
    *) if grep -q '#[[:space:]]*include.*rdkafka' "$file"; then error "$file includes rdkafka.h"; fi ;;
    esac
    if [ "$file" != src/compat.h ] &&
        grep -nE '^[[:space:]]*#[[:space:]]*(el)?if.*PG_(VERSION_NUM|MAJORVERSION)' "$file"; then
        error "$file asks for the server's version; that belongs in compat.h"
    fi
}

check_pure() {
    local file=$1
    listed "$(stem_of "$file")" "$pure" || return
    if grep -nE '"(executor/|catalog\.h|utils/syscache)|GetCurrent[A-Za-z]*Timestamp|sa_clock|SPI_' "$file"; then
        error "$file is meant to be arithmetic only"
    fi
}

check_header() {
    local file=$1 lines output
    if listed "$(stem_of "$file")" "$umbrellas"; then error "$file: an umbrella header"; fi
    lines=$(wc -l <"$file")
    if [ "$lines" -gt "$header_lines_max" ] && [ "$(stem_of "$file")" != compat ]; then
        error "$file has $lines lines; at most $header_lines_max"
    elif [ "$lines" -gt "$header_lines" ]; then
        warning "$file has $lines lines; about 60 is meant"
    fi
    # shellcheck disable=SC2086
    if ! output=$(gcc -fsyntax-only -Wall -Werror -x c $cppflags -include postgres.h "$file" 2>&1); then
        error "$file does not compile on its own:"
        printf '%s\n' "$output" | head -n 10
    fi
}

cppflags="-Isrc -I$("$PG_CONFIG" --includedir-server) $("$PG_CONFIG" --cppflags)"
files=(src/*.[ch])
[ "${#files[@]}" -gt 0 ] || error "no files in src/"
for file in "${files[@]}"; do
    check_direction "$file"
    check_stages "$file"
    check_places "$file"
    check_pure "$file"
    if [ "${file##*.}" = h ]; then check_header "$file"; fi
done

[ "$errors" = 0 ] || { printf '%s\n' "$errors errors"; exit 1; }
printf '%s files keep the include rules\n' "${#files[@]}"
