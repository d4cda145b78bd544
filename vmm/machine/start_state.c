/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/machine/start_state.h"

#include <stdbool.h>

#define CODE_SELECTOR 0x10
#define DATA_SELECTOR 0x18

/* SDM vol. 3A 2.5 and 2.2.1. */
#define CR0_PE   (1ull << 0)
#define CR0_ET   (1ull << 4)
#define CR0_NE   (1ull << 5)
#define CR0_PG   (1ull << 31)
#define CR4_PAE  (1ull << 5)
#define EFER_LME (1ull << 8)
#define EFER_LMA (1ull << 10)

#define RFLAGS_RESERVED 2ull

static struct kvm_segment flat_segment(uint16_t selector, bool code, bool long_mode)
{
	return (struct kvm_segment){
		.limit = 0xffffffff,
		.selector = selector,
		.type = code ? 11 : 3, /* accessed; execute/read or read/write */
		.present = 1,
		.s = 1,
		.l = code && long_mode,
		.db = !(code && long_mode),
		.g = 1,
	};
}

static void set_segments(struct kvm_sregs *sregs, const struct boot_start *start)
{
	struct kvm_segment data = flat_segment(DATA_SELECTOR, false, start->long_mode);

	sregs->cs = flat_segment(CODE_SELECTOR, true, start->long_mode);
	sregs->ds = sregs->es = sregs->fs = sregs->gs = sregs->ss = data;
	sregs->gdt.base = start->gdt;
	sregs->gdt.limit = start->gdt_size - 1;
	/* No IDT: an exception before the kernel has one of its own is a triple fault, which is
	 * reported. */
	sregs->idt.base = 0;
	sregs->idt.limit = 0;
}

static void set_mode(struct kvm_sregs *sregs, const struct boot_start *start)
{
	sregs->cr0 = CR0_PE | CR0_ET | CR0_NE;
	sregs->cr4 = 0;
	sregs->efer = 0;
	if (!start->long_mode)
		return;
	sregs->cr3 = start->cr3;
	sregs->cr4 = CR4_PAE;
	sregs->cr0 |= CR0_PG;
	sregs->efer = EFER_LME | EFER_LMA;
}

int start_state_set(struct vcpu *vcpu, const struct boot_start *start)
{
	struct kvm_sregs sregs = *vcpu_special_registers(vcpu);
	struct kvm_regs regs = {
		.rip = start->rip,
		.rsp = start->rsp,
		.rsi = start->rsi,
		.rbx = start->rbx,
		.rax = start->rax,
		.rflags = RFLAGS_RESERVED,
	};
	int error;

	set_segments(&sregs, start);
	set_mode(&sregs, start);
	error = vcpu_set_special_registers(vcpu, &sregs);
	return error ? error : vcpu_set_registers(vcpu, &regs);
}
