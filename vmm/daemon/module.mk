# SPDX-License-Identifier: Apache-2.0
# The hook: static, as it is copied to where libvirt runs it, and has milliseconds to do its work.
build/hook/kvmscope-hook: vmm/daemon/hook/hook.c vmm/daemon/hook_message.h vmm/daemon/module.mk
	@mkdir -p $(@D)
	@echo "  MUSLCC  $<"
	$(Q)musl-gcc $(AGENT_CFLAGS) -O2 -static -s -Wl,--build-id -o $@.new $< && mv $@.new $@

TEST_NEEDS += build/hook/kvmscope-hook

# The assembler reads the hook's program: the object must be made again when that changes.
$(BUILD)/vmm/daemon/hook_install.o build/fuzz/objects/vmm/daemon/hook_install.o: build/hook/kvmscope-hook
