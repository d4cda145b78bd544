/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/kvm/vcpu.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/kvm/cpuid.h"
#include "vmm/kvm/msr.h"
#include "vmm/kvm/vm.h"

#define SYNC_REGS (KVM_SYNC_X86_REGS | KVM_SYNC_X86_SREGS | KVM_SYNC_X86_EVENTS)

/* Local vector table in struct kvm_lapic_state (SDM vol. 3A 11.4.1 and 11.5.1). */
#define LVT_LINT0           0x350
#define LVT_LINT1           0x360
#define LVT_DELIVERY        0x700u
#define LVT_DELIVERY_NMI    0x400u
#define LVT_DELIVERY_EXTINT 0x700u
#define LVT_MASKED          0x10000u

int vcpu_refused(const struct vcpu *vcpu, const char *what)
{
	return error_set(-errno, "vCPU %u: this host's KVM refused %s: %m; see kvmscope doctor",
			 vcpu->index, what);
}

int vcpu_ioctl(const struct vcpu *vcpu, unsigned long request, const void *argument,
	       const char *what)
{
	return ioctl(vcpu->fd, request, argument) ? vcpu_refused(vcpu, what) : 0;
}

static bool has_kernel_pmu(const struct vcpu *vcpu)
{
	return vcpu->handlers->pmu && vcpu->handlers->pmu->by_kvm;
}

static int check_nested(struct cpuid_table *table, const struct vm *vm)
{
	if (!vm->nested)
		return 0;
	if (!cpuid_can_nest(table))
		return error_set(
			-ENOTSUP,
			"this host's KVM has no nested virtualization: load kvm_intel or kvm_amd with "
			"nested=1");
	if (!vm_capability(vm, KVM_CAP_NESTED_STATE))
		return error_set(-ENOTSUP,
				 "this host's KVM does not report when a nested guest runs "
				 "(KVM_CAP_NESTED_STATE needs Linux 4.20)");
	return 0;
}

static int set_cpuid(struct vcpu *vcpu, const struct vm *vm)
{
	struct cpuid_options options = {
		.cpus = vm->cpus,
		.apic_id = vcpu->index,
		.tsc_deadline = vm_capability(vm, KVM_CAP_TSC_DEADLINE_TIMER),
		.kernel_pmu = has_kernel_pmu(vcpu),
		.nested = vm->nested,
	};
	struct cpuid_table *table = malloc(sizeof(*table));
	int error;

	if (!table)
		return error_set(-ENOMEM, "no memory for the CPUID table");
	error = cpuid_supported(vm->kvm_fd, table);
	if (!error)
		error = check_nested(table, vm);
	if (!error) {
		cpuid_filter(table, &options);
		if (vcpu->handlers->pmu && vcpu->handlers->pmu->create)
			error = vcpu->handlers->pmu->create(vcpu, table);
		if (!error)
			error = vcpu_ioctl(vcpu, KVM_SET_CPUID2, &table->header,
					   "the CPUID table (KVM_SET_CPUID2)");
	}
	free(table);
	return error;
}

static int map_run(struct vcpu *vcpu, const struct vm *vm)
{
	int size = ioctl(vm->kvm_fd, KVM_GET_VCPU_MMAP_SIZE, 0);
	void *run;

	if (size < (int)sizeof(struct kvm_run))
		return vcpu_refused(vcpu, "its run structure (KVM_GET_VCPU_MMAP_SIZE)");
	run = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu->fd, 0);
	if (run == MAP_FAILED)
		return vcpu_refused(vcpu, "its run structure (mmap)");
	vcpu->run = run;
	vcpu->run_size = (size_t)size;
	return 0;
}

