/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest that writes random values to its debug registers and counters, with a watch set, on the
 * local KVM. Its counters are emulated on top of perf's software events, in place of the host's
 * counters.
 */
#include "shared/error.h"
#include "tests/kvm/guest_run.h"
#include "tests/unit/shim/test.h"
#include "tests/unit/software_perf.h"
#include "vmm/debug/watches.h"
#include "vmm/pmu/vcpu_pmu.h"
#include "vmm/symbols/elf_symbols.h"

#define CPUS  2
#define CALLS 1000 /* per CPU, after it has left the registers alone */

struct record {
	struct watches *watches;
	_Atomic uint64_t hits;
	_Atomic uint64_t wrong_address;
	_Atomic uint64_t msr_accesses;
};

/* By the timer alone if perf is not available. */
static int create_pmu(struct vcpu *vcpu, struct cpuid_table *table)
{
	return pmu_vcpu_create(vcpu, table, &software_perf);
}

/* It has used its PMU, and has not brought it into an invalid state. */
static void check_pmu(struct record *record, struct vcpu *vcpu)
{
	struct pmu_vcpu_statistics statistics;
	struct pmu_state state;

	pmu_vcpu_statistics(vcpu, &statistics);
	record->msr_accesses += statistics.msr_accesses;
	pmu_vcpu_save(vcpu, &state);
	CHECK_EQUAL(pmu_vcpu_restore(vcpu, &state, sizeof(state)), 0);
}

static void on_start(void *context, struct vcpu *vcpu)
{
	struct record *record = context;

	CHECK_EQUAL(watch_enter(record->watches, vcpu), 0);
}

static void on_end(void *context, struct vcpu *vcpu)
{
	struct record *record = context;

	watch_leave(record->watches, vcpu);
	check_pmu(record, vcpu);
}

static void on_kicked(void *context, struct vcpu *vcpu)
{
	struct record *record = context;

	watch_kicked(record->watches, vcpu);
}

static void on_debug(void *context, struct vcpu *vcpu)
{
	struct record *record = context;

	watch_debug(record->watches, vcpu);
}

static void on_hit(void *context, struct vcpu *vcpu, const struct watch_hit *hit)
{
	struct record *record = context;

	record->hits++;
	record->wrong_address += vcpu_registers(vcpu)->rip != hit->address;
}

static uint64_t hostile_call(void)
{
	struct symbols *symbols;
	struct symbol symbol = { 0 };

	if (elf_symbols_load(&symbols, GUEST_IMAGE, ELF_VIRTUAL_ADDRESSES, (struct span){ 0 }))
		return 0;
	CHECK(symbols_find_name(symbols, "hostile_call", &symbol));
	symbols_free(symbols);
	return symbol.start;
}

TEST(hostile, watch_is_right_after_random_registers)
{
	struct vcpu_pmu_operations pmu = pmu_vcpu_emulated;
	struct record record = { 0 };
	struct watches_options options = { .vcpus = CPUS, .hit = on_hit, .context = &record };
	struct watch_request request = { .kind = BREAKPOINT_EXECUTE,
					 .length = 1,
					 .pinned = true,
					 .vcpu = ARBITER_ALL_VCPUS,
					 .period = 1 };
	struct guest_run run = { .append = "program=hostile cpus=2 seconds=3",
				 .cpus = CPUS,
				 .pmu = &pmu,
				 .hooks = { .vcpu_start = on_start,
					    .vcpu_end = on_end,
					    .kicked = on_kicked,
					    .debug = on_debug,
					    .context = &record } };

	GUEST_REQUIRED();
	pmu.create = create_pmu;
	REQUIRE_EQUAL(watches_create(&record.watches, &options), 0);
	CHECK_EQUAL(watch_add(record.watches, &request), 0);
	CHECK_EQUAL(watch_arm(record.watches, 0, hostile_call()), 0);
	guest_run(&run);
	CHECK_EQUAL(guest_run_value(&run), 0);
	CHECK_EQUAL(record.hits, CPUS * CALLS);
	CHECK_EQUAL(record.wrong_address, 0);
	CHECK(record.msr_accesses > 0);
	watches_destroy(record.watches);
}
