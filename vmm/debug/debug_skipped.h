/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Instructions that leave the guest and that KVM then steps over without its emulator. Its
 * kvm_skip_emulated_instruction() leaves RFLAGS.RF as it is, where the processor would clear it
 * with the end of the instruction (SDM vol. 3B 18.3.1.1). Pure functions.
 */
#ifndef KVMSCOPE_DEBUG_DEBUG_SKIPPED_H
#define KVMSCOPE_DEBUG_DEBUG_SKIPPED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DEBUG_SKIPPED_SIZE_MAX 15

/*
 * The length of the instruction in the SIZE bytes at CODE, of 64-bit mode or not, in bytes; 0: it
 * is none of those. A store to a device's or the local APIC's memory, which may be skipped as well,
 * is none: memory tells by nothing what it is.
 */
size_t debug_skipped_length(const uint8_t *code, size_t size, bool long_mode);

#endif
