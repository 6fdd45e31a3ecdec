#!/usr/bin/env bash
#
# run_tests.sh: every test, on a throw-away server. The last line printed is 'N passed, N failed'; each
# regression script, isolation spec and TAP file counts as one, as do the include rules, each run of the model,
# the demo and the server's log. Exits non-zero if any failed or none ran. Logs stay in tmp_check/.
#
#   test/run_tests.sh [rules] [model] [regress] [isolation] [tap] [demo] [versions]
#
# Default: all, but `versions`, a slice of the tests on the other PostgreSQLs that are supported, only with CI set.
#
#   ONLY=pattern      of these, only the tests whose name matches (a shell pattern)
#   TEST_JOBS=n       TAP files at a time (default 2)
#   TEST_TIMEOUT=n    seconds that one TAP file, or one run of pg_regress, may take (default 1800)
#
set -euo pipefail
# shellcheck source=test/server.sh
. "$(dirname "${BASH_SOURCE[0]}")/server.sh"

suites=${*:-rules model regress isolation tap demo ${CI:+versions}}
only=${ONLY:-*}
jobs=${TEST_JOBS:-2}
limit=${TEST_TIMEOUT:-1800}
logs=$top/tmp_check
tree=
passed=0
failed=0

wanted() { [[ " $suites " == *" $1 "* ]]; }
# shellcheck disable=SC2053
selected() { [[ $1 == $only ]]; }

ok() { passed=$((passed + 1)); say "ok      $*"; }
not_ok() { failed=$((failed + 1)); say "FAILED  $*"; }

# Prints the names of the files in a folder that ONLY lets through.
names() {
    local file name
    for file in "$1"/*"$2"; do
        name=${file##*/}
        name=${name%"$2"}
        if [ -e "$file" ] && selected "$name"; then say "$name"; fi
    done
}

# shellcheck disable=SC2317
finish() {
    local status=$?
    if [ -n "$scratch" ] && [ -e "$scratch/sock/server.log" ]; then cp "$scratch/sock/server.log" "$logs/"; fi
    cleanup
    [ "$status" = 0 ] || [ "$failed" -gt 0 ] || failed=1
    say "$passed passed, $failed failed" | tee "$logs/summary"
    [ "$failed" = 0 ] && [ "$passed" -gt 0 ] || exit 1
}

# The tests write beside their scripts and run as the unprivileged user, who may not even see our folder.
copy_tree() {
    local item
    tree=$scratch/tree
    mkdir -p "$tree/test"
    for item in sql expected test/specs test/expected test/t test/perl test/data test/kafka test/syntax doc README.md; do
        if [ -e "$top/$item" ]; then cp -r "$top/$item" "$tree/$item"; fi
    done
    if [ "$(id -u)" = 0 ]; then chown -R "$test_user" "$tree"; fi
}

rules() {
    if run_to "$logs/include_rules.log" bash "$top/test/include_rules.sh"; then
        ok include_rules
    else
        not_ok include_rules
    fi
    grep -E '^(error|warning)' "$logs/include_rules.log" || true
}

# pg_regress says 'test x ... ok' up to 15 and 'ok 1 - x' since 16.
passed_names() {
    sed -nE -e 's/^(test|    ) +([^ ]+) +\.\.\. ok .*/\2/p' -e 's/^ok +[0-9]+ +[-+] ([^ ]+) .*/\1/p' "$1"
}

