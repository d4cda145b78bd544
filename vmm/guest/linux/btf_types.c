/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/linux/btf_types.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shared/array.h"

#define MAGIC     0xeb9f
#define DEPTH_MAX 16 /* typedefs and anonymous members in a row */
/* Members visited by one search, nested anonymous ones included: ten times a large kernel struct.
 */
#define MEMBERS_MAX 16384

enum kind {
	KIND_INT = 1,
	KIND_POINTER,
	KIND_ARRAY,
	KIND_STRUCT,
	KIND_UNION,
	KIND_ENUM,
	KIND_FORWARD,
	KIND_TYPEDEF,
	KIND_VOLATILE,
	KIND_CONST,
	KIND_RESTRICT,
	KIND_FUNCTION,
	KIND_PROTOTYPE,
	KIND_VARIABLE,
	KIND_SECTION,
	KIND_FLOAT,
	KIND_DECLARATION_TAG,
	KIND_TYPE_TAG,
	KIND_ENUM64,
};

struct type {
	uint32_t name, info, size_or_type;
};

static enum kind type_kind(const struct type *type)
{
	return type->info >> 24 & 0x1f;
}

static uint32_t type_length(const struct type *type)
{
	return type->info & 0xffff;
}

/* Number of bytes that follow a type of this kind; false for an unknown kind. */
static bool trailing_size(const struct type *type, uint64_t *size)
{
	static const struct {
		uint8_t fixed, each;
	} sizes[] = {
		[KIND_INT] = { 4, 0 },       [KIND_POINTER] = { 0, 0 },
		[KIND_ARRAY] = { 12, 0 },    [KIND_STRUCT] = { 0, 12 },
		[KIND_UNION] = { 0, 12 },    [KIND_ENUM] = { 0, 8 },
		[KIND_PROTOTYPE] = { 0, 8 }, [KIND_VARIABLE] = { 4, 0 },
		[KIND_SECTION] = { 0, 12 },  [KIND_DECLARATION_TAG] = { 4, 0 },
		[KIND_ENUM64] = { 0, 12 },
	};
	enum kind kind = type_kind(type);

	if (kind < KIND_INT || kind > KIND_ENUM64)
		return false;
	*size = sizes[kind].fixed + (uint64_t)sizes[kind].each * type_length(type);
	return true;
}

static bool read_type(const struct btf *btf, uint32_t id, struct type *type)
{
	return id && id < btf->count &&
	       span_copy(btf->types, btf->offsets[id], type, sizeof(*type));
}

/* Offset of the members, enumerators and so on of type ID. */
static uint64_t trailing(const struct btf *btf, uint32_t id)
{
	return btf->offsets[id] + sizeof(struct type);
}

/* The first bytes of a name: nearly every other name has different ones. */
static uint64_t name_key(const char *name, uint64_t size)
{
	uint64_t key = 0;

	memcpy(&key, name, strnlen(name, size < sizeof(key) ? size : sizeof(key)));
	return key;
}

static bool name_is(const struct btf *btf, uint32_t name, const char *wanted)
{
	size_t size = strlen(wanted) + 1;

	return span_contains(btf->strings, name, size) &&
	       !memcmp(btf->strings.data + name, wanted, size);
}

static int add_offset(struct btf *btf, uint32_t offset)
{
	if (array_reserve(&btf->offsets, &btf->capacity, btf->count + 1))
		return -ENOMEM;
	btf->offsets[btf->count++] = offset;
	return 0;
}

/* Adds the type that was indexed last, a struct named NAME. */
static int add_struct(struct btf *btf, uint32_t name)
{
	const char *text = (const char *)btf->strings.data + name;

	if (array_reserve(&btf->structs, &btf->struct_capacity, btf->struct_count + 1))
		return -ENOMEM;
	btf->structs[btf->struct_count++] =
		(struct btf_struct){ .name_key = name_key(text, btf->strings.size - name),
				     .name = name,
				     .id = (uint32_t)btf->count - 1 };
	return 0;
}

