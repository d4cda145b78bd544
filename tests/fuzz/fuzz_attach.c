// SPDX-License-Identifier: Apache-2.0
/* What a VMM's process says of itself in /proc: its threads' names, its descriptors' links, its mappings. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/attach/memory_layout.h"
#include "vmm/attach/process.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);
	uint64_t hva, bytes;
	unsigned int id;
	int fd;

	memcpy(text, data, size);
	text[size] = '\0';
	if ((vmm_parse_vcpu_link(text, &id) || vmm_parse_thread_name(text, &id)) && id >= VMM_VCPUS_MAX)
		abort();
	if (vmm_parse_run_call(text, &fd) && fd < 0)
		abort();
	if (memory_layout_parse(text, &hva, &bytes) && hva + bytes < hva)
		abort();
	free(text);
	return 0;
}
