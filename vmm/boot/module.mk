# SPDX-License-Identifier: Apache-2.0
# The object contains the agent's program.
$(BUILD)/vmm/boot/agent_initrd.o: build/agent/kvmscope-agent
