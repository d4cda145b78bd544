/* SPDX-License-Identifier: Apache-2.0 */
/* Decoding of guest instructions for watches. Pure functions. */
#ifndef KVMSCOPE_DEBUG_DEBUG_INSTRUCTIONS_H
#define KVMSCOPE_DEBUG_DEBUG_INSTRUCTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/debug/debug_registers.h"

/*
 * Emulates the guest's MOV to or from a debug register (SDM vol. 2B, "MOV - Move to/from Debug
 * Registers") after DR7.GD has stopped it: a single step would cost another exit. Cases that are
 * not plain are left to the processor: false, with nothing done.
 */
#define DEBUG_MOVE_SIZE_MAX 4

struct debug_move {
	uint8_t length; /* bytes */
	uint8_t debug; /* DR0 to DR7; DR4 and DR5 are aliases of DR6 and DR7 (SDM vol. 3B 18.2.2) */
	uint8_t general; /* as encoded: RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8 to R15 */
	bool to_debug;
};

/* True if the SIZE bytes at CODE are such an instruction in 64-bit mode. */
bool debug_move_decode(const uint8_t *code, size_t size, struct debug_move *move);

/* True if it raises #UD: DR4 or DR5 with CR4.DE. */
bool debug_move_is_undefined(const struct debug_move *move, uint64_t cr4);

/* Writes VALUE to the guest's register as the processor would, if that raises no exception. */
bool debug_move_write(const struct debug_move *move, uint64_t value, struct debug_registers *guest);

uint64_t debug_move_read(const struct debug_move *move, const struct debug_registers *guest);

/*
 * Instructions that exit and that KVM then skips without its emulator.
 * kvm_skip_emulated_instruction() keeps RFLAGS.RF, which the processor would clear at the end of
 * the instruction (SDM vol. 3B 18.3.1.1).
 */
#define DEBUG_SKIPPED_SIZE_MAX 15

/*
 * Length in bytes of the instruction in the SIZE bytes at CODE, in 64-bit mode or not; 0 if it is
 * not one of them. Stores to MMIO of a device or the local APIC are not covered, although they may
 * be skipped: the instruction does not show what its operand is.
 */
size_t debug_skipped_length(const uint8_t *code, size_t size, bool long_mode);

#endif
