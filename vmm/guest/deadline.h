/* SPDX-License-Identifier: Apache-2.0 */
/* Time limit of a stop. */
#ifndef KVMSCOPE_GUEST_DEADLINE_H
#define KVMSCOPE_GUEST_DEADLINE_H

#include <stdbool.h>
#include <stdint.h>

#include "shared/clock_ns.h"

/* DEADLINE is in ns of CLOCK_MONOTONIC_RAW; 0 means none. Reads the clock in the vDSO. */
static inline bool deadline_passed(uint64_t deadline)
{
	return deadline && clock_ns(CLOCK_MONOTONIC_RAW) >= deadline;
}

#endif
