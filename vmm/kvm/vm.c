/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/kvm/vm.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/kvm/vcpu.h"

/*
 * VT-x needs two areas from the VMM: a one-page identity page table and a three-page TSS. They lie
 * below the BIOS area at 4 GiB, where no guest has RAM (KVM_SET_TSS_ADDR and
 * KVM_SET_IDENTITY_MAP_ADDR in Documentation/virt/kvm/api.rst).
 */
#define IDENTITY_MAP_ADDRESS 0xfffbc000ull
#define TSS_ADDRESS          0xfffbd000ull

static const char *advice_on_open(int error)
{
	switch (error) {
	case ENOENT:
	case ENODEV:
	case ENXIO:
		return "load kvm_intel or kvm_amd, or enable virtualization in the firmware";
	case EACCES:
	case EPERM:
		return "add yourself to the group kvm, or run as root";
	default:
		return "see kvmscope doctor";
	}
}

int vm_refused(const char *what)
{
	return error_set(-errno, "this host's KVM refused %s: %m; see kvmscope doctor", what);
}

static int open_kvm(struct vm *vm)
{
	int version;

	vm->kvm_fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	if (vm->kvm_fd < 0)
		return error_set(-errno, "cannot open /dev/kvm: %m (%s)", advice_on_open(errno));
	version = ioctl(vm->kvm_fd, KVM_GET_API_VERSION, 0);
	if (version != KVM_API_VERSION)
		return error_set(-ENOTSUP, "/dev/kvm has API version %d, not %d", version,
				 KVM_API_VERSION);
	return 0;
}

static int create_vm_fd(struct vm *vm)
{
	/* KVM_CREATE_VM may be interrupted while it waits for locks. */
	do
		vm->vm_fd = ioctl(vm->kvm_fd, KVM_CREATE_VM, 0);
	while (vm->vm_fd < 0 && errno == EINTR);
	return vm->vm_fd < 0 ? vm_refused("a virtual machine (KVM_CREATE_VM)") : 0;
}

static void disable_halt_polling(struct vm *vm)
{
	/* Disables busy polling while a vCPU is halted: it would use CPU time of the vCPU's
	 * thread, and the sampling clock would show an idle guest as busy. Works without. */
	struct kvm_enable_cap enable = { .cap = KVM_CAP_HALT_POLL };

	if (vm_capability(vm, KVM_CAP_HALT_POLL) && ioctl(vm->vm_fd, KVM_ENABLE_CAP, &enable))
		log_debug("cannot disable KVM_CAP_HALT_POLL: %m");
}

static int create_interrupt_chips(struct vm *vm)
{
	struct kvm_pit_config pit = {
		.flags = KVM_PIT_SPEAKER_DUMMY
	}; /* port 0x61, which Linux calibrates with */
	uint64_t identity_map = IDENTITY_MAP_ADDRESS;

	if (ioctl(vm->vm_fd, KVM_SET_IDENTITY_MAP_ADDR, &identity_map))
		return vm_refused("the identity map page (KVM_SET_IDENTITY_MAP_ADDR)");
	if (ioctl(vm->vm_fd, KVM_SET_TSS_ADDR, TSS_ADDRESS))
		return vm_refused("the TSS pages (KVM_SET_TSS_ADDR)");
	if (ioctl(vm->vm_fd, KVM_CREATE_IRQCHIP, 0))
		return vm_refused("in-kernel interrupt controllers (KVM_CREATE_IRQCHIP)");
	if (ioctl(vm->vm_fd, KVM_CREATE_PIT2, &pit))
		return vm_refused("an in-kernel timer (KVM_CREATE_PIT2)");
	return 0;
}

static int add_memory_slots(struct vm *vm)
{
	for (size_t i = 0; i < vm->memory.region_count; i++) {
		const struct memory_region *region = &vm->memory.regions[i];
		struct kvm_userspace_memory_region slot = {
			.slot = (uint32_t)i,
			.guest_phys_addr = region->gpa,
			.memory_size = region->size,
			.userspace_addr = (uintptr_t)region->hva,
		};

		if (ioctl(vm->vm_fd, KVM_SET_USER_MEMORY_REGION, &slot))
			return vm_refused("guest memory (KVM_SET_USER_MEMORY_REGION)");
	}
	return 0;
}

int vm_create(struct vm *vm, uint64_t memory_size)
{
	int error;

	*vm = (struct vm){ .kvm_fd = -1, .vm_fd = -1, .cpus = 1 };
	pthread_mutex_init(&vm->irq_lock, NULL);
	error = open_kvm(vm);
	if (!error)
		error = create_vm_fd(vm);
	if (!error) {
		disable_halt_polling(vm);
		error = create_interrupt_chips(vm);
	}
	if (!error)
		error = memory_create(&vm->memory, memory_size);
	if (!error)
		error = add_memory_slots(vm);
	if (error)
		vm_destroy(vm);
	return error;
}

void vm_destroy(struct vm *vm)
{
	while (vm->vcpu_count)
		vcpu_destroy(vm->vcpus[--vm->vcpu_count]);
	if (vm->vm_fd >= 0)
		close(vm->vm_fd);
	memory_destroy(&vm->memory);
	if (vm->kvm_fd >= 0)
		close(vm->kvm_fd);
	pthread_mutex_destroy(&vm->irq_lock);
	*vm = (struct vm){ .kvm_fd = -1, .vm_fd = -1 };
}

int vm_set_irq(struct vm *vm, unsigned int gsi, bool high)
{
	struct kvm_irq_level level = { .irq = gsi, .level = high };
	int error = 0;

	pthread_mutex_lock(&vm->irq_lock);
	if (ioctl(vm->vm_fd, KVM_IRQ_LINE, &level))
		error = vm_refused("an interrupt (KVM_IRQ_LINE)");
	pthread_mutex_unlock(&vm->irq_lock);
	return error;
}
