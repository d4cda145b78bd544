/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is an address one that a call returns to? The code before it decides: a random number rarely
 * follows a CALL.
 */
#ifndef KVMSCOPE_GUEST_UNWIND_CALL_SITE_H
#define KVMSCOPE_GUEST_UNWIND_CALL_SITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/guest/guest_registers.h"
#include "vmm/guest/guest_view.h"

/* Bytes of the longest near CALL without prefixes: SDM vol. 2A, CALL; 2.1.5, tables 2-2 and 2-3. */
#define CALL_SITE_SIZE 7

/*
 * True if CODE, the SIZE bytes before the address in 64-bit mode, can end with a CALL. With fewer
 * than CALL_SITE_SIZE bytes, at the start of a page, longer CALLs are not recognized.
 */
bool call_site_matches(const uint8_t *code, size_t size);

/*
 * Sets *TARGET to the target of the CALL before ADDRESS. False: there is no CALL, or an indirect
 * one.
 */
bool call_site_target(const uint8_t *code, size_t size, uint64_t address, uint64_t *target);

/*
 * Whether an address that was found by a frame pointer is that of a caller. A program without frame
 * pointers can have anything in the register. If it points to the stack, the word there may be the
 * return address of a finished call, or of a caller further out.
 */
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
