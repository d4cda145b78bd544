# SPDX-License-Identifier: Apache-2.0
# Programs for the tests of inlined functions: as compilers make them, and as packages ship them.
INLINES := build/inlines

$(INLINES)/gcc: tests/unit/inlines/program.cc
	@mkdir -p $(@D)
	@echo "  CXX     $@"
	$(Q)g++ -O2 -g -Wl,--build-id -o $@ $<

$(INLINES)/dwarf4: tests/unit/inlines/program.cc
	@mkdir -p $(@D)
	@echo "  CXX     $@"
	$(Q)g++ -O3 -gdwarf-4 -gz -Wl,--build-id -o $@ $<

$(INLINES)/clang: tests/unit/inlines/program.cc
	@mkdir -p $(@D)
	@echo "  CXX     $@"
	$(Q)clang++ -O2 -g -ffunction-sections -Wl,--gc-sections,--build-id -o $@ $<

# What it has in common with another program stands in a file of both.
$(INLINES)/dwz: $(INLINES)/gcc
	@echo "  DWZ     $@"
	$(Q)cp $< $@.other && cp $< $@.partial && \
		dwz -m $@.common -M dwz.common $@.partial $@.other && mv $@.partial $@

# A stripped program, and its symbols and DWARF beside it.
$(INLINES)/stripped: $(INLINES)/gcc
	@echo "  STRIP   $@"
	$(Q)objcopy --only-keep-debug $< $@.debug && strip -o $@ $<

# With symbols, but no DWARF.
$(INLINES)/plain: $(INLINES)/gcc
	@echo "  STRIP   $@"
	$(Q)strip -g -o $@ $<

# What looks like a kernel: linked where kernels are.
$(INLINES)/kernel: tests/unit/inlines/kernel_like.c
	@mkdir -p $(@D)
	@echo "  CC      $@"
	$(Q)$(CC) -O2 -g -ffreestanding -fno-pic -no-pie -nostdlib -static -mcmodel=kernel \
		-Wl,--build-id -Wl,-Ttext=0xffffffff81000000 -Wl,-e,_text -o $@ $<

TEST_NEEDS += $(addprefix $(INLINES)/,gcc dwarf4 clang dwz stripped plain kernel)

# Tests of the agent's parts include the part; it calls these.
$(BUILD)/kvmscope-tests: $(addprefix $(BUILD)/guest-agent/, \
	jit_map.o kernel_table.o send_queue.o)
