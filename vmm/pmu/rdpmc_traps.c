/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/pmu/rdpmc_traps.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/guest/linux/kernel_image.h"
#include "vmm/guest/linux/rdpmc_sites.h"
#include "vmm/guest/page_walk.h"
#include "vmm/kvm/vcpu_debug.h"
#include "vmm/kvm/vm.h"
#include "vmm/pmu/vcpu_pmu.h"

#define CR4_PCE   (1ull << 8)
#define RFLAGS_TF (1ull << 8)
#define RFLAGS_RF (1ull << 16)

#define NOWHERE UINT64_MAX

/* Limit of reported kernels: a hostile guest can imitate any number of new kernels. */
#define REPORTS_MAX 32

enum state {
	STATE_UNKNOWN, /* not searched */
	STATE_ARMED,
	STATE_WITHOUT, /* not Linux: the guest has the MSRs */
	STATE_HIDDEN,
};

struct trap {
	struct rdpmc_site site;
	uint64_t gpa;
};

struct rdpmc_traps {
	struct rdpmc_traps_options options;
	_Atomic uint64_t completed, guest_breakpoints;
	_Atomic uint64_t user; /* GPA of the switch of rdpmc_user.h until it is off; NOWHERE */
	pthread_mutex_t lock;  /* protects the members below, and writes to `user` */
	enum state state;
	uint64_t identity; /* identity_of() of the kernel that `state` is about */
	struct trap traps[RDPMC_SITES_MAX];
	size_t count;
	unsigned int reports;
};

static uint64_t translate(const struct rdpmc_traps *traps, const struct guest_registers *registers,
			  uint64_t gva)
{
	struct guest_translation translation;

	if (guest_translate(traps->options.view, &registers->paging, gva, &translation))
		return NOWHERE;
	return translation.gpa;
}

static bool is_in_place(const struct rdpmc_traps *traps, const struct guest_registers *registers,
			const struct trap *trap)
{
	return translate(traps, registers, trap->site.address) == trap->gpa &&
	       memory_is_patched(&traps->options.vm->memory, trap->gpa);
}

/*
 * Identifies the kernel: the GPA of its INT3 handler, NOWHERE if there is none. The IDT's address
 * would be wrong: Linux before 5.8 loads another IDT with the same handler while it handles an NMI
 * that interrupted #DB or #BP (arch/x86/kernel/nmi.c, do_nmi()), and reads its counters there.
 * Gate: SDM vol. 3A sec. 6.14.1.
 */
static uint64_t identity_of(const struct rdpmc_traps *traps,
			    const struct guest_registers *registers)
{
	uint64_t gate[2];

	if (guest_read_virtual(traps->options.view, &registers->paging,
			       registers->idt_base + VECTOR_BP * sizeof(gate), gate, sizeof(gate)))
		return NOWHERE;
	return translate(traps, registers,
			 (gate[0] & 0xffff) | (gate[0] >> 48) << 16 | (gate[1] & UINT32_MAX) << 32);
}

/* True if the vCPU's kernel seems to be the one that `state` is about. */
static bool is_same_kernel(const struct rdpmc_traps *traps, const struct guest_registers *registers)
{
	return traps->state != STATE_UNKNOWN && traps->identity == identity_of(traps, registers);
}

/* True if `state` and the traps are valid for the vCPU's kernel. */
static bool is_known(const struct rdpmc_traps *traps, const struct guest_registers *registers)
{
	if (!is_same_kernel(traps, registers))
		return false;
	for (size_t i = 0; i < traps->count; i++)
		if (!is_in_place(traps, registers, &traps->traps[i]))
			return false;
	return true;
}

/* Traps of an older kernel stay in memory, which may be in use for something else now. */
static void discard_traps(struct rdpmc_traps *traps)
{
	traps->count = 0;
	traps->state = STATE_UNKNOWN;
	traps->user = NOWHERE;
	patches_clear(&traps->options.vm->memory.patches);
}

