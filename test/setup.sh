#!/usr/bin/env bash
#
# setup.sh: what building and testing needs, on Debian and its relatives, as root or with sudo.
# Calls apt only when something is missing, and then neither makes nor starts a cluster of Debian's.
# With CI set, also what a real Kafka broker needs, trees of other Debian releases, and the model checker; where
# that cannot be had, tests say so and use less.
#
#   test/setup.sh postgresql    also what building PostgreSQL needs
#
set -euo pipefail

PG_CONFIG=${PG_CONFIG:-pg_config}
createcluster_conf=/etc/postgresql-common/createcluster.d/stream_agg-setup.conf
policy=/usr/sbin/policy-rc.d
our_policy=

say() { printf '%s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# The major version in use: that of PG_CONFIG if it works, else whatever this Debian calls postgresql.
installed_major() {
    { "$PG_CONFIG" --version 2>/dev/null || true; } | sed -n 's/^PostgreSQL \([0-9]*\).*/\1/p'
}
offered_major() {
    apt-cache policy postgresql | sed -n 's/^ *Candidate: \([0-9]*\).*/\1/p'
}

has_headers() {
    local pgxs headers
    pgxs=$("$PG_CONFIG" --pgxs 2>/dev/null) && [ -e "$pgxs" ] &&
        headers=$("$PG_CONFIG" --includedir-server 2>/dev/null) && [ -e "$headers/postgres.h" ]
}
has_server() {
    local bindir
    bindir=$("$PG_CONFIG" --bindir 2>/dev/null) && [ -x "$bindir/postgres" ] && [ -x "$bindir/psql" ]
}

# Prints the packages for what is missing; NN stands for the major version, not yet known on a bare machine.
missing() {
    { command -v gcc && command -v make; } >/dev/null || say build-essential
    has_headers || say postgresql-server-dev-NN
    has_server || say postgresql-NN
    [ -e "$("$PG_CONFIG" --includedir 2>/dev/null)/libpq-fe.h" ] || say libpq-dev
    echo '#include <librdkafka/rdkafka.h>' | gcc -E - >/dev/null 2>&1 || say librdkafka-dev
    perl -MTest::More -MJSON::PP -e 1 2>/dev/null || say perl
    perl -MIPC::Run -e 1 2>/dev/null || say libipc-run-perl
}

# While apt works: no new cluster, and no service started or restarted, an existing cluster's included.
hold_services() {
    as_root mkdir -p "${createcluster_conf%/*}"
    as_root sh -c "echo 'create_main_cluster = false' >$createcluster_conf"
    [ -e "$policy" ] && return
    our_policy=yes
    as_root sh -c "printf '#!/bin/sh\nexit 101\n' >$policy && chmod 755 $policy"
}
release_services() {
    as_root rm -f "$createcluster_conf"
    [ -z "$our_policy" ] || as_root rm -f "$policy"
}

apt() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 "$@" </dev/null
}

install_packages() {
    local major packages
    command -v apt-get >/dev/null || die "this is not Debian; please install: $*"
    [ "$(id -u)" = 0 ] || command -v sudo >/dev/null || die "run it as root, or install: $*"
    apt update >/dev/null || die "apt-get update failed"
    major=$(installed_major)
    [ -n "$major" ] || major=$(offered_major)
    [ -n "$major" ] || die "apt offers no package postgresql"
    packages=("${@//NN/$major}")
    say "installing: ${packages[*]}"
    trap release_services EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    hold_services
    apt install -y --no-install-recommends --no-upgrade "${packages[@]}" || die "apt-get install failed"
}

# Packages that a real Kafka broker needs, trees of other Debian releases, and the model; good to have.
missing_for_ci() {
    command -v java >/dev/null || say default-jre-headless
    command -v mvn >/dev/null || say maven
    command -v openssl >/dev/null || say openssl
    command -v kcat >/dev/null || say kcat
    command -v spin >/dev/null || say spin
    command -v debootstrap >/dev/null || [ -x /usr/sbin/debootstrap ] || say debootstrap
}

missing_to_build_postgresql() {
    command -v bison >/dev/null || say bison
    command -v flex >/dev/null || say flex
    command -v pkg-config >/dev/null || say pkg-config
    [ -e /usr/include/unicode/ucol.h ] || say libicu-dev
    [ -e /usr/include/zlib.h ] || say zlib1g-dev
}

purpose=${1:-}
all_missing() {
    missing
    [ "$purpose" != postgresql ] || missing_to_build_postgresql
}

mapfile -t packages < <(all_missing)
if [ -n "${CI:-}" ]; then
    mapfile -t wanted < <(missing_for_ci)
    if [ "${#wanted[@]}" -gt 0 ] && ! (install_packages "${wanted[@]}"); then
        say "going on without: ${wanted[*]}"
    fi
fi
[ "${#packages[@]}" -gt 0 ] || exit 0
install_packages "${packages[@]}"

mapfile -t packages < <(all_missing)
[ "${#packages[@]}" = 0 ] || die "still missing after the installation: ${packages[*]}"
