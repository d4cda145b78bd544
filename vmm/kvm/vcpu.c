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
#include "vmm/kvm/cpuid.h"
#include "vmm/kvm/lapic.h"
#include "vmm/kvm/msr.h"
#include "vmm/kvm/vcpu_signals.h"
#include "vmm/kvm/vm.h"

#define SYNC_REGS (KVM_SYNC_X86_REGS | KVM_SYNC_X86_SREGS | KVM_SYNC_X86_EVENTS)

static int vcpu_failed(const struct vcpu *vcpu, const char *what)
{
	int error = errno;

	return error_set(-error, "vCPU %u: this host's KVM refused %s: %s; see kvmscope doctor",
			 vcpu->index, what, strerror(error));
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
			"this host's KVM does not let a guest run guests of its own: load kvm_intel or "
			"kvm_amd with nested=1");
	if (!vm_capability(vm, KVM_CAP_NESTED_STATE))
		return error_set(-ENOTSUP,
				 "this host's KVM does not tell when a guest of the guest runs "
				 "(KVM_CAP_NESTED_STATE); it came with Linux 4.20");
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
		if (!error && ioctl(vcpu->fd, KVM_SET_CPUID2, &table->header))
			error = vcpu_failed(vcpu, "the CPUID table (KVM_SET_CPUID2)");
	}
	free(table);
	return error;
}

static int map_run(struct vcpu *vcpu, const struct vm *vm)
{
	int size = ioctl(vm->kvm_fd, KVM_GET_VCPU_MMAP_SIZE, 0);
	void *run;

	if (size < (int)sizeof(struct kvm_run))
		return vcpu_failed(vcpu, "its run structure (KVM_GET_VCPU_MMAP_SIZE)");
	run = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu->fd, 0);
	if (run == MAP_FAILED)
		return vcpu_failed(vcpu, "its run structure (mmap)");
	vcpu->run = run;
	vcpu->run_size = (size_t)size;
	return 0;
}

/* Registers come with each exit from here on; the first ones are read, since no exit was yet. */
static int start_sync_regs(struct vcpu *vcpu, const struct vm *vm)
{
	if ((vm_capability(vm, KVM_CAP_SYNC_REGS) & SYNC_REGS) != SYNC_REGS)
		return error_set(
			-ENOTSUP,
			"this host's KVM has no KVM_CAP_SYNC_REGS, which samples are read by; "
			"it came with Linux 4.17");
	if (ioctl(vcpu->fd, KVM_GET_REGS, &vcpu->run->s.regs.regs) ||
	    ioctl(vcpu->fd, KVM_GET_SREGS, &vcpu->run->s.regs.sregs))
		return vcpu_failed(vcpu, "its registers (KVM_GET_REGS)");
	vcpu->run->kvm_valid_regs = SYNC_REGS;
	return 0;
}

static int set_up(struct vcpu *vcpu, struct vm *vm)
{
	int error;

	/* Without it not even the MSRs may answer. A KVM that can not be told goes by CPUID. */
	if (vcpu->index == 0)
		vm_set_kernel_pmu(vm, has_kernel_pmu(vcpu));
	vcpu->fd = ioctl(vm->vm_fd, KVM_CREATE_VCPU, (unsigned long)vcpu->index);
	if (vcpu->fd < 0)
		return vcpu_failed(vcpu, "a vCPU (KVM_CREATE_VCPU)");
	error = map_run(vcpu, vm);
	if (!error)
		error = set_cpuid(vcpu, vm);
	if (!error)
		error = lapic_set_lines(vcpu);
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
	pthread_once(&once, vcpu_signals_install);
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

/* KVM gives all of the state or, on kvm_intel, nothing (kernel: vmx_get_nested_state()). */
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
	assert(vcpu_on_thread(vcpu));
	if (ioctl(vcpu->fd, KVM_SET_REGS, registers))
		return vcpu_failed(vcpu, "new registers (KVM_SET_REGS)");
	vcpu->run->s.regs.regs = *registers;
	return 0;
}

int vcpu_set_special_registers(struct vcpu *vcpu, const struct kvm_sregs *registers)
{
	assert(vcpu_on_thread(vcpu));
	if (ioctl(vcpu->fd, KVM_SET_SREGS, registers))
		return vcpu_failed(vcpu, "new special registers (KVM_SET_SREGS)");
	vcpu->run->s.regs.sregs = *registers;
	return 0;
}
