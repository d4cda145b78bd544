# SPDX-License-Identifier: Apache-2.0
# Benches that run guests share the tests' own; those need the library behind them.
$(BUILD)/bench/bench_sampling: $(BUILD)/tests/kvm/bare_guest.o $(BUILD)/tests/kvm/sampled_guest.o
$(BUILD)/bench/bench_sampling: BENCH_LIBS := $(BUILD)/libkvmscope.a $(LIBRARY_LIBS)
