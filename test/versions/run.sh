#!/usr/bin/env bash
#
# run.sh: the tests on every PostgreSQL that is supported, each in its Debian release (tree.sh), the
# machine's own on the machine itself. Ends with a table; the last line is 'N passed, N failed'. Logs stay
# in tmp_check/versions/.
#
#   VERSIONS="17 18"       of 15, 17 and 18 (default: all)
#   SUITES="regress tap"   of those of run_tests.sh (default: all)
#   ONLY=pattern           as there; and so TEST_*, KAFKA_RIG, and the settings of single tests (SA_*)
#   REFRESH=1              makes the trees anew; for others see tree.sh
#
#   test/versions/run.sh slice     what CI has time for, of the other versions than the machine's: slice.sh.
#                                  Where a tree cannot be had, a line says why, and that is no failure. No total.
#
set -euo pipefail
# shellcheck source=test/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=test/versions/tree.sh
. "$(dirname "${BASH_SOURCE[0]}")/tree.sh"

extent=${1:-whole}
versions=${VERSIONS:-15 17 18}
suites=${SUITES:-rules regress isolation tap demo}
logs=$top/tmp_check/versions
settings=()
table=()
passed=0
failed=0

# Settings that tests understand, but none that names a place of this machine.
pass_settings() {
    mapfile -t settings < <(env | grep -E '^(ONLY|TEST_[A-Z]+|DEMO_[A-Z]+|KAFKA_RIG|SA_[A-Z_]+)=' |
        grep -vE '^SA_(CACHE|MIRROR|KEYRING|PG_SOURCE)=')
    settings+=(KAFKA_DEADLINE=240)
}

# in_version VERSION COMMAND...: in its tree, or on the machine when that has it.
in_version() {
    local version=$1
    shift
    if [ "$version" = "$own" ]; then
        env -u CI "${settings[@]}" TMPDIR="$scratch/$version" "$@"
    else
        in_tree "$cache/trees/$(release "$version")" "$scratch/$version" env "${settings[@]}" \
            PG_CONFIG="/usr/lib/postgresql/$version/bin/pg_config" "$@"
    fi
}

# The tests of one version; their names get the version's.
# shellcheck disable=SC2086
run_version() {
    local version=$1 folder=/tmp/stream_agg command
    [ "$version" != "$own" ] || folder=$scratch/$version/stream_agg
    if [ "$extent" = slice ]; then command=versions/slice.sh; else command="run_tests.sh $suites"; fi
    in_version "$version" bash "$folder"/test/$command 2>&1 | tee "$logs/$version.log" |
        sed -E -e '/^[0-9]+ passed, [0-9]+ failed$/d' -e "s,^(ok      |FAILED  ),&pg$version/,"
}

# shellcheck disable=SC2016
# The server's version in full, and where it ran.
title() {
    local where
    if [ "$1" = "$own" ]; then where='this machine'; else where="Debian $(release "$1")"; fi
    say "$(in_version "$1" sh -c '"${PG_CONFIG:-pg_config}" --version | cut -d " " -f 1-2' 2>/dev/null), $where"
}

test_version() {
    local version=$1 start=$SECONDS status=0 good bad
    mkdir -m 1777 "$scratch/$version"
    copy_sources "$scratch/$version/stream_agg"
    run run_version "$version" || status=$?
    tally "pg$version/run" "$logs/$version.log" "$status"
    table+=("$(printf '%-40s %3d passed, %3d failed  %3d min' "$(title "$version")" "$good" "$bad" $(((SECONDS - start + 59) / 60)))")
    cp -r "$scratch/$version/stream_agg/tmp_check" "$logs/$version" 2>/dev/null || true
    rm -rf "${scratch:?}/$version"
}

# have_tree VERSION: leaves in `why` why not.
have_tree() {
    local log=$logs/tree-$1.log
    why=$(trees_unavailable) && return 1
    run_to "$log" make_tree "$1" "$extent" && return
    why=$(grep -E '^(E|W): ' "$log" | tail -n 1)
    why=${why:-$(tail -n 1 "$log")}
    return 1
}

# What cannot be had is no failure of a slice.
absent() {
    if [ "$extent" = slice ]; then
        table+=("skipped: PostgreSQL $1 in Debian $(release "$1"): $why")
    else
        table+=("FAILED  PostgreSQL $1 in Debian $(release "$1"): $why")
        failed=$((failed + 1))
    fi
}

# The jars of a real Kafka broker and of the JDBC driver are in the cache, then, for the trees to use.
fetch_jars() {
    [[ $extent = whole && " $suites " = *" tap "* ]] || return 0
    run_to "$logs/jdbc.log" bash "$top/test/syntax/jdbc.sh" libs || say "no JDBC driver: $(tail -n 1 "$logs/jdbc.log")"
    [ "${KAFKA_RIG:-}" != mock ] || return 0
    run_to "$logs/kafka.log" bash "$top/test/kafka/broker.sh" libs || say "no real Kafka broker: $(tail -n 1 "$logs/kafka.log")"
}

own=$(own_version)
pass_settings
mkdir -p "$logs"
rm -rf "${logs:?}"/*
make_scratch
fetch_jars
for version in $versions; do
    release "$version" >/dev/null
    if [ "$version" = "$own" ]; then
        [ "$extent" = slice ] || test_version "$version"
    elif have_tree "$version"; then
        test_version "$version"
    else
        absent "$version"
    fi
done
[ "${#table[@]}" = 0 ] || printf '%s\n' "${table[@]}"
[ "$extent" = slice ] || say "$passed passed, $failed failed"
[ "$failed" = 0 ]
