/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When guest memory is searched again for a kernel after it had none. A guest that has just started
 * or has changed is searched at once, one that stays the same at growing intervals. Apart from the
 * start, all searches together get a fixed share of one CPU (cpu_budget.h).
 *
 * Zeroed: the guest has just started. One thread; times are ns of one clock.
 */
#ifndef KVMSCOPE_RECORD_SEARCH_PACE_H
#define KVMSCOPE_RECORD_SEARCH_PACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/cpu_budget.h"
#include "vmm/guest/guest_registers.h"

/* ns between two searches: at first, growing by half each time; for a guest that changes; for one
 * that does not. */
#define SEARCH_PAUSE_MIN     20000000ull
#define SEARCH_PAUSE_CHANGED 200000000ull
#define SEARCH_PAUSE_MAX     5000000000ull
/* Remembered states without a kernel. */
#define SEARCH_STATES 8

/* What stays the same in a guest without a kernel: page tables and handlers of a vCPU. */
struct search_state {
	uint64_t cr3, idt_base;
	bool upper; /* its code was in the upper half, where kernels are */
};

struct search_pace {
	uint64_t pause;         /* ns after the latest search; 0: there was none */
	uint64_t last;          /* ns, end of the latest search */
	struct cpu_budget work; /* that it took */
	struct search_state states[SEARCH_STATES];
	size_t count; /* of searches since the start */
};

/* Can a search be due at NOW, whatever the registers are? Saves reading them. */
bool search_pace_allows(const struct search_pace *pace, uint64_t now);
/* Is a search due at NOW, REGISTERS being those of a vCPU? */
bool search_pace_is_due(const struct search_pace *pace, const struct guest_registers *registers,
			uint64_t now);

/* A search with REGISTERS ended at NOW and took WORK ns of CPU time. */
void search_pace_searched(struct search_pace *pace, const struct guest_registers *registers,
			  uint64_t now, uint64_t work);

/* The kernel is gone: starts again. The CPU time that was used stays. */
void search_pace_reset(struct search_pace *pace);

/* Has it been searched for a while? */
bool search_pace_is_slow(const struct search_pace *pace);

#endif
