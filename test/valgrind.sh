#!/usr/bin/env bash
#
# valgrind.sh: tests on a throw-away server whose every process runs under valgrind. Fails on an error with
# a frame of our library in it; other errors and tests that fail are told, no more. Logs: tmp_check/valgrind/.
#
#   test/valgrind.sh [FLIGHTS]       first the demo's views over so many flights (default 2000), then sql/
#
#   PG_CONFIG=...           a server built with -DUSE_VALGRIND sees far more; asserts do no harm
#   SA_PG_SOURCE=FOLDER     PostgreSQL's source, for its list of suppressions, else from the Debian package
#   ONLY=pattern            of sql/, only the tests whose name matches (a shell pattern); '' for none
#   TEST_TIMEOUT=n          seconds that a step may take (default 3600)
#
set -euo pipefail
# shellcheck source=test/server.sh
. "$(dirname "${BASH_SOURCE[0]}")/server.sh"
# shellcheck source=test/pg_source.sh
. "$(dirname "${BASH_SOURCE[0]}")/pg_source.sh"

demo=$top/test/demo
logs=$top/tmp_check/valgrind
only=${ONLY-*}
limit=${TEST_TIMEOUT:-3600}
flights=${1:-2000}

query() { psql -XqAt -F '|' -v ON_ERROR_STOP=1 "$@"; }

start_under_valgrind() {
    user_dir "$scratch/valgrind"
    server_create 'max_connections = 30' 'checkpoint_timeout = 1h'
    cat >postgres.valgrind <<END
#!/bin/sh
exec valgrind --quiet --trace-children=yes --leak-check=no --num-callers=40 --fullpath-after= \\
    --suppressions='$scratch/valgrind.supp' --gen-suppressions=all \\
    --error-markers=ERROR-BEGIN,ERROR-END --log-file='$scratch/valgrind/%p.log' \\
    '$(command -v postgres)' "\$@"
END
    chmod 755 postgres.valgrind
    run_to pg_ctl.log as_user pg_ctl -D "$data" -p "$scratch/postgres.valgrind" \
        -l "$scratch/sock/server.log" -t 300 -w start || {
        tail -n 20 pg_ctl.log "$scratch/sock/server.log" >&2
        die "the server did not start under valgrind"
    }
}

# The demo without its show: joins, hopping windows, append and update.
flow() {
    local columns=(flight_id origin destination scheduled departed delay distance)
    query -f "$demo/airports.sql" -f "$demo/schema.sql"
    gzip -dc "$top/test/data/flights-20k.jsonl.gz" | { head -n "$flights"; cat >/dev/null; } |
        perl "$demo/to_copy.pl" "${columns[@]}" >flights.copy
    perl "$demo/feed.pl" flights.copy 0 | query
    query -c "CALL stream_agg.run('flights')"
    query -c 'CREATE TABLE flights_log (ord bigint GENERATED ALWAYS AS IDENTITY, flight_id int, origin text,
        destination text, scheduled timestamptz, departed timestamptz, delay int, distance int)'
    query -c "COPY flights_log ($(IFS=,; say "${columns[*]}")) FROM STDIN" <flights.copy
    psql -Xq -f "$demo/verify.sql"
    [ "$(query -c 'SELECT count(*) = 3 AND bool_and(same) FROM verdict')" = t ]
}

regress() {
    local file name tests=()
    for file in "$top"/sql/*.sql; do
        name=$(basename "$file" .sql)
        # shellcheck disable=SC2053
        if [ -e "$file" ] && [[ $name == $only ]]; then tests+=("$name"); fi
    done
    [ "${#tests[@]}" -gt 0 ] || return 0
    user_dir "$scratch/regress"
    cp -r "$top/sql" "$top/expected" "$scratch/regress/"
    mkdir -p "$scratch/regress/test"
    cp -r "$top/test/data" "$scratch/regress/test/"
    for name in "${tests[@]}"; do touch "$scratch/regress/expected/$name.out"; done
    if [ "$(id -u)" = 0 ]; then chown -R "$test_user" "$scratch/regress"; fi
    (
        cd "$scratch/regress"
        as_user timeout -k 60 "$limit" "$(dirname "$(dirname "$("$PG_CONFIG" --pgxs)")")/test/regress/pg_regress" \
            --bindir="$(dirname "$(command -v psql)")" --host="$PGHOST" --port="$PGPORT" --user="$PGUSER" \
            --dbname=test_regress --inputdir=. --outputdir="$scratch/regress" --load-extension=stream_agg "${tests[@]}"
    )
}

# Prints the errors, one after the other, without their repetitions in other processes; ours first.
errors() {
    perl -0777 -ne 'BEGIN { $ours = shift }
        for my $e (/^==\d+== ERROR-BEGIN\n(.*?)^==\d+== ERROR-END/msg) {
            (my $key = $e) =~ s/^==\d+== ?//mg;
            $key =~ s/0x[0-9A-F]+//g;
            $seen{$key}++ or push @{ $key =~ /\Q$ours\E/ ? \@ours : \@others }, $e;
        }
        END { print "--- ours\n$_" for @ours; print "--- of the server\n$_" for @others; }' "$build/src" "$scratch"/valgrind/*.log
}

mkdir -p "$logs"
rm -rf "${logs:?}"/*
command -v valgrind >/dev/null || die "please install valgrind"
bash "$top/test/setup.sh"
make_scratch
pg_source
cp "$pg_source/src/tools/valgrind.supp" "$scratch/valgrind.supp"
build_apart             # so that traces have a path of our sources that nobody else has
make_stage
"$PG_CONFIG" --configure --cflags | grep -q USE_VALGRIND ||
    say "this server is built without -DUSE_VALGRIND: errors inside palloc'd memory stay unseen"
say "starting a server under valgrind ..."
start_under_valgrind
say "the demo's views over $flights flights ..."
if run_to "$logs/flow.log" flow; then
    say "ok      flow"
else
    say "failed  flow"
    tail -n 20 "$logs/flow.log"
fi
say "sql/ ..."
run_to "$logs/regress.log" regress || true
grep -E '\.\.\. (ok|FAILED)|^(not )?ok ' "$logs/regress.log" || true
cp "$scratch/regress/regression.diffs" "$logs/" 2>/dev/null || true
run_to /dev/null as_user pg_ctl -D "$data" -m fast -t 300 -w stop || true
cp "$scratch/sock/server.log" "$logs/"
errors >"$logs/errors"
ours=$(grep -c '^--- ours' "$logs/errors" || true)
others=$(grep -c '^--- of the server' "$logs/errors" || true)
head -n 200 "$logs/errors"
if grep -E 'TRAP:|PANIC:|was terminated by signal' "$logs/server.log"; then ours=$((ours + 1)); fi
say "$(find "$scratch/valgrind" -name '*.log' | wc -l) processes, $ours errors of ours, $others without us in them"
[ "$ours" = 0 ]
