# SPDX-License-Identifier: Apache-2.0
# Benches that run guests share the tests' own; those need the library behind them.
GUEST_BENCHES := $(BUILD)/bench/bench_sampling $(BUILD)/bench/bench_flight
$(GUEST_BENCHES): $(BUILD)/tests/kvm/bare_guest.o $(BUILD)/tests/kvm/sampled_guest.o
$(GUEST_BENCHES): BENCH_LIBS := $(BUILD)/libkvmscope.a $(LIBRARY_LIBS)
