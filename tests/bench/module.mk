# SPDX-License-Identifier: Apache-2.0
# Benches that run guests share the tests' own; those need the library behind them.
GUEST_BENCHES := $(BUILD)/bench/bench_sampling $(BUILD)/bench/bench_flight $(BUILD)/bench/bench_watch \
	$(BUILD)/bench/bench_pmu $(BUILD)/bench/bench_attach $(BUILD)/bench/bench_samplers
$(GUEST_BENCHES): $(BUILD)/tests/kvm/bare_guest.o $(BUILD)/tests/kvm/sampled_guest.o
$(GUEST_BENCHES): BENCH_LIBS := $(BUILD)/libkvmscope.a $(LIBRARY_LIBS)
$(BUILD)/bench/bench_attach $(BUILD)/bench/bench_samplers: $(BUILD)/tests/bench/gap_guest.o
$(BUILD)/bench/bench_attach $(BUILD)/bench/bench_attach_qmp: $(BUILD)/tests/bench/attach_tools.o
$(BUILD)/bench/bench_attach_qmp: | build/guests/guest-multiboot.elf

$(BUILD)/bench/bench_agent: $(BUILD)/tests/unit/agent_process.o | build/agent/kvmscope-agent

# What the ring is measured beside; a bench says which of them is missing.
$(BUILD)/bench/bench_ring: $(BUILD)/tests/bench/lttng_session.o
$(BUILD)/bench/bench_ring: BENCH_LIBS := $(foreach library,lttng-ust liburcu-cds,$(shell pkg-config --libs $(library) 2>/dev/null))

# They run the other ones in the rig.
$(BUILD)/bench/bench_watch_rig: | $(BUILD)/bench/bench_watch
$(BUILD)/bench/bench_sampling_bpf_rig: | $(BUILD)/bench/bench_sampling

# It reads what tests of inlined functions read.
$(BUILD)/bench/bench_inlines: | build/inlines/gcc

# It records what a guest's own perf records, too.
$(BUILD)/bench/bench_stacks: $(BUILD)/tests/rig/perf_script.o $(BUILD)/tests/unit/stack_agreement.o
$(BUILD)/bench/bench_stacks: | build/rig/userland/computes build/rig/userland/calls build/rig/debug-shim.so build/rig/tsc-rate
