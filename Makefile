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
# clang has no such macros.
SANITIZE_FLAGS += $(if $(findstring clang,$(CC)),$(if $(findstring address,$(SANITIZE)), \
	-D__SANITIZE_ADDRESS__)$(if $(findstring thread,$(SANITIZE)),-D__SANITIZE_THREAD__))
endif

LIBRARIES := libelf libdw libzstd jansson zlib libprotobuf-c libbpf libcap-ng libcurl \
	libmicrohttpd libcrypto libxml-2.0 libsystemd libseccomp ncursesw
OPTIMIZE  ?= -O2
# Tests take longer to compile than to run.
TEST_OPTIMIZE ?= -Og
WARNINGS  := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wformat=2 -Wvla \
	-Wundef -Wwrite-strings -Wcast-qual -Wimplicit-fallthrough -Wno-unused-parameter \
	-Wno-gnu-variable-sized-type-not-at-end $(if $(WERROR),-Werror)
# Sanitizers have checks of their own, and _FORTIFY_SOURCE needs optimization.
ifndef SANITIZE
HARDENING := -fstack-protector-strong -fPIE $(if $(filter -O0,$(OPTIMIZE)),,-D_FORTIFY_SOURCE=2)
HARDENED_LINK := -pie -Wl,-z,relro,-z,now
endif
CFLAGS    ?= -g
ALL_CFLAGS = -std=gnu11 $(OPTIMIZE) $(WARNINGS) $(HARDENING) -pthread -D_GNU_SOURCE \
	-DKVMSCOPE_VERSION='"$(VERSION)"' -I. -Ibuild/pprof -I$(BUILD)/include $(SANITIZE_FLAGS) \
	$(LIBRARY_CFLAGS) $(CFLAGS)
LIBRARY_CFLAGS := $(shell pkg-config --cflags $(LIBRARIES) 2>/dev/null)
LIBRARY_LIBS   := $(shell pkg-config --libs $(LIBRARIES) 2>/dev/null || echo -lelf -ldw -lzstd \
	-ljansson -lz -lprotobuf-c -lbpf -lcurl -lmicrohttpd -lcrypto -lxml2 -lsystemd \
	-lseccomp -lncursesw -ltinfo) -lZydis
# A program loads only the libraries that it calls: kvmscope does not need the daemon's.
ALL_LDFLAGS = -Wl,--as-needed -pthread $(HARDENED_LINK) $(SANITIZE_FLAGS) $(LDFLAGS)

LIBRARY_SOURCES := $(filter-out vmm/cli/kvmscope.c vmm/daemon/kvmscoped.c vmm/attach/bpf/% \
	vmm/daemon/hook/%,$(wildcard vmm/*/*.c vmm/*/*/*.c shared/*.c))
# Sanitized builds run the tests that need no emulator: in the rig they would take ten times as
# long. Nor tests that spend nearly all of their time in other programs: QEMU and libvirt. Unit
# tests, test_attach_kvm.c, test_daemon.c and test_libvirt*.c run the same code of ours. systemd
# starts the plain build in any case; kvmscope run is not confined in sanitized builds.
UNSANITIZED     := $(wildcard tests/rig/*.c tests/e2e/*.c) \
	$(patsubst %,tests/kvm/test_%.c,systemd agent_suspend attach_agent attach_qmp \
	libvirt_full_disk libvirt_migration confine)
TEST_SOURCES    := $(if $(SANITIZE),,$(UNSANITIZED)) $(filter-out $(UNSANITIZED), \
	$(wildcard tests/unit/*.c tests/kvm/*.c tests/unit/*/test_*.c tests/unit/*/*/test_*.c))
FUZZ_SOURCES    := $(wildcard tests/fuzz/fuzz_*.c)
BENCH_SOURCES   := $(wildcard tests/bench/bench_*.c)

LIBRARY_OBJECTS := $(LIBRARY_SOURCES:%.c=$(BUILD)/%.o)
TEST_OBJECTS    := $(TEST_SOURCES:%.c=$(BUILD)/%.o) $(BUILD)/tests/unit/shim/shim.o
$(TEST_SOURCES:%.c=$(BUILD)/%.o): OPTIMIZE = $(TEST_OPTIMIZE)
# Tests pass formats of commands to functions of their own.
$(BUILD)/tests/%.o: WARNINGS += -Wno-format-nonliteral
# A bench's number of runs is not a constant (bench_size()).
$(BUILD)/tests/bench/%.o: WARNINGS += -Wno-sign-compare
FUZZ_TARGETS    := $(FUZZ_SOURCES:tests/fuzz/%.c=$(BUILD)/fuzz/%)
BENCHES         := $(BENCH_SOURCES:tests/bench/%.c=$(BUILD)/bench/%)

