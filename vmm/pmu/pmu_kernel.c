/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/pmu/pmu_kernel.h"

#include <assert.h>

#include "vmm/kvm/vcpu.h"
#include "vmm/pmu/pmu_events.h"
#include "vmm/pmu/vcpu_pmu.h"

/* An event with the unit masks FIRST to LAST. */
struct reserved {
	uint16_t event;
	uint8_t first, last;
};

/* Linux, arch/x86/events/intel/core.c, intel_*_extra_regs; arch/x86/include/asm/perf_event.h. */
static const struct reserved intel_reserved[] = {
	{ 0x00, 0x04, 0x04 }, /* perf's own: slots, */
	{ 0x00, 0x1b, 0x1b }, /* a guest's LBR (INTEL_FIXED_VLBR_EVENT), */
	{ 0x00, 0x80, 0x87 }, /* and topdown metrics */
	{ 0xb7, 0x01, 0x02 }, /* OFFCORE_RESPONSE: MSR_OFFCORE_RSP_0 and 1, */
	{ 0xbb, 0x01, 0x01 },
	{ 0x2a, 0x01, 0x01 }, /* OCR since Sapphire Rapids: the same, */
	{ 0x2b, 0x01, 0x01 },
	{ 0xcd, 0x01, 0x01 }, /* MEM_TRANS_RETIRED.LOAD_LATENCY: MSR_PEBS_LD_LAT_THRESHOLD, */
	{ 0xc6, 0x01, 0x01 }, /* FRONTEND_RETIRED: MSR_PEBS_FRONTEND */
};

/* Linux, arch/x86/events/amd/core.c, AMD_MERGE_EVENT: it widens the neighbouring counter,
 * regardless of that counter's owner. */
static const struct reserved amd_reserved[] = {
	{ 0xfff, 0x00, 0xff },
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

size_t pmu_kernel_reserved(enum pmu_model model, uint64_t events[EVENT_FILTER_MAX])
{
	const struct reserved *list = model == PMU_INTEL ? intel_reserved : amd_reserved;
	const size_t length = model == PMU_INTEL ? COUNT(intel_reserved) : COUNT(amd_reserved);
	size_t count = 0;

	for (size_t i = 0; i < length; i++)
		for (unsigned int umask = list[i].first; umask <= list[i].last; umask++) {
			assert(count < EVENT_FILTER_MAX);
			events[count++] = pmu_select_of(list[i].event, (uint8_t)umask);
		}
	return count;
}

int pmu_kernel_reserve(const struct vm *vm, enum pmu_model model)
{
	uint64_t events[EVENT_FILTER_MAX];

	return vm_deny_events(vm, events, pmu_kernel_reserved(model, events));
}

/* The first vCPU does it for the whole VM. */
static int create(struct vcpu *vcpu, struct cpuid_table *table)
{
	enum pmu_model model;
	int error;

	if (vcpu->index > 0)
		return 0;
	error = pmu_vcpu_model(table, &model);
	return error ? error : pmu_kernel_reserve(vcpu->vm, model);
}

const struct vcpu_pmu_operations pmu_kernel = {
	.by_kvm = true,
	.create = create,
};
