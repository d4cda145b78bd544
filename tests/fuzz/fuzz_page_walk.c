/* SPDX-License-Identifier: Apache-2.0 */
/* Input: struct header, then guest memory from GPA 0. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "vmm/guest/page_walk.h"

struct header {
	struct guest_paging paging;
	uint64_t gva;
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct guest_region region;
	struct guest_view view = { .regions = &region, .region_count = 1 };
	struct header header;
	uint8_t bytes[9000];
	char text[300];

	if (size < sizeof(header))
		return 0;
	memcpy(&header, data, sizeof(header));
	region = (struct guest_region){ .size = size - sizeof(header),
					.hva = data + sizeof(header) };
	guest_read_virtual(&view, &header.paging, header.gva, bytes, sizeof(bytes));
	guest_read_string(&view, &header.paging, header.gva, text, sizeof(text));
	return 0;
}
