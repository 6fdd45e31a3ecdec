# shellcheck shell=bash disable=SC2154     # the variables of lib.sh
#
# pg_source.sh: PostgreSQL's own source, for scripts that need its tests or another build of it. Meant to be
# sourced after lib.sh.
#
#   SA_PG_SOURCE=FOLDER    the source of the machine's version, else it comes from the server's Debian package
#   SA_MIRROR              where Debian's sources of other versions come from (versions/tree.sh)

# shellcheck source=test/versions/tree.sh
. "$top/test/versions/tree.sh"

# pg_source VERSION: leaves the folder of the source in `pg_source`: of the machine's version that which
# SA_PG_SOURCE names. The apt of this run has its own lists and sources; the system's stay as they are.
pg_source() {
    local version=$1
    pg_source=
    [ "$version" != "$(own_version)" ] || pg_source=${SA_PG_SOURCE:-}
    if [ -z "$pg_source" ]; then
        mkdir -p "$scratch/source/$version"
        run_to "$scratch/source.log" fetch_source "$version" || {
            tail -n 5 "$scratch/source.log" >&2
            die "no source of PostgreSQL $version from apt; a folder with that of the machine's version may be named: SA_PG_SOURCE=/path"
        }
        pg_source=$(find "$scratch/source/$version" -mindepth 1 -maxdepth 1 -type d -name 'postgresql-*' | head -n 1)
    fi
    [ -e "$pg_source/src/test/regress/parallel_schedule" ] || die "no source of PostgreSQL in ${pg_source:-?}"
}

# The system's files that say where the server's package comes from, saying now where its source comes from.
system_sources() {
    local uri file
    for uri in $(apt-cache madison "$1" | awk '{ print $5 }' | sort -u); do
        # shellcheck disable=SC2013     # no spaces in names there
        for file in $(grep -lrF "${uri%/}" /etc/apt/sources.list /etc/apt/sources.list.d); do
            case $file in
            *.sources) sed 's/^Types:.*/Types: deb-src/' "$file" ;;
            *) sed -nE 's/^deb([[:space:]].*)/deb-src\1/p' "$file" ;;
            esac >"$apt/parts/${file##*/}"
        done
    done
}

# Of that of the installed version, or else another one of the same major version that apt knows; of another
# major version the newest.
fetch_source() {
    local package=postgresql-$1 wanted=() version apt=$scratch/apt apt_get
    rm -rf "$apt"
    mkdir -p "$apt/parts" "$apt/lists/partial" "$apt/archives/partial"
    apt_get=(apt-get -q -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$apt/parts"
        -o Dir::State::lists="$apt/lists" -o Dir::Cache="$apt" -o APT::Sandbox::User="$(id -un)")
    if [ "$1" = "$(own_version)" ]; then
        system_sources "$package"
        mapfile -t wanted < <(dpkg-query -W -f '${Version}\n' "$package"; apt-cache madison "$package" | awk '{ print $3 }')
        wanted=("${wanted[@]/#/"$package="}")
    else
        sources "$1" deb-src "[signed-by=$keyring check-valid-until=no]" >"$apt/parts/release.list"
        wanted=("$package")
    fi
    "${apt_get[@]}" update || true
    cd "$scratch/source/$1" || return
    for version in "${wanted[@]}"; do
        rm -f ./*
        if "${apt_get[@]}" source --download-only "$version"; then
            if command -v dpkg-source >/dev/null; then
                dpkg-source --no-check -x ./*.dsc
            else
                tar xf ./*.orig.tar.*
            fi
            return
        fi
    done
    return 1
}
