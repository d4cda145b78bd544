/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/build_id_note.h"

#define NT_GNU_BUILD_ID 3

size_t build_id_find(struct span notes, uint8_t *id, size_t capacity)
{
	uint32_t header[3]; /* size of name, size of description, type */
	uint64_t at = 0;

	while (span_copy(notes, at, header, sizeof(header))) {
		uint64_t name = at + sizeof(header);
		uint64_t description = name + ((header[0] + 3ull) & ~3ull);
		const char *owner = span_string(notes, name);

		if (header[2] == NT_GNU_BUILD_ID && header[0] == 4 && owner &&
		    !strcmp(owner, "GNU") && header[1] && header[1] <= capacity &&
		    span_copy(notes, description, id, header[1]))
			return header[1];
		at = description + ((header[1] + 3ull) & ~3ull);
	}
	return 0;
}
