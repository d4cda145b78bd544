# SPDX-License-Identifier: Apache-2.0
# kvmscope. `make help` lists what there is.

VERSION := 0.1.0
DATE    := November 28, 2026
BUILD   ?= build
PREFIX  ?= /usr/local
CC      := $(if $(filter default,$(origin CC)),gcc,$(CC))
CXX     := $(if $(filter default,$(origin CXX)),g++,$(CXX))
CLANG   ?= clang
V       ?= 0
Q       := $(if $(filter 1,$(V)),,@)

ifdef SANITIZE
SANITIZE_FLAGS := -fsanitize=$(SANITIZE) -fno-sanitize-recover=all -fno-omit-frame-pointer
endif

LIBRARIES := libelf libdw libzstd jansson zlib libprotobuf-c libbpf libcap-ng libcurl libmicrohttpd libcrypto libxml-2.0 libsystemd libseccomp
OPTIMIZE  ?= -O2
# Of tests, which take longer to compile than to run.
TEST_OPTIMIZE ?= -Og
WARNINGS  := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wno-unused-parameter -Wno-gnu-variable-sized-type-not-at-end $(if $(WERROR),-Werror)
CFLAGS    ?= -g
ALL_CFLAGS = -std=gnu11 $(OPTIMIZE) $(WARNINGS) -pthread -D_GNU_SOURCE -DKVMSCOPE_VERSION='"$(VERSION)"' \
	-I. -Ibuild/pprof -I$(BUILD)/include $(SANITIZE_FLAGS) $(LIBRARY_CFLAGS) $(CFLAGS)
LIBRARY_CFLAGS := $(shell pkg-config --cflags $(LIBRARIES) 2>/dev/null)
LIBRARY_LIBS   := $(shell pkg-config --libs $(LIBRARIES) 2>/dev/null || echo -lelf -ldw -lzstd -ljansson -lz -lprotobuf-c -lbpf -lcurl -lmicrohttpd -lcrypto -lxml2 -lsystemd -lseccomp) -lZydis
# Each program loads what it calls alone: kvmscope has no use for the daemon's libraries.
ALL_LDFLAGS = -Wl,--as-needed -pthread $(SANITIZE_FLAGS) $(LDFLAGS)

LIBRARY_SOURCES := $(filter-out vmm/cli/kvmscope.c vmm/daemon/kvmscoped.c vmm/attach/bpf/% vmm/daemon/hook/%, \
	$(wildcard vmm/*/*.c vmm/*/*/*.c shared/*.c))
# Sanitized builds test what runs on this machine itself; the rig would take them ten times as long.
TEST_FOLDERS    := tests/unit tests/kvm $(if $(SANITIZE),,tests/rig tests/e2e)
# Nor what is of others for nearly all of its time: guests and agents that QEMU emulates, hosts of libvirt. What ours does there unit tests,
# test_attach.c, test_daemon.c and test_libvirt*.c have it do, too. And what systemd starts is the plain build, whatever the tests are of.
UNSANITIZED     := systemd agent_suspend attach_agent attach_qmp libvirt_full_disk libvirt_migration
TEST_SOURCES    := $(filter-out $(if $(SANITIZE),$(UNSANITIZED:%=tests/kvm/test_%.c)),$(foreach folder,$(TEST_FOLDERS),$(wildcard $(folder)/*.c)) \
	$(wildcard tests/unit/*/test_*.c tests/unit/*/*/test_*.c))
FUZZ_SOURCES    := $(wildcard tests/fuzz/fuzz_*.c)
BENCH_SOURCES   := $(wildcard tests/bench/bench_*.c)

LIBRARY_OBJECTS := $(LIBRARY_SOURCES:%.c=$(BUILD)/%.o)
TEST_OBJECTS    := $(TEST_SOURCES:%.c=$(BUILD)/%.o) $(BUILD)/tests/unit/shim/shim.o
$(TEST_SOURCES:%.c=$(BUILD)/%.o): OPTIMIZE = $(TEST_OPTIMIZE)
FUZZERS         := $(FUZZ_SOURCES:tests/fuzz/%.c=build/fuzz/%)
BENCHES         := $(BENCH_SOURCES:tests/bench/%.c=$(BUILD)/bench/%)

