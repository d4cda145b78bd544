/* SPDX-License-Identifier: Apache-2.0 */
/* Decimal numbers in text: of users, and of others who may have written anything. */
#ifndef KVMSCOPE_SHARED_DECIMAL_H
#define KVMSCOPE_SHARED_DECIMAL_H

#include <stdint.h>

/*
 * Reads the number that TEXT starts with, which may be MOST at most; neither a
 * sign nor spaces stand before it. Returns what follows it, or NULL, with
 * NUMBER as it was, where TEXT starts with no such number.
 */
const char *decimal_read(const char *text, uint64_t most, uint64_t *number);

#endif
