/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/kvm/bare_guest.h"

#include <unistd.h>

#include "vmm/kvm/guest_ram.h"

#define PML4 BARE_GUEST_TABLES
#define PDPT 0x2000ull
#define PD   0x3000ull
#define GDT  0x4000ull

#define PAGE_OPEN  7ull /* present, writable, user */
#define PAGE_LARGE 0x80ull

static void build_page_tables(struct vm *vm)
{
	uint64_t pml4 = PDPT | PAGE_OPEN, pdpt = PD | PAGE_OPEN;

	memory_write(&vm->memory, PML4, &pml4, sizeof(pml4));
	memory_write(&vm->memory, PDPT, &pdpt, sizeof(pdpt));
	for (uint64_t i = 0; i < 512; i++) {
		uint64_t entry = i << 21 | PAGE_OPEN | PAGE_LARGE;

		memory_write(&vm->memory, PD + i * 8, &entry, sizeof(entry));
	}
}

static void build_gdt(struct vm *vm)
{
	const uint64_t gdt[] = {
		0, 0, 0x00af9b000000ffff, 0x00cf93000000ffff, 0x00cff3000000ffff, 0x00affb000000ffff
	};

	memory_write(&vm->memory, GDT, gdt, sizeof(gdt));
}

static struct kvm_segment segment(uint16_t selector, bool code, int cpl)
{
	return (struct kvm_segment){ .limit = 0xffffffff,
				     .selector = (uint16_t)(selector | cpl),
				     .type = code ? 11 : 3,
				     .present = 1,
				     .dpl = (uint8_t)cpl,
				     .s = 1,
				     .l = code,
				     .db = !code,
				     .g = 1 };
}

static int set_start(struct vcpu *vcpu, int cpl)
{
	struct kvm_sregs sregs = *vcpu_special_registers(vcpu);
	struct kvm_regs regs = { .rip = BARE_GUEST_CODE, .rsp = BARE_GUEST_STACK, .rflags = 2 };
	int error;

	sregs.cr0 = 0x80050033; /* PG, AM, WP, NE, ET, MP, PE */
	sregs.cr3 = PML4;
	sregs.cr4 = 0x620;  /* PAE, OSFXSR, OSXMMEXCPT */
	sregs.efer = 0x500; /* LME, LMA */
	sregs.gdt.base = GDT;
	sregs.gdt.limit = 6 * 8 - 1;
	sregs.cs = segment(cpl ? 0x28 : 0x10, true, cpl);
	sregs.ss = sregs.ds = sregs.es = sregs.fs = sregs.gs =
		segment(cpl ? 0x20 : 0x18, false, cpl);
	error = vcpu_set_special_registers(vcpu, &sregs);
	return error ? error : vcpu_set_registers(vcpu, &regs);
}

int bare_guest_create(struct vm *vm, const struct vcpu_handlers *handlers, const void *code,
		      size_t size, int cpl)
{
	int error = vm_create(vm, BARE_GUEST_MEMORY);

	if (error)
		return error;
	build_page_tables(vm);
	build_gdt(vm);
	error = memory_write(&vm->memory, BARE_GUEST_CODE, code, size);
	if (!error)
		error = vcpu_create(vm, 0, handlers);
	if (!error)
		error = set_start(vm->vcpus[0], cpl);
	if (error)
		vm_destroy(vm);
	return error;
}

bool bare_guest_possible(void)
{
	return access("/dev/kvm", R_OK | W_OK) == 0;
}
