#!/usr/bin/env bash
#
# parse.sh: what the redirected parser costs. In one backend, alternately: raw parsing by the stock grammar and by the
# server, and parsing, analysis and planning as a whole. Prints the least of many short rounds, as other processes
# only ever add to a time; the last column is what counts.
#
#   test/bench/parse.sh [ROUNDS]           default 60
#
set -euo pipefail
# shellcheck source=test/server.sh
. "$(dirname "${BASH_SOURCE[0]}")/../server.sh"

rounds=${1:-60}

measure() {
    psql -Xq -P footer=off -v ON_ERROR_STOP=1 -v rounds="$rounds" -f "$top/test/bench/parse.sql"
}

prepare
logged syntax_tools make -s -C "$top/test/syntax" BUILD="$scratch/syntax" WERROR=1
server_start
psql -Xq -v ON_ERROR_STOP=1 -v tools="$scratch/syntax/syntax_tools" -f "$top/test/syntax/syntax_tools.sql"
run measure
