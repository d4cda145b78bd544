/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of a PMU in a running vCPU: restored into another machine it continues, and a reset
 * clears it.
 */
#include "shared/error.h"
#include "tests/kvm/guest_run.h"
#include "tests/unit/shim/test.h"
#include "vmm/kvm/msr.h"
#include "vmm/pmu/vcpu_pmu.h"

#define SELECT_INTEL 0x43003cull /* core cycles, EN, OS, USR */
#define SELECT_AMD   0x430076ull
#define START        1000000ull

struct account {
	struct pmu_state restored, state; /* at the start and at the end */
	bool reset;                       /* at the end, before STATE is saved */
	uint64_t misc_enable;
	int misc_error; /* at the read */
};

static int create_by_time(struct vcpu *vcpu, struct cpuid_table *table)
{
	return pmu_vcpu_create(vcpu, table, NULL);
}

/* State of a machine whose guest has counted core cycles for a second. */
static void on_start(void *context, struct vcpu *vcpu)
{
	struct account *account = context;
	struct pmu_state *state = &account->restored;

	pmu_vcpu_save(vcpu, state);
	state->time += 1000000000;
	state->general[1] = START;
	state->select[1] = state->model == PMU_INTEL ? SELECT_INTEL : SELECT_AMD;
	if (pmu_vcpu_restore(vcpu, state, sizeof(*state)))
		FAIL_TEST("%s", error_message());
}

static void on_end(void *context, struct vcpu *vcpu)
{
	struct account *account = context;

	account->misc_error = msr_get(vcpu->fd, 0x1a0, &account->misc_enable);
	if (account->reset)
		pmu_vcpu_reset(vcpu);
	pmu_vcpu_save(vcpu, &account->state);
}

static void run_hello(struct account *account)
{
	struct vcpu_pmu_operations by_time = pmu_vcpu_emulated;
	struct guest_run run = {
		.append = "program=hello exit=0",
		.pmu = &by_time,
		.hooks = { .vcpu_start = on_start, .vcpu_end = on_end, .context = account },
	};

	by_time.create = create_by_time;
	guest_run(&run);
	CHECK_EQUAL(guest_run_value(&run), 0);
}

TEST(pmu_state, a_restored_counter_continues_with_the_guest)
{
	struct account account = { .reset = false };
	uint64_t ran;

	GUEST_REQUIRED();
	run_hello(&account);
	ran = account.state.time - account.restored.time;
	CHECK(ran > 0);
	/* Both ends are rounded down to a cycle. */
	CHECK(account.state.general[1] - START >=
	      ran * (account.state.clock.core / 1000) / 1000000 - 1);
	CHECK(account.state.general[1] - START <=
	      ran * (account.state.clock.core / 1000 + 1) / 1000000 + 1);
	CHECK_EQUAL(account.state.select[1], account.restored.select[1]);
}

TEST(pmu_state, a_reset_clears_all_but_the_time)
{
	struct account account = { .reset = true };

	GUEST_REQUIRED();
	run_hello(&account);
	CHECK_EQUAL(account.state.general[1], 0);
	CHECK_EQUAL(account.state.select[1], 0);
	CHECK(account.state.time > account.restored.time);
}

TEST(pmu_state, an_Intel_processor_reports_its_pmu)
{
	struct account account = { .reset = false };

	GUEST_REQUIRED();
	run_hello(&account);
	if (account.state.model != PMU_INTEL)
		SKIP("the processor is AMD's");
	/* IA32_MISC_ENABLE (SDM vol. 4, table 2-2): performance monitoring, but no BTS and no PEBS
	 */
	CHECK_EQUAL(account.misc_error, 0);
	CHECK_EQUAL(account.misc_enable & 0x1880, 0x1880);
}
