/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Emulates the guest's MOV to or from a debug register (SDM vol. 2B, "MOV - Move to/from Debug
 * Registers") after DR7.GD has stopped it: a single step would cost another exit. Cases that are
 * not plain are left to the processor: false, with nothing done. Pure functions.
 */
#ifndef KVMSCOPE_DEBUG_DEBUG_MOVE_H
#define KVMSCOPE_DEBUG_DEBUG_MOVE_H

#include <stddef.h>

#include "vmm/debug/debug_registers.h"

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

#endif