static int index_types(struct btf *btf)
{
	uint64_t at = 0;
	int error = add_offset(btf, 0); /* id 0 is void */

	while (!error && at < btf->types.size) {
		struct type type;
		uint64_t size;

		if (!span_copy(btf->types, at, &type, sizeof(type)) ||
		    !trailing_size(&type, &size) ||
		    !span_contains(btf->types, at + sizeof(type), size))
			return -EINVAL;
		error = add_offset(btf, (uint32_t)at);
		if (!error && type_kind(&type) == KIND_STRUCT && type.name < btf->strings.size)
			error = add_struct(btf, type.name);
		at += sizeof(type) + size;
	}
	return error;
}

int btf_open(struct btf *btf, struct span data)
{
	uint32_t header_size, part[4];
	uint16_t magic;
	int error = -EINVAL;

	memset(btf, 0, sizeof(*btf));
	if (span_u16(data, 0, &magic) && magic == MAGIC && span_u32(data, 4, &header_size) &&
	    span_copy(data, 8, part, sizeof(part)) && data.size <= UINT32_MAX &&
	    span_part(data, (uint64_t)header_size + part[0], part[1], &btf->types) &&
	    span_part(data, (uint64_t)header_size + part[2], part[3], &btf->strings))
		error = index_types(btf);
	if (error)
		btf_close(btf);
	return error;
}

void btf_close(struct btf *btf)
{
	free(btf->offsets);
	free(btf->structs);
	memset(btf, 0, sizeof(*btf));
}

uint32_t btf_find_struct(const struct btf *btf, const char *name)
{
	uint64_t key = name_key(name, UINT64_MAX);

	for (size_t i = 0; i < btf->struct_count; i++)
		if (btf->structs[i].name_key == key && name_is(btf, btf->structs[i].name, name))
			return btf->structs[i].id;
	return 0;
}

/* Skips typedefs and qualifiers; 0 if they do not end. */
static uint32_t resolve(const struct btf *btf, uint32_t id, struct type *type)
{
	for (int depth = 0; depth < DEPTH_MAX && read_type(btf, id, type); depth++) {
		switch (type_kind(type)) {
		case KIND_TYPEDEF:
		case KIND_VOLATILE:
		case KIND_CONST:
		case KIND_RESTRICT:
		case KIND_TYPE_TAG:
			id = type->size_or_type;
			break;
		default:
			return id;
		}
	}
	return 0;
}

/* LEFT: number of members that may still be visited. */
static bool find_member(const struct btf *btf, uint32_t id, const char *name,
			struct btf_member *member, int depth, uint32_t *left)
{
	struct type type;

	id = resolve(btf, id, &type);
	if (!id || depth > DEPTH_MAX ||
	    (type_kind(&type) != KIND_STRUCT && type_kind(&type) != KIND_UNION))
		return false;
	for (uint32_t i = 0; i < type_length(&type) && *left; i++) {
		struct {
			uint32_t name, type, offset;
		} raw;
		uint32_t bits;

		--*left;
		if (!span_copy(btf->types, trailing(btf, id) + i * sizeof(raw), &raw, sizeof(raw)))
			return false;
		/* With the flag, the upper bits are the size of a bit-field. */
		bits = type.info >> 31 ? raw.offset & 0xffffff : raw.offset;
		if (raw.name ? name_is(btf, raw.name, name)
			     : find_member(btf, raw.type, name, member, depth + 1, left)) {
			member->offset = bits / 8 + (raw.name ? 0 : member->offset);
			member->type = raw.name ? raw.type : member->type;
			return true;
		}
	}
	return false;
}

bool btf_find_member(const struct btf *btf, uint32_t id, const char *name,
		     struct btf_member *member)
{
	uint32_t left = MEMBERS_MAX;
	struct btf_member found;

	if (!find_member(btf, id, name, &found, 0, &left))
		return false;
	*member = found;
	return true;
}

