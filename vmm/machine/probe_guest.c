/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/machine/probe_guest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shared/error.h"

#define MEMORY_SIZE 0x200000ull

#define PAGE_TABLES  0x1000ull
#define GDT          0x4000ull
#define IDT          0x5000ull
#define TSS          0x7000ull
#define TSS_SELECTOR 0x38
#define VECTORS      256

/* Present, writable, user; a 2 MiB page in the last level. */
#define TABLE_ENTRY 0x07ull
#define PAGE_ENTRY  0x87ull

#define CR0_PE         (1ull << 0)
#define CR0_MP         (1ull << 1)
#define CR0_ET         (1ull << 4)
#define CR0_NE         (1ull << 5)
#define CR0_PG         (1ull << 31)
#define CR4_PAE        (1ull << 5)
#define CR4_OSFXSR     (1ull << 9)
#define CR4_OSXMMEXCPT (1ull << 10)
#define EFER_SCE       (1ull << 0)
#define EFER_LME       (1ull << 8)
#define EFER_LMA       (1ull << 10)

#define RFLAGS_FIXED  (1ull << 1)
#define RFLAGS_IOPL_3 (3ull << 12)

/* VT-x keeps pages for real mode here; KVM_SET_TSS_ADDR requires an address outside of RAM. */
#define REAL_MODE_PAGES 0xfffbd000ull

static const uint64_t gdt[] = {
	0,
	0,
	0x00af9b000000ffff,             /* 0x10: 64-bit code */
	0x00cf93000000ffff,             /* 0x18: data */
	0x00cffb000000ffff,             /* 0x20: 32-bit user code, expected first by SYSRET */
	0x00cff3000000ffff,             /* 0x28: user data */
	0x00affb000000ffff,             /* 0x30: 64-bit user code */
	0x00008b0000000067 | TSS << 16, /* 0x38: busy 64-bit TSS */
	0,
};

/* mov rax, cr0, which faults unless at CPL0; mov al, PROBE_HANDLER_VALUE; end */
static const uint8_t handler[] = { 0x0f, 0x20, 0xc0, 0xb0, PROBE_HANDLER_VALUE, PROBE_END };

/* The IDT has one gate, usable from CPL3 too. Any exception is a triple fault. */
static void write_memory(uint8_t *memory)
{
	uint64_t *tables = (uint64_t *)(memory + PAGE_TABLES), *idt = (uint64_t *)(memory + IDT);
	const uint64_t stack = PROBE_STACK;

	tables[0] = (PAGE_TABLES + 0x1000) | TABLE_ENTRY;
	tables[512] = (PAGE_TABLES + 0x2000) | TABLE_ENTRY;
	tables[1024] = PAGE_ENTRY;
	idt[2 * PROBE_VECTOR] = PROBE_HANDLER | (uint64_t)PROBE_KERNEL_CODE << 16 | 0xeeull << 40;
	memcpy(memory + GDT, gdt, sizeof(gdt));
	memcpy(memory + PROBE_HANDLER, handler, sizeof(handler));
	memcpy(memory + TSS + 4, &stack, sizeof(stack)); /* RSP0 */
}

static struct kvm_segment segment(uint16_t selector, bool code)
{
	return (struct kvm_segment){ .limit = 0xffffffff,
				     .selector = selector,
				     .type = code ? 11 : 3,
				     .present = 1,
				     .dpl = selector & 3,
				     .db = !code,
				     .s = 1,
				     .l = code,
				     .g = 1 };
}

static int set_special_registers(struct probe_vm *vm, int cpl)
{
	struct kvm_sregs sregs;

	if (ioctl(vm->vcpu_fd, KVM_GET_SREGS, &sregs))
		return -errno;
	sregs.cs = segment(cpl ? PROBE_USER_CODE_64 : PROBE_KERNEL_CODE, true);
	sregs.ss = segment(cpl ? PROBE_USER_DATA : PROBE_KERNEL_DATA, false);
	sregs.ds = sregs.es = sregs.fs = sregs.gs = sregs.ss;
	sregs.tr = (struct kvm_segment){
		.base = TSS, .limit = 0x67, .selector = TSS_SELECTOR, .type = 11, .present = 1
	};
	sregs.gdt = (struct kvm_dtable){ .base = GDT, .limit = sizeof(gdt) - 1 };
	sregs.idt = (struct kvm_dtable){ .base = IDT, .limit = VECTORS * 16 - 1 };
	sregs.cr0 = CR0_PE | CR0_MP | CR0_ET | CR0_NE | CR0_PG;
	sregs.cr3 = PAGE_TABLES;
	sregs.cr4 = CR4_PAE | CR4_OSFXSR | CR4_OSXMMEXCPT;
	sregs.efer = EFER_SCE | EFER_LME | EFER_LMA;
	return ioctl(vm->vcpu_fd, KVM_SET_SREGS, &sregs) ? -errno : 0;
}

static int set_registers(struct probe_vm *vm, int cpl)
{
	struct kvm_regs regs = {
		.rip = PROBE_CODE,
		.rsp = cpl ? PROBE_USER_STACK : PROBE_STACK,
		.rflags = RFLAGS_FIXED | RFLAGS_IOPL_3,
	};

	return ioctl(vm->vcpu_fd, KVM_SET_REGS, &regs) ? -errno : 0;
}

