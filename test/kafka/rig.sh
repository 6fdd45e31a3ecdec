# shellcheck shell=bash disable=SC2034
#
# rig.sh: a Kafka for scripts that have sourced lib.sh and called make_scratch: the real broker where
# broker.sh can start one, else librdkafka's mock cluster. (Kafka.pm is the same for TAP tests.)
#
#   kafka_start                     sets kafka (real or mock), kafka_what (the same for a reader), bootstrap, kafka_pid
#   kafka_topic NAME PARTITIONS
#   kafka_tool < COMMANDS           as kafka_tool.c says; dies when one fails, else prints the answers
#
# cleanup ends the broker; the mock ends when the script does, for nobody can give it commands any more.
#
#   KAFKA_RIG=real|mock     takes just this one
#   KAFKA_LIBS              see broker.sh

kafka=
kafka_what=
bootstrap=
kafka_pid=

kafka_start() {
    kafka_dir=${scratch:?}/kafka
    user_dir "$kafka_dir" "$kafka_dir/broker"
    logged kafka_tools make -s -C "${top:?}/test/kafka" BUILD="$kafka_dir"
    if [ "${KAFKA_RIG:-}" = mock ]; then
        start_mock 'KAFKA_RIG asks for it'
    elif run_to "$scratch/kafka_libs" bash "$top/test/kafka/broker.sh" libs; then
        start_real "$(tail -n 1 "$scratch/kafka_libs")"
    elif [ "${KAFKA_RIG:-}" = real ]; then
        die "no real broker: $(tail -n 1 "$scratch/kafka_libs")"
    else
        start_mock "$(tail -n 1 "$scratch/kafka_libs")"
    fi
}

# The unprivileged user may not see our folder, hence the copies; they lie where cleanup looks for them.
start_real() {
    mkdir -p "$scratch/tree/test/kafka"
    cp "$top/test/kafka/broker.sh" "$top/test/kafka/pom.xml" "$scratch/tree/test/kafka"
    export KAFKA_LIBS=$1
    logged broker as_user bash "$scratch/tree/test/kafka/broker.sh" start "$kafka_dir/broker"
    kafka=real
    kafka_what='a real Kafka broker'
    bootstrap=$(sed -n 's/^KAFKA_PLAINTEXT=//p' "$kafka_dir/broker/env")
    kafka_pid=$(sed -n 's/^KAFKA_PID=//p' "$kafka_dir/broker/env")
}

start_mock() {
    local answer
    mkfifo "$kafka_dir/commands" "$kafka_dir/answers"
    "$kafka_dir/mock_broker" <"$kafka_dir/commands" >"$kafka_dir/answers" &
    kafka_pid=$!
    exec 7>"$kafka_dir/commands" 8<"$kafka_dir/answers"
    read -r answer bootstrap <&8
    [ "$answer" = ok ] || die "the mock broker did not start"
    kafka=mock
    kafka_what="librdkafka's mock broker ($1)"
}

kafka_topic() {
    local answer
    if [ "$kafka" = mock ]; then
        say "topic $1 $2" >&7
        read -r answer <&8
        [ "$answer" = ok ] || die "no topic $1: $answer"
    else
        say "create $1 $2" | kafka_tool >/dev/null
    fi
}

kafka_tool() {
    "$kafka_dir/kafka_tool" "$bootstrap" >"$kafka_dir/answer" || die "kafka_tool failed"
    ! grep '^error' "$kafka_dir/answer" >&2 || die "kafka_tool failed"
    cat "$kafka_dir/answer"
}
