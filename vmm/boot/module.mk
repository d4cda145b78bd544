# SPDX-License-Identifier: Apache-2.0
# The assembler reads the agent's program: the object must be made again when that changes.
$(BUILD)/vmm/boot/agent_initrd.o build/fuzz/objects/vmm/boot/agent_initrd.o: build/agent/kvmscope-agent
