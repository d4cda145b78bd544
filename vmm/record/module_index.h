/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds members of an array by a number: a hash of the name, or an address. Lookup returns the
 * latest member first, and also members with another number in the same bucket: the caller
 * compares. One thread.
 */
#ifndef KVMSCOPE_RECORD_MODULE_INDEX_H
#define KVMSCOPE_RECORD_MODULE_INDEX_H

#include <stddef.h>
#include <stdint.h>

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

#endif