.PHONY: all
all: $(BUILD)/kvmscope $(BUILD)/kvmscoped

# Rules that belong to one folder are in its module.mk; they add to these lists.
LIBRARY_EXTRA :=
TEST_NEEDS    :=
include $(wildcard vmm/*/module.mk tests/*/module.mk guest-agent/module.mk)

# What --version prints beside the version: the last commit. A tarball of "make dist" has it in a
# file.
$(BUILD)/include/git_description.h: force
	@mkdir -p $(@D)
	@text="#define GIT_DESCRIPTION \"$$(cat git-description 2> /dev/null || \
		git describe --always --dirty 2> /dev/null || echo unknown)\""; \
		[ "$$text" = "$$(cat $@ 2> /dev/null)" ] || echo "$$text" > $@
$(BUILD)/vmm/cli/kvmscope.o $(BUILD)/vmm/daemon/kvmscoped.o: $(BUILD)/include/git_description.h
.PHONY: force

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

# The objects that a sanitized build does not have.
.PHONY: unsanitized-objects
unsanitized-objects: $(UNSANITIZED:%.c=$(BUILD)/%.o)

# Tests with sanitizers and fuzz targets: one build, by clang, with the coverage that libFuzzer
# needs. Reports need lines, but no types: -g1.
SANITIZED := BUILD=build/sanitized CC='$(CLANG)' CXX='$(CLANG)++' CFLAGS=-g1 OPTIMIZE=-O1 \
	SANITIZE=address,undefined,fuzzer-no-link

sanitized: ; $(Q)$(MAKE) $(SANITIZED) test-programs
fuzzers: ; $(Q)$(MAKE) $(SANITIZED) fuzz-targets
fuzz-targets: $(FUZZ_TARGETS)

$(BUILD)/fuzz/%: $(BUILD)/tests/fuzz/%.o $(BUILD)/libkvmscope.a
	@mkdir -p $(@D)
	@echo "  FUZZLD  $@"
	$(Q)$(CC) -fsanitize=fuzzer,address,undefined -pthread -o $@ $(filter %.o,$^) \
		$(filter %.a,$^) $(LIBRARY_LIBS)

# The guest's end of the agent's protocol.
$(BUILD)/fuzz/fuzz_agent_guest: $(addprefix $(BUILD)/guest-agent/,$(addsuffix .o, \
	mapped_build_id process_cgroup jit_map jit_files kernel_table mapped_file \
	send_queue host_link table_sender))

.SECONDARY:

