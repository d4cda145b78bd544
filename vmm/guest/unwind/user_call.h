/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is an address that a frame pointer led to one of a caller? A program that was built without frame
 * pointers has any number in that register. Where it is an address of the stack, words that are
 * found there may be a return address of a call that is over, or that of a caller further out. The
 * guest's memory tells some of that.
 */
#ifndef KVMSCOPE_GUEST_UNWIND_USER_CALL_H
#define KVMSCOPE_GUEST_UNWIND_USER_CALL_H

#include <stdint.h>

#include "vmm/guest/guest_registers.h"
#include "vmm/guest/guest_view.h"

enum user_call {
	USER_CALL_NONE,      /* no user code may run there, or it is behind no call */
	USER_CALL_ELSEWHERE, /* the call leads to something else than the code that was left */
	USER_CALL_UNKNOWN,   /* it is one through a register or memory: where to, its code does not
			       tell */
	USER_CALL_HERE,
};

/*
 * What ADDRESS is that the function of IP is said to return to: both in user space. Of 32-bit code
 * ELSEWHERE says nothing: the PLTs that it calls through are of other kinds. By the page tables
 * (user, executable; SDM vol. 3A 4.6) and the CALL before it, through a PLT where it leads to one.
 * HERE: it calls what begins at IP or up to 64 KiB before, which is longer than all but a few
 * functions are. On the vCPU thread: no lock, allocation or system call but those of VIEW.
 */
enum user_call user_call_classify(const struct guest_view *view, const struct guest_paging *paging,
				  uint64_t address, uint64_t ip);

#endif
