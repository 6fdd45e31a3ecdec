# stream_agg: build, install, test.
#
#   make                 build for the server that PG_CONFIG names (WERROR=1: warnings are errors)
#   make install         install into that server
#   make installcheck    sql/ and test/specs against a running server that preloads the library
#   make demo | test     set-up, build and a throw-away server, all in one; nothing is installed
#   make bench | soak | test-pg | test-valgrind | fuzz-syntax      the same, on demand
#   make test-all        the tests on every PostgreSQL that is supported, as root
#   make test-assert     the tests on a PostgreSQL with assertions
#   make test-upgrade    pg_upgrade of a live installation to every newer PostgreSQL, as root
#   make torture ARGS="-t SECONDS -s SEED"         crashes at every point, for long
#   make demo-kafka | bench-kafka                  with a throw-away Kafka broker beside it
#   make soak-day        24 simulated hours of windows, in which nothing but results may grow (SA_STATE_MEMORY=256MB: with all groups in memory)
#   make bench-recovery  restarts with a million open groups, and what state costs
#   make bench-hop       windows that overlap beside windows that do not
#   make big-state       ten million open groups in little memory

PG_CONFIG ?= pg_config
WERROR ?= 0

MODULE_big = stream_agg
EXTENSION = stream_agg
DATA = $(sort $(wildcard stream_agg--*.sql))
OBJS = $(patsubst %.c,%.o,$(sort $(wildcard src/*.c)))
EXTRA_CLEAN = $(OBJS:.o=.d) .build-id .build-lock tmp_check

REGRESS = $(patsubst sql/%.sql,%,$(sort $(wildcard sql/*.sql)))
REGRESS_OPTS = --load-extension=stream_agg
ISOLATION = $(patsubst test/specs/%.spec,%,$(sort $(wildcard test/specs/*.spec)))
ISOLATION_OPTS = --load-extension=stream_agg --inputdir=test

# What -Wextra says of the server's own headers and of the shapes they ask for (PG_FUNCTION_ARGS,
# PG_TRY, partly filled tables of functions), and what we do on purpose (declare where it is used).
PG_CFLAGS = -Wall -Wextra -Wno-declaration-after-statement -Wno-unused-parameter \
	-Wno-sign-compare -Wno-missing-field-initializers -Wno-cast-function-type -Wno-clobbered
ifeq ($(WERROR),1)
PG_CFLAGS += -Werror
endif

# SANITIZE=undefined: what the compiler's sanitizer finds ends the process, with a line in the server's log.
SANITIZE ?=
ifneq ($(SANITIZE),)
PG_CFLAGS += -fsanitize=$(SANITIZE) -fno-sanitize-recover=all
SHLIB_LINK += -fsanitize=$(SANITIZE)
endif

# FAULTS=1: with fault points (src/fault.h), which tests have processes fail at.
FAULTS ?= 0

# -MMD: an object is rebuilt when a header that it includes changed.
PG_CPPFLAGS = -I$(srcdir)/src -MMD -MP
ifeq ($(FAULTS),1)
PG_CPPFLAGS += -DSA_FAULTS
endif

# Only the Kafka source needs librdkafka.
ifneq ($(wildcard src/source_kafka.c src/*rdkafka*.c),)
SHLIB_LINK += -lrdkafka
endif

# Bitcode for LLVM would need clang, and nothing here is worth inlining into a query.
override with_llvm := no

PGXS := $(shell $(PG_CONFIG) --pgxs 2>/dev/null)
ifneq ($(and $(PGXS),$(wildcard $(PGXS))),)
include $(PGXS)

# Objects built for another server are no use: all depend on a file that changes with the server.
build_id := $(shell $(PG_CONFIG) --version) $(shell $(PG_CONFIG) --includedir-server) $(SANITIZE) $(if $(filter 1,$(FAULTS)),faults)
ifneq ($(strip $(build_id)),$(shell cat .build-id 2>/dev/null))
$(shell echo '$(strip $(build_id))' >.build-id)
endif
$(OBJS): .build-id
-include $(wildcard src/*.d)

else
# A bare machine: only the targets below work, for they do the set-up themselves.
all install installcheck uninstall:
	@echo "$(PG_CONFIG) has no PostgreSQL server headers: run test/setup.sh, or set PG_CONFIG" >&2
	@exit 1
clean:
	rm -f $(MODULE_big).so $(OBJS)
	rm -rf $(EXTRA_CLEAN)
.PHONY: all install installcheck uninstall clean
endif

demo: script = test/demo/run.sh
demo-kafka: script = test/demo/run.sh kafka
test: script = test/run_tests.sh
bench: script = test/bench/run.sh
bench-kafka: script = test/bench/kafka.sh
bench-recovery: script = test/bench/recovery.sh
bench-hop: script = test/bench/hop.sh
big-state: script = test/bench/big_state.sh
soak: script = test/soak.sh
soak-day: script = test/run_tests.sh
soak-day: ARGS = tap
soak-day: export ONLY = 060_bloat
soak-day: export SA_ONLY = hours
soak-day: export SA_HOURS = 24
torture: script = test/torture.sh
test-pg: script = test/pg_regress_suite.sh
test-valgrind: script = test/valgrind.sh
fuzz-syntax: script = test/fuzz_syntax.sh
test-all: script = test/versions/run.sh
test-assert: script = test/assert.sh
test-upgrade: script = test/versions/upgrade.sh
targets = demo demo-kafka test bench bench-kafka bench-recovery bench-hop big-state soak soak-day torture test-pg test-valgrind test-all test-assert test-upgrade fuzz-syntax
$(targets):
	@PG_CONFIG='$(PG_CONFIG)' bash $(script) $(ARGS)

.PHONY: $(targets)
