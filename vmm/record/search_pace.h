/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a guest's memory is searched for a kernel again, after it had none. A guest that has just
 * begun, or has changed since, is searched at once; one that stays as it was more and more seldom;
 * and all of it takes no more than a part of a processor, but for a start (cpu_budget.h).
 *
 * Zeroed: the guest has just begun. All on one thread; times are ns of one clock.
 */
#ifndef KVMSCOPE_RECORD_SEARCH_PACE_H
#define KVMSCOPE_RECORD_SEARCH_PACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/cpu_budget.h"
#include "vmm/guest/guest_registers.h"

/* Between two searches: at first, growing by half each time; of a guest that changes; of one that
 * does not.
 */
#define SEARCH_PAUSE_MIN     20000000ull
#define SEARCH_PAUSE_CHANGED 200000000ull
#define SEARCH_PAUSE_MAX     5000000000ull
/* So many places are known to be ones without a kernel. */
#define SEARCH_STATES 8

/* What a guest without a kernel does not change: whose page tables and handlers a vCPU had. */
struct search_state {
	uint64_t cr3, idt_base;
	bool upper; /* its code was in the upper half, where kernels are */
};

struct search_pace {
	uint64_t pause;         /* behind the latest search; 0: there was none */
	uint64_t last;          /* when the latest ended */
	struct cpu_budget work; /* that it took */
	struct search_state places[SEARCH_STATES];
	size_t count; /* of searches since nothing is known of the guest */
};

/* May it be searched at NOW, whatever its registers are? For who would not ask for them otherwise.
 */
bool search_pace_allows(const struct search_pace *pace, uint64_t now);
/* Is it to be, where REGISTERS are of a vCPU? */
bool search_pace_is_due(const struct search_pace *pace, const struct guest_registers *registers,
			uint64_t now);

/* It was, by REGISTERS; the search ended at NOW and took WORK ns of a processor. */
void search_pace_searched(struct search_pace *pace, const struct guest_registers *registers,
			  uint64_t now, uint64_t work);

/* It has lost the kernel that it had: nothing is known of it, but for what was done already. */
void search_pace_reset(struct search_pace *pace);

/* Was it searched for a while? */
bool search_pace_is_slow(const struct search_pace *pace);

#endif
