/* SPDX-License-Identifier: Apache-2.0 */
/* A set of addresses, as ranges. One thread. */
#ifndef KVMSCOPE_RECORD_ADDRESS_RANGES_H
#define KVMSCOPE_RECORD_ADDRESS_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* [start, end), not empty. */
struct address_range {
	uint64_t start, end;
};

/* Zeroed: none yet. */
struct address_ranges {
	struct address_range *ranges; /* owned; by address, none touches the next one */
	size_t count;
};

/* Limit for what a guest can cause; more are refused. */
#define ADDRESS_RANGES_MAX 4096

/* 0; -ENOMEM, or -ENOSPC for too many, with the set unchanged. */
int address_ranges_add(struct address_ranges *set, struct address_range range);

/* Is any address of RANGE in it? */
bool address_ranges_overlap(const struct address_ranges *set, struct address_range range);

/* Frees what it holds; zeroed, it holds nothing. */
void address_ranges_free(struct address_ranges *set);

#endif