/* Each exit stores the registers from now on; the initial ones are read here. */
static int start_sync_regs(struct vcpu *vcpu, const struct vm *vm)
{
	if ((vm_capability(vm, KVM_CAP_SYNC_REGS) & SYNC_REGS) != SYNC_REGS)
		return error_set(
			-ENOTSUP,
			"this host's KVM has no KVM_CAP_SYNC_REGS, which sampling needs (Linux 4.17)");
	if (ioctl(vcpu->fd, KVM_GET_REGS, &vcpu->run->s.regs.regs) ||
	    ioctl(vcpu->fd, KVM_GET_SREGS, &vcpu->run->s.regs.sregs))
		return vcpu_refused(vcpu, "its registers (KVM_GET_REGS)");
	vcpu->run->kvm_valid_regs = SYNC_REGS;
	return 0;
}

/*
 * KVM_CAP_PMU_CAPABILITY, before the first vCPU: whether KVM emulates a PMU with the host's
 * counters; without one its MSRs do not exist either. Before Linux 5.18 CPUID alone decides.
 */
static void set_kernel_pmu(const struct vm *vm, bool enabled)
{
	struct kvm_enable_cap enable = { .cap = KVM_CAP_PMU_CAPABILITY,
					 .args = { enabled ? 0 : KVM_PMU_CAP_DISABLE } };

	if (vm_capability(vm, KVM_CAP_PMU_CAPABILITY) & KVM_PMU_CAP_DISABLE &&
	    ioctl(vm->vm_fd, KVM_ENABLE_CAP, &enable))
		log_debug("cannot set KVM_CAP_PMU_CAPABILITY to %d: %m", !enabled);
}

static void set_lapic_line(struct kvm_lapic_state *state, size_t offset, uint32_t delivery)
{
	uint32_t value;

	memcpy(&value, state->regs + offset, sizeof(value));
	value = (value & ~(LVT_DELIVERY | LVT_MASKED)) | delivery;
	memcpy(state->regs + offset, &value, sizeof(value));
}

/* Sets them as firmware does: PIC on LINT0, NMI on LINT1 (MultiProcessor Spec. 1.4, 3.6.2). */
static int set_lapic_lines(struct vcpu *vcpu)
{
	struct kvm_lapic_state state;
	int error = vcpu_ioctl(vcpu, KVM_GET_LAPIC, &state, "the LAPIC's state (KVM_GET_LAPIC)");

	if (error)
		return error;
	set_lapic_line(&state, LVT_LINT0, LVT_DELIVERY_EXTINT);
	set_lapic_line(&state, LVT_LINT1, LVT_DELIVERY_NMI);
	return vcpu_ioctl(vcpu, KVM_SET_LAPIC, &state, "the LAPIC's state (KVM_SET_LAPIC)");
}

static int set_up(struct vcpu *vcpu, struct vm *vm)
{
	int error;

	if (vcpu->index == 0)
		set_kernel_pmu(vm, has_kernel_pmu(vcpu));
	vcpu->fd = ioctl(vm->vm_fd, KVM_CREATE_VCPU, (unsigned long)vcpu->index);
	if (vcpu->fd < 0)
		return vcpu_refused(vcpu, "a vCPU (KVM_CREATE_VCPU)");
	error = map_run(vcpu, vm);
	if (!error)
		error = set_cpuid(vcpu, vm);
	if (!error)
		error = set_lapic_lines(vcpu);
	if (!error) {
		msr_reset(vcpu->fd);
		error = start_sync_regs(vcpu, vm);
	}
	return error;
}

int vcpu_create(struct vm *vm, unsigned int index, const struct vcpu_handlers *handlers)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct vcpu *vcpu;
	int error;

	assert(index == vm->vcpu_count && index < vm->cpus && vm->cpus <= VM_CPUS_MAX);
	vcpu = calloc(1, sizeof(*vcpu));
	if (!vcpu)
		return error_set(-ENOMEM, "no memory for vCPU %u", index);
	vcpu->vm = vm;
	vcpu->index = index;
	vcpu->fd = -1;
	vcpu->handlers = handlers;
	pthread_mutex_init(&vcpu->lock, NULL);
	pthread_once(&once, vcpu_install_signals);
	error = set_up(vcpu, vm);
	if (error) {
		vcpu_destroy(vcpu);
		return error;
	}
	vm->vcpus[vm->vcpu_count++] = vcpu;
	return 0;
}

