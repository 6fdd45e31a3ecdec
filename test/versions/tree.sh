# shellcheck shell=bash disable=SC2034,SC2154     # variables of lib.sh, and for others
#
# tree.sh: Debian releases as folders, each with the PostgreSQL of its own and what the tests need, made by
# debootstrap once and kept in the cache. Meant to be sourced after lib.sh.
#
# Commands run in a tree with namespaces of their own for mounts, processes and shared memory, which go with
# the command however it ends: outside of them nothing is ever mounted in a tree, and none is left.
#
#   SA_MIRROR        where packages come from (default http://deb.debian.org/debian); those of security
#                    updates from the same with -security at the end
#   SA_KEYRING       the keys they are signed with (default: those of the package debian-archive-keyring)
#   REFRESH=1        makes trees anew, even those that are there (and may be in use)

mirror=${SA_MIRROR:-http://deb.debian.org/debian}
keyring=${SA_KEYRING:-/usr/share/keyrings/debian-archive-keyring.gpg}
tree_limit=900      # seconds that a step may take
isolated=(unshare --mount --ipc --pid --fork --kill-child)

# release VERSION: the Debian release that has it.
release() {
    case $1 in
    15) say bookworm ;;
    17) say trixie ;;
    18) say testing ;;
    *) die "no Debian release has PostgreSQL $1; there are 15, 17 and 18" ;;
    esac
}

# Where apt finds them.
sources() {
    local release
    release=$(release "$1")
    say "deb $mirror $release main"
    [ "$release" = testing ] || say "deb $mirror-security $release-security main"
}

# trees_unavailable: says why trees cannot be had here, or fails.
trees_unavailable() {
    if [ "$(id -u)" != 0 ]; then
        say "this needs root"
    elif ! command -v debootstrap >/dev/null; then
        say "this needs debootstrap"
    elif [ ! -e "$keyring" ]; then
        say "no $keyring to check packages with (it is in debian-archive-keyring)"
    elif ! "${isolated[@]}" true 2>/dev/null; then
        say "this needs the right to mount"
    elif ! mkdir -p "$cache/trees" 2>/dev/null; then
        say "no cache directory to keep Debian releases in"
    else
        return 1
    fi
}

# packages VERSION [whole | upgrade OLDER]: what the tests need. The whole suite, also what a real Kafka broker
# does; upgrades, also an older PostgreSQL.
packages() {
    printf '%s\n' "postgresql-$1" gcc make libc6-dev libpq-dev librdkafka-dev perl libipc-run-perl
    case ${2:-} in
    whole) printf '%s\n' default-jre-headless openssl kcat ;;
    upgrade) say "postgresql-$3" ;;
    esac
}

# make_tree VERSION [whole | upgrade OLDER]: what is installed stands in its file `packages`, which comes last.
make_tree() {
    local tree isolated=(timeout -k 10 "$tree_limit" "${isolated[@]}")
    tree=$cache/trees/$(release "$1")
    (
        flock 9
        if [ -n "${REFRESH:-}" ] || [ ! -e "$tree/packages" ]; then
            rm -rf --one-file-system "$tree"
            bootstrap "$(release "$1")" || exit
        fi 9>&-
        packages "$@" | grep -qvxFf "$tree/packages" || exit 0
        install_packages "$@" 9>&-
    ) 9>"$tree.lock"
}

# Neither manuals, nor waiting for the disk, nor anything started by packages. The lists of testing are dated
# to be out of date after a week, which mirrors may be behind; their signatures are what counts.
bootstrap() {
    "${isolated[@]}" debootstrap --variant=minbase --force-check-gpg --keyring="$keyring" \
        "$1" "$tree" "$mirror" || return
    cat >"$tree/etc/dpkg/dpkg.cfg.d/stream_agg" <<'END'
force-unsafe-io
path-exclude=/usr/share/man/*
path-exclude=/usr/share/doc/*
END
    cat >"$tree/etc/apt/apt.conf.d/stream_agg" <<'END'
APT::Install-Recommends "false";
Acquire::Check-Valid-Until "false";
END
    mkdir -p "$tree/etc/postgresql-common/createcluster.d"
    echo 'create_main_cluster = false' >"$tree/etc/postgresql-common/createcluster.d/stream_agg.conf"
    printf '#!/bin/sh\nexit 101\n' >"$tree/usr/sbin/policy-rc.d"
    chmod 755 "$tree/usr/sbin/policy-rc.d"
    : >"$tree/packages"
}

# An older PostgreSQL comes from its release, as it does where Debian was upgraded; without its security updates,
# which testing may be waiting for: one upgrades to a server that is as new. Of the servers' headers the
# files alone: their packages want clang and LLVM, which are larger than all the rest.
# shellcheck disable=SC2016
install_packages() {
    local packages
    mapfile -t packages < <(packages "$@")
    {
        sources "$1"
        [ -z "${3:-}" ] || say "deb $mirror $(release "$3") main"
    } >"$tree/etc/apt/sources.list"
    in_tree "$tree" "$tree/tmp" sh -exc '
        cd /tmp
        apt-get -q update
        apt-get -q -y install "$@"
        for package in "$@"; do
            case $package in
            postgresql-[0-9]*) apt-get -q download "postgresql-server-dev-${package#postgresql-}" ;;
            esac
        done
        for package in postgresql-server-dev-*.deb; do dpkg-deb -x "$package" /; done
        rm postgresql-server-dev-*
        apt-get clean
    ' sh "${packages[@]}" && printf '%s\n' "${packages[@]}" >>"$tree/packages"
}

# copy_sources FOLDER: ours as they are, committed or not, for a build that disturbs no other.
copy_sources() {
    mkdir -p "$1"
    (
        flock 9     # while nobody builds
        tar -C "$top" -cf - --exclude=./.git --exclude=./tmp_check --exclude='*.o' --exclude='*.d' --exclude='*.so' \
            --exclude=./.build-id --exclude=./.build-lock . | tar -C "$1" -xf -
    ) 9>"$top/.build-lock"
}

# in_tree TREE TMP COMMAND ARGS...: with the folder TMP as its /tmp, and our cache to read.
# shellcheck disable=SC2016
in_tree() {
    local tree=$1 tmp=$2
    shift 2
    cp /etc/resolv.conf "$tree/etc/" 2>/dev/null || true
    "${isolated[@]}" sh -c '
        tree=$1 tmp=$2 cache=$3
        shift 3
        set -e
        mount -t proc proc "$tree/proc"
        mount --rbind /dev "$tree/dev"
        mount --bind "$tmp" "$tree/tmp"
        mkdir -p "$tree$cache"
        mount --bind -o ro "$cache" "$tree$cache"
        chroot "$tree" "$@"
    ' sh "$tree" "$tmp" "$cache" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 \
        DEBIAN_FRONTEND=noninteractive ${http_proxy:+http_proxy="$http_proxy"} "$@"
}

# tally NAME LOG STATUS: counts the lines of a run in `good` and `bad`; that it ended badly without one is one.
tally() {
    good=$(grep -c '^ok      ' "$2" || true)
    bad=$(grep -c '^FAILED  ' "$2" || true)
    if [ "$bad" = 0 ] && { [ "$3" != 0 ] || [ "$good" = 0 ]; }; then
        say "FAILED  $1 (exit $3)"
        bad=1
    fi
    passed=$((passed + good))
    failed=$((failed + bad))
}
