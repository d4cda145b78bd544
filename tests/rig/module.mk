# SPDX-License-Identifier: Apache-2.0
# Programs that run beside or inside the rig are built without sanitizers.
RIG_CFLAGS := -std=gnu11 -O2 -Wall -Wextra -Wshadow -Werror -D_GNU_SOURCE -I.
GUEST_PROGRAM := tests/rig/guest/guest_program.h

build/rig/debug-shim.so: tests/rig/qemu/debug-shim.c tests/rig/module.mk
	@mkdir -p $(@D)
	@echo "  CC      $@"
	$(Q)$(CC) $(RIG_CFLAGS) -shared -fPIC -o $@ $< -ldl

build/rig/tsc-rate: tests/rig/qemu/tsc-rate.c tests/rig/module.mk
	@mkdir -p $(@D)
	@echo "  CC      $@"
	$(Q)$(CC) $(RIG_CFLAGS) -o $@ $<

build/rig/workload: tests/rig/guest/workload.c $(GUEST_PROGRAM) tests/guests/spin_loop.h \
	tests/rig/module.mk
	@mkdir -p $(@D)
	@echo "  CC      $@"
	$(Q)$(CC) $(RIG_CFLAGS) -fno-omit-frame-pointer -static -o $@ $<

build/rig/debugger: tests/rig/guest/debugger.c $(GUEST_PROGRAM) tests/rig/module.mk
	@mkdir -p $(@D)
	@echo "  CC      $@"
	$(Q)$(CC) $(RIG_CFLAGS) -g -static -o $@ $<

# Linked to its own address range, so that its samples are recognized by address.
build/rig/tasks: tests/rig/guest/tasks.c tests/rig/module.mk
	@mkdir -p $(@D)
	@echo "  CC      $@"
	$(Q)$(CC) $(RIG_CFLAGS) -fno-omit-frame-pointer -static -pthread \
		-Wl,-Ttext-segment=0x20000000 -o $@ $<

# The same for the program with known callers and without frame pointers.
build/rig/frames: tests/rig/guest/frames.c $(GUEST_PROGRAM) tests/rig/module.mk
	@mkdir -p $(@D)
	@echo "  CC      $@"
	$(Q)gcc $(RIG_CFLAGS) -fomit-frame-pointer -static -Wl,-Ttext-segment=0x28000000 -o $@ $<

# The same, because it runs beside the programs of remap, which are recognized by address.
build/rig/bpf: tests/rig/guest/load_bpf.c $(GUEST_PROGRAM) tests/rig/module.mk
	@mkdir -p $(@D)
	@echo "  CC      $@"
	$(Q)$(CC) $(RIG_CFLAGS) -static -Wl,-Ttext-segment=0x30000000 -o $@ $<

# The same for the program with known exceptions and callers.
build/rig/exceptions: tests/rig/guest/exceptions.c $(GUEST_PROGRAM) tests/rig/module.mk
	@mkdir -p $(@D)
	@echo "  CC      $@"
	$(Q)gcc $(RIG_CFLAGS) -fomit-frame-pointer -static -Wl,-Ttext-segment=0x38000000 -o $@ $<

build/rig/kernel-text: tests/rig/guest/kernel_text.c tests/rig/module.mk
	@mkdir -p $(@D)
	@echo "  CC      $@"
	$(Q)$(CC) $(RIG_CFLAGS) -static -o $@ $<

build/rig/life: tests/rig/guest/life.c $(GUEST_PROGRAM) tests/rig/module.mk
	@mkdir -p $(@D)
	@echo "  CC      $@"
	$(Q)$(CC) $(RIG_CFLAGS) -fno-omit-frame-pointer -static -o $@ $<

build/rig/rdpmc: tests/rig/guest/rdpmc.c $(GUEST_PROGRAM) tests/rig/module.mk
	@mkdir -p $(@D)
	@echo "  CC      $@"
	$(Q)$(CC) $(RIG_CFLAGS) -static -o $@ $<

# Without a C library, whose 32-bit form need not be installed.
build/rig/init-32: tests/rig/guest/init_32.c tests/rig/module.mk
	@mkdir -p $(@D)
	@echo "  CC      $@"
	$(Q)gcc -m32 $(RIG_CFLAGS) -ffreestanding -fno-omit-frame-pointer -fno-stack-protector \
		-fno-pic -fcf-protection=none -mgeneral-regs-only -nostdlib -static -no-pie -o $@ $<