# pg_regress_suite NAME DRIVER INPUTDIR TEST...: what the driver does not call ok has failed.
pg_regress_suite() {
    local suite=$1 driver=$2 input=$3 test out="$scratch/$1" log="$logs/$1.log"
    shift 3
    user_dir "$out" "$input/expected"
    for test in "$@"; do    # without an expected file pg_regress would give up there and then
        [ -e "$input/expected/$test.out" ] || as_user touch "$input/expected/$test.out"
    done
    run_to "$log" in_dir "$input" timeout -k 60 "$limit" "$driver" --bindir="$(dirname "$(command -v psql)")" \
        --host="$PGHOST" --port="$PGPORT" --user="$PGUSER" --dbname="test_$suite" \
        --inputdir=. --outputdir="$out" --load-extension=stream_agg "$@" || true
    for test in "$@"; do
        if passed_names "$log" | grep -qxF -- "$test"; then ok "$suite/$test"; else not_ok "$suite/$test"; fi
    done
    cp -r "$out/results" "$logs/$suite.results" 2>/dev/null || true
    if [ -s "$out/regression.diffs" ]; then
        cp "$out/regression.diffs" "$logs/$suite.diffs"
        head -n 200 "$logs/$suite.diffs"
    elif [ "$(passed_names "$log" | wc -l)" -lt $# ]; then
        tail -n 20 "$log"
    fi
}

in_dir() {
    cd "$1"
    shift
    as_user "$@"
}

regress() {
    local tests
    mapfile -t tests < <(names "$top/sql" .sql)
    [ "${#tests[@]}" = 0 ] || pg_regress_suite regress "$pgxs/test/regress/pg_regress" "$tree" "${tests[@]}"
}

isolation() {
    local specs
    mapfile -t specs < <(names "$top/test/specs" .spec)
    [ "${#specs[@]}" = 0 ] || pg_regress_suite isolation \
        "$pgxs/test/isolation/pg_isolation_regress" "$tree/test" "${specs[@]}"
}

# What tests with Kafka need: the tools that drive it, and the real broker's jars, which the unprivileged user
# would fetch again for every test.
kafka_rig() {
    local name
    for name in "$@"; do
        if grep -q '^use Kafka;' "$top/test/t/$name.pl"; then break; fi
        name=
    done
    [ -n "$name" ] || return 0
    export KAFKA_TOOLS=$scratch/kafka
    logged kafka_tools make -s -C "$top/test/kafka" BUILD="$KAFKA_TOOLS" WERROR=1
    [ "${KAFKA_RIG:-}" != mock ] || return 0
    if run_to "$scratch/kafka_libs" bash "$top/test/kafka/broker.sh" libs; then
        KAFKA_LIBS=$(tail -n 1 "$scratch/kafka_libs")
        export KAFKA_LIBS
    else
        say "Kafka: the mock, for there is no real broker: $(tail -n 1 "$scratch/kafka_libs")"
        export KAFKA_RIG=mock
    fi
}

# What the test of the statements needs: its tools, and the JDBC driver's jars.
syntax_rig() {
    [[ " $* " == *' 120_syntax '* ]] || return 0
    export SYNTAX_TOOLS=$scratch/syntax
    logged syntax_tools make -s -C "$top/test/syntax" BUILD="$SYNTAX_TOOLS" WERROR=1
    if run_to "$scratch/jdbc_libs" bash "$top/test/syntax/jdbc.sh" libs; then
        JDBC_LIBS=$(tail -n 1 "$scratch/jdbc_libs")
        export JDBC_LIBS
    else
        say "JDBC: not tested: $(tail -n 1 "$scratch/jdbc_libs")"
        export SYNTAX_JDBC=no
    fi
}

# What the test of full disks needs: a small file system, if we may make one.
small_disk() {
    [[ " $* " == *' 175_adversity '* ]] && [ -z "${SA_SMALL_DISK:-}" ] || return 0
    mkdir "$scratch/small"
    if mount -t tmpfs -o size=150m,mode=1777 tmpfs "$scratch/small" 2>/dev/null; then
        export SA_SMALL_DISK=$scratch/small
    else
        say "Small disk: not tested: no right to mount one"
    fi
}

# What tests with fault points need: a second installation, with a library that has them. Made once, by the first
# of these tests, beside others.
fault_rig() {
    local stage=$scratch/faults build=$scratch/fault_build
    (
        flock 8
        [ ! -e "$stage" ] || exit 0
        copy_sources
        FAULTS=1 fill_stage
    ) 8>"$scratch/faults.lock"
}
uses_faults() { grep -q '^use Faults;' "$top/test/t/$1.pl"; }

# One TAP file, with its own folder for servers and logs; leaves its exit status in a file.
tap_file() {
    local name=$1 dir="$scratch/tap/$1" status=0 start=$SECONDS path=$PATH
    if uses_faults "$name"; then
        fault_rig || return
        path=$scratch/faults$("$PG_CONFIG" --bindir):$path
    fi
    in_dir "$tree" env PATH="$path" TESTDIR="$dir" TESTDATADIR="$dir/tmp_check" TESTLOGDIR="$dir/tmp_check/log" \
        PG_REGRESS="$pgxs/test/regress/pg_regress" PG_TEST_PORT_DIR="$scratch/tap" \
        PG_CONFIG="$(PATH=$path command -v pg_config)" PERL5LIB="$pgxs/test/perl:$tree/test/perl:$tree/test/kafka" \
        timeout -k 60 "$limit" prove --verbose "test/t/$name.pl" >"$logs/tap_$name.log" 2>&1 || status=$?
    say "$status $((SECONDS - start))" >"$scratch/tap/$name.status"
}

# Several at a time.
tap_files() {
    local name running=0
    set -m              # else bash has its background commands ignore SIGINT
    for name in "$@"; do
        if [ "$running" -ge "$jobs" ]; then
            wait -n || true
            running=$((running - 1))
        fi
        tap_file "$name" &
        running=$((running + 1))
    done
    wait
}

tap() {
    local tests name status seconds
    mapfile -t tests < <(names "$top/test/t" .pl)
    [ "${#tests[@]}" -gt 0 ] || return 0
    user_dir "$scratch/tap"
    for name in "${tests[@]}"; do user_dir "$scratch/tap/$name" "$scratch/tap/$name/tmp_check"; done
    kafka_rig "${tests[@]}"
    syntax_rig "${tests[@]}"
    small_disk "${tests[@]}"
    run tap_files "${tests[@]}" || true
    for name in "${tests[@]}"; do
        read -r status seconds <"$scratch/tap/$name.status" || status=missing
        if [ "$status" = 0 ]; then
            ok "tap/$name (${seconds} s)"
        else
            not_ok "tap/$name (exit ${status}, ${seconds:-?} s)"
            grep -E '^ *not ok|^#' "$logs/tap_$name.log" | tail -n 40 || true
            cp -r "$scratch/tap/$name/tmp_check/log" "$logs/tap_$name" 2>/dev/null || true
        fi
    done
}

demo() {
    if run_to "$logs/demo.log" env DEMO_SECONDS=0 bash "$top/test/demo/run.sh"; then
        ok demo
    else
        not_ok demo
        tail -n 40 "$logs/demo.log"
    fi
}

# own_lines NAME COMMAND ARGS...: a script whose lines are like ours.
own_lines() {
    local name=$1 log="$logs/$1.log" status=0 bad
    shift
    run in_log "$log" "$@" || status=$?
    bad=$(grep -c '^FAILED  ' "$log" || true)
    passed=$((passed + $(grep -c '^ok      ' "$log" || true)))
    failed=$((failed + bad))
    [ "$status" = 0 ] || [ "$bad" != 0 ] || not_ok "$name (exit $status)"
}
in_log() {
    local log=$1
    shift
    "$@" 2>&1 | tee "$log"
}

# Tests on this server do not crash it; those that mean to have servers of their own.
server_log() {
    if as_user grep -nE 'TRAP:|PANIC:|was terminated by signal|runtime error:|reference leak|refcount leak|snapshot .* still active' "$scratch/sock/server.log"; then
        not_ok "server log: crashes"
    else
        ok "server log: no crash"
    fi
}

model() { own_lines model bash "$top/test/model/run.sh"; }
versions() { own_lines versions bash "$top/test/versions/run.sh" slice; }

mkdir -p "$logs"
rm -rf "${logs:?}"/*
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
export WERROR=1
bash "$top/test/setup.sh"
make_scratch
trap finish EXIT        # make_scratch has set its own
pgxs=$(dirname "$(dirname "$("$PG_CONFIG" --pgxs)")")
if wanted rules && selected include_rules; then rules; fi
if wanted model && selected model; then model; fi
make_stage
copy_tree
if wanted regress || wanted isolation; then
    server_start
    if wanted regress; then regress; fi
    if wanted isolation; then isolation; fi
    server_log
    server_stop
fi
if wanted tap; then tap; fi
if wanted demo && selected demo; then demo; fi
if wanted versions; then versions; fi
