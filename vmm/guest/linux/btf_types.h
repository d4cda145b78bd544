/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A reader of BTF (Documentation/bpf/btf.rst) for one purpose: where members
 * of a guest kernel's structures lie. The bytes are the guest's: every
 * offset is checked, every chain of types is bounded. Owns an index only.
 */
#ifndef KVMSCOPE_GUEST_LINUX_BTF_TYPES_H
#define KVMSCOPE_GUEST_LINUX_BTF_TYPES_H

#include <stdbool.h>
#include <stdint.h>

#include "shared/span.h"

/* A struct with a name. */
struct btf_struct {
	uint64_t name_key; /* by which it is looked for */
	uint32_t name, id;
};

struct btf {
	struct span types, strings; /* of the data given to btf_open() */
	uint32_t *offsets;          /* of each type in types, by id; owned */
	uint32_t count;             /* of types; ids are 1 to count - 1 */
	struct btf_struct *structs; /* by id; owned */
	uint32_t struct_count;
};

struct btf_member {
	uint32_t type;   /* id */
	uint32_t offset; /* bytes from the structure's start */
};

/* Indexes DATA, which must outlive BTF. -EINVAL, or -ENOMEM; BTF is then empty. */
int btf_open(struct btf *btf, struct span data);
/* Frees what it holds; zeroed, it holds nothing. */
void btf_close(struct btf *btf);

/* The id of struct NAME, 0 if there is none. */
uint32_t btf_find_struct(const struct btf *btf, const char *name);

/* Member NAME of the struct or union ID (or behind typedefs), in anonymous members too. */
bool btf_find_member(const struct btf *btf, uint32_t id, const char *name,
		     struct btf_member *member);

/*
 * *OFFSET becomes that of member NAME of struct TYPE, which has at least SIZE bytes from there.
 * False: there is none.
 */
bool btf_find_offset(const struct btf *btf, const char *type, const char *name, uint32_t size,
		     uint32_t *offset);

/* The type that pointer or array ID is made of, modifiers and typedefs skipped; 0 if it is neither.
 */
uint32_t btf_element(const struct btf *btf, uint32_t id);

/* The number of elements of array ID, 0 if it is none. */
uint32_t btf_array_length(const struct btf *btf, uint32_t id);

/* The size in bytes of struct, union or integer ID, 0 if it has none. */
uint32_t btf_size(const struct btf *btf, uint32_t id);

/* The value of enumerator NAME of any 32-bit enum. */
bool btf_find_enumerator(const struct btf *btf, const char *name, uint32_t *value);

#endif