# The pages in docs/man have @VERSION@ and @DATE@ in place of both.
MAN_PAGES := $(patsubst docs/man/%,$(BUILD)/man/%,$(wildcard docs/man/*.[1-8]))

$(BUILD)/man/%: docs/man/% Makefile
	@mkdir -p $(@D)
	$(Q)sed 's/@VERSION@/$(VERSION)/; s/@DATE@/$(DATE)/' $< > $@

man: $(MAN_PAGES) ## build/man: the man pages with version and date

.PHONY: sanitized fuzzers fuzz-targets man test demo bench lint asan ubsan tsan fuzz deps install \
	uninstall dist deb clean help test-programs
test-programs: $(BUILD)/kvmscope $(BUILD)/kvmscoped $(BUILD)/kvmscope-tests $(TEST_NEEDS)

test: ## build with gcc and clang, lint, run all tests and fuzzers; FILTER='*ring*' for a part
	$(Q)tests/run $(if $(FILTER),--filter '$(FILTER)')

demo: ## boot Debian's own kernel, profile it, leave build/demo/perf.data and flame.html
	$(Q)tests/e2e/demo

bench: deps ## run tests/bench, JSON lines in build/bench/
	$(Q)tests/bench/run

lint: ## check layers, names, text, scripts, man pages, format, and run clang-tidy
	$(Q)tests/lint/run

asan: ## build/asan: everything with AddressSanitizer
	$(Q)$(MAKE) BUILD=build/asan SANITIZE=address OPTIMIZE=-O1 test-programs

ubsan: ## build/ubsan: everything with UndefinedBehaviorSanitizer
	$(Q)$(MAKE) BUILD=build/ubsan SANITIZE=undefined OPTIMIZE=-O1 test-programs

tsan: ## build/tsan: everything with ThreadSanitizer
	$(Q)$(MAKE) BUILD=build/tsan SANITIZE=thread OPTIMIZE=-O1 test-programs

fuzz: fuzzers ## build the fuzz targets and run each on its corpus and new input for SECONDS=5
	$(Q)tests/fuzz/run explore $(or $(SECONDS),5)

deps: ## install the Debian packages that are missing; says which; needs root
	$(Q)tests/deps/install

# Where install puts what; uninstall removes the same.
INSTALL ?= install
BIN   := $(DESTDIR)$(PREFIX)/bin
SBIN  := $(DESTDIR)$(PREFIX)/sbin
UNITS := $(DESTDIR)$(PREFIX)/lib/systemd/system
SHARE := $(DESTDIR)$(PREFIX)/share
BASH_COMPLETION := $(SHARE)/bash-completion/completions/kvmscope
ZSH_COMPLETION  := $(SHARE)/zsh/site-functions/_kvmscope
FISH_COMPLETION := $(SHARE)/fish/vendor_completions.d/kvmscope.fish

# The agent keeps its symbols: a profile of the guest names its functions.
install: all man ## install programs, man pages, systemd unit and completion into DESTDIR and PREFIX
	$(Q)$(INSTALL) -s -D -m 755 -t $(BIN) $(BUILD)/kvmscope
	$(Q)install -D -m 755 -t $(BIN) build/agent/kvmscope-agent
	$(Q)$(INSTALL) -s -D -m 755 -t $(SBIN) $(BUILD)/kvmscoped
	$(Q)install -d $(UNITS)
	$(Q)sed 's,@PREFIX@,$(PREFIX),' vmm/daemon/kvmscoped.service.in > $(UNITS)/kvmscoped.service
	$(Q)install -D -m 644 -t $(SHARE)/doc/kvmscope docs/kvmscope.conf
	$(Q)for page in $(MAN_PAGES); do \
		install -D -m 644 -t $(SHARE)/man/man$${page##*.} $$page; done
	$(Q)install -D -m 644 docs/completion/kvmscope.bash $(BASH_COMPLETION)
	$(Q)install -D -m 644 docs/completion/kvmscope.zsh $(ZSH_COMPLETION)
	$(Q)install -D -m 644 docs/completion/kvmscope.fish $(FISH_COMPLETION)

uninstall: ## remove what install put there
	$(Q)rm -f $(BIN)/kvmscope $(BIN)/kvmscope-agent $(SBIN)/kvmscoped \
		$(UNITS)/kvmscoped.service \
		$(SHARE)/doc/kvmscope/kvmscope.conf $(SHARE)/man/man[158]/kvmscope*.[158] \
		$(BASH_COMPLETION) $(ZSH_COMPLETION) $(FISH_COMPLETION)
	$(Q)rmdir $(SHARE)/doc/kvmscope 2> /dev/null || true

dist: $(WEB_PAGE) ## build/kvmscope-VERSION.tar.gz of the last commit; builds without npm
	@git describe --always > build/git-description
	$(Q)git archive --prefix=kvmscope-$(VERSION)/prebuilt/ --add-file=$(WEB_PAGE) \
		--prefix=kvmscope-$(VERSION)/ --add-file=build/git-description \
		-o build/kvmscope-$(VERSION).tar.gz HEAD
	@echo "build/kvmscope-$(VERSION).tar.gz"

deb: dist ## build/deb: Debian packages of the last commit
	$(Q)rm -rf build/deb && mkdir -p build/deb
	$(Q)tar -xf build/kvmscope-$(VERSION).tar.gz -C build/deb
	$(Q)cd build/deb/kvmscope-$(VERSION) && dpkg-buildpackage --build=binary --no-sign
	@ls build/deb/*.deb

clean: ## remove build/
	$(Q)rm -rf build

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

# The dependencies of this build only: build/ may contain others.
-include $(wildcard $(addsuffix /*.d,$(addprefix $(BUILD)/,shared vmm/* vmm/*/* guest-agent \
	tests/* tests/*/* tests/*/*/* tests/*/*/*/* searched/* searched/*/*) build/agent/*))
