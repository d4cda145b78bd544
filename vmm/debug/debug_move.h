/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MOV to and from a debug register (SDM vol. 2B, "MOV - Move to/from Debug
 * Registers"), done for the guest when DR7.GD has stopped it at one: a single
 * step would be an exit more. What is not plain is left to the processor:
 * false, and nothing is done. Pure functions.
 */
#ifndef KVMSCOPE_DEBUG_DEBUG_MOVE_H
#define KVMSCOPE_DEBUG_DEBUG_MOVE_H

#include <stddef.h>

#include "vmm/debug/debug_registers.h"

#define DEBUG_MOVE_SIZE_MAX 4

struct debug_move {
	uint8_t length;  /* bytes */
	uint8_t debug;   /* DR0 to DR7; DR4 and DR5 are other names of DR6 and DR7 (SDM vol.
			    3B 18.2.2) */
	uint8_t general; /* as the instruction has it: RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8 to
			    R15 */
	bool to_debug;
};

/* The SIZE bytes at CODE are such an instruction of 64-bit mode. */
bool debug_move_decode(const uint8_t *code, size_t size, struct debug_move *move);

/* It is #UD instead: DR4 or DR5, with CR4.DE. */
bool debug_move_is_undefined(const struct debug_move *move, uint64_t cr4);

/* Writes VALUE into the guest's register, as the processor would and without an exception. */
bool debug_move_write(const struct debug_move *move, uint64_t value, struct debug_registers *guest);

uint64_t debug_move_read(const struct debug_move *move, const struct debug_registers *guest);

#endif
