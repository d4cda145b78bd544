/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/sample/vm_view.h"

void vm_view_init(struct vm_view *view, const struct memory *memory)
{
	for (size_t i = 0; i < memory->region_count; i++)
		view->regions[i] = (struct guest_region){ .gpa = memory->regions[i].gpa,
							  .size = memory->regions[i].size,
							  .hva = memory->regions[i].hva };
	view->view = (struct guest_view){ .regions = view->regions,
					  .region_count = memory->region_count,
					  .patches = &memory->patches };
}

static void copy_general(const struct kvm_regs *from, struct guest_registers *to)
{
	to->rip = from->rip;
	to->rsp = from->rsp;
	to->rbp = from->rbp;
	to->rflags = from->rflags;
	to->rax = from->rax;
	to->rbx = from->rbx;
	to->rcx = from->rcx;
	to->rdx = from->rdx;
	to->rsi = from->rsi;
	to->rdi = from->rdi;
	to->r8 = from->r8;
	to->r9 = from->r9;
	to->r10 = from->r10;
	to->r11 = from->r11;
	to->r12 = from->r12;
	to->r13 = from->r13;
	to->r14 = from->r14;
	to->r15 = from->r15;
}

static void copy_special(const struct kvm_sregs *from, struct guest_registers *to)
{
	to->idt_base = from->idt.base;
	to->idt_limit = from->idt.limit;
	to->gdt_base = from->gdt.base;
	to->gs_base = from->gs.base;
	to->paging = (struct guest_paging){
		.cr0 = from->cr0, .cr3 = from->cr3, .cr4 = from->cr4, .efer = from->efer
	};
	to->cpl = from->ss.dpl;
	to->long_mode = from->cs.l;
}

void vm_view_copy_registers(const struct kvm_regs *general, const struct kvm_sregs *special,
			    struct guest_registers *registers)
{
	copy_general(general, registers);
	copy_special(special, registers);
	registers->nested = false;
}

void vm_view_registers(struct vcpu *vcpu, struct guest_registers *registers)
{
	vm_view_copy_registers(vcpu_registers(vcpu), vcpu_special_registers(vcpu), registers);
	registers->nested = vcpu_runs_nested(vcpu);
}
