#!/usr/bin/env bash
#
# broker.sh: a real Kafka broker for tests: one node, broker and controller in one (KRaft), reached by
# loopback only.
#
#   broker.sh available             exit 0: it can be started here. 77: it cannot, and one line says why.
#                                   Fetches the jars with Maven the first time.
#   broker.sh libs                  prints the folder of the jars
#   broker.sh start DIR [NAME=VALUE...]
#                                   starts a broker that keeps all it has in DIR, and waits until it serves.
#                                   Ports are chosen at the first start and kept; so are settings given here,
#                                   until others are given.
#   broker.sh stop DIR              in good order; fine when it does not run
#   broker.sh kill DIR              kill -9
#   broker.sh freeze DIR | thaw DIR SIGSTOP, SIGCONT
#   broker.sh status DIR            exit 0: it runs. 1: it does not
#
# `start` writes DIR/env, lines for a shell: the listeners, users and files named in write_env below. Its log
# is DIR/broker.log. alice (PLAIN, SCRAM-SHA-256 and -512) may do anything that no ACL forbids; so may mallory,
# whom tests deny things; whoever comes without a name is the super user. OAUTHBEARER takes unsigned tokens.
#
#   KAFKA_LIBS       folder of the jars; nothing is fetched then. Default: a cache in the user's home, or in
#                    /var/cache for root, whose home others may not read
#   KAFKA_JVM_OPTS   further options of the Java machine
#   KAFKA_DEADLINE   seconds that a start or stop may take (default 90)
#
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
version=$(sed -n 's:.*<kafka.version>\(.*\)</kafka.version>.*:\1:p' "$here/pom.xml")
cache=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}
[ "$(id -u)" != 0 ] || cache=${XDG_CACHE_HOME:-/var/cache}
libs=${KAFKA_LIBS:-$cache/stream_agg/kafka-$version}
deadline=${KAFKA_DEADLINE:-90}
fetch_limit=240
java=${JAVA_HOME:+$JAVA_HOME/bin/}java
jvm=(-Xms64m -Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto)
listeners=(PLAINTEXT SSL MTLS SASL_PLAINTEXT SASL_SSL CONTROLLER)
user=alice
password=secret
other_user=mallory
key_password=keysecret

die() { printf 'broker.sh: %s\n' "$*" >&2; exit 1; }
unavailable() { printf '%s\n' "$*"; exit 77; }

# ---- the jars

has_libs() { [ -e "$libs/kafka_2.13-$version.jar" ]; }

