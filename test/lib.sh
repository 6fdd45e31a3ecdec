# shellcheck shell=bash
#
# lib.sh: what the scripts under test/ share: a scratch directory that goes when the script ends,
# an unprivileged user, and a private installation to run from. Meant to be sourced.
#
# The system's own PostgreSQL is never installed into. Its binaries find their files relative to where
# they lie, so a copy of them beside links to everything else is a complete installation of its own, and
# `make install DESTDIR=` puts the extension there. So runs do not disturb each other, nor any cluster
# of the machine, and need no root.

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
PG_CONFIG=${PG_CONFIG:-pg_config}
build=$top
test_user=${STREAM_AGG_TEST_USER:-nobody}   # when run as root; owns no cluster of the machine
# What takes long to make is kept for other runs: in the user's home, or in /var/cache for root.
if [ "$(id -u)" = 0 ]; then cache=/var/cache; else cache=${HOME:-/nonexistent}/.cache; fi
cache=${SA_CACHE:-${XDG_CACHE_HOME:-$cache}/stream_agg}
scratch=
job=

say() { printf '%s\n' "$*"; }
die() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 1; }

# The machine's major version, nothing if it has none.
own_version() {
    { "$PG_CONFIG" --version 2>/dev/null || true; } | sed -n 's/^PostgreSQL \([0-9]*\).*/\1/p'
}

# as_user COMMAND ARGS...: as the unprivileged user when we are root, else just so.
as_user() {
    if [ "$(id -u)" = 0 ]; then
        setpriv --reuid="$test_user" --regid="$(id -g "$test_user")" --init-groups \
            env HOME="$scratch/home" USER="$test_user" LOGNAME="$test_user" TMPDIR="$scratch/tmp" "$@"
    else
        env HOME="$scratch/home" TMPDIR="$scratch/tmp" "$@"
    fi
}

# user_dir DIR...: makes directories that belong to the unprivileged user.
user_dir() {
    mkdir -p "$@"
    if [ "$(id -u)" = 0 ]; then chown "$test_user" "$@"; fi
}

# run COMMAND ARGS...: a long step, in the background. Bash runs a trap only once the foreground command
# has ended, and an interrupted script must end what it started. Job control: else bash has background
# commands ignore SIGINT.
run() {
    set -m
    "$@" </dev/null &
    wait_for_job
}
# run_to FILE COMMAND ARGS...: with its output in a file. (Not `run ... >FILE`: a trap that runs in there
# would write to the file too.)
run_to() {
    local file=$1
    shift
    set -m
    "$@" </dev/null >"$file" 2>&1 &
    wait_for_job
}
wait_for_job() {
    local status=0
    job=$!
    set +m
    wait "$job" || status=$?
    job=
    return "$status"
}

# The path must be short (a socket's is at most 107 bytes) and open to the unprivileged user.
make_scratch() {
    local parent
    for parent in "${TMPDIR:-/tmp}" /tmp; do
        [ "${#parent}" -le 40 ] || continue
        scratch=$(mktemp -d "$parent/stream_agg.XXXXXX") || continue
        chmod 755 "$scratch"
        if as_user test -x "$scratch"; then break; fi
        rmdir "$scratch"
        scratch=
    done
    [ -n "$scratch" ] || die "no usable temporary directory"
    trap cleanup EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    user_dir "$scratch/home" "$scratch/tmp" "$scratch/sock"
    cd "$scratch" || exit
}

# descendants PID: itself and all processes below it (`timeout` leaves the process group). Some end while we look: awk
# would give up at a file that has gone.
descendants() {
    { cat /proc/[0-9]*/stat 2>/dev/null || true; } | awk -v top="$1" '
        { pid = $1; sub(/^.*\) [A-Z] /, ""); split($0, field, " "); parent[pid] = field[1] }
        END {
            for (pid in parent) {
                for (p = pid; p in parent && p != top; p = parent[p]) ;
                if (p == top) print pid
            }
        }'
}

# Is any of these more than a zombie?
alive() {
    grep -qsE '^State:[[:space:]]+[^ZX]' "${@/%//status}"
}

