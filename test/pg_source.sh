# shellcheck shell=bash disable=SC2154     # the variables of lib.sh
#
# pg_source.sh: PostgreSQL's own source, for scripts that need its tests or another build of it. Meant to be sourced
# after lib.sh.

# pg_source: leaves the folder of the source in `pg_source`: that which SA_PG_SOURCE names, else that of the
# server's Debian package. The apt of this run has its own lists and sources; the system's stay as they are.
pg_source() {
    pg_source=${SA_PG_SOURCE:-}
    if [ -z "$pg_source" ]; then
        mkdir -p "$scratch/source"
        run_to "$scratch/source.log" fetch_source || {
            tail -n 5 "$scratch/source.log" >&2
            die "no source of PostgreSQL from apt; name a folder with it: SA_PG_SOURCE=/path"
        }
        pg_source=$(find "$scratch/source" -mindepth 1 -maxdepth 1 -type d -name 'postgresql-*' | head -n 1)
    fi
    [ -e "$pg_source/src/test/regress/parallel_schedule" ] || die "no source of PostgreSQL in ${pg_source:-?}"
}

# Of that of the installed version, or else another one of the same major version that apt knows.
fetch_source() {
    local package versions version uri file apt=$scratch/apt
    package=postgresql-$(own_version)
    mapfile -t versions < <(dpkg-query -W -f '${Version}\n' "$package"; apt-cache madison "$package" | awk '{ print $3 }')
    mkdir -p "$apt/parts" "$apt/lists/partial" "$apt/archives/partial"
    # The system's files that say where it comes from, saying now where its source comes from.
    for uri in $(apt-cache madison "$package" | awk '{ print $5 }' | sort -u); do
        # shellcheck disable=SC2013     # no spaces in names there
        for file in $(grep -lrF "${uri%/}" /etc/apt/sources.list /etc/apt/sources.list.d); do
            case $file in
            *.sources) sed 's/^Types:.*/Types: deb-src/' "$file" ;;
            *) sed -nE 's/^deb([[:space:]].*)/deb-src\1/p' "$file" ;;
            esac >"$apt/parts/${file##*/}"
        done
    done
    apt=(apt-get -q -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$apt/parts"
        -o Dir::State::lists="$apt/lists" -o Dir::Cache="$apt" -o APT::Sandbox::User="$(id -un)")
    "${apt[@]}" update || true
    cd "$scratch/source" || return
    for version in "${versions[@]}"; do
        rm -f ./*
        if "${apt[@]}" source --download-only "$package=$version"; then
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
