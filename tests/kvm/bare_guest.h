/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The smallest guest: a few bytes of 64-bit code, an identity mapping of the first GiB (all of it
 * accessible at CPL 3), a flat GDT, and no devices except the test's handlers. Runs on the local
 * /dev/kvm.
 */
#ifndef KVMSCOPE_TESTS_KVM_BARE_GUEST_H
#define KVMSCOPE_TESTS_KVM_BARE_GUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/kvm/vcpu.h"
#include "vmm/kvm/vm.h"

#define BARE_GUEST_TABLES 0x1000ull /* CR3 */
#define BARE_GUEST_CODE   0x10000ull
#define BARE_GUEST_STACK  0x90000ull
#define BARE_GUEST_MEMORY (16ull << 20)

/*
 * Creates VM and its vCPU 0, which starts at BARE_GUEST_CODE at CPL 0 or 3. Returns 0 or a negative
 * errno.
 */
int bare_guest_create(struct vm *vm, const struct vcpu_handlers *handlers, const void *code,
		      size_t size, int cpl);

/* True if /dev/kvm can be opened. */
bool bare_guest_possible(void);

#define BARE_GUEST_REQUIRED()                                                                      \
	do {                                                                                       \
		if (!bare_guest_possible())                                                        \
			SKIP("/dev/kvm cannot be opened");                                         \
	} while (0)

#endif