build/rig/exits: tests/rig/guest/exits.c $(GUEST_PROGRAM) tests/rig/module.mk
	@mkdir -p $(@D)
	@echo "  CC      $@"
	$(Q)$(CC) $(RIG_CFLAGS) -fno-omit-frame-pointer -static -o $@ $<

build/rig/contend: tests/rig/guest/contend.c $(GUEST_PROGRAM) tests/rig/module.mk
	@mkdir -p $(@D)
	@echo "  CC      $@"
	$(Q)$(CC) $(RIG_CFLAGS) -fno-omit-frame-pointer -static -o $@ $<

TEST_NEEDS += $(addprefix build/rig/,life debug-shim.so tsc-rate workload debugger tasks frames \
	bpf contend exceptions exits kernel-text rdpmc init-32)

build/rig/port-writer: tests/rig/bochs/port-writer.c tests/rig/module.mk
	@mkdir -p $(@D)
	@echo "  CC      $@"
	$(Q)$(CC) $(RIG_CFLAGS) -static -o $@ $<

TEST_NEEDS += build/rig/port-writer

.PHONY: rig-intel
rig-intel: ## build the emulator of the Intel rig
	$(Q)tests/rig/bochs/build

# The host side of a guest's port.
build/rig/peer: tests/rig/guest/port_peer.c tests/rig/module.mk
	@mkdir -p $(@D)
	@echo "  CC      $@"
	$(Q)$(CC) $(RIG_CFLAGS) -o $@ $<

TEST_NEEDS += build/rig/peer

comma := ,
# Code whose address identifies its file: tests/rig/guest/remap.c runs it.
REMAP_IMAGES   := alpha:0x100 beta:0x200 gamma:0x300 delta:0x400
# NAME:ADDRESS:COUNT; counting to 100000 takes 5 ms.
REMAP_PROGRAMS := one:0x500:400000 two:0x600:400000 three:0x700:400000 brief:0x800:100000
# Each has its own symbols: tests/rig/guest-service runs them.
SERVICE_PROGRAMS := booted:0x100:20000000 again:0x200:20000000 installed:0x400:20000000
REMAP_FILES    := $(addprefix build/rig/remap/,remap $(foreach file, \
	$(REMAP_IMAGES) $(REMAP_PROGRAMS) $(SERVICE_PROGRAMS),$(firstword $(subst :, ,$(file)))))
SPIN_LDFLAGS   := -nostdlib -Wl,--build-id=sha1 -Wl,-z,max-page-size=4096 -Wl,-z,separate-code

build/rig/remap/remap: tests/rig/guest/remap.c $(GUEST_PROGRAM) tests/rig/module.mk
	@mkdir -p $(@D)
	@echo "  CC      $@"
	$(Q)$(CC) $(RIG_CFLAGS) -static -o $@ $<

define spin_file
build/rig/remap/$(firstword $(subst :, ,$(1))): tests/rig/guest/spin.S tests/rig/module.mk
	@mkdir -p $$(@D)
	@echo "  CC      $$@"
	$(Q)gcc $(2) $(SPIN_LDFLAGS) -DNAME=$(firstword $(subst :, ,$(1))) \
		-DPLACE=$(word 2,$(subst :, ,$(1))) -o $$@ $$<
endef
$(foreach file,$(REMAP_IMAGES),$(eval $(call spin_file,$(file),-shared)))
$(foreach file,$(REMAP_PROGRAMS) $(SERVICE_PROGRAMS),$(eval $(call spin_file,$(file),-static \
	-no-pie -Wl$(comma)-Ttext=0x401000 -DCOUNT=$(lastword $(subst :, ,$(file))))))

TEST_NEEDS += $(REMAP_FILES)

build/rig/modules: tests/rig/guest/modules.c $(GUEST_PROGRAM) tests/rig/module.mk
	@mkdir -p $(@D)
	@echo "  CC      $@"
	$(Q)$(CC) $(RIG_CFLAGS) -static -o $@ $<

TEST_NEEDS += build/rig/modules

