/* SPDX-License-Identifier: Apache-2.0 */
/* Watches from the inside: what all vCPUs share, and what each thread has for itself. */
#ifndef KVMSCOPE_DEBUG_VCPU_WATCH_H
#define KVMSCOPE_DEBUG_VCPU_WATCH_H

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "vmm/debug/watches.h"

struct watch {
	struct watch_request request;
	int holder; /* of the arbiter; -1 when it was removed */
	bool armed;
	bool known;                  /* to the owner: `changed` may be called */
	uint64_t disarmed;           /* times that an address was taken away */
	uint64_t *addresses;         /* for each vCPU; owned */
	struct arbiter_times *times; /* for each vCPU, when it was removed; owned */
};

/* One watch on one vCPU; written by the vCPU's thread only. */
struct watch_counts {
	uint64_t hits, throttled, suspended;
	uint64_t untold;      /* hits since the last sample */
	uint64_t storm_began; /* ns */
	unsigned int storm_hits;
	enum watch_state state;
};

/* Written by the vCPU's thread only. */
struct vcpu_watches {
	bool entered;
	bool blocks_interrupts; /* KVM can, in a single step */
	bool active;            /* KVM has been told to give the processor our registers */
	uint64_t generation;    /* of the arbiter, when it was last asked */
	struct arbiter_schedule schedule;
	struct debug_registers guest; /* as last read */
	struct debug_plan armed;      /* in force */
	struct debug_plan
		shown;      /* to other threads, under the lock: without the single steps between */
	uint8_t shown_lost; /* likewise: slots that the guest uses, and a watch has */
	bool followed;      /* likewise: SHOWN has the guest's */
	int watches[DEBUG_SLOTS]; /* which one is in which of the plan's slots of the host */
	bool stepping;            /* a trap of ours is due */
	bool stepping_now;        /* KVM has been told to step */
	bool guest_steps;         /* RFLAGS.TF was the guest's own when the step began */
	uint64_t step_rip;
	uint64_t emulated_rip; /* of the last breakpoint that came in spite of RFLAGS.RF */
	timer_t timer;         /* kicks when the schedule ends */
	bool has_timer;
	struct watch_counts counts[WATCHES_MAX];
};

struct watches {
	struct watches_options options;
	struct arbiter *arbiter;
	_Atomic uint64_t guest_lost;
	_Atomic unsigned int count;
	atomic_flag complained, said_guest_lost;
	pthread_mutex_t lock; /* of what follows, but for each vCPU's own */
	struct watch list[WATCHES_MAX];
	int watch_of_holder[ARBITER_HOLDERS_MAX];
	struct vcpu_watches vcpus[];
};

/* ns, CLOCK_MONOTONIC: the arbiter's clock. Any thread. */
uint64_t watch_now(void);

#endif
