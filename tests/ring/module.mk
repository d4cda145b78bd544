# SPDX-License-Identifier: Apache-2.0
# The ring's own sources, compiled so that each access to memory first calls
# the search of all interleavings (search.h): ThreadSanitizer's hooks without
# ThreadSanitizer.
RING_SOURCES  := $(wildcard shared/ring*.c)
RING_SEARCHED := $(RING_SOURCES:%.c=$(BUILD)/searched/%.o) \
	$(BUILD)/searched/tests/ring/test_interleavings.o
RING_SEARCH   := $(patsubst %,$(BUILD)/%.o,tests/ring/search tests/ring/seen tests/ring/runtime \
	shared/error tests/unit/shim/shim)
RING_HOOKS    := -fsanitize=thread -include tests/ring/world.h -Wno-unknown-warning-option -Wno-tsan

$(BUILD)/searched/%.o: %.c tests/ring/world.h
	@mkdir -p $(@D)
	@echo "  CC      $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(RING_HOOKS) -MMD -MP -c -o $@ $<

$(BUILD)/ring-interleavings: $(RING_SEARCHED) $(RING_SEARCH)
	@echo "  LD      $@"
	$(Q)$(CXX) $(ALL_LDFLAGS) -o $@ $^ -lgtest

ifndef SANITIZE
TEST_NEEDS += $(BUILD)/ring-interleavings
endif

# The ring's unit tests alone, which are built with ThreadSanitizer in no time.
RING_TESTS := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/unit/shared/test_ring*.c) \
	$(RING_SOURCES)) $(BUILD)/shared/error.o $(BUILD)/tests/unit/shim/shim.o

$(BUILD)/ring-tests: $(RING_TESTS)
	@echo "  LD      $@"
	$(Q)$(CXX) $(ALL_LDFLAGS) -o $@ $^ -lgtest

# tests/ring/mutants: one source, MUTATED, from the folder of MUTANT.
ifdef MUTANT
MUTANT_FOLDER := build/mutants/$(MUTANT)

$(MUTANT_FOLDER)/$(MUTATED).o: $(MUTANT_FOLDER)/$(MUTATED).c tests/ring/world.h
	$(Q)$(CC) $(ALL_CFLAGS) $(RING_HOOKS) -c -o $@ $<

$(MUTANT_FOLDER)/ring-interleavings: $(MUTANT_FOLDER)/$(MUTATED).o \
	$(filter-out %/$(MUTATED).o,$(RING_SEARCHED)) $(RING_SEARCH)
	$(Q)$(CXX) $(ALL_LDFLAGS) -o $@ $^ -lgtest
endif