# The programs of the user land, each built differently.
USERLAND          := build/rig/userland
USERLAND_SOURCES  := tests/rig/guest/userland
USERLAND_PROGRAMS := $(addprefix $(USERLAND)/,plain bare shapes linked liblibrary.so stripped \
	plugins left.so right.so storm brief hashed jit computes calls gospin)
USERLAND_CC        = $(Q)mkdir -p $(@D); echo "  CC      $@"; gcc $(RIG_CFLAGS) -Wl,--build-id=sha1

$(USERLAND_PROGRAMS): $(wildcard $(USERLAND_SOURCES)/*) tests/rig/module.mk

$(USERLAND)/plain:
	$(USERLAND_CC) -fno-omit-frame-pointer -no-pie -o $@ \
		$(addprefix $(USERLAND_SOURCES)/,plain.c busy.c)

$(USERLAND)/bare:
	$(USERLAND_CC) -fomit-frame-pointer -o $@ $(addprefix $(USERLAND_SOURCES)/,bare.c busy.c)

$(USERLAND)/shapes:
	$(USERLAND_CC) -c -o $@.o $(USERLAND_SOURCES)/busy.c
	$(Q)g++ -std=c++17 -O2 -Wall -Wextra -Werror -I. -Wl,--build-id=sha1 -o $@ \
		$(USERLAND_SOURCES)/shapes.cpp $@.o

$(USERLAND)/liblibrary.so:
	$(USERLAND_CC) -shared -fPIC -Wl,-soname,$(@F) -o $@ $(USERLAND_SOURCES)/library.c

$(USERLAND)/linked: $(USERLAND)/liblibrary.so
	$(USERLAND_CC) -o $@ $(addprefix $(USERLAND_SOURCES)/,linked.c busy.c) $< \
		-Wl,-rpath,'$$ORIGIN'

$(USERLAND)/stripped:
	$(USERLAND_CC) -g -o $@.whole $(addprefix $(USERLAND_SOURCES)/,stripped.c busy.c)
	$(Q)objcopy --only-keep-debug $@.whole $@.debug
	$(Q)strip -o $@ $@.whole

$(USERLAND)/hashed $(USERLAND)/computes $(USERLAND)/calls: $(USERLAND)/%:
	$(USERLAND_CC) -fomit-frame-pointer -o $@ $(addprefix $(USERLAND_SOURCES)/,$*.c busy.c)

$(USERLAND)/plugins:
	$(USERLAND_CC) -o $@ $(addprefix $(USERLAND_SOURCES)/,plugins.c busy.c)

$(USERLAND)/%.so: $(USERLAND_SOURCES)/plugin.c
	$(USERLAND_CC) -shared -fPIC -DFUNCTION=$*_spin -o $@ $<

$(USERLAND)/storm:
	$(USERLAND_CC) -o $@ $(addprefix $(USERLAND_SOURCES)/,storm.c busy.c)

# Go's own linker places the build ID outside of the file's notes.
$(USERLAND)/gospin:
	$(Q)mkdir -p $(@D); echo "  GO      $@"
	$(Q)GO111MODULE=off GOCACHE=$(CURDIR)/build/go-cache go build -o $@ \
		-ldflags '-linkmode=external -extldflags "-static -Wl,--build-id=sha1"' \
		$(USERLAND_SOURCES)/gospin.go

$(USERLAND)/brief $(USERLAND)/jit: $(USERLAND)/%: $(USERLAND_SOURCES)/%.c
	$(USERLAND_CC) -o $@ $<

TEST_NEEDS += $(USERLAND_PROGRAMS)

# kvmscope that records the truth about samples of the kernel for the search for RSP.
$(BUILD)/rig/hidden-rsp-recorder: $(BUILD)/vmm/cli/kvmscope.o \
		$(BUILD)/tests/rig/recorder/hidden_rsp_recorder.o $(BUILD)/libkvmscope.a
	@mkdir -p $(@D)
	@echo "  LD      $@"
	$(Q)$(CC) $(ALL_LDFLAGS) -Wl,--wrap=guest_unwind -Wl,--wrap=guest_task_current -o $@ $^ \
		$(LIBRARY_LIBS)

TEST_NEEDS += $(if $(SANITIZE),,$(BUILD)/rig/hidden-rsp-recorder)
