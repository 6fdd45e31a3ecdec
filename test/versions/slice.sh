#!/usr/bin/env bash
#
# slice.sh: what CI has time for on a version that is not the machine's: the build without warnings, rules,
# regress, isolation, and of TAP what takes about five minutes on two cores: half of the oracle's seeds, and
# all that is short. What is left out (`make test-all` has it) says little about versions: Kafka above all.
#
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit
status=0

export TEST_TIMEOUT=900 SA_SEEDS=80 KAFKA_RIG=mock
tap='!(040_memory|045_big_state|050_staged|060_bloat|080_kafka_faults|090_kafka_data|100_kafka_security|145_databases|170_torture|175_adversity|180_failover|190_same_log)'

if make -s -j"$(nproc)" WERROR=1 PG_CONFIG="$PG_CONFIG"; then
    echo 'ok      build'
else
    echo 'FAILED  build'
    exit 1
fi
bash test/run_tests.sh rules regress isolation || status=1
ONLY=$tap bash test/run_tests.sh tap || status=1
exit "$status"
