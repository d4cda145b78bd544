/* SPDX-License-Identifier: Apache-2.0 */
/* Watches, internally: state shared by all vCPUs, and state of each vCPU's thread. */
#ifndef KVMSCOPE_DEBUG_VCPU_WATCH_H
#define KVMSCOPE_DEBUG_VCPU_WATCH_H

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "vmm/debug/watches.h"

struct watch {
	struct watch_request request;
	int holder; /* of the arbiter; -1 once removed */
	bool armed;
	bool known;                  /* to the owner: `changed` may be called */
	uint64_t disarmed;           /* to the owner: `changed` may be called */
	uint64_t *addresses;         /* number of times that the address was removed */
	struct arbiter_times *times; /* one for each vCPU; owned */
};

/* One watch on one vCPU; written by the vCPU's thread only. */
struct watch_counts {
	uint64_t hits, throttled, suspended;
	uint64_t unreported;  /* hits since the last sample */
	uint64_t storm_began; /* ns */
	unsigned int storm_hits;
	enum watch_state state;
};

/* Written by the vCPU's thread only. */
struct vcpu_watches {
	bool entered;
	bool blocks_interrupts; /* KVM can block them in a single step */
	bool active;            /* KVM has our registers in the processor */
	uint64_t generation;    /* of the arbiter, at the last schedule */
	struct arbiter_schedule schedule;
	struct debug_registers guest; /* as last read */
	struct debug_plan armed;      /* in force */
	struct debug_plan shown;  /* copy for other threads, under the lock: without intermediate
				     single steps */
	uint8_t shown_lost;       /* likewise: slots that the guest uses but a watch has */
	bool followed;            /* likewise: `shown` includes the guest's breakpoints */
	int watches[DEBUG_SLOTS]; /* the watch in each host slot of the plan */
	bool stepping;            /* a trap of ours is pending */
	bool stepping_now;        /* KVM is single-stepping */
	bool guest_steps;         /* the guest itself had RFLAGS.TF set when the step began */
	uint64_t step_rip;
	uint64_t emulated_rip; /* of the last breakpoint that fired despite RFLAGS.RF */
	timer_t timer;         /* kicks at the end of the schedule */
	bool has_timer;
	struct watch_counts counts[WATCHES_MAX];
};

struct watches {
	struct watches_options options;
	struct arbiter *arbiter;
	_Atomic uint64_t guest_lost;
	_Atomic unsigned int count;
	atomic_flag reported_failure, reported_guest_lost;
	pthread_mutex_t lock; /* protects the members below, except for each vCPU's own */
	struct watch list[WATCHES_MAX];
	int watch_of_holder[ARBITER_HOLDERS_MAX];
	struct vcpu_watches vcpus[];
};

/* ns, CLOCK_MONOTONIC: the arbiter's clock. Any thread. */
uint64_t watch_now(void);

#endif
