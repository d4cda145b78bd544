/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is an address one that a call returns to? The code before it decides: a random number rarely
 * follows a CALL. Pure functions.
 */
#ifndef KVMSCOPE_GUEST_UNWIND_CALL_SITE_H
#define KVMSCOPE_GUEST_UNWIND_CALL_SITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

#endif
