/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/pmu/vcpu_pmu.h"

#include <assert.h>
#include <errno.h>
#include <linux/kvm.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "shared/error.h"
#include "shared/log.h"
#include "shared/mediated_pmu.h"
#include "vmm/kvm/cpuid.h"
#include "vmm/kvm/lapic.h"
#include "vmm/kvm/msr.h"
#include "vmm/kvm/vcpu.h"
#include "vmm/kvm/vm.h"
#include "vmm/pmu/pmu_host.h"
#include "vmm/pmu/pmu_time.h"

#define MSR_MISC_ENABLE     0x1a0
#define MISC_ENABLE_PERFMON (1ull << 7) /* Performance Monitoring Available */

#define MSR_DEBUGCTL           0x1d9
#define DEBUGCTL_FREEZE_ON_PMI (1ull << 12)

#define LAPIC_TIMER_HZ 1000000000ull

struct pmu_vcpu {
	struct pmu pmu;
	struct pmu_host *host; /* NULL: derived cycles only */
	struct pmu_time time;  /* open once the vCPU has run: it belongs to the vCPU's thread */
	bool open;
	struct pmu_vcpu_statistics statistics;
};

/* DisplayFamily (SDM vol. 2A, CPUID; APM vol. 3 appendix E.3.2). */
static unsigned int family_of(struct cpuid_table *table)
{
	const struct kvm_cpuid_entry2 *leaf = cpuid_find(table, 1, 0);
	const unsigned int family = leaf ? leaf->eax >> 8 & 0xf : 0;

	return family == 0xf ? family + (leaf->eax >> 20 & 0xff) : family;
}

int pmu_vcpu_model(struct cpuid_table *table, enum pmu_model *model)
{
	if (cpuid_vendor_is(table, "GenuineIntel")) {
		*model = PMU_INTEL;
		return 0;
	}
	if (!cpuid_vendor_is(table, "AuthenticAMD") && !cpuid_vendor_is(table, "HygonGenuine"))
		return error_set(
			-ENOTSUP,
			"cannot emulate a PMU for a processor that is neither Intel nor AMD");
	/* Linux uses the six counters only from family 15H on (arch/x86/events/amd/core.c). */
	*model = family_of(table) >= 0x15 ? PMU_AMD_CORE : PMU_AMD_LEGACY;
	return 0;
}

const struct msr_range *pmu_vcpu_msrs(enum pmu_model model, size_t *count)
{
	static const struct msr_range intel[] = { { 0xc1, 4 },        { 0x186, 4 }, { 0x309, 3 },
						  { 0x345, 1 },       { 0x38d, 4 }, { 0x4c1, 4 },
						  { MSR_DEBUGCTL, 1 } };
	static const struct msr_range amd[] = { { 0xc0010000, 8 }, { 0xc0010200, 12 } };

	*count = model == PMU_INTEL      ? sizeof(intel) / sizeof(*intel)
		 : model == PMU_AMD_CORE ? 2
					 : 1;
	return model == PMU_INTEL ? intel : amd;
}

static int get_clock(const struct vcpu *vcpu, struct cpuid_table *table, struct pmu_clock *clock)
{
	const struct kvm_cpuid_entry2 *crystal = cpuid_find(table, 0x15, 0);
	int khz = ioctl(vcpu->fd, KVM_GET_TSC_KHZ, 0);

	if (khz <= 0)
		return error_set(
			-ENOTSUP,
			"this host's KVM does not report the frequency of the guest's TSC, "
			"which its PMU needs");
	clock->core = clock->reference = (uint64_t)khz * 1000;
	clock->bus = crystal && crystal->ecx ? crystal->ecx : LAPIC_TIMER_HZ;
	return 0;
}

/* The table is that of a guest without a PMU, so it has no leaf 0AH. */
static int show(const struct pmu *pmu, struct cpuid_table *table)
{
	struct kvm_cpuid_entry2 *maximum = cpuid_find(table, 0, 0);

	if (pmu->state.model == PMU_INTEL) {
		if (!cpuid_add(table, 0xa, 0))
			return error_set(-ENOSPC,
					 "the CPUID table is full: no entry for the guest's PMU");
		maximum->eax = maximum->eax < 0xa ? 0xa : maximum->eax;
	}
	for (uint32_t i = 0; i < table->header.nent; i++) {
		struct kvm_cpuid_entry2 *leaf = &table->entries[i];
		uint32_t registers[] = { leaf->eax, leaf->ebx, leaf->ecx, leaf->edx };

		pmu_cpuid(pmu, leaf->function, leaf->index, registers);
		leaf->eax = registers[0];
		leaf->ebx = registers[1];
		leaf->ecx = registers[2];
		leaf->edx = registers[3];
	}
	return 0;
}

