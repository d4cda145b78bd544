/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is an address one that a call returns to? What stands before it in the code tells: a number that
 * only looks like a return address rarely lies behind a CALL. Pure.
 */
#ifndef KVMSCOPE_GUEST_UNWIND_CALL_SITE_H
#define KVMSCOPE_GUEST_UNWIND_CALL_SITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the longest near CALL without prefixes: SDM vol. 2A, CALL; 2.1.5, tables 2-2 and 2-3. */
#define CALL_SITE_SIZE 7

/*
 * CODE is the SIZE bytes before the address, in 64-bit mode; fewer than CALL_SITE_SIZE where the
 * page begins there: a longer CALL is not seen then. True if some CALL ends with them.
 */
bool call_site_matches(const uint8_t *code, size_t size);

/*
 * Of the same CODE before ADDRESS: where its CALL leads to. False: there is none, or one through a
 * register or memory, which the code does not tell of.
 */
bool call_site_target(const uint8_t *code, size_t size, uint64_t address, uint64_t *target);

#endif
