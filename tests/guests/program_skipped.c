/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Executes rounds=N times each instruction that leaves the guest and that KVM itself skips: CPUID,
 * OUT, WRMSR and HLT. The host may have breakpoints on each of them and on the next instruction.
 */
#include "tests/guests/guest.h"

#define UNUSED_PORT    "0x80"
#define APIC_BASE      "0x1b"
#define TICKS_A_SECOND 200

static void on_tick(struct frame *frame)
{
	lapic_end_of_interrupt();
}

/* "NAME_here" is the instruction, "NAME_behind" the one after it. */
#define INSTRUCTION(name, code)                                                                    \
	".globl " name "_here\n" name "_here: " code "\n.globl " name "_behind\n" name             \
	"_behind: nop\n"

static void once(void)
{
	__asm__ volatile("xorl %%eax, %%eax\n" INSTRUCTION("skipped_cpuid", "cpuid")
			 :
			 :
			 : "eax", "ebx", "ecx", "edx");
	__asm__ volatile(INSTRUCTION("skipped_out", "outb %%al, $" UNUSED_PORT) : : "a"(0));
	__asm__ volatile("movl $" APIC_BASE
			 ", %%ecx\n rdmsr\n" INSTRUCTION("skipped_wrmsr", "wrmsr")
			 :
			 :
			 : "eax", "ecx", "edx");
	__asm__ volatile("sti\n nop\n" INSTRUCTION("skipped_hlt", "hlt") "cli" : : : "memory");
}

uint32_t program_skipped(void)
{
	uint64_t rounds = option_number("rounds", 100);

	trap_set(VECTOR_TIMER, on_tick);
	lapic_init();
	lapic_timer(1000000000 / TICKS_A_SECOND);
	for (uint64_t i = 0; i < rounds; i++)
		once();
	lapic_timer(0);
	print("skipped: all\n");
	return 0;
}
