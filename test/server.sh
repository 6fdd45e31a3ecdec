#!/usr/bin/env bash
#
# server.sh: a throw-away server with the extension's library preloaded: its own data directory, a Unix
# socket only, never as root, gone when the script ends, fails or is interrupted.
#
#   test/server.sh [-c 'name = value']... [COMMAND [ARG...]]
#
# builds, starts a server and runs the command (default: psql) with PGHOST, PGUSER and PATH set.
# Sourced, it gives server_start, server_stop and server_restart to scripts that called prepare.
#
# shellcheck source=test/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

initdb_options=()       # more of them

# server_create ['name = value'...]: a data directory, with lines to add to its configuration.
server_create() {
    data=$scratch/data
    user_dir "$data"
    logged initdb as_user initdb -D "$data" -U postgres -A trust -E UTF8 --locale=C --no-sync \
        ${initdb_options[@]+"${initdb_options[@]}"}
    as_user tee -a "$data/postgresql.conf" >/dev/null <<EOF
listen_addresses = ''
unix_socket_directories = '$scratch/sock'
shared_preload_libraries = 'stream_agg'
max_prepared_transactions = 10
max_worker_processes = 32
autovacuum = on
fsync = off
timezone = 'UTC'
log_line_prefix = '%m [%p] %q%u@%d %a '
EOF
    [ $# = 0 ] || printf '%s\n' "$@" | as_user tee -a "$data/postgresql.conf" >/dev/null
    unset PGSERVICE PGHOSTADDR PGPASSWORD PGOPTIONS PGDATA PGAPPNAME
    export PGHOST=$scratch/sock PGPORT=5432 PGUSER=postgres PGDATABASE=postgres
}

# server_start ['name = value'...]: creates the data directory at the first call.
server_start() {
    [ -d "$scratch/data" ] || server_create "$@"
    if ! run_to /dev/null as_user pg_ctl -D "$data" -l "$scratch/sock/server.log" -w start; then
        tail -n 30 "$scratch/sock/server.log" >&2
        die "the server did not start"
    fi
}

# server_stop [fast|smart|immediate]
server_stop() {
    run_to /dev/null as_user pg_ctl -D "$data" -m "${1:-fast}" -w stop
}

server_restart() {
    server_stop "$@"
    server_start
}

main() {
    local conf=()
    set -euo pipefail
    while [ "${1:-}" = -c ]; do
        conf+=("$2")
        shift 2
    done
    prepare
    server_start ${conf[@]+"${conf[@]}"}
    cd "$OLDPWD"
    if [ $# = 0 ]; then set -- psql -X; fi
    "$@"
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then main "$@"; fi
