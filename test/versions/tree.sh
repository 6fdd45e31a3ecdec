# shellcheck shell=bash disable=SC2154     # the variables of lib.sh
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
#   REFRESH=1        makes trees anew, even those that are there

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

# sources VERSION deb|deb-src [OPTIONS]: lines for apt, security updates first: of one version in both places, it
# takes the first.
sources() {
    local release
    release=$(release "$1")
    [ "$release" = testing ] || say "$2 ${3:-} $mirror-security $release-security main"
    say "$2 ${3:-} $mirror $release main"
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

# packages VERSION [whole]: what the tests need; for the whole suite also what a real Kafka broker does.
packages() {
    printf '%s\n' "postgresql-$1" gcc make libc6-dev libpq-dev librdkafka-dev perl libipc-run-perl
    [ "${2:-}" != whole ] || printf '%s\n' default-jre-headless openssl kcat
}

# make_tree VERSION [whole]: what is installed stands in its file `packages`, which comes last.
make_tree() {
    local tree isolated=(timeout -k 10 "$tree_limit" "${isolated[@]}")
    tree=$cache/trees/$(release "$1")
    (
        flock 9
        if [ -n "${REFRESH:-}" ] || [ ! -e "$tree/packages" ]; then
            rm -rf --one-file-system "$tree"
            bootstrap "$1" || exit
        fi 9>&-
        packages "$@" | grep -qvxFf "$tree/packages" || exit 0
        install_packages "$@" 9>&-
    ) 9>"$tree.lock"
}

# Neither manuals, nor waiting for the disk, nor anything started by packages. The lists of testing are dated
# to be out of date after a week, which mirrors may be behind; their signatures are what counts.
bootstrap() {
    "${isolated[@]}" debootstrap --variant=minbase --force-check-gpg --keyring="$keyring" \
        "$(release "$1")" "$tree" "$mirror" || return
    sources "$1" deb >"$tree/etc/apt/sources.list"
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

# Of the server's headers the files alone: the package wants clang and LLVM, which are larger than all the rest.
# shellcheck disable=SC2016
install_packages() {
    local version=$1 packages
    mapfile -t packages < <(packages "$@")
    in_tree "$tree" "$tree/tmp" sh -exc '
        version=$1
        shift
        cd /tmp
        apt-get -q update
        apt-get -q -y install "$@"
        apt-get -q download "postgresql-server-dev-$version"
        dpkg-deb -x "postgresql-server-dev-${version}_"*.deb /
        rm postgresql-server-dev-*
        apt-get clean
    ' sh "$version" "${packages[@]}" &&
        printf '%s\n' "${packages[@]}" >"$tree/packages"
}

# in_tree TREE TMP COMMAND ARGS...: with the folder TMP as its /tmp, and our cache to read.
# shellcheck disable=SC2016
in_tree() {
    local tree=$1 tmp=$2
    shift 2
    cp /etc/resolv.conf "$tree/etc/" 2>/dev/null || true
    mkdir -p "$tree/var/cache/stream_agg"
    "${isolated[@]}" sh -c '
        tree=$1 tmp=$2 cache=$3
        shift 3
        set -e
        mount -t proc proc "$tree/proc"
        mount --rbind /dev "$tree/dev"
        mount --bind "$tmp" "$tree/tmp"
        mount --bind -o ro "$cache" "$tree/var/cache/stream_agg"
        chroot "$tree" "$@"
    ' sh "$tree" "$tmp" "$cache" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 \
        DEBIAN_FRONTEND=noninteractive ${http_proxy:+http_proxy="$http_proxy"} "$@"
}
