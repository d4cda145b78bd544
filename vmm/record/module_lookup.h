/* SPDX-License-Identifier: Apache-2.0 */
/* Lookups for the timeline of modules: by name or address, by range, and sets of addresses. One
 * thread at a time. */
#ifndef KVMSCOPE_RECORD_MODULE_LOOKUP_H
#define KVMSCOPE_RECORD_MODULE_LOOKUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/guest/linux/guest_kernel.h"

/* --- Members of an array by a number: a hash of the name, or an address. The latest member is
 * first. Members with another number in the same bucket are returned, too: the caller compares. */

/* Zeroed: empty; closing it is allowed. */
struct module_index {
	uint32_t *heads, *next; /* owned; indices of members plus 1; 0: end */
	size_t bits;            /* of a bucket number */
};

/* For members below COUNT, which is below 2^31. 0 or -ENOMEM. */
int module_index_open(struct module_index *index, size_t count);
/* Frees what it holds; zeroed, it holds nothing. */
void module_index_close(struct module_index *index);

/* MEMBER was not added before. */
void module_index_add(struct module_index *index, uint64_t number, size_t member);

#define MODULE_INDEX_END SIZE_MAX
/* Members that may have NUMBER, up to MODULE_INDEX_END. */
size_t module_index_first(const struct module_index *index, uint64_t number);
size_t module_index_next(const struct module_index *index, size_t member);

/* A number for NAME. */
uint64_t module_index_name(const char *name);

/* --- Modules that overlap an address range; modules may overlap each other. ------- */

/* Zeroed: none. */
struct module_spans {
	struct module_span *spans; /* owned; by start */
	size_t count;
};

struct module_span {
	const struct guest_module *module;
	uint64_t reach; /* largest end of this one and those before it */
};

/* Room for COUNT. -ENOMEM. */
int module_spans_open(struct module_spans *spans, size_t count);
/* Frees what it holds; zeroed, it holds nothing. */
void module_spans_close(struct module_spans *spans);

/* Adds MODULE, which stays where it is; at most as many as there is room for. */
void module_spans_add(struct module_spans *spans, const struct guest_module *module);
/* After the last one was added. */
void module_spans_finish(struct module_spans *spans);

/* Iterates over the modules that overlap MODULE, until NULL; *AT is the position, 0 at first. The
 * time grows with the number of modules that start before MODULE and end after its start: few. */
const struct guest_module *module_spans_next(const struct module_spans *spans,
					     const struct guest_module *module, size_t *at);

/* --- A set of addresses, as ranges.
 * --------------------------------------------------------------- */

/* [start, end), not empty. */
struct address_range {
	uint64_t start, end;
};

/* Zeroed: none yet. */
struct address_ranges {
	struct address_range *ranges; /* owned; by address, none touches the next one */
	size_t count, capacity;
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