static int create_memory(struct probe_vm *vm)
{
	struct kvm_userspace_memory_region region = { .memory_size = MEMORY_SIZE };

	vm->memory =
		mmap(NULL, MEMORY_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (vm->memory == MAP_FAILED)
		return error_set(-errno, "no memory for a VM: %m");
	region.userspace_addr = (uintptr_t)vm->memory;
	if (ioctl(vm->vm_fd, KVM_SET_USER_MEMORY_REGION, &region))
		return error_set(-errno, "KVM_SET_USER_MEMORY_REGION: %m");
	write_memory(vm->memory);
	return 0;
}

static int create_vcpu(struct probe_vm *vm)
{
	int error = cpuid_supported(vm->kvm_fd, &vm->cpuid);

	if (error)
		return error;
	vm->vcpu_fd = ioctl(vm->vm_fd, KVM_CREATE_VCPU, 0);
	if (vm->vcpu_fd < 0)
		return error_set(-errno, "KVM_CREATE_VCPU: %m");
	vm->run_size = (size_t)ioctl(vm->kvm_fd, KVM_GET_VCPU_MMAP_SIZE, 0);
	vm->run = mmap(NULL, vm->run_size, PROT_READ | PROT_WRITE, MAP_SHARED, vm->vcpu_fd, 0);
	if (vm->run == MAP_FAILED)
		return error_set(-errno, "mmap of the vCPU: %m");
	if (ioctl(vm->vcpu_fd, KVM_SET_CPUID2, &vm->cpuid))
		return error_set(-errno, "KVM_SET_CPUID2: %m");
	return 0;
}

static const char *advice(int error)
{
	if (error == EACCES || error == EPERM)
		return " (add yourself to group kvm, or run as root)";
	if (error == ENOENT)
		return " (load kvm_intel or kvm_amd, enable virtualization in the firmware, or give the "
		       "container /dev/kvm)";
	return " (load kvm_intel or kvm_amd, or enable virtualization in the firmware)";
}

int probe_vm_create(struct probe_vm *vm)
{
	*vm = (struct probe_vm){ .kvm_fd = open("/dev/kvm", O_RDWR | O_CLOEXEC) };
	if (vm->kvm_fd < 0)
		return error_set(-errno, "cannot open /dev/kvm: %m%s", advice(errno));
	vm->vm_fd = ioctl(vm->kvm_fd, KVM_CREATE_VM, 0);
	if (vm->vm_fd < 0)
		return error_set(-errno, "KVM_CREATE_VM: %m");
	ioctl(vm->vm_fd, KVM_SET_TSS_ADDR,
	      REAL_MODE_PAGES); /* only VT-x without unrestricted guests needs it */
	return 0;
}

int probe_vm_start(struct probe_vm *vm, const void *code, size_t size, int cpl)
{
	int error = create_memory(vm);

	if (!error)
		error = create_vcpu(vm);
	if (error)
		return error;
	if (size)
		memcpy(vm->memory + PROBE_CODE, code, size);
	error = set_special_registers(vm, cpl);
	if (!error)
		error = set_registers(vm, cpl);
	return error ? error_set(error, "cannot set the vCPU's registers: %s", strerror(-error))
		     : 0;
}

int probe_vm_open(struct probe_vm *vm, const void *code, size_t size, int cpl)
{
	int error = probe_vm_create(vm);

	return error ? error : probe_vm_start(vm, code, size, cpl);
}

void probe_vm_close(struct probe_vm *vm)
{
	munmap(vm->run, vm->run_size);
	close(vm->vcpu_fd);
	close(vm->vm_fd);
	close(vm->kvm_fd);
	munmap(vm->memory, MEMORY_SIZE);
}

int probe_vm_run(struct probe_vm *vm)
{
	int result;

	do
		result = ioctl(vm->vcpu_fd, KVM_RUN, 0);
	while (result < 0 && errno == EINTR);
	if (result < 0)
		return error_set(-errno, "KVM_RUN: %m");
	return (int)vm->run->exit_reason;
}

bool probe_vm_ended(const struct probe_vm *vm)
{
	return vm->run->exit_reason == KVM_EXIT_IO && vm->run->io.direction == KVM_EXIT_IO_OUT &&
	       vm->run->io.port == PROBE_END_PORT;
}

uint8_t probe_vm_value(const struct probe_vm *vm)
{
	return ((const uint8_t *)vm->run)[vm->run->io.data_offset];
}

const char *probe_vm_exit(const struct probe_vm *vm)
{
	static char text[80];

	switch (vm->run->exit_reason) {
	case KVM_EXIT_INTERNAL_ERROR:
		snprintf(text, sizeof(text), "KVM_EXIT_INTERNAL_ERROR, suberror %u",
			 vm->run->internal.suberror);
		return text;
	case KVM_EXIT_SHUTDOWN:
		return "triple fault";
	case KVM_EXIT_FAIL_ENTRY:
		return "KVM_EXIT_FAIL_ENTRY";
	case KVM_EXIT_DEBUG:
		return "KVM_EXIT_DEBUG";
	default:
		snprintf(text, sizeof(text), "KVM exit reason %u", vm->run->exit_reason);
		return text;
	}
}

int probe_vm_capability(const struct probe_vm *vm, int capability)
{
	int value = ioctl(vm->vm_fd, KVM_CHECK_EXTENSION, capability);

	return value < 0 ? 0 : value;
}
