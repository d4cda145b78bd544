/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which of an array's members have something in common: a number stands for what each has (a
 * name's hash, an address), and members come out by that, the one that was added last first. Others
 * may come with them, whose number falls into the same bucket: whoever asks compares. One thread.
 */
#ifndef KVMSCOPE_RECORD_MODULE_INDEX_H
#define KVMSCOPE_RECORD_MODULE_INDEX_H

#include <stddef.h>
#include <stdint.h>

/* Zeroed: none, which may be closed. */
struct module_index {
	uint32_t *heads, *next; /* owned; members, from 1 on; 0: there is none */
	size_t bits;            /* of a bucket's number */
};

/* For members below COUNT, which is below 2^31. 0 or -ENOMEM. */
int module_index_open(struct module_index *index, size_t count);
/* Frees what it holds; zeroed, it holds nothing. */
void module_index_close(struct module_index *index);

/* MEMBER was not added before. */
void module_index_add(struct module_index *index, uint64_t number, size_t member);

#define MODULE_INDEX_END SIZE_MAX
/* Members that NUMBER may be of, one after the other, up to MODULE_INDEX_END. */
size_t module_index_first(const struct module_index *index, uint64_t number);
size_t module_index_next(const struct module_index *index, size_t member);

/* A number for NAME. */
uint64_t module_index_name(const char *name);

#endif