# Into a folder of its own that gets its name once it is whole, so nobody meets half of it.
fetch_libs() {
    local parent=${libs%/*}
    umask 022
    [ -z "${KAFKA_LIBS:-}" ] || unavailable "no Kafka $version in KAFKA_LIBS"
    command -v mvn >/dev/null || unavailable "no Maven to fetch Kafka with"
    if ! mkdir -p "$parent" 2>/dev/null || ! [ -w "$parent" ]; then unavailable "no cache directory to keep Kafka in"; fi
    (
        flock 9
        if ! has_libs; then
            rm -rf "$libs.new"
            timeout -k 10 "$fetch_limit" mvn -B -q --strict-checksums -f "$here/pom.xml" \
                dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$libs.new" \
                </dev/null >"$libs.log" 2>&1 9>&- && mv "$libs.new" "$libs" && share_classes 9>&-
        fi
    ) 9>"$libs.lock" || unavailable "Maven could not fetch Kafka $version, see $libs.log"
}

available() {
    local major
    major=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p') || true
    [ -n "$major" ] || unavailable "no Java"
    [ "$major" -ge 17 ] || unavailable "Kafka $version needs Java 17, this is $major"
    command -v openssl >/dev/null || unavailable "no openssl to make certificates with"
    has_libs || fetch_libs
}

# An archive of the classes that a broker loads makes later starts faster. It serves only the Java that wrote
# it, and the jars where they lie now; others go without.
share_classes() {
    local try
    try=$(mktemp -d)
    export KAFKA_LIBS=$libs
    KAFKA_JVM_OPTS=-XX:ArchiveClassesAtExit=$libs/classes.jsa.new "$0" start "$try" &&
        "$0" stop "$try" && mv "$libs/classes.jsa.new" "$libs/classes.jsa"
    rm -rf "$try"
}

# ---- the process

# When a process began, in clock ticks since boot; with its pid, this names it for ever.
started_at() {
    sed -n 's/^.*) //p' "/proc/$1/stat" 2>/dev/null | cut -d ' ' -f 20
}

# Sets pid; false when the broker of this DIR does not run.
running() {
    local since
    pid=
    { read -r pid since <"$dir/pid"; } 2>/dev/null || return 1
    [ "$(started_at "$pid")" = "$since" ] && ! grep -qs '^State:[[:space:]]*[ZX]' "/proc/$pid/status"
}

# wait_until COMMAND...: polls until it succeeds; false at the deadline.
wait_until() {
    local end=$((SECONDS + deadline))
    until "$@"; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.05
    done
}

gone() { ! running; }
new_log() { tail -c "+$((log_start + 1))" "$dir/broker.log"; }
serves_or_gone() { gone || new_log | grep -q 'Kafka Server started'; }

# Becomes the Java program, so that a subshell's pid is Java's.
exec_java() {
    local log=-Dorg.slf4j.simpleLogger
    [ ! -e "$libs/classes.jsa" ] || jvm+=("-XX:SharedArchiveFile=$libs/classes.jsa")
    # shellcheck disable=SC2086
    exec "$java" "${jvm[@]}" ${KAFKA_JVM_OPTS:-} -cp "$libs/*" $log.showDateTime=true $log.dateTimeFormat=HH:mm:ss.SSS \
        $log.log.org.apache.kafka.common.config=warn "$@"
}

# ---- what it needs in DIR

free_port() {
    local port
    while :; do
        port=$((20000 + RANDOM % 12000))    # below the ports that the kernel gives to clients
        if [[ " ${ports[*]} " != *" $port "* ]] && ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
            ports+=("$port")
            return
        fi
    done
}

# Sets ports, in the order of the listeners.
choose_ports() {
    local i
    ports=()
    if [ -e "$dir/ports" ]; then
        read -ra ports <"$dir/ports"
    else
        for i in "${!listeners[@]}"; do free_port; done
        printf '%s\n' "${ports[*]}" >"$dir/ports"
    fi
}

# Clients check a certificate against the name in advertised.listeners.
host_of() {
    case $1 in *SSL | MTLS) echo localhost ;; *) echo 127.0.0.1 ;; esac
}

# addresses host|bind: all listeners, for the configuration.
addresses() {
    local i host list=
    for i in "${!listeners[@]}"; do
        host=127.0.0.1
        [ "$1" = bind ] || host=$(host_of "${listeners[i]}")
        [ "$1" = bind ] || [ "${listeners[i]}" != CONTROLLER ] || continue
        list+=${list:+,}${listeners[i]}://$host:${ports[i]}
    done
    printf '%s\n' "$list"
}

# certificate NAME SUBJECT EXTENSIONS: signed by our authority.
certificate() {
    openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$2" -keyout "$1.key" -out "$1.csr"
    openssl x509 -req -in "$1.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -days 3650 \
        -extfile <(printf '%s\n' "$3") -out "$1.pem"
}
authority() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$2" -days 3650 -keyout "$1.key" -out "$1.pem"
}
make_certificates() (
    rm -rf "$dir/tls.new"
    mkdir "$dir/tls.new"
    cd "$dir/tls.new"
    authority ca 'test authority'
    authority wrong_ca 'another authority'
    certificate server localhost 'subjectAltName = DNS:localhost, IP:127.0.0.1'
    certificate client "$user" 'extendedKeyUsage = clientAuth'
    openssl pkcs8 -topk8 -v2 aes-256-cbc -passout "pass:$key_password" -in client.key -out client_encrypted.key
    cat server.key server.pem >server_store.pem
    mv "$dir/tls.new" "$dir/tls"
) >"$dir/openssl.log" 2>&1

write_config() {
    local plain="org.apache.kafka.common.security.plain.PlainLoginModule required user_$user=\"$password\" user_$other_user=\"$password\";"
    local scram='org.apache.kafka.common.security.scram.ScramLoginModule required;'
    local oauth='org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="server";'
    local listener
    cat <<EOF
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:${ports[-1]}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listeners=$(addresses bind)
advertised.listeners=$(addresses host)
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL,MTLS:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
log.dirs=$dir/data

ssl.keystore.type=PEM
ssl.keystore.location=$dir/tls/server_store.pem
ssl.truststore.type=PEM
ssl.truststore.location=$dir/tls/ca.pem
listener.name.mtls.ssl.client.auth=required
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER
EOF
    for listener in sasl_plaintext sasl_ssl; do
        cat <<EOF
listener.name.$listener.plain.sasl.jaas.config=$plain
listener.name.$listener.scram-sha-256.sasl.jaas.config=$scram
listener.name.$listener.scram-sha-512.sasl.jaas.config=$scram
listener.name.$listener.oauthbearer.sasl.jaas.config=$oauth
EOF
    done
    cat <<EOF
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=true
super.users=User:ANONYMOUS

auto.create.topics.enable=false
num.partitions=1
default.replication.factor=1
min.insync.replicas=1
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.max.timeout.ms=86400000
transaction.abort.timed.out.transaction.cleanup.interval.ms=500
message.max.bytes=20971520
replica.fetch.max.bytes=20971520
broker.heartbeat.interval.ms=250
broker.session.timeout.ms=2500
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
log.retention.ms=-1
log.message.timestamp.after.max.ms=9223372036854775807
log.retention.check.interval.ms=500
log.initial.task.delay.ms=500
log.cleaner.backoff.ms=200
log.cleaner.min.cleanable.ratio=0.01
log.segment.delete.delay.ms=1000
log.cleaner.dedupe.buffer.size=8388608
delete.topic.enable=true
controlled.shutdown.enable=true
EOF
    [ ! -e "$dir/settings" ] || cat "$dir/settings"
}

format_storage() {
    local scram i
    for i in 256 512; do
        for name in "$user" "$other_user"; do
            scram+=(--add-scram "SCRAM-SHA-$i=[name=$name,iterations=4096,password=$password]")
        done
    done
    (exec_java kafka.tools.StorageTool format --ignore-formatted -t c3RyZWFtX2FnZ190ZXN0cw -c "$dir/server.properties" \
        "${scram[@]}" >"$dir/format.log" 2>&1) || { tail -n 20 "$dir/format.log" >&2; die "formatting the storage failed"; }
}

write_env() {
    local i
    for i in "${!listeners[@]}"; do
        printf 'KAFKA_%s=%s:%s\n' "${listeners[i]}" "$(host_of "${listeners[i]}")" "${ports[i]}"
    done
    cat <<EOF
KAFKA_PID=$pid
KAFKA_CA=$dir/tls/ca.pem
KAFKA_WRONG_CA=$dir/tls/wrong_ca.pem
KAFKA_CLIENT_CERT=$dir/tls/client.pem
KAFKA_CLIENT_KEY=$dir/tls/client.key
KAFKA_CLIENT_KEY_ENCRYPTED=$dir/tls/client_encrypted.key
KAFKA_CLIENT_KEY_PASSWORD=$key_password
KAFKA_USER=$user
KAFKA_PASSWORD=$password
KAFKA_OTHER_USER=$other_user
KAFKA_OTHER_PASSWORD=$password
EOF
}

# ---- commands

start() {
    ! running || die "it runs already, as $pid"
    [ $# = 0 ] || printf '%s\n' "$@" >"$dir/settings"
    [ -d "$dir/tls" ] || make_certificates || die "no certificates, see $dir/openssl.log"
    touch "$dir/broker.log"
    log_start=$(stat -c %s "$dir/broker.log")
    choose_ports
    write_config >"$dir/server.properties"
    [ -e "$dir/data/meta.properties" ] || format_storage
    exec_java kafka.Kafka "$dir/server.properties" </dev/null >>"$dir/broker.log" 2>&1 &
    pid=$!
    printf '%s %s\n' "$pid" "$(started_at "$pid")" >"$dir/pid"
    if ! wait_until serves_or_gone || ! running; then
        new_log | tail -n 30 >&2
        kill_it
        die "the broker did not start"
    fi
    write_env >"$dir/env.new"
    mv "$dir/env.new" "$dir/env"
}

kill_it() {
    if running; then
        kill -KILL "$pid"
        wait_until gone
    fi
    rm -f "$dir/pid"
}

stop() {
    if running; then
        kill -CONT "$pid"
        kill -TERM "$pid"
        wait_until gone || true
    fi
    kill_it
}

signal() {
    running || die "it does not run"
    kill "-$1" "$pid"
}

command=${1:-}
case $command in
available | libs)
    available
    [ "$command" = available ] || printf '%s\n' "$libs"
    exit
    ;;
start | stop | kill | freeze | thaw | status) ;;
*) die "unknown command: $command" ;;
esac
[ -n "${2:-}" ] || die "$command DIR"
mkdir -p "$2"
dir=$(cd "$2" && pwd)
shift 2
case $command in
start) start "$@" ;;
stop) stop ;;
kill) kill_it ;;
freeze) signal STOP ;;
thaw) signal CONT ;;
status) running ;;
esac
