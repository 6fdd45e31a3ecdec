#!/usr/bin/env bash
#
# upgrade.sh: pg_upgrade of a live installation. On the older server, streams and views of all kinds, some
# behind the others (upgrade/before.sql), are stopped in order. On the newer one, for each way to take the
# files over: the workers go on by themselves where they were, and once fed with the rest all views hold the
# answer over all events. The last line is 'N passed, N failed'.
#
#   OLD_PG_CONFIG=... PG_CONFIG=... test/upgrade.sh      from the server of the first to that of the second
#
set -euo pipefail
# shellcheck source=test/server.sh
. "$(dirname "${BASH_SOURCE[0]}")/server.sh"

logs=$top/tmp_check/upgrade
deadline=120
initdb_options=(--data-checksums)       # as 18 has by default: pg_upgrade wants the same on both sides
plain_path=$PATH
passed=0
failed=0

query() { psql -XqAt -F ' ' -v ON_ERROR_STOP=1 "$@"; }
script() { query -f "$top/test/upgrade/$1.sql"; }
ok() { passed=$((passed + 1)); say "ok      $*"; }
not_ok() { failed=$((failed + 1)); say "FAILED  $*"; }

# make_server NAME PG_CONFIG: a private installation of that server with the extension; leaves where its
# programs are in `bin`.
make_server() {
    PG_CONFIG=$2
    stage=$scratch/server-$1
    make_stage
    bin=$stage$("$PG_CONFIG" --bindir)
}

# use FOLDER: the programs in it, from now on.
use() { export PATH="$1:$plain_path"; }

live_installation() {
    use "$old"
    server_start
    script before >/dev/null
    letters=$(query -c 'SELECT count(*) FROM stream_agg.dead_letter')
    [ "$letters" -gt 0 ]
    server_stop
    mv "$data" "$scratch/old"
}

# upgrade WAY: leaves the new server's data directory in `data`. Nothing but the copy keeps the old one.
upgrade() {
    use "$new"
    user_dir "$scratch/upgrade"
    as_user cp -a "$scratch/old" "$scratch/upgrade/old"
    server_create
    run_to "$logs/$1.log" in_dir "$scratch/upgrade" pg_upgrade -b "$old" -B "$new" -d old -D "$data" \
        -U "$PGUSER" -s "$scratch/sock" --retain "--$1" || return
    if grep -rE 'stream_agg (launcher|worker)' "$data/pg_upgrade_output.d"; then
        say 'workers ran while pg_upgrade did'
        return 1
    fi
    rm -rf "$scratch/upgrade/old"
}
in_dir() {
    cd "$1"
    shift
    as_user "$@"
}

# until_read NUMBER: views that need no call have read so much.
until_read() {
    local end=$((SECONDS + deadline))
    until [ "$(query -c "SELECT count(*) FROM stream_agg.views WHERE trigger = 'immediate' AND status = 'running' AND read = $1")" = "$2" ]; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.2
    done
}

# right: every view holds the answer over what it has read.
right() {
    script check >"$scratch/check"
    if awk '$4 != 0' "$scratch/check" | grep .; then return 1; fi
}

# What must hold on a server after the upgrade, in order.
goes_on() {
    right || { say 'the results are not those of what had been read'; return 1; }
    [ "$(query -c 'SELECT count(*) FROM stream_agg.dead_letter')" = "$letters" ] || { say 'dead letters are missing'; return 1; }
    script more >/dev/null
    until_read 6401 9 || { say 'the workers do not go on'; return 1; }
    [ "$(awk '$1 == "paused" { print $2, $3 }' "$scratch/check")" = 'paused 2001' ] || { say 'a paused view went on'; return 1; }
    right || { say 'the results are wrong when the workers have gone on'; return 1; }
    script rest >/dev/null
    until_read 12001 10 || { say 'not all views come to the end'; return 1; }
    right || { say 'the results are wrong in the end'; return 1; }
    awk '$3 != 12001' "$scratch/check" | grep . && return 1
    ! grep -nE 'TRAP:|PANIC:|was terminated by signal' "$scratch/sock/server.log"
}

test_upgrade() {
    local way=$1 start=$SECONDS
    if ! upgrade "$way"; then
        not_ok "upgrade/$way"
        tail -n 30 "$logs/$way.log"
        find "$data/pg_upgrade_output.d" -type f -exec cp {} "$logs/" \; 2>/dev/null || true
    elif server_start && goes_on; then
        ok "upgrade/$way ($((SECONDS - start)) s)"
    else
        not_ok "upgrade/$way"
        cat "$scratch/check"
    fi
    server_stop 2>/dev/null || true
    cp "$scratch/sock/server.log" "$logs/$way.server.log" 2>/dev/null || true
    rm -rf "$data" "$scratch/upgrade" "$scratch/sock/server.log"
}

[ -n "${OLD_PG_CONFIG:-}" ] || die "please set OLD_PG_CONFIG"
new_config=$PG_CONFIG
mkdir -p "$logs"
rm -rf "${logs:?}"/*
bash "$top/test/setup.sh"
make_scratch
export COPT=-std=gnu17      # an older server's headers are older C than a newer compiler takes
make_server old "$OLD_PG_CONFIG"
unset COPT
old=$bin
make_server new "$new_config"
new=$bin
say "from $("$old/postgres" --version) to $("$new/postgres" --version)"
live_installation
for way in copy link swap; do
    if "$new/pg_upgrade" --help | grep -q -e "--$way"; then test_upgrade "$way"; fi
done
say "$passed passed, $failed failed" | tee "$logs/summary"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
