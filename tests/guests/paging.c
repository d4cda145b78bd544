/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/guests/guest.h"

#define POOL_PAGES   32
#define ADDRESS_MASK 0x000ffffffffff000ull

static uint64_t pool[POOL_PAGES][512] __attribute__((aligned(4096)));
static unsigned int pool_used;

uint64_t *page_new(void)
{
	if (pool_used == POOL_PAGES)
		debug_exit(0xfc);
	return pool[pool_used++];
}

static uint64_t *next_table(uint64_t *table, uint64_t virtual, unsigned int shift, uint64_t flags)
{
	uint64_t *entry = &table[virtual >> shift & 511];

	if (!(*entry & PAGE_PRESENT))
		*entry = (uint64_t)page_new() | PAGE_PRESENT | PAGE_WRITABLE;
	*entry |= flags & PAGE_USER;
	return (uint64_t *)(*entry & ADDRESS_MASK);
}

void page_map(uint64_t *root, uint64_t virtual, uint64_t physical, uint64_t flags)
{
	uint64_t *directory = next_table(next_table(root, virtual, 39, flags), virtual, 30, flags);

	if (flags & PAGE_LARGE) {
		directory[virtual >> 21 & 511] = physical | flags | PAGE_PRESENT;
		return;
	}
	next_table(directory, virtual, 21, flags)[virtual >> 12 & 511] =
		physical | flags | PAGE_PRESENT;
}
