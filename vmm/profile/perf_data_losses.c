// SPDX-License-Identifier: Apache-2.0
#include "vmm/profile/perf_data_losses.h"

#define MAGIC 0x73736f6c736d766bull /* "kvmsloss" */

bool perf_data_losses_add(struct bytes *to, const struct losses *losses)
{
	if (!losses_any(losses))
		return false;
	bytes_add_u64(to, MAGIC);
	bytes_add_u64(to, LOSS_COUNT);
	for (int i = 0; i < LOSS_COUNT; i++)
		bytes_add_u64(to, losses->counts[i]);
	return true;
}

bool perf_data_losses_parse(struct losses *losses, struct span content)
{
	struct losses read = { 0 };
	uint64_t magic, count;

	if (!span_u64(content, 0, &magic) || magic != MAGIC || !span_u64(content, 8, &count) ||
	    count > content.size / 8 || !span_contains(content, 16, 8 * count))
		return false;
	for (uint64_t i = 0; i < count && i < LOSS_COUNT; i++)
		span_u64(content, 16 + 8 * i, &read.counts[i]);
	*losses = read;
	return true;
}
