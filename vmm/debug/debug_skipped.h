/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Instructions that exit and that KVM then skips without its emulator.
 * kvm_skip_emulated_instruction() keeps RFLAGS.RF, which the processor would clear at the end of
 * the instruction (SDM vol. 3B 18.3.1.1). Pure functions.
 */
#ifndef KVMSCOPE_DEBUG_DEBUG_SKIPPED_H
#define KVMSCOPE_DEBUG_DEBUG_SKIPPED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DEBUG_SKIPPED_SIZE_MAX 15

/*
 * Length in bytes of the instruction in the SIZE bytes at CODE, in 64-bit mode or not; 0 if it is
 * not one of them. Stores to MMIO of a device or the local APIC are not covered, although they may
 * be skipped: the instruction does not show what its operand is.
 */
size_t debug_skipped_length(const uint8_t *code, size_t size, bool long_mode);

#endif
