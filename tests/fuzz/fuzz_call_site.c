/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether an address follows a call, and where that leads, by arbitrary code. Input: struct header,
 * then the pages that repeat over the whole address space.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/mapped_pages.h"
#include "vmm/guest/unwind/call_site.h"

struct header {
	uint64_t address, ip;
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_code(const uint8_t *code, size_t size, uint64_t address)
{
	uint64_t target;

	for (size_t length = 0; length <= CALL_SITE_SIZE && length <= size; length++)
		if (call_site_target(code, length, address, &target) &&
		    !call_site_matches(code, length))
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct guest_region region = { .size = sizeof(guest_memory), .hva = guest_memory };
	struct guest_view view = { .regions = &region, .region_count = 1 };
	struct header header;
	enum user_call call;

	if (size < sizeof(header))
		return 0;
	memcpy(&header, data, sizeof(header));
	data += sizeof(header);
	size -= sizeof(header);
	check_code(data, size, header.address);
	mapped_pages_fill(data, size);
	call = user_call_classify(&view, &mapped_pages_paging, header.address, header.ip);
	if (call != USER_CALL_NONE && call != USER_CALL_ELSEWHERE && call != USER_CALL_UNKNOWN &&
	    call != USER_CALL_HERE)
		abort();
	return 0;
}