static void report_unavailable(void *context, const char *event)
{
	if (event)
		log_warning(
			"the guest's PMU cannot count %s on this host: the counter does not advance",
			event);
	else
		log_warning(
			"the guest has enabled %d events that its PMU cannot count on this host: further ones "
			"are not reported",
			PMU_REPORTED_MAX);
}

/* The first vCPU does it for the whole VM. */
static int filter_msrs(const struct vcpu *vcpu, enum pmu_model model)
{
	const struct msr_range *ranges;
	size_t count;

	if (vcpu->index > 0)
		return 0;
	ranges = pmu_vcpu_msrs(model, &count);
	return vm_filter_msrs(vcpu->vm, ranges, count);
}

static void report(void *context, const char *message)
{
	log_warning("%s", message);
}

/* A host without counters is common, and not an error. */
static int join_host(struct pmu_vcpu *self, const struct pmu_host_perf *perf)
{
	int error = perf ? pmu_host_create(&self->host, (enum pmu_model)self->pmu.state.model, perf,
					   report, NULL)
			 : -ENOTSUP;

	if (!error)
		pmu_set_counters(&self->pmu, pmu_host_counters(self->host));
	return error == -ENOTSUP ? 0 : error;
}

static int set_up(struct pmu_vcpu *self, enum pmu_model model, const struct pmu_clock *clock,
		  const struct pmu_host_perf *perf, struct cpuid_table *table)
{
	int error = pmu_init(&self->pmu, model, clock, report_unavailable, NULL);

	if (!error)
		error = join_host(self, perf);
	return error ? error : show(&self->pmu, table);
}

int pmu_vcpu_create(struct vcpu *vcpu, struct cpuid_table *table, const struct pmu_host_perf *perf)
{
	struct pmu_vcpu *self;
	struct pmu_clock clock;
	enum pmu_model model = PMU_INTEL;
	int error = pmu_vcpu_model(table, &model);

	assert(!vcpu->pmu);
	if (!error)
		error = filter_msrs(vcpu, model);
	if (!error)
		error = get_clock(vcpu, table, &clock);
	if (error)
		return error;
	self = calloc(1, sizeof(*self));
	if (!self)
		return error_set(-ENOMEM, "no memory for the PMU of vCPU %u", vcpu->index);
	vcpu->pmu = self;
	error = set_up(self, model, &clock, perf, table);
	if (!error && vcpu->index > 0)
		pmu_share_reports(&self->pmu, &vcpu->vm->vcpus[0]->pmu->pmu);
	return error;
}

int pmu_vcpu_add(struct vcpu *vcpu, struct cpuid_table *table)
{
	const bool mediated = mediated_pmu_is_enabled("/sys/module");

	if (mediated && !vcpu->index)
		log_info("KVM gives its guests this host's counters (enable_mediated_pmu), so the "
			 "guest's PMU counts cycles by its run time only");
	return pmu_vcpu_create(vcpu, table, mediated ? NULL : &pmu_host_perf);
}

static void report_scaled(const struct vcpu *vcpu)
{
	struct pmu_host_statistics statistics;

	pmu_host_statistics(vcpu->pmu->host, &statistics);
	if (statistics.scaled || statistics.unseen_ns)
		log_info(
			"vCPU %u: %llu readings of the host's counters were scaled, %.1f ms never counted",
			vcpu->index, (unsigned long long)statistics.scaled,
			(double)statistics.unseen_ns / 1e6);
}

static void close_time(struct pmu_vcpu *self)
{
	if (self->open)
		pmu_time_close(&self->time);
	self->open = false;
}

void pmu_vcpu_destroy(struct vcpu *vcpu)
{
	struct pmu_vcpu *self = vcpu->pmu;

	if (!self)
		return;
	if (self->host)
		report_scaled(vcpu);
	pmu_host_destroy(self->host);
	close_time(self);
	free(self);
	vcpu->pmu = NULL;
}

/* IA32_MISC_ENABLE, which is KVM's, has a bit about the PMU (SDM vol. 4, table 2-2). A KVM
 * without that MSR cannot show it. */
static void show_available(const struct vcpu *vcpu)
{
	uint64_t value;

	if (vcpu->pmu->pmu.state.model == PMU_INTEL && !msr_get(vcpu->fd, MSR_MISC_ENABLE, &value))
		(void)msr_set(vcpu->fd, MSR_MISC_ENABLE, value | MISC_ENABLE_PERFMON);
}

void pmu_vcpu_enter(struct vcpu *vcpu)
{
	struct pmu_vcpu *self = vcpu->pmu;

	assert(vcpu_on_thread(vcpu));
	if (!self->open) {
		show_available(vcpu);
		pmu_time_open(&self->time, &self->pmu);
		self->open = true;
	}
	if (pmu_time_enter(&self->time, &self->pmu, vcpu->kicks))
		vcpu_request_end(vcpu, VCPU_END_HOST_ERROR);
}

