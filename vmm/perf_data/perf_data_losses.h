/* SPDX-License-Identifier: Apache-2.0 */
/* The counts of losses in a perf.data file: a block in its rounds (docs/perf-data.md). */
#ifndef KVMSCOPE_PERF_DATA_PERF_DATA_LOSSES_H
#define KVMSCOPE_PERF_DATA_PERF_DATA_LOSSES_H

#include <stdbool.h>

#include "shared/bytes.h"
#include "shared/loss_counts.h"
#include "shared/span.h"

/* Appends the counts. */
void perf_data_losses_add(struct bytes *to, const struct losses *losses);

/* Reads them; kinds that the writer did not know are 0, those that we do not know are left out.
 * Hostile bytes. */
void perf_data_losses_parse(struct losses *losses, struct span content);

#endif
