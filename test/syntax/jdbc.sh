#!/usr/bin/env bash
#
# jdbc.sh: PostgreSQL's JDBC driver, for a test.
#
#   jdbc.sh libs                prints the folder of the jars. Fetches them with Maven the first time. Exit status 77:
#                               they cannot be had here, and one line says why.
#   jdbc.sh run DIR ARG...      compiles Client.java into DIR and runs it
#
#   JDBC_LIBS                   folder of the jars; nothing is fetched then. Default: a cache in the user's home, or in
#                               /var/cache for root, whose home others may not read
#
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
version=$(sed -n 's:.*<pgjdbc.version>\(.*\)</pgjdbc.version>.*:\1:p' "$here/pom.xml")
cache=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}
[ "$(id -u)" != 0 ] || cache=${XDG_CACHE_HOME:-/var/cache}
libs=${JDBC_LIBS:-$cache/stream_agg/pgjdbc-$version}
fetch_limit=120

unavailable() { printf '%s\n' "$*"; exit 77; }

has_libs() { [ -e "$libs/postgresql-$version.jar" ]; }

# Into a folder of its own that gets its name once it is whole, so nobody meets half of it.
fetch_libs() {
    umask 022
    [ -z "${JDBC_LIBS:-}" ] || unavailable "no pgjdbc $version in JDBC_LIBS"
    command -v mvn >/dev/null || unavailable "no Maven to fetch pgjdbc with"
    if ! mkdir -p "${libs%/*}" 2>/dev/null || ! [ -w "${libs%/*}" ]; then unavailable "no cache directory to keep pgjdbc in"; fi
    (
        flock 9
        if ! has_libs; then
            rm -rf "$libs.new"
            timeout -k 10 "$fetch_limit" mvn -B -q --strict-checksums -f "$here/pom.xml" \
                dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$libs.new" \
                </dev/null >"$libs.log" 2>&1 9>&- && mv "$libs.new" "$libs"
        fi
    ) 9>"$libs.lock" || unavailable "Maven could not fetch pgjdbc $version, see $libs.log"
}

command -v java >/dev/null || unavailable "no Java"
java -version 2>&1 | grep -qE 'version "(1[7-9]|[2-9][0-9])' || unavailable "the compiler needs Java 17 or newer"
has_libs || fetch_libs
case ${1:-} in
libs) printf '%s\n' "$libs" ;;
run)
    java -jar "$libs"/ecj-*.jar -17 -proc:none -nowarn -cp "$libs/postgresql-$version.jar" -d "$2" "$here/Client.java"
    exec java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$2:$libs/*" Client "${@:3}"
    ;;
*) exit 2 ;;
esac