static void raise_pmi(struct vcpu *vcpu)
{
	struct pmu_vcpu *self = vcpu->pmu;

	switch (lapic_raise_pmi(vcpu, self->pmu.state.model == PMU_INTEL)) {
	case LAPIC_PMI_NMI:
		self->statistics.nmis++;
		break;
	case LAPIC_PMI_VECTOR:
		self->statistics.vectors++;
		break;
	case LAPIC_PMI_MASKED:
	case LAPIC_PMI_IGNORED:
		self->statistics.masked++;
		break;
	case LAPIC_PMI_FAILED:
		vcpu_request_end(vcpu, VCPU_END_HOST_ERROR);
		break;
	}
}

void pmu_vcpu_leave(struct vcpu *vcpu)
{
	struct pmu_vcpu *self = vcpu->pmu;
	uint64_t late;

	assert(vcpu_on_thread(vcpu));
	if (!pmu_time_leave(&self->time, &self->pmu, &late))
		return;
	self->statistics.late_ns += late;
	if (self->statistics.late_ns_max < late)
		self->statistics.late_ns_max = late;
	raise_pmi(vcpu);
}

/* The other bits are KVM's, if it has them. */
static void read_debugctl(const struct vcpu *vcpu, uint64_t *value)
{
	if (msr_get(vcpu->fd, MSR_DEBUGCTL, value))
		*value = 0;
	if (vcpu->pmu->pmu.state.freeze_on_pmi)
		*value |= DEBUGCTL_FREEZE_ON_PMI;
}

static bool write_debugctl(struct vcpu *vcpu, uint64_t value)
{
	const uint64_t rest = value & ~DEBUGCTL_FREEZE_ON_PMI;

	if (msr_set(vcpu->fd, MSR_DEBUGCTL, rest) && rest)
		return false;
	pmu_set_freeze_on_pmi(&vcpu->pmu->pmu, value & DEBUGCTL_FREEZE_ON_PMI);
	return true;
}

static bool has_debugctl(const struct pmu_vcpu *self, uint32_t index)
{
	return index == MSR_DEBUGCTL && self->pmu.state.model == PMU_INTEL;
}

bool pmu_vcpu_read_msr(struct vcpu *vcpu, uint32_t index, uint64_t *value)
{
	assert(vcpu_on_thread(vcpu));
	vcpu->pmu->statistics.msr_accesses++;
	if (!has_debugctl(vcpu->pmu, index))
		return pmu_read_msr(&vcpu->pmu->pmu, index, value);
	read_debugctl(vcpu, value);
	return true;
}

bool pmu_vcpu_write_msr(struct vcpu *vcpu, uint32_t index, uint64_t value)
{
	bool done;

	assert(vcpu_on_thread(vcpu));
	vcpu->pmu->statistics.msr_accesses++;
	if (has_debugctl(vcpu->pmu, index))
		done = write_debugctl(vcpu, value);
	else
		done = pmu_write_msr(&vcpu->pmu->pmu, index, value);
	if (done)
		pmu_time_changed(&vcpu->pmu->time, &vcpu->pmu->pmu);
	return done;
}

bool pmu_vcpu_read_counter(struct vcpu *vcpu, uint32_t index, uint64_t *value)
{
	assert(vcpu_on_thread(vcpu));
	return pmu_read_counter(&vcpu->pmu->pmu, index, value);
}

/* Another thread continues the vCPU; perf's counts and the timer belong to one thread. */
void pmu_vcpu_reset(struct vcpu *vcpu)
{
	struct pmu_vcpu *self = vcpu->pmu;

	assert(vcpu_on_thread(vcpu));
	pmu_reset(&self->pmu);
	if (self->host)
		pmu_host_close_events(self->host);
	close_time(self);
}

void pmu_vcpu_save(struct vcpu *vcpu, struct pmu_state *state)
{
	assert(vcpu_on_thread(vcpu));
	*state = vcpu->pmu->pmu.state;
}

int pmu_vcpu_restore(struct vcpu *vcpu, const void *saved, size_t size)
{
	int error;

	assert(vcpu_on_thread(vcpu));
	error = pmu_restore(&vcpu->pmu->pmu, saved, size);
	if (!error)
		pmu_time_changed(&vcpu->pmu->time, &vcpu->pmu->pmu);
	return error;
}

void pmu_vcpu_statistics(const struct vcpu *vcpu, struct pmu_vcpu_statistics *statistics)
{
	*statistics = vcpu->pmu->statistics;
}

const struct vcpu_pmu_operations pmu_vcpu_emulated = {
	.create = pmu_vcpu_add,
	.destroy = pmu_vcpu_destroy,
	.reset = pmu_vcpu_reset,
	.read_msr = pmu_vcpu_read_msr,
	.write_msr = pmu_vcpu_write_msr,
	.enter = pmu_vcpu_enter,
	.leave = pmu_vcpu_leave,
};