.PHONY: all
all: $(BUILD)/kvmscope $(BUILD)/kvmscoped

# Rules that belong to one folder stand in it; they add to these lists.
LIBRARY_EXTRA :=
TEST_NEEDS    :=
include $(wildcard vmm/*/module.mk tests/*/module.mk guest-agent/module.mk)

$(BUILD)/libkvmscope.a: $(LIBRARY_OBJECTS) $(LIBRARY_EXTRA)
	@echo "  AR      $@"
	$(Q)rm -f $@ && ar rcs $@ $^

$(BUILD)/kvmscope: $(BUILD)/vmm/cli/kvmscope.o $(BUILD)/libkvmscope.a
	@echo "  LD      $@"
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LIBRARY_LIBS)

$(BUILD)/kvmscoped: $(BUILD)/vmm/daemon/kvmscoped.o $(BUILD)/libkvmscope.a
	@echo "  LD      $@"
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LIBRARY_LIBS)

$(BUILD)/kvmscope-tests: $(TEST_OBJECTS) $(BUILD)/libkvmscope.a
	@echo "  LD      $@"
	$(Q)$(CXX) $(ALL_LDFLAGS) -o $@ $^ $(LIBRARY_LIBS) -lgtest

$(BUILD)/bench/%: $(BUILD)/tests/bench/%.o $(BUILD)/libkvmscope.a
	@mkdir -p $(@D)
	@echo "  LD      $@"
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LIBRARY_LIBS) $(BENCH_LIBS)

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	@echo "  CC      $<"
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/%.o: %.cc
	@mkdir -p $(@D)
	@echo "  CXX     $<"
	$(Q)$(CXX) -std=c++14 -O1 -Wall -Wextra -I. $(SANITIZE_FLAGS) -MMD -MP -c -o $@ $<

# What programs have besides the library.
.PHONY: program-objects
program-objects: $(TEST_OBJECTS) $(BUILD)/vmm/cli/kvmscope.o $(BUILD)/vmm/daemon/kvmscoped.o

# Fuzz targets link the whole library again, built by clang with coverage; their reports need lines, and no types.
FUZZ_FLAGS := -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all
FUZZ_OBJECTS := $(LIBRARY_SOURCES:%.c=build/fuzz/objects/%.o)

build/fuzz/objects/%.o: %.c
	@mkdir -p $(@D)
	@echo "  FUZZCC  $<"
	$(Q)$(CLANG) $(ALL_CFLAGS) -O1 -g1 -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -MMD -MP -c -o $@ $<

build/fuzz/libkvmscope.a: $(FUZZ_OBJECTS) $(LIBRARY_EXTRA)
	$(Q)rm -f $@ && ar rcs $@ $^

build/fuzz/%: build/fuzz/objects/tests/fuzz/%.o build/fuzz/libkvmscope.a
	@echo "  FUZZLD  $@"
	$(Q)$(CLANG) $(FUZZ_FLAGS) -pthread -o $@ $(filter %.o,$^) $(filter-out %.o,$^) $(LIBRARY_LIBS)

# The guest's end of a session, and what it needs.
build/fuzz/fuzz_agent_guest: $(addprefix build/fuzz/objects/guest-agent/,$(addsuffix .o,mapped_build_id process_cgroup file_birth jit_map jit_files kernel_table mapped_file send_queue host_link table_sender))

.SECONDARY:

fuzzers: $(FUZZERS)

