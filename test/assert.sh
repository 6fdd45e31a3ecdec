#!/usr/bin/env bash
#
# assert.sh: the tests on a PostgreSQL with assertions, built from the Debian source package of the machine's
# version, once, and kept in the cache. Arguments and settings are those of run_tests.sh, and
#
#   SA_PG_SOURCE=FOLDER    PostgreSQL's source, else from the Debian package
#   REFRESH=1              builds anew what is there
#
set -euo pipefail
# shellcheck source=test/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=test/pg_source.sh
. "$top/test/pg_source.sh"

prefix=$cache/postgresql-$(own_version)-cassert
version=$("$PG_CONFIG" --version)

# Its version is noted last.
build_postgresql() {
    umask 022
    unset MAKEFLAGS MAKELEVEL MFLAGS
    mkdir -p "$cache" && rm -rf "$prefix" && cd "$pg_source" &&
        ./configure --prefix="$prefix" --enable-cassert --enable-tap-tests --with-icu --without-readline \
            CFLAGS='-O2 -g -fno-omit-frame-pointer' &&
        make -s -j"$(nproc)" && make -s install && make -s -C contrib/pg_stat_statements install &&
        say "$version" >"$prefix/version"
}

bash "$top/test/setup.sh"
make_scratch
if [ -n "${REFRESH:-}" ] || [ "$(cat "$prefix/version" 2>/dev/null)" != "$version" ]; then
    bash "$top/test/setup.sh" postgresql
    pg_source
    say "building $version with assertions ..."
    logged postgresql build_postgresql
fi
run env -u CI PG_CONFIG="$prefix/bin/pg_config" bash "$top/test/run_tests.sh" "$@"
