/* SPDX-License-Identifier: Apache-2.0 */
/* Input: BTF, or with a first byte of 0 ELF notes. */
#include "vmm/guest/btf.h"
#include "vmm/guest/build_id.h"
#include "vmm/guest/modules.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct module_layout layout;
	uint8_t id[GUEST_BUILD_ID_MAX];
	struct btf btf;

	if (size && !*data)
		build_id_find(span_of(data + 1, size - 1), id, sizeof(id));
	if (btf_open(&btf, span_of(data, size)))
		return 0;
	module_layout_read(&layout, &btf);
	for (uint32_t id_of_type = 0; id_of_type < btf.count + 1; id_of_type++) {
		struct btf_member member;

		btf_find_member(&btf, id_of_type, "base", &member);
		btf_size(&btf, btf_element(&btf, id_of_type));
	}
	btf_close(&btf);
	return 0;
}
