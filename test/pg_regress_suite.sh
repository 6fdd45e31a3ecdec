#!/usr/bin/env bash
#
# pg_regress_suite.sh: PostgreSQL's own tests on a throw-away server with the library preloaded: what fails
# there is run again without the library, and counts unless it fails there in the same way. (The tests may be
# those of another minor version than the server.) Its last line is 'N passed, N failed'.
#
#   test/pg_regress_suite.sh [-e] [regress] [isolation]       default: regress
#
#   -e                     with the extension in the database as well (foreign_data fails then: it lists all
#                          foreign data wrappers and servers)
#   SA_PG_SOURCE=FOLDER    PostgreSQL's source, else it comes from the server's Debian package
#   TEST_TIMEOUT=n         seconds that one run may take (default 3600)
#
set -euo pipefail
# shellcheck source=test/server.sh
. "$(dirname "${BASH_SOURCE[0]}")/server.sh"
# shellcheck source=test/pg_source.sh
. "$(dirname "${BASH_SOURCE[0]}")/pg_source.sh"

limit=${TEST_TIMEOUT:-3600}
logs=$top/tmp_check/pg
extension=()
passed=0
failed=0

# The library of C functions that the tests load, and two more from contrib, beside each other.
build_helpers() {
    local file flags
    read -ra flags <<<"$("$PG_CONFIG" --cppflags) $("$PG_CONFIG" --cflags)"
    user_dir "$scratch/lib"
    for file in src/test/regress/regress.c contrib/spi/autoinc.c contrib/spi/refint.c; do
        gcc "${flags[@]}" -w -fPIC -shared -DREFINT_VERBOSE -I"$("$PG_CONFIG" --includedir-server)" \
            -o "$scratch/lib/$(basename "$file" .c).so" "$pg_source/$file"
    done
}

# The schedules, as the unprivileged user may read them, and that user writes beside them.
copy_tests() {
    local suite
    for suite in regress isolation; do
        cp -r "$pg_source/src/test/$suite" "$scratch/$suite"
    done
    if [ "$(id -u)" = 0 ]; then chown -R "$test_user" "$scratch/regress" "$scratch/isolation"; fi
}

driver() {
    case $1 in
    regress) say "$pgxs/test/regress/pg_regress" ;;
    isolation) say "$pgxs/test/isolation/pg_isolation_regress" ;;
    esac
}
schedule() {
    case $1 in
    regress) say parallel_schedule ;;
    isolation) say isolation_schedule ;;
    esac
}
scheduled() {
    sed -n 's/^test: *//p' "$scratch/$1/$(schedule "$1")" | tr -s ' ' '\n'
}
# pg_regress says 'test x ... ok' up to 15 and 'ok 1 - x' since 16.
passed_names() {
    sed -nE -e 's/^(test|    ) +([^ ]+) +\.\.\. ok .*/\2/p' -e 's/^ok +[0-9]+ +[-+] ([^ ]+) .*/\1/p' "$1" | sort
}

# run_suite SUITE NAME: leaves NAME.log and NAME.diffs in the logs.
run_suite() {
    local suite=$1 name=$2 out="$scratch/$2.out" database=regression       # the tests print this name
    [ "$suite" != isolation ] || database=isolation_regression
    user_dir "$out"
    run_to "$logs/$name.log" in_tests "$suite" timeout -k 60 "$limit" "$(driver "$suite")" \
        --bindir="$(dirname "$(command -v psql)")" --host="$PGHOST" --port="$PGPORT" --user="$PGUSER" \
        --dbname="$database" --inputdir=. --outputdir="$out" --dlpath="$scratch/lib" --max-concurrent-tests=20 \
        ${extension[@]+"${extension[@]}"} --schedule="$(schedule "$suite")" || true
    cp "$out/regression.diffs" "$logs/$name.diffs" 2>/dev/null || true
    cp "$scratch/sock/server.log" "$logs/$name.server.log"
    as_user grep -E 'TRAP:|PANIC:|was terminated by signal' "$scratch/sock/server.log" || true
}
in_tests() {
    cd "$scratch/$1"
    shift
    as_user "$@"
}

# Is what a test printed the same with and without the library?
same_results() {
    diff -q <(sed "s,$scratch/$1.out,,g" "$scratch/$1.out/results/$2.out" 2>&1) \
        <(sed "s,$scratch/$1.bare.out,,g" "$scratch/$1.bare.out/results/$2.out" 2>&1) >/dev/null
}

# The server again, without the library.
bare_server() {
    server_stop
    rm -rf "$data" "$scratch/sock/server.log"
    server_start "shared_preload_libraries = ''"
    extension=()
}

mkdir -p "$logs"
rm -rf "${logs:?}"/*
while getopts 'e' option; do
    case $option in
    e) extension=(--load-extension=stream_agg) ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
suites=${*:-regress}

bash "$top/test/setup.sh"
make_scratch
pgxs=$(dirname "$(dirname "$("$PG_CONFIG" --pgxs)")")
pg_source
say "PostgreSQL's tests: $pg_source"
build_helpers
make_stage
copy_tests
server_start
declare -A bad=()
for suite in $suites; do
    run_suite "$suite" "$suite"
    bad[$suite]=$(scheduled "$suite" | sort | comm -23 - <(passed_names "$logs/$suite.log"))
    passed=$((passed + $(passed_names "$logs/$suite.log" | wc -l)))
    say "$suite: $(passed_names "$logs/$suite.log" | wc -l) of $(scheduled "$suite" | wc -l) passed with the library"
done
if [ -n "${bad[*]// /}" ]; then
    bare_server
    for suite in $suites; do
        [ -n "${bad[$suite]}" ] || continue
        run_suite "$suite" "$suite.bare"
        say "$suite: $(passed_names "$logs/$suite.bare.log" | wc -l) of $(scheduled "$suite" | wc -l) passed without it"
        for test in ${bad[$suite]}; do
            if passed_names "$logs/$suite.bare.log" | grep -qxF -- "$test"; then
                say "FAILED  $suite/$test"
                failed=$((failed + 1))
            elif ! same_results "$suite" "$test"; then
                say "FAILED  $suite/$test, in another way than without the library"
                failed=$((failed + 1))
            else
                say "failed  $suite/$test, in the same way without the library"
            fi
        done
    done
fi
say "$passed passed, $failed failed" | tee "$logs/summary"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
