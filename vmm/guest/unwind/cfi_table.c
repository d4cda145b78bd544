/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/guest/unwind/cfi_table.h"

#include <stdlib.h>

static const struct cfi_rule no_rule;

/* Branch-free inside the loop: which half it is can not be foretold. */
const struct cfi_rule *cfi_table_find(const struct cfi_table *table, uint64_t offset)
{
	const uint32_t *base = table->starts;
	uint32_t left = table->count, wanted = (uint32_t)offset;

	if (!left || offset > UINT32_MAX || wanted < base[0])
		return &no_rule;
	while (left > 1) {
		uint32_t half = left / 2;

		base += base[half] <= wanted ? half : 0;
		left -= half;
	}
	return &table->rules[table->rule_of[base - table->starts]];
}

size_t cfi_table_size(const struct cfi_table *table)
{
	return sizeof(*table) + table->count * (sizeof(*table->starts) + sizeof(*table->rule_of)) +
	       table->rule_count * sizeof(*table->rules);
}

void cfi_table_free(struct cfi_table *table)
{
	if (!table)
		return;
	free((void *)(uintptr_t)table->starts);
	free((void *)(uintptr_t)table->rule_of);
	free((void *)(uintptr_t)table->rules);
	free(table);
}
