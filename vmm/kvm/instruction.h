/* SPDX-License-Identifier: Apache-2.0 */
/* Names for the instructions that KVM's instruction emulator (arch/x86/kvm/emulate.c) is known not
 * to do. */
#ifndef KVMSCOPE_KVM_INSTRUCTION_H
#define KVMSCOPE_KVM_INSTRUCTION_H

#include <stddef.h>
#include <stdint.h>

/*
 * The mnemonic (or the group) of the 64-bit mode instruction that starts at
 * BYTES, or NULL where it is none of those. Pure; reads at most SIZE bytes.
 */
const char *instruction_name(const uint8_t *bytes, size_t size);

#endif
