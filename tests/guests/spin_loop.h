/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that a profile is to tell apart, in which the time is as their counts are. For guests
 * of tests.
 */
#ifndef KVMSCOPE_TESTS_GUESTS_SPIN_LOOP_H
#define KVMSCOPE_TESTS_GUESTS_SPIN_LOOP_H

#include <stdint.h>

/*
 * Function NAME, with PLACE as an attribute, loops COUNT times, the same loop in each: its time is
 * its count, wherever the machine below stands still. Own alignment keeps them equal; the frame is
 * made by hand, since the compiler leaves it out of so small a function.
 */
#define SPIN_LOOP(name, place)                                                                     \
	__attribute__((place, noinline, used, aligned(64))) void name(uint64_t count);             \
	void name(uint64_t count)                                                                  \
	{                                                                                          \
		__asm__ volatile("pushq %%rbp\n\t"                                                 \
				 "movq %%rsp, %%rbp\n\t"                                           \
				 ".balign 32\n"                                                    \
				 "1:	subq $1, %0\n\t"                                              \
				 "jnz 1b\n\t"                                                      \
				 "popq %%rbp"                                                      \
				 : "+r"(count)                                                     \
				 :                                                                 \
				 : "cc", "memory");                                                \
	}

#endif
