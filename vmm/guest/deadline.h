/* SPDX-License-Identifier: Apache-2.0 */
/* The end of the time that a stop may take. */
#ifndef KVMSCOPE_GUEST_DEADLINE_H
#define KVMSCOPE_GUEST_DEADLINE_H

#include <stdbool.h>
#include <stdint.h>

#include "shared/clock_ns.h"

/* DEADLINE in ns of CLOCK_MONOTONIC_RAW; 0: there is none. No system call: the vDSO has the clock.
 */
static inline bool deadline_passed(uint64_t deadline)
{
	return deadline && clock_ns(CLOCK_MONOTONIC_RAW) >= deadline;
}

#endif