/* The three words of array ID: element type, index type, length. */
static bool read_array(const struct btf *btf, uint32_t id, uint32_t words[3])
{
	struct type type;

	id = resolve(btf, id, &type);
	return id && type_kind(&type) == KIND_ARRAY &&
	       span_copy(btf->types, trailing(btf, id), words, 12);
}

uint32_t btf_element(const struct btf *btf, uint32_t id)
{
	uint32_t words[3];
	struct type type;

	if (read_array(btf, id, words))
		return resolve(btf, words[0], &type);
	if (!resolve(btf, id, &type) || type_kind(&type) != KIND_POINTER)
		return 0;
	return resolve(btf, type.size_or_type, &type);
}

uint32_t btf_array_length(const struct btf *btf, uint32_t id)
{
	uint32_t words[3];

	return read_array(btf, id, words) ? words[2] : 0;
}

uint32_t btf_size(const struct btf *btf, uint32_t id)
{
	struct type type;

	if (!resolve(btf, id, &type))
		return 0;
	switch (type_kind(&type)) {
	case KIND_INT:
	case KIND_STRUCT:
	case KIND_UNION:
	case KIND_ENUM:
		return type.size_or_type;
	default:
		return 0;
	}
}

static bool find_in_enum(const struct btf *btf, uint32_t id, uint32_t length, const char *name,
			 uint32_t *value)
{
	for (uint32_t i = 0; i < length; i++) {
		uint32_t pair[2];

		if (!span_copy(btf->types, trailing(btf, id) + i * sizeof(pair), pair,
			       sizeof(pair)))
			return false;
		if (name_is(btf, pair[0], name)) {
			*value = pair[1];
			return true;
		}
	}
	return false;
}

bool btf_find_enumerator(const struct btf *btf, const char *name, uint32_t *value)
{
	struct type type;

	for (uint32_t id = 1; id < btf->count; id++)
		if (read_type(btf, id, &type) && type_kind(&type) == KIND_ENUM &&
		    find_in_enum(btf, id, type_length(&type), name, value))
			return true;
	return false;
}

/* Moves *PATH past its next name, and MEMBER to that member. */
static bool find_part(const struct btf *btf, const char **path, struct btf_member *member)
{
	size_t length = strcspn(*path, ".");
	struct btf_member part;
	char name[64];

	if (length >= sizeof(name))
		return false;
	memcpy(name, *path, length);
	name[length] = '\0';
	if (!btf_find_member(btf, member->type, name, &part))
		return false;
	member->type = part.type;
	member->offset += part.offset;
	*path += length + ((*path)[length] == '.');
	return true;
}

static bool find_path(const struct btf *btf, uint32_t id, const char *path,
		      struct btf_member *member)
{
	*member = (struct btf_member){ .type = id };
	while (*path)
		if (!member->type || !find_part(btf, &path, member))
			return false;
	return true;
}

bool btf_find_path(const struct btf *btf, const char *type, const char *path,
		   struct btf_member *member)
{
	return find_path(btf, btf_find_struct(btf, type), path, member);
}

bool btf_find_offsets(const struct btf *btf, const struct btf_offset *offsets, size_t count)
{
	const char *type = NULL;
	uint32_t id = 0, size = 0;

	for (size_t i = 0; i < count; i++) {
		struct btf_member member;

		/* A search for a type visits all structs. Members of one type are in sequence. */
		if (!type || strcmp(type, offsets[i].type) != 0) {
			type = offsets[i].type;
			id = btf_find_struct(btf, type);
			size = btf_size(btf, id);
		}
		if (!find_path(btf, id, offsets[i].path, &member) || size < offsets[i].size ||
		    member.offset > size - offsets[i].size)
			return false;
		*offsets[i].offset = member.offset;
	}
	return true;
}

bool btf_find_offset(const struct btf *btf, const char *type, const char *path, uint32_t size,
		     uint32_t *offset)
{
	return btf_find_offsets(btf, &(struct btf_offset){ type, path, size, offset }, 1);
}
