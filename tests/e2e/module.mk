# SPDX-License-Identifier: Apache-2.0
# Programs from npm that read our exports, for tests only; their tests are skipped without them.
READERS := $(addprefix tests/e2e/readers/,package.json package-lock.json .npmrc)

build/readers/installed: $(READERS)
	@mkdir -p build/readers
	@echo "  NPM     build/readers"
	$(Q)cp $(READERS) build/readers/
	$(Q)cd build/readers && flock . npm ci --ignore-scripts --no-progress > npm.log 2>&1 || { \
		tail -n 5 npm.log >&2; \
		echo "kvmscope: tests of exports are skipped: npm could not fetch readers" >&2; }
	$(Q)touch $@

TEST_NEEDS += build/readers/installed

# kvmscope top on VMs that do not exist.
WRAPPED := vmm_process_list process_list_vms qemu_name top_worker_start
$(BUILD)/e2e/canned-top: $(BUILD)/tests/e2e/top/canned_top.o $(BUILD)/libkvmscope.a
	@mkdir -p $(@D)
	@echo "  LD      $@"
	$(Q)$(CC) $(ALL_LDFLAGS) $(WRAPPED:%=-Wl,--wrap=%) -o $@ $^ $(LIBRARY_LIBS)

TEST_NEEDS += $(BUILD)/e2e/canned-top
