/* SPDX-License-Identifier: Apache-2.0 */
/* A guest whose whole address space consists of a few pages of the input, repeated. */
#ifndef KVMSCOPE_TESTS_FUZZ_MAPPED_PAGES_H
#define KVMSCOPE_TESTS_FUZZ_MAPPED_PAGES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "vmm/guest/guest_registers.h"

#define PAGE   4096u
#define PAGES  8u
#define TABLES 4u

/* The pages, followed by the page tables. */
static _Alignas(4096) uint8_t guest_memory[(PAGES + TABLES) * PAGE];

static const struct guest_paging mapped_pages_paging = {
	.cr0 = 1ull << 31, .cr3 = PAGES * PAGE, .cr4 = 1 << 5, .efer = 1 << 10
};

/*
 * Every entry of a table points to the same next table; the entries of the last table point to the
 * pages in turn.
 */
static inline void mapped_pages_fill(const uint8_t *data, size_t size)
{
	memset(guest_memory, 0, sizeof(guest_memory));
	memcpy(guest_memory, data, size < PAGES * PAGE ? size : PAGES * PAGE);
	for (unsigned int table = 0; table < TABLES; table++)
		for (unsigned int i = 0; i < 512; i++) {
			uint64_t to = table + 1 < TABLES ? PAGES + table + 1 : i % PAGES;
			uint64_t entry = to * PAGE | 7; /* present, writable, user */

			memcpy(guest_memory + (PAGES + table) * (size_t)PAGE + i * 8ul, &entry,
			       sizeof(entry));
		}
}

#endif
