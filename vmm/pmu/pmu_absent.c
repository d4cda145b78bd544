/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/pmu/pmu_absent.h"

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/kvm/vcpu.h"
#include "vmm/kvm/vm.h"
#include "vmm/kvm/vm_filter.h"

/* Counters and their controls: SDM vol. 4, table 2-2; APM vol. 2, 13.2.2. */
static const struct msr_range registers[] = { { 0xc1, 4 },  { 0x186, 4 },      { 0x309, 3 },
					      { 0x38d, 4 }, { 0xc0010000, 8 }, { 0xc0010200, 12 } };

/* The first vCPU does it for the whole VM. */
static int create(struct vcpu *vcpu, struct cpuid_table *table)
{
	if (vcpu->index == 0 &&
	    vm_filter_msrs(vcpu->vm, registers, sizeof(registers) / sizeof(registers[0])))
		log_debug("accesses to the missing PMU are not reported: %s", error_message());
	return 0;
}

static void report(const struct vcpu *vcpu)
{
	struct pmu_absent *absent = vcpu->vm->pmu_absent;

	if (absent && !atomic_flag_test_and_set(&absent->reported))
		log_info("the guest has no PMU: %s", absent->reason);
}

/* Those of the P6 and K7 families read as 0 and ignore writes, as guests access them without
 * reading CPUID (Linux, arch/x86/kvm/x86.c, kvm_get_msr_common()). */
static bool exists(uint32_t index)
{
	return index - 0xc1u < 2 || index - 0x186u < 2 || index - 0xc0010000u < 8;
}

static bool read_msr(struct vcpu *vcpu, uint32_t index, uint64_t *value)
{
	report(vcpu);
	*value = 0;
	return exists(index);
}

static bool write_msr(struct vcpu *vcpu, uint32_t index, uint64_t value)
{
	report(vcpu);
	return exists(index);
}

const struct vcpu_pmu_operations pmu_absent_operations = {
	.create = create,
	.read_msr = read_msr,
	.write_msr = write_msr,
};
