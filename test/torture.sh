#!/usr/bin/env bash
#
# torture.sh: processes of a server with streams are killed at every point, again and again, and every view is
# compared with the right answer (test/t/170_torture.pl). Ends with a table of what was done and found; the exit
# status tells.
#
#   make torture ARGS="-t 600 -s SEED"
#
#   -t SECONDS     for so long (default 600)
#   -s SEED        of what is random (default: of the time; printed)
#   -p POINT,...   just these fault points
#   -u SHARE       of windowed views that keep their state unlogged (0 to 1, default 0.6)
#   -k             with the real Kafka broker instead of the mock
#
set -euo pipefail

export SA_TORTURE_SECONDS=600 KAFKA_RIG=mock ONLY=170_torture
while getopts t:s:p:u:k option; do
    case $option in
    t) SA_TORTURE_SECONDS=$OPTARG ;;
    s) export SA_SEED=$OPTARG ;;
    p) export SA_TORTURE_POINTS=$OPTARG ;;
    u) export SA_TORTURE_UNLOGGED=$OPTARG ;;
    k) KAFKA_RIG=real ;;
    *) exit 2 ;;
    esac
done
export TEST_TIMEOUT=$((SA_TORTURE_SECONDS + 1800))

# What the test says, as it says it.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
log=$here/../tmp_check/tap_$ONLY.log
rm -f "$log"
set -m
bash "$here/run_tests.sh" tap &
run=$!
trap 'kill -INT $run; wait $run; exit 130' INT TERM
tail --pid="$run" -s 0.5 -n +1 -F "$log" 2>/dev/null &
wait "$run"
