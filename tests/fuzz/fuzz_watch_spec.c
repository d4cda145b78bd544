/* SPDX-License-Identifier: Apache-2.0 */
/* Input: the text of a watch, as users and clients of the control socket write it. */
#include <stdlib.h>
#include <string.h>

#include "vmm/debug/watch_spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1), name[64];
	struct watch_spec spec;

	memcpy(text, data, size);
	text[size] = '\0';
	if (!watch_spec_parse(&spec, text)) {
		struct breakpoint breakpoint = { 0, spec.kind, spec.length };

		watch_spec_name(&spec, name, sizeof(name));
		if (!breakpoint_valid(&breakpoint) || !spec.period || strlen(name) >= sizeof(name))
			abort();
	}
	free(text);
	return 0;
}
