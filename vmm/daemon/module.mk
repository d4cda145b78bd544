# SPDX-License-Identifier: Apache-2.0
# The hook is static: it is copied to where libvirt runs it, and has to start fast.
build/hook/kvmscope-hook: vmm/daemon/hook/hook.c vmm/daemon/hook_message.h vmm/daemon/module.mk
	@mkdir -p $(@D)
	@echo "  MUSLCC  $<"
	$(Q)musl-gcc $(AGENT_CFLAGS) -O2 $(STATIC_LDFLAGS) -s -o $@.new $< $(STATIC_END) && \
		mv $@.new $@

TEST_NEEDS += build/hook/kvmscope-hook

# The object contains the hook's program.
$(BUILD)/vmm/daemon/hook_install.o: build/hook/kvmscope-hook
