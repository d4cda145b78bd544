/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Input: an ELF image from offset 0, with everything that its program headers name. The target
 * reads its identity and looks up every byte in the resulting table.
 */
#include <stdlib.h>

#include "shared/span.h"
#include "vmm/guest/image_identity.h"
#include "vmm/guest/unwind/cfi_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int read_input(void *context, uint64_t offset, void *to, size_t size)
{
	return span_copy(*(const struct span *)context, offset, to, size) ? 0 : -1;
}

static void check(const struct cfi_table *table, size_t size)
{
	for (uint32_t i = 0; i < table->count; i++)
		if ((i && table->starts[i] <= table->starts[i - 1]) ||
		    table->rule_of[i] >= table->rule_count)
			abort();
	for (uint64_t offset = 0; offset <= size; offset++)
		if (cfi_table_find(table, offset)->cfa > CFI_CFA_PLT)
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct span input = span_of(data, size);
	struct elf_source source = { .read = read_input, .context = &input };
	struct image_identity identity;
	struct cfi_table *table;

	image_identity_read(&identity, &source);
	if (identity.build_id_size > IMAGE_BUILD_ID_MAX)
		abort();
	if (cfi_image_compile(&table, &source))
		return 0;
	check(table, size);
	cfi_table_free(table);
	return 0;
}
