#!/usr/bin/env bash
#
# fuzz_syntax.sh: are statements that PostgreSQL accepts parsed as ever? Every statement of PostgreSQL's own
# regression tests, and every variant of it in which one word is STREAM or CONTINUOUS, is parsed by the server and
# by the stock grammar (test/syntax/syntax_tools.c). Exits non-zero if one is lost or different.
#
#   test/fuzz_syntax.sh [FILE...]          default: the files of PostgreSQL's source
#
#   SA_PG_SOURCE=FOLDER    PostgreSQL's source, else it comes from the server's Debian package
#
set -euo pipefail
# shellcheck source=test/server.sh
. "$(dirname "${BASH_SOURCE[0]}")/server.sh"
# shellcheck source=test/pg_source.sh
. "$(dirname "${BASH_SOURCE[0]}")/pg_source.sh"

files=()
for file in "$@"; do files+=("$(realpath "$file")"); done
bash "$top/test/setup.sh"
make_scratch
if [ "${#files[@]}" = 0 ]; then
    pg_source "$(own_version)"
    files=("$pg_source"/src/test/regress/sql/*.sql "$pg_source"/src/pl/plpgsql/src/sql/*.sql "$pg_source"/contrib/*/sql/*.sql)
fi
logged syntax_tools make -s -C "$top/test/syntax" BUILD="$scratch/syntax" WERROR=1
make_stage
server_start
psql -Xq -v ON_ERROR_STOP=1 -v tools="$scratch/syntax/syntax_tools" -f "$top/test/syntax/syntax_tools.sql"
psql -XqAt -c 'SHOW stream_agg.syntax' | grep -qx auto || die "the server does not know our statements"
psql -Xq -c 'CREATE TABLE statements (file text, statement text)'
perl -I"$top/test/syntax" -MStatements -e 'print Statements::copy_rows(@ARGV)' "${files[@]}" |
    psql -Xq -v ON_ERROR_STOP=1 -c 'COPY statements FROM stdin'
run psql -Xq -v ON_ERROR_STOP=1 -c 'SET client_min_messages = error' \
    -c 'CREATE TABLE outcome AS SELECT * FROM statements, fuzz(statement)'
psql -X -P footer=off -c "SELECT count(*) AS statements, sum(tried) AS parsed, sum(accepted) AS accepted, sum(lost) AS lost,
    sum(different) AS different, sum(told) AS \"told otherwise\", sum(taken) AS \"taken as ours\" FROM outcome" \
    -c "SELECT file, lost, different, told, sample FROM outcome WHERE sample IS NOT NULL LIMIT 20"
[ "$(psql -XqAt -c 'SELECT sum(lost) + sum(different) + sum(told) = 0 AND sum(taken) > 0 FROM outcome')" = t ]
