/* SPDX-License-Identifier: Apache-2.0 */
/*
 * BTF reader (Documentation/bpf/btf.rst) that finds offsets of structure members. The bytes are the
 * guest's: every offset is checked and every chain of types is bounded. Owns only an index.
 */
#ifndef KVMSCOPE_GUEST_LINUX_BTF_TYPES_H
#define KVMSCOPE_GUEST_LINUX_BTF_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/span.h"

/* A named struct. */
struct btf_struct {
	uint64_t name_key; /* first bytes of the name, compared first */
	uint32_t name, id;
};

struct btf {
	struct span types, strings; /* parts of the data given to btf_open() */
	uint32_t *offsets;          /* of each type in types, by id; owned */
	size_t count, capacity;     /* of offsets; ids are 1 to count - 1 */
	struct btf_struct *structs; /* by id; owned */
	size_t struct_count, struct_capacity;
};

struct btf_member {
	uint32_t type;   /* id */
	uint32_t offset; /* bytes from the start of the structure */
};

/* Indexes DATA, which must outlive BTF. -EINVAL or -ENOMEM, with BTF empty. */
int btf_open(struct btf *btf, struct span data);
/* Frees the index. A zeroed BTF is empty. */
void btf_close(struct btf *btf);

/* The id of struct NAME, 0 if there is none. */
uint32_t btf_find_struct(const struct btf *btf, const char *name);
/* Member NAME of the struct or union ID, through typedefs and in anonymous members. */
bool btf_find_member(const struct btf *btf, uint32_t id, const char *name,
		     struct btf_member *member);
/* Member PATH, "name" or "name.name.name", of struct TYPE. */
bool btf_find_path(const struct btf *btf, const char *type, const char *path,
		   struct btf_member *member);

/* A request for the offset of a member that has at least SIZE bytes up to the end of its struct. */
struct btf_offset {
	const char *type;
	const char *path; /* as of btf_find_path() */
	uint32_t size;
	uint32_t *offset;
};

/* Fills in the offsets of all COUNT members. False if one is missing. */
bool btf_find_offsets(const struct btf *btf, const struct btf_offset *offsets, size_t count);
#define BTF_FIND_OFFSETS(btf, offsets)                                                             \
	btf_find_offsets(btf, offsets, sizeof(offsets) / sizeof((offsets)[0]))
/* The same for one member. */
bool btf_find_offset(const struct btf *btf, const char *type, const char *path, uint32_t size,
		     uint32_t *offset);

/* The target type of pointer or array ID, without modifiers and typedefs; 0 if it is neither. */
uint32_t btf_element(const struct btf *btf, uint32_t id);
/* The number of elements of array ID, 0 if it is not an array. */
uint32_t btf_array_length(const struct btf *btf, uint32_t id);
/* The size in bytes of struct, union or integer ID, 0 if it has none. */
uint32_t btf_size(const struct btf *btf, uint32_t id);
/* The value of enumerator NAME of any 32-bit enum. */
bool btf_find_enumerator(const struct btf *btf, const char *name, uint32_t *value);

#endif
