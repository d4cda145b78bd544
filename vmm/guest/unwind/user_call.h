/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is an address that was found by a frame pointer that of a caller? A program without frame
 * pointers can have anything in that register. If it points to the stack, the words there may be
 * the return address of a finished call, or of a caller further out. Guest memory rules out some of
 * these.
 */
#ifndef KVMSCOPE_GUEST_UNWIND_USER_CALL_H
#define KVMSCOPE_GUEST_UNWIND_USER_CALL_H

#include <stdint.h>

#include "vmm/guest/guest_registers.h"
#include "vmm/guest/guest_view.h"

enum user_call {
	USER_CALL_NONE,      /* not executable in user space, or not after a call */
	USER_CALL_ELSEWHERE, /* the call leads to another function */
	USER_CALL_UNKNOWN,   /* an indirect call */
	USER_CALL_HERE,
};

/*
 * Classifies ADDRESS as the return address of the function at IP, both in user space, by the page
 * tables (user, executable; SDM vol. 3A 4.6) and the CALL before it, followed through a PLT. HERE:
 * the call leads to IP or up to 64 KiB before it, the maximum size of nearly all functions. For
 * 32-bit code ELSEWHERE is not reliable, as it has other kinds of PLTs. On the vCPU thread: no
 * lock, allocation or system call except those of VIEW.
 */
enum user_call user_call_classify(const struct guest_view *view, const struct guest_paging *paging,
				  uint64_t address, uint64_t ip);

#endif
