# SPDX-License-Identifier: Apache-2.0
# What runs beside or inside the rig is built plainly, whatever the sanitizer.
RIG_CFLAGS := -std=gnu11 -O2 -Wall -Wextra -Wshadow -Werror -D_GNU_SOURCE -I.

build/rig/debug-shim.so: tests/rig/qemu/debug-shim.c tests/rig/module.mk
	@mkdir -p $(@D)
	@echo "  CC      $@"
	$(Q)$(CC) $(RIG_CFLAGS) -shared -fPIC -o $@ $< -ldl

build/rig/workload: tests/rig/guest/workload.c tests/rig/module.mk
	@mkdir -p $(@D)
	@echo "  CC      $@"
	$(Q)$(CC) $(RIG_CFLAGS) -fno-omit-frame-pointer -static -o $@ $<

build/rig/tasks: tests/rig/guest/tasks.c tests/rig/module.mk
	@mkdir -p $(@D)
	@echo "  CC      $@"
	$(Q)$(CC) $(RIG_CFLAGS) -fno-omit-frame-pointer -static -pthread -o $@ $<

TEST_NEEDS += build/rig/debug-shim.so build/rig/workload build/rig/tasks

build/rig/port-writer: tests/rig/bochs/port-writer.c tests/rig/module.mk
	@mkdir -p $(@D)
	@echo "  CC      $@"
	$(Q)$(CC) $(RIG_CFLAGS) -static -o $@ $<

.PHONY: rig-intel
rig-intel: ## build the emulator of the Intel rig
	$(Q)tests/rig/bochs/build

# The host's side of a guest's port, in tests.
build/rig/peer: tests/rig/guest/peer.c tests/rig/module.mk
	@mkdir -p $(@D)
	@echo "  CC      $@"
	$(Q)$(CC) $(RIG_CFLAGS) -o $@ $<

TEST_NEEDS += build/rig/peer