void vcpu_destroy(struct vcpu *vcpu)
{
	assert(!atomic_load(&vcpu->thread_id));
	if (vcpu->handlers->pmu && vcpu->handlers->pmu->destroy)
		vcpu->handlers->pmu->destroy(vcpu);
	if (vcpu->run)
		munmap(vcpu->run, vcpu->run_size);
	if (vcpu->fd >= 0)
		close(vcpu->fd);
	pthread_mutex_destroy(&vcpu->lock);
	free(vcpu);
}

bool vcpu_is_halted(const struct vcpu *vcpu)
{
	struct kvm_mp_state state;

	assert(vcpu_on_thread(vcpu));
	return !ioctl(vcpu->fd, KVM_GET_MP_STATE, &state) && state.mp_state == KVM_MP_STATE_HALTED;
}

/* On kvm_intel KVM returns either the whole state or nothing (vmx_get_nested_state()). */
bool vcpu_runs_nested(const struct vcpu *vcpu)
{
	union {
		struct kvm_nested_state head;
		uint8_t room[sizeof(struct kvm_nested_state) +
			     sizeof(struct kvm_vmx_nested_state_data)];
	} state;

	assert(vcpu_on_thread(vcpu));
	if (!vcpu->vm->nested)
		return false;
	state.head.size = sizeof(state);
	return !ioctl(vcpu->fd, KVM_GET_NESTED_STATE, &state) &&
	       state.head.flags & KVM_STATE_NESTED_GUEST_MODE;
}

const struct kvm_regs *vcpu_registers(struct vcpu *vcpu)
{
	assert(vcpu_on_thread(vcpu));
	return &vcpu->run->s.regs.regs;
}

const struct kvm_sregs *vcpu_special_registers(struct vcpu *vcpu)
{
	assert(vcpu_on_thread(vcpu));
	return &vcpu->run->s.regs.sregs;
}

int vcpu_set_registers(struct vcpu *vcpu, const struct kvm_regs *registers)
{
	int error;

	assert(vcpu_on_thread(vcpu));
	error = vcpu_ioctl(vcpu, KVM_SET_REGS, registers, "new registers (KVM_SET_REGS)");
	if (!error)
		vcpu->run->s.regs.regs = *registers;
	return error;
}

int vcpu_set_special_registers(struct vcpu *vcpu, const struct kvm_sregs *registers)
{
	int error;

	assert(vcpu_on_thread(vcpu));
	error = vcpu_ioctl(vcpu, KVM_SET_SREGS, registers, "special registers (KVM_SET_SREGS)");
	if (!error)
		vcpu->run->s.regs.sregs = *registers;
	return error;
}

static int tsc_offset(const struct vcpu *vcpu, uint64_t *offset)
{
	struct kvm_device_attr attribute = {
		.group = KVM_VCPU_TSC_CTRL,
		.attr = KVM_VCPU_TSC_OFFSET,
		.addr = (uintptr_t)offset,
	};

	if (!ioctl(vcpu->fd, KVM_GET_DEVICE_ATTR, &attribute))
		return 0;
	return error_set(-ENXIO, "this KVM does not report the TSC offset of vCPU %u: %s",
			 vcpu->index, strerror(errno));
}

int vm_tsc_offset(const struct vm *vm, uint64_t *offset)
{
	for (unsigned int i = 0; i < vm->vcpu_count; i++) {
		uint64_t other;
		int error = tsc_offset(vm->vcpus[i], &other);

		if (error)
			return error;
		if (i && other != *offset)
			return error_set(-ENODATA, "the TSCs of vCPUs 0 and %u differ", i);
		*offset = other;
	}
	return vm->vcpu_count ? 0 : error_set(-ENODATA, "there is no vCPU");
}