# Ends the step at hand: asks, waits, and insists.
end_job() {
    local pids deadline=$((SECONDS + 20))
    mapfile -t pids < <(descendants "$job")
    [ "${#pids[@]}" -gt 0 ] || return 0
    kill -TERM "${pids[@]}" 2>/dev/null
    while alive "${pids[@]/#//proc/}" && [ "$SECONDS" -lt "$deadline" ]; do sleep 0.1; done
    kill -KILL "${pids[@]}" 2>/dev/null
    return 0
}

# Stops whatever still runs from the scratch directory, servers that tests left behind included.
cleanup() {
    trap - EXIT
    trap '' HUP INT TERM
    set +e
    [ -z "$job" ] || end_job
    [ -n "$scratch" ] || return 0
    stop_servers
    cd /
    if mountpoint -q "$scratch/small"; then umount -l "$scratch/small"; fi
    rm -rf "$scratch"
    scratch=
}

stop_servers() {
    local pidfile
    find "$scratch" -name postmaster.pid 2>/dev/null | while read -r pidfile; do
        as_user pg_ctl -D "${pidfile%/*}" -m fast -t 30 -w stop >/dev/null 2>&1 ||
            as_user pg_ctl -D "${pidfile%/*}" -m immediate -w stop >/dev/null 2>&1 || true
    done
    # a Kafka broker outlives a test that was killed
    find "$scratch" -name server.properties 2>/dev/null | while read -r pidfile; do
        as_user bash "$scratch/tree/test/kafka/broker.sh" kill "${pidfile%/*}" >/dev/null 2>&1 || true
    done
}

# logged NAME COMMAND...: a step whose output matters only when it fails.
logged() {
    local name=$1 log="$scratch/$1.log"
    shift
    if ! run_to "$log" "$@"; then
        tail -n 60 "$log" >&2
        die "$name failed"
    fi
}

# Runs of other scripts may build in the same tree, hence the lock. MAKEFLAGS: not those of a make above.
locked_make() {
    (
        unset MAKEFLAGS MAKELEVEL MFLAGS
        exec 9>"$build/.build-lock"
        flock 9
        make -C "$build" PG_CONFIG="$PG_CONFIG" WERROR="${WERROR:-0}" "$@" 9>&-
    )
}
build_and_install() {
    locked_make -j"$(nproc)" all && locked_make -s install DESTDIR="$stage"
}

# For builds against another server than that which the tree is built for.
build_apart() {
    build=$scratch/build
    copy_sources
}
copy_sources() {
    mkdir -p "$build"
    cp -r "$top"/src "$top"/Makefile "$top"/stream_agg* "$build/"
    rm -f "$build"/src/*.[od] "$build"/*.so
}

# link_tree DIR: the directory as it is, entry by entry, without a stream_agg that was there.
link_tree() {
    local entry
    mkdir -p "$stage$1"
    for entry in "$1"/*; do
        case ${entry##*/} in
        stream_agg* | extension) ;;
        *) ln -s "$entry" "$stage$1/" ;;
        esac
    done
}

# Makes the private installation and puts it first in PATH.
make_stage() {
    PG_CONFIG=$(command -v "$PG_CONFIG")    # not the private one, from here on
    export PG_CONFIG
    stage=$scratch/stage
    fill_stage
    PATH="$stage$("$PG_CONFIG" --bindir):$PATH"
    export PATH
}

# Builds in $build and installs into $stage.
fill_stage() {
    local bindir sharedir
    bindir=$("$PG_CONFIG" --bindir)
    sharedir=$("$PG_CONFIG" --sharedir)
    mkdir -p "$stage$bindir"
    cp -p "$bindir"/* "$stage$bindir/"
    link_tree "$("$PG_CONFIG" --pkglibdir)"
    link_tree "$sharedir"
    link_tree "$sharedir/extension"
    logged build build_and_install
}

# prepare: set-up, scratch directory, build, private installation.
prepare() {
    bash "$top/test/setup.sh"
    make_scratch
    make_stage
}
