#!/usr/bin/env bash
#
# run.sh: goes through everything that can happen in the model of commits and recovery (state.pml), and sees
# that the error is found wherever the protocol is broken.  A line for each, like those of run_tests.sh; exits
# non-zero if any failed.  Takes half a minute; without spin it says so, and does nothing.
#
#   test/model/run.sh [RECORDS [DEATHS]]     default 3 and 2; 4 records take minutes, and gigabytes
#
set -euo pipefail

model=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/state.pml
export RECORDS=${1:-3} DEATHS=${2:-2} VIEWS=1 APPEND=1 BROKEN=0
memory=4000     # megabytes
failed=0

say() { printf '%s\n' "$*"; }
ok() { say "ok      model/$*"; }
not_ok() { say "FAILED  model/$*"; failed=1; }

# search PAN [OPTION...]: prints `clean STATES` when all was gone through without an error, else `error WHAT`.
search() {
    "$@" -m100000 >search.out 2>&1 || true
    if grep -q 'errors: 0' search.out && ! grep -qiE 'max search depth|out of memory|interrupted' search.out; then
        say "clean $(sed -nE 's/^ *([0-9]+) states, stored.*/\1/p' search.out)"
    else
        say "error $(sed -nE 's/^pan:1: (.*)/\1/p' search.out)"
    fi
}

# sound NAME PAN [OPTION...]: nothing may go wrong.
sound() {
    local name=$1 found
    shift
    found=$(search "$@")
    if [[ $found == clean* ]]; then
        ok "$name (${found#clean } states)"
    else
        not_ok "$name: ${found#error }"
        tail -n 40 search.out
    fi
}

# broken NUMBER NAME: something must.
broken() {
    local found
    found=$(BROKEN=$1 search ./pan)
    if [[ $found == 'error '?* ]]; then ok "broken/$2 (${found#error })"; else not_ok "broken/$2: $found"; fi
}

# The ways to break it, as number and name.
ways() {
    sed -nE '/MOST_RECORDS/q; s/^#define ([A-Z_]+) ([0-9]+)\b.*/\2 \1/p' "$model" | tr '[:upper:]' '[:lower:]'
}

if ! command -v spin >/dev/null; then
    say 'model: skipped, for there is no spin (Debian: apt-get install spin)'
    exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
cd "$work"
spin -a "$model"
gcc -O1 -w -DSAFETY -DNOREDUCE -DMEMLIM="$memory" -o pan pan.c &
gcc -O0 -w -DNP -DNOREDUCE -DMEMLIM="$memory" -o pan_cycles pan.c
wait $!

sound append ./pan
APPEND=0 sound update ./pan
VIEWS=2 DEATHS=$((DEATHS - 1)) sound two_views ./pan
RECORDS=$((RECORDS - 1)) sound comes_to_an_end ./pan_cycles -l
while read -r number name; do broken "$number" "$name"; done < <(ways)
exit "$failed"
