/* SPDX-License-Identifier: Apache-2.0 */
/* Names of instructions that KVM's instruction emulator (arch/x86/kvm/emulate.c) does not
 * support. */
#ifndef KVMSCOPE_KVM_INSTRUCTION_H
#define KVMSCOPE_KVM_INSTRUCTION_H

#include <stddef.h>
#include <stdint.h>

/* The mnemonic (or group) of the 64-bit mode instruction at BYTES, or NULL if it is not one of
 * them. Pure; reads at most SIZE bytes. */
const char *instruction_name(const uint8_t *bytes, size_t size);

#endif
