# shellcheck shell=bash disable=SC2034
#
# lib.sh: what the benches share: the server's settings, ways to measure, and to wait. Sourced after server.sh.

# fsync is off, as in all throw-away servers of test/: it measures the work, not the disk.
settings=('shared_buffers = 512MB' 'max_wal_size = 4GB' 'checkpoint_timeout = 1h' 'synchronous_commit = on')

query() { psql -XqAt -v ON_ERROR_STOP=1 "$@"; }

# ---- measuring

# Seconds of CPU that the server used so far: its processes, and those that ended.
server_cpu() {
    as_user head -n 1 "${data:?}/postmaster.pid" | { read -r pid; cpu_of "$pid"; }
}
cpu_of() {
    { cat /proc/[0-9]*/stat 2>/dev/null || true; } | awk -v top="$1" -v hz="$(getconf CLK_TCK)" '
        { pid = $1; sub(/^.*\) /, ""); if (pid == top || $2 == top) ticks += $12 + $13 + $14 + $15 }
        END { printf "%.2f\n", ticks / hz }'
}
# Of one process, with its threads.
process_cpu() {
    awk -v hz="$(getconf CLK_TCK)" '{ sub(/^.*\) /, ""); printf "%.2f\n", ($12 + $13) / hz }' "/proc/$1/stat"
}

wal_position() { query -c "SELECT pg_current_wal_insert_lsn() - '0/0'"; }

# Seconds that all the machine's processors were busy.
machine_cpu() {
    awk -v hz="$(getconf CLK_TCK)" 'NR == 1 { printf "%.2f\n", ($2 + $3 + $4 + $7 + $8 + $9) / hz }' /proc/stat
}

now="SELECT extract(epoch FROM clock_timestamp())"
calc() { awk "BEGIN { printf \"%.6f\\n\", $1 }"; }

# ---- waiting

# start_watching QUERY: asks again and again, until stop_watching. Into the file `seen`: the pid of its backend, then
# the answers.
start_watching() {
    {
        say 'SELECT pg_backend_pid();'
        say "$1 \\watch ${2:-0.02}"
    } | psql -XqAt >seen 2>&1 &
    watcher=$!
    wait_for_line seen
}
stop_watching() {
    kill "$watcher" 2>/dev/null || true
    wait "$watcher" 2>/dev/null || true
    watcher=
}
wait_until() {
    local deadline=$((SECONDS + 60))
    until [ "$(query -c "$1")" = t ]; do
        [ "$SECONDS" -lt "$deadline" ] || die "in vain: $1"
        sleep 0.05
    done
}
wait_for_line() {
    local deadline=$((SECONDS + 60))
    until [ -s "$1" ]; do
        [ "$SECONDS" -lt "$deadline" ] || die "nothing came into $1"
        sleep 0.02
    done
}

# ---- hurting

# kill_server: until nobody is left. (Its files go, too: where nobody takes the dead away, as in some containers, their numbers stay in use.)
kill_server() {
    local postmaster pids
    postmaster=$(as_user head -n 1 "${data:?}/postmaster.pid")
    kill -STOP "$postmaster"        # no more children
    mapfile -t pids < <(descendants "$postmaster")
    kill -KILL "$postmaster"
    while alive "${pids[@]/#//proc/}"; do sleep 0.02; done
    as_user rm -f "$data/postmaster.pid" "$scratch/sock/.s.PGSQL.$PGPORT"*
}
