// SPDX-License-Identifier: Apache-2.0
#include "vmm/perf_data/perf_data_losses.h"

void perf_data_losses_add(struct bytes *to, const struct losses *losses)
{
	for (int i = 0; i < LOSS_COUNT; i++)
		bytes_add_u64(to, losses->counts[i]);
}

void perf_data_losses_parse(struct losses *losses, struct span content)
{
	*losses = (struct losses){ 0 };
	for (uint64_t i = 0; i < LOSS_COUNT; i++)
		span_u64(content, 8 * i, &losses->counts[i]);
}
