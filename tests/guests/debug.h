/* SPDX-License-Identifier: Apache-2.0 */
/* Access to the debug registers for test guests (SDM vol. 3B 18.2). */
#ifndef KVMSCOPE_TESTS_GUESTS_DEBUG_H
#define KVMSCOPE_TESTS_GUESTS_DEBUG_H

#include <stdint.h>

#define DR6_BD      0x2000ull
#define DR6_BS      0x4000ull
#define DR6_NOTHING 0xffff0ff0ull

#define DR7_FIXED      0x400ull
#define DR7_LOCAL(n)   (1ull << 2 * (n))
#define DR7_WRITE_8(n) (9ull << (16 + 4 * (n)))
#define DR7_GD         0x2000ull

#define RFLAGS_TF 0x100ull
#define RFLAGS_RF 0x10000ull

#define DEBUG_REGISTER(number)                                                                     \
	static inline uint64_t read_dr##number(void)                                               \
	{                                                                                          \
		uint64_t value;                                                                    \
                                                                                                   \
		__asm__ volatile("movq %%dr" #number ", %0" : "=r"(value));                        \
		return value;                                                                      \
	}                                                                                          \
	static inline void write_dr##number(uint64_t value)                                        \
	{                                                                                          \
		__asm__ volatile("movq %0, %%dr" #number : : "r"(value) : "memory");               \
	}

DEBUG_REGISTER(0)
DEBUG_REGISTER(1)
DEBUG_REGISTER(2)
DEBUG_REGISTER(3)
DEBUG_REGISTER(6)
DEBUG_REGISTER(7)

#endif
