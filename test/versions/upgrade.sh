#!/usr/bin/env bash
#
# upgrade.sh: pg_upgrade of a live installation (../upgrade.sh) from the machine's version to each newer one. That
# happens in the newer one's tree (tree.sh), where the older one is installed as well, as it is after an upgrade of
# Debian. The last line is 'N passed, N failed'. Logs stay in tmp_check/versions/.
#
#   VERSIONS="17 18"       to these only
#   OLD=VERSION            from this one instead
#
set -euo pipefail
# shellcheck source=test/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=test/versions/tree.sh
. "$top/test/versions/tree.sh"

old=${OLD:-$(own_version)}
logs=$top/tmp_check/versions
passed=0
failed=0

upgrade_to() {
    local version=$1 log=$logs/upgrade-$1.log status=0 good bad
    mkdir -m 1777 "$scratch/$version"
    copy_sources "$scratch/$version/stream_agg"
    run_to "$log" in_tree "$cache/trees/$(release "$version")" "$scratch/$version" env OLD_PG_CONFIG="/usr/lib/postgresql/$old/bin/pg_config" \
        PG_CONFIG="/usr/lib/postgresql/$version/bin/pg_config" bash /tmp/stream_agg/test/upgrade.sh ||
        status=$?
    sed -E -e '/^[0-9]+ passed, [0-9]+ failed$/d' -e "s,^(ok      |FAILED  ),&pg$version/," "$log"
    tally "pg$version/upgrade" "$log" "$status"
    cp -r "$scratch/$version/stream_agg/tmp_check/upgrade" "$logs/upgrade-$version" 2>/dev/null || true
    rm -rf "${scratch:?}/$version"
}

mkdir -p "$logs"
rm -rf "$logs"/upgrade*
if why=$(trees_unavailable); then die "$why"; fi
make_scratch
[ -n "$old" ] || die "the machine has no PostgreSQL: set OLD"
for version in ${VERSIONS:-15 17 18}; do
    [ "$version" -gt "$old" ] || continue
    run_to "$logs/tree-$version.log" make_tree "$version" upgrade "$old" || die "no tree of Debian $(release "$version"): $(tail -n 1 "$logs/tree-$version.log")"
    upgrade_to "$version"
done
say "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
