# SPDX-License-Identifier: Apache-2.0
# Benches that run guests use the tests' guests, which need the library after them.
GUEST_BENCHES := $(addprefix $(BUILD)/bench/bench_,sampling flight watch pmu attach samplers \
	exits top)
$(GUEST_BENCHES): $(BUILD)/tests/kvm/bare_guest.o $(BUILD)/tests/kvm/sampled_guest.o
$(GUEST_BENCHES): BENCH_LIBS := $(BUILD)/libkvmscope.a $(LIBRARY_LIBS)
$(addprefix $(BUILD)/bench/bench_,attach samplers top): $(BUILD)/tests/bench/gap_guest.o
$(BUILD)/bench/bench_attach $(BUILD)/bench/bench_attach_qmp: $(BUILD)/tests/bench/attach_tools.o
$(BUILD)/bench/bench_attach_qmp: | build/guests/guest-multiboot.elf

$(BUILD)/bench/bench_agent: $(BUILD)/tests/unit/agent_process.o | build/agent/kvmscope-agent

# The ring's baselines; the bench reports which of them is missing.
$(BUILD)/bench/bench_ring: $(BUILD)/tests/bench/lttng_session.o
$(BUILD)/bench/bench_ring: BENCH_LIBS := $(foreach library,lttng-ust liburcu-cds, \
	$(shell pkg-config --libs $(library) 2>/dev/null))

# These run another bench in the rig.
$(BUILD)/bench/bench_watch_rig: | $(BUILD)/bench/bench_watch
$(BUILD)/bench/bench_sampling_bpf_rig: | $(BUILD)/bench/bench_sampling

# Reads a program of the tests of inlined functions.
$(BUILD)/bench/bench_inlines: | build/inlines/gcc

# Compares kvmscope with perf in the guest.
$(BUILD)/bench/bench_stacks: $(BUILD)/tests/rig/perf_script.o $(BUILD)/tests/unit/stack_agreement.o
$(BUILD)/bench/bench_stacks: | $(addprefix build/rig/,userland/computes userland/calls \
	debug-shim.so tsc-rate)