static int put_trap(struct rdpmc_traps *traps, const struct guest_registers *registers,
		    const struct rdpmc_site *site)
{
	uint64_t gpa = translate(traps, registers, site->address);
	int error = gpa == NOWHERE ? -EFAULT
				   : memory_patch(&traps->options.vm->memory, gpa, site->first);

	if (error)
		return error_set(error,
				 "cannot replace RDPMC at %#" PRIx64
				 " of the guest's kernel by a trap",
				 site->address);
	traps->traps[traps->count++] = (struct trap){ *site, gpa };
	return 0;
}

static int arm(struct rdpmc_traps *traps, const struct guest_registers *registers,
	       const struct rdpmc_sites *sites)
{
	int error = 0;

	/* Not earlier: while SITES was determined, this kernel's older traps were shown as RDPMC.
	 */
	discard_traps(traps);
	for (size_t i = 0; i < sites->count && !error; i++)
		error = put_trap(traps, registers, &sites->sites[i]);
	traps->identity = identity_of(traps, registers);
	traps->state = error ? STATE_HIDDEN : STATE_ARMED;
	return error;
}

int rdpmc_traps_arm(struct rdpmc_traps *traps, struct vcpu *vcpu, const struct rdpmc_sites *sites)
{
	struct guest_registers registers;
	int error;

	assert(vcpu_on_thread(vcpu));
	traps->options.registers(vcpu, &registers);
	pthread_mutex_lock(&traps->lock);
	error = arm(traps, &registers, sites);
	pthread_mutex_unlock(&traps->lock);
	return error;
}

static void report_armed(const struct guest_kernel *kernel, const struct rdpmc_sites *sites)
{
	if (!sites->count)
		log_info("the guest's kernel %s executes no RDPMC", kernel->release);
	for (size_t i = 0; i < sites->count; i++) {
		struct symbol symbol = { .name = "?", .start = sites->sites[i].address };

		symbols_find(kernel->symbols, sites->sites[i].address, &symbol);
		log_info("RDPMC of the guest's kernel %s is trapped in %s+%#" PRIx64,
			 kernel->release, symbol.name, sites->sites[i].address - symbol.start);
	}
}

/* Linux enables the switch after it has checked its PMU, which is after this search. */
static void watch_user_switch(struct rdpmc_traps *traps, const struct guest_registers *registers,
			      const struct guest_kernel *kernel, bool reports)
{
	uint64_t address;

	if (!rdpmc_user_find(&address, traps->options.view, kernel))
		traps->user = translate(traps, registers, address);
	else if (reports)
		log_warning("guest programs that execute RDPMC fault or read 0, because "
			    "/sys/devices/cpu/rdpmc in the guest cannot be set to 0: %s",
			    error_message());
}

/* NULL if GPA is not of the vCPU's current kernel. */
static uint32_t *find_switch(struct rdpmc_traps *traps, struct vcpu *vcpu, uint64_t gpa)
{
	struct guest_registers registers;

	traps->options.registers(vcpu, &registers);
	return is_known(traps, &registers)
		       ? memory_pointer(&traps->options.vm->memory, gpa, sizeof(uint32_t))
		       : NULL;
}

