/* SPDX-License-Identifier: Apache-2.0 */
/* Registers of a stopped vCPU, independent of KVM's types. */
#ifndef KVMSCOPE_GUEST_REGISTERS_H
#define KVMSCOPE_GUEST_REGISTERS_H

#include <stdbool.h>
#include <stdint.h>

/* Bits of control registers and EFER: SDM vol. 3A 2.5 and 2.2.1. */
#define CR0_PE      (1ull << 0)
#define CR0_PG      (1ull << 31)
#define CR3_ADDRESS 0x000ffffffffff000ull /* top table, without PCID and flags (4.5) */
#define CR4_PSE     (1ull << 4)
#define CR4_PAE     (1ull << 5)
#define CR4_LA57    (1ull << 12)
#define CR4_FRED    (1ull << 32)
#define EFER_LME    (1ull << 8)
#define EFER_LMA    (1ull << 10)
/*
 * With KPTI, Linux has a pair of top tables in an even page and the next odd one. This bit is set
 * in the address of the user half (arch/x86/mm/pti.c).
 */
#define CR3_PTI_USER (1ull << 12)

/* Selects how a GVA is translated: SDM vol. 3A ch. 4. */
struct guest_paging {
	uint64_t cr0;
	uint64_t cr3;
	uint64_t cr4;
	uint64_t efer;
};

/* True in 32-bit paging, with or without PAE. Without paging nothing is known. */
static inline bool guest_paging_is_32bit(const struct guest_paging *paging)
{
	return paging->cr0 & CR0_PG && !(paging->efer & EFER_LMA);
}

/* Bytes of a pointer of code that runs with PAGING. */
static inline unsigned int guest_word_size(const struct guest_paging *paging)
{
	return guest_paging_is_32bit(paging) ? 4 : 8;
}

struct guest_registers {
	uint64_t rip, rsp, rbp, rflags;
	uint64_t rax, rbx, rcx, rdx, rsi, rdi;
	uint64_t r8, r9, r10, r11, r12, r13, r14, r15;
	uint64_t idt_base; /* GVA */
	uint64_t gdt_base; /* GVA */
	uint64_t gs_base;  /* active GS base, not the swapped one */
	struct guest_paging paging;
	uint16_t idt_limit; /* bytes - 1 */
	uint8_t cpl;        /* SS.DPL */
	bool long_mode;     /* CS.L */
	bool nested;        /* of a nested guest: CR3 is a GPA of that guest */
};

#endif