# The pages in docs/man have @VERSION@ and @DATE@ in place of both.
MAN_PAGES := $(patsubst docs/man/%,$(BUILD)/man/%,$(wildcard docs/man/*.[1-8]))

$(BUILD)/man/%: docs/man/% Makefile
	@mkdir -p $(@D)
	$(Q)sed 's/@VERSION@/$(VERSION)/; s/@DATE@/$(DATE)/' $< > $@

man: $(MAN_PAGES) ## build/man: the man pages with version and date

.PHONY: fuzzers man test demo bench lint asan ubsan tsan fuzz deps install uninstall clean help test-programs
test-programs: $(BUILD)/kvmscope $(BUILD)/kvmscoped $(BUILD)/kvmscope-tests $(TEST_NEEDS)

test: ## build with gcc and clang, check the layers, run all tests, sanitized ones and fuzzers too; FILTER='*ring*' for a part
	$(Q)tests/run $(if $(FILTER),--filter '$(FILTER)')

demo: ## boot Debian's own kernel, profile it, leave build/demo/perf.data and flame.html
	$(Q)tests/e2e/demo

bench: deps ## run tests/bench, JSON lines in build/bench/
	$(Q)tests/bench/run

lint: ## check the layers, the format and clang-tidy
	$(Q)tests/lint/run

asan: ## build/asan: everything with AddressSanitizer
	$(Q)$(MAKE) BUILD=build/asan SANITIZE=address OPTIMIZE=-O1 test-programs

ubsan: ## build/ubsan: everything with UndefinedBehaviorSanitizer
	$(Q)$(MAKE) BUILD=build/ubsan SANITIZE=undefined OPTIMIZE=-O1 test-programs

tsan: ## build/tsan: everything with ThreadSanitizer
	$(Q)$(MAKE) BUILD=build/tsan SANITIZE=thread OPTIMIZE=-O1 test-programs

fuzz: $(FUZZERS) ## build the fuzz targets and run each on its corpus and new input for SECONDS=5
	$(Q)tests/fuzz/run explore $(or $(SECONDS),5) $(FUZZERS)

deps: ## install the Debian packages that are missing; says which; needs root
	$(Q)tests/deps/install

install: all man ## install the programs, man pages, the systemd unit and completion into DESTDIR and PREFIX
	$(Q)install -D -m 755 $(BUILD)/kvmscope $(DESTDIR)$(PREFIX)/bin/kvmscope
	$(Q)install -D -m 755 build/agent/kvmscope-agent $(DESTDIR)$(PREFIX)/bin/kvmscope-agent
	$(Q)install -D -m 755 $(BUILD)/kvmscoped $(DESTDIR)$(PREFIX)/sbin/kvmscoped
	$(Q)install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	$(Q)sed 's,@PREFIX@,$(PREFIX),' vmm/daemon/kvmscoped.service.in > $(DESTDIR)$(PREFIX)/lib/systemd/system/kvmscoped.service
	$(Q)install -D -m 644 docs/kvmscope.conf $(DESTDIR)$(PREFIX)/share/doc/kvmscope/kvmscope.conf
	$(Q)for page in $(MAN_PAGES); do install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man$${page##*.} $$page; done
	$(Q)install -D -m 644 docs/completion/kvmscope.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/kvmscope
	$(Q)install -D -m 644 docs/completion/kvmscope.zsh $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_kvmscope
	$(Q)install -D -m 644 docs/completion/kvmscope.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/kvmscope.fish

uninstall: ## remove what install put there
	$(Q)rm -f $(DESTDIR)$(PREFIX)/bin/kvmscope $(DESTDIR)$(PREFIX)/bin/kvmscope-agent $(DESTDIR)$(PREFIX)/sbin/kvmscoped \
		$(DESTDIR)$(PREFIX)/share/man/man[158]/kvmscope*.[158] $(DESTDIR)$(PREFIX)/lib/systemd/system/kvmscoped.service \
		$(DESTDIR)$(PREFIX)/share/doc/kvmscope/kvmscope.conf \
		$(DESTDIR)$(PREFIX)/share/bash-completion/completions/kvmscope $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_kvmscope \
		$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/kvmscope.fish

clean: ## remove build/
	$(Q)rm -rf build

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

# Of this build alone, and of the fuzz targets where they are asked for: others lie below build/, too.
-include $(wildcard $(addsuffix /*.d,$(addprefix $(BUILD)/,shared vmm/* vmm/*/* guest-agent tests/* tests/*/* tests/*/*/* tests/*/*/*/* searched/* searched/*/*) build/agent/* \
	$(if $(filter fuzz%,$(notdir $(MAKECMDGOALS))),build/fuzz/objects/* build/fuzz/objects/*/* build/fuzz/objects/*/*/*)))
