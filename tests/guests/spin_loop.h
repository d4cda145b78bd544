/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions for profiles to distinguish, which spend time in proportion to their counts. For test
 * guests.
 */
#ifndef KVMSCOPE_TESTS_GUESTS_SPIN_LOOP_H
#define KVMSCOPE_TESTS_GUESTS_SPIN_LOOP_H

#include <stdint.h>

#ifdef __GCC_HAVE_DWARF2_CFI_ASM
#define SPIN_FRAME    ".cfi_def_cfa 6, 16\n\t.cfi_offset 6, -16\n\t" /* DWARF's RBP and RSP */
#define SPIN_NO_FRAME "\n\t.cfi_def_cfa 7, 8\n\t.cfi_restore 6"
#else /* no unwind tables */
#define SPIN_FRAME    ""
#define SPIN_NO_FRAME ""
#endif

/* Instructions of each turn besides the count's. */
#ifndef SPIN_WORK
#define SPIN_WORK ""
#endif

/*
 * Function NAME, with attribute PLACE, runs a loop COUNT times. The loop is the same in each
 * function, so the time is proportional to the count even if the machine below pauses. Each loop
 * has its own alignment, so that all are equally fast. The frame is set up by hand, since the
 * compiler omits it in such a small function.
 */
#define SPIN_LOOP(name, place)                                                                     \
	__attribute__((place, noinline, used, aligned(64))) void name(uint64_t count);             \
	void name(uint64_t count)                                                                  \
	{                                                                                          \
		__asm__ volatile("pushq %%rbp\n\t"                                                 \
				 "movq %%rsp, %%rbp\n\t" SPIN_FRAME ".balign 32\n"                 \
				 "1:	" SPIN_WORK "subq $1, %0\n\t"                              \
				 "jnz 1b\n\t"                                                      \
				 "popq %%rbp" SPIN_NO_FRAME                                        \
				 : "+r"(count)                                                     \
				 :                                                                 \
				 : "cc", "memory", "rax");                                         \
	}

#endif
