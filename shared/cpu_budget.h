/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rate limit for retries that have no wake-up, and for work that a guest causes: it may use
 * 1 / CPU_BUDGET_SHARE of one CPU over time, plus a burst at the start and at each refill.
 *
 * Zeroed: no CPU time was used. Times are ns of one clock. One thread at a time.
 */
#ifndef KVMSCOPE_SHARED_CPU_BUDGET_H
#define KVMSCOPE_SHARED_CPU_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#define CPU_BUDGET_SHARE 20
#define CPU_BUDGET_START 1000000000ull          /* ns, the burst at the start */
#define CPU_BUDGET_MAX   (8 * CPU_BUDGET_START) /* ns, all bursts together */

struct cpu_budget {
	uint64_t used;  /* ns of CPU time above the share, at TIME */
	uint64_t time;  /* of the last charge */
	uint64_t extra; /* ns allowed in addition to CPU_BUDGET_START */
};

/* True if more work may be done at NOW. */
bool cpu_budget_allows(const struct cpu_budget *budget, uint64_t now);

/* ns from NOW until it may be done; 0: now. */
uint64_t cpu_budget_wait(const struct cpu_budget *budget, uint64_t now);

/* Allows another burst, because there is a new reason to retry. */
void cpu_budget_refill(struct cpu_budget *budget);

/* Charges WORK ns of CPU time that were used up to NOW. */
void cpu_budget_charge(struct cpu_budget *budget, uint64_t now, uint64_t work);

/*
 * The cost in ns of work that took ELAPSED ns of wall-clock time and CPU_TIME ns on this thread.
 * When it mostly waited, it kept others busy, e.g. the disk with swapped-out memory: a share of
 * the elapsed time is then charged.
 */
uint64_t cpu_budget_cost(uint64_t elapsed, uint64_t cpu_time);

#endif