/* The guest and other vCPU threads may write it at the same time: it is switched off once. */
static void switch_off(struct rdpmc_traps *traps, struct vcpu *vcpu)
{
	uint32_t *value, on = RDPMC_USER_MAPPED;

	pthread_mutex_lock(&traps->lock);
	value = traps->user == NOWHERE ? NULL : find_switch(traps, vcpu, traps->user);
	if (value &&
	    __atomic_compare_exchange_n(value, &on, 0, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
		traps->user = NOWHERE;
		if (traps->reports < REPORTS_MAX)
			log_info(
				"guest programs read counters with read(2): /sys/devices/cpu/rdpmc "
				"in the guest was set to 0");
	}
	pthread_mutex_unlock(&traps->lock);
}

/* User programs would get KVM's result, which is not a count. */
static void block_user_rdpmc(struct vcpu *vcpu)
{
	struct rdpmc_traps *traps = vcpu->vm->rdpmc_traps;
	const uint64_t gpa = atomic_load_explicit(&traps->user, memory_order_relaxed);
	const uint32_t *value;

	if (gpa == NOWHERE)
		return;
	value = memory_pointer(&traps->options.vm->memory, gpa, sizeof(*value));
	if (value && __atomic_load_n(value, __ATOMIC_RELAXED) == RDPMC_USER_MAPPED)
		switch_off(traps, vcpu);
}

static int find_sites(const struct rdpmc_traps *traps, const struct guest_registers *registers,
		      struct guest_kernel **kernel, struct rdpmc_sites *sites)
{
	int error;

	*kernel = NULL;
	if (!traps->options.int3)
		return error_set(-ENOTSUP,
				 "this host's KVM has no exit for INT3; see kvmscope doctor");
	error = guest_kernel_find(kernel, traps->options.view, registers);
	if (error == -ENOENT) /* the original message is about symbols, which is misleading here */
		return error_set(error, "there is no Linux kernel with kallsyms in its memory");
	return error ? error : rdpmc_sites_find(sites, traps->options.view, *kernel);
}

static void give_up(struct rdpmc_traps *traps, const struct guest_registers *registers,
		    enum state state)
{
	discard_traps(traps);
	traps->identity = identity_of(traps, registers);
	traps->state = state;
}

static bool may_report(struct rdpmc_traps *traps)
{
	if (traps->reports == REPORTS_MAX)
		return false;
	if (++traps->reports == REPORTS_MAX)
		log_warning("the guest has run %d kernels: RDPMC of further ones is not reported",
			    REPORTS_MAX);
	return true;
}

static void search(struct rdpmc_traps *traps, const struct guest_registers *registers)
{
	struct guest_kernel *kernel;
	struct rdpmc_sites sites = { .count = 0 };
	bool reports = may_report(traps);

	/* Linux's kernel and modules are above (Documentation/arch/x86/x86_64/mm.rst). */
	if (registers->rip < KERNEL_IMAGE_START) {
		give_up(traps, registers, STATE_WITHOUT);
		if (reports)
			log_info(
				"RDPMC raises #GP in the guest, which is not Linux; the MSRs of its PMU work");
		return;
	}
	if (!find_sites(traps, registers, &kernel, &sites) && !arm(traps, registers, &sites)) {
		if (reports)
			report_armed(kernel, &sites);
		watch_user_switch(traps, registers, kernel, reports);
	} else {
		give_up(traps, registers, STATE_HIDDEN);
		if (reports)
			log_warning(
				"the guest's PMU is hidden, because its RDPMC instructions cannot be trapped: %s",
				error_message());
	}
	guest_kernel_free(kernel);
}

/* True if the guest may use its PMU. */
static bool is_shown(struct vcpu *vcpu)
{
	struct rdpmc_traps *traps = vcpu->vm->rdpmc_traps;
	struct guest_registers registers;
	bool shown;

	traps->options.registers(vcpu, &registers);
	pthread_mutex_lock(&traps->lock);
	if (!is_known(traps, &registers))
		search(traps, &registers);
	shown = traps->state != STATE_HIDDEN;
	pthread_mutex_unlock(&traps->lock);
	return shown;
}

/*
 * Finds the trap that the vCPU has hit. False for an INT3 of another kernel at the same address,
 * before that kernel first accesses its PMU, and for a nested guest, which can look like its host's
 * kernel.
 */
static bool find_trap(struct rdpmc_traps *traps, struct vcpu *vcpu, struct trap *trap)
{
	uint64_t address = vcpu->run->debug.arch.pc;
	struct guest_registers registers;
	bool found = false;

	traps->options.registers(vcpu, &registers);
	if (registers.nested)
		return false;
	pthread_mutex_lock(&traps->lock);
	for (size_t i = 0; i < traps->count && !found; i++) {
		*trap = traps->traps[i];
		found = trap->site.address == address && is_in_place(traps, &registers, trap);
	}
	found = found && is_same_kernel(traps, &registers);
	pthread_mutex_unlock(&traps->lock);
	return found;
}

/* SDM vol. 2B, RDPMC. False: it faults. */
static bool read_counter(struct vcpu *vcpu, struct kvm_regs *registers)
{
	const struct kvm_sregs *special = vcpu_special_registers(vcpu);
	uint64_t value;

	if (special->ss.dpl && !(special->cr4 & CR4_PCE))
		return false;
	if (!pmu_vcpu_read_counter(vcpu, (uint32_t)registers->rcx, &value))
		return false;
	registers->rax = (uint32_t)value;
	registers->rdx = value >> 32;
	return true;
}

static int complete(struct vcpu *vcpu, const struct trap *trap)
{
	struct kvm_regs registers = *vcpu_registers(vcpu);
	int error;

	if (!read_counter(vcpu, &registers))
		return vcpu_inject_fault(vcpu, VECTOR_GP, 0);
	registers.rip += trap->site.length;
	registers.rflags &= ~RFLAGS_RF;
	error = vcpu_set_registers(vcpu, &registers);
	if (!error && registers.rflags & RFLAGS_TF)
		error = vcpu_inject_single_step(vcpu);
	return error;
}

/* An error of KVM ends the vCPU. */
static bool handle_breakpoint(struct vcpu *vcpu)
{
	struct rdpmc_traps *traps = vcpu->vm->rdpmc_traps;
	struct trap trap;
	bool ours = find_trap(traps, vcpu, &trap);
	int error = ours ? complete(vcpu, &trap) : vcpu_inject_breakpoint(vcpu);

	atomic_fetch_add_explicit(ours ? &traps->completed : &traps->guest_breakpoints, 1,
				  memory_order_relaxed);
	if (error)
		vcpu_request_end(vcpu, VCPU_END_HOST_ERROR);
	return ours && !error;
}

int rdpmc_traps_create(struct rdpmc_traps **result, const struct rdpmc_traps_options *options)
{
	struct rdpmc_traps *traps = calloc(1, sizeof(*traps));
	int error = 0;

	if (!traps)
		return error_set(-ENOMEM, "no memory for the traps of RDPMC");
	traps->options = *options;
	traps->user = NOWHERE;
	pthread_mutex_init(&traps->lock, NULL);
	for (unsigned int i = 0; options->int3 && i < options->vm->vcpu_count && !error; i++)
		error = vcpu_set_software_breakpoints(options->vm->vcpus[i], true);
	if (error) {
		rdpmc_traps_destroy(traps);
		return error;
	}
	options->vm->rdpmc_traps = traps;
	*result = traps;
	return 0;
}

void rdpmc_traps_destroy(struct rdpmc_traps *traps)
{
	if (!traps)
		return;
	traps->options.vm->rdpmc_traps = NULL;
	pthread_mutex_destroy(&traps->lock);
	free(traps);
}

void rdpmc_traps_statistics(const struct rdpmc_traps *traps,
			    struct rdpmc_traps_statistics *statistics)
{
	statistics->completed = atomic_load_explicit(&traps->completed, memory_order_relaxed);
	statistics->guest_breakpoints =
		atomic_load_explicit(&traps->guest_breakpoints, memory_order_relaxed);
}

static bool read_msr(struct vcpu *vcpu, uint32_t index, uint64_t *value)
{
	return is_shown(vcpu) && pmu_vcpu_read_msr(vcpu, index, value);
}

static bool write_msr(struct vcpu *vcpu, uint32_t index, uint64_t value)
{
	return is_shown(vcpu) && pmu_vcpu_write_msr(vcpu, index, value);
}

static void enter(struct vcpu *vcpu)
{
	block_user_rdpmc(vcpu);
	pmu_vcpu_enter(vcpu);
}

const struct vcpu_pmu_operations rdpmc_traps_pmu = {
	.create = pmu_vcpu_add,
	.destroy = pmu_vcpu_destroy,
	.reset = pmu_vcpu_reset,
	.read_msr = read_msr,
	.write_msr = write_msr,
	.enter = enter,
	.leave = pmu_vcpu_leave,
	.breakpoint = handle_breakpoint,
};
