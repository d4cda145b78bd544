/* SPDX-License-Identifier: Apache-2.0 */
/* Watches, internally: state shared by all vCPUs, and state of each vCPU's thread. */
#ifndef KVMSCOPE_DEBUG_VCPU_WATCH_H
#define KVMSCOPE_DEBUG_VCPU_WATCH_H

#include <linux/kvm.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "vmm/debug/watches.h"

struct watch {
	struct watch_request request;
	int holder; /* of the arbiter; -1 once removed */
	bool armed;
	bool known;                  /* to the owner: `changed` may be called */
	uint64_t disarmed;           /* number of times that the address was removed */
	uint64_t *addresses;         /* one for each vCPU; owned */
	struct arbiter_times *times; /* one for each vCPU, set when it is removed; owned */
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

#define BIT(number)   (1ull << (number))
#define WATCH_CONTROL (KVM_GUESTDBG_ENABLE | KVM_GUESTDBG_USE_HW_BP)

/* For watch_exit.c: parts of vcpu_watch.c, all on the vCPU's thread. */
struct vcpu_watches *watch_own_state(struct watches *watches, const struct vcpu *vcpu);

/* An ioctl failed, and nothing is armed. Logs error_message() once for WATCHES. */
void watch_report_failure(struct watches *watches);

/* Reads the guest's debug registers into SELF->guest. The errors of KVM_GET_DEBUGREGS. */
int watch_read_guest(struct vcpu_watches *self, struct vcpu *vcpu, struct kvm_debugregs *registers);

/* KVM_SET_GUEST_DEBUG with PLAN. CONTROL 0: the processor gets the guest's own registers again. */
int watch_set_debug(struct vcpu *vcpu, const struct debug_plan *plan, uint32_t control);

/* Schedules and loads the result, with EXTRA in KVM's control word; reload reads the guest's
 * registers first. */
int watch_load(struct watches *watches, struct vcpu *vcpu, uint32_t extra);
void watch_reload(struct watches *watches, struct vcpu *vcpu);

/* True if the schedule is out of date. */
bool watch_is_due(const struct watches *watches, const struct vcpu_watches *self);

/* The state of watch NUMBER on VCPU. Under the lock. */
void watch_change_state(struct watches *watches, struct vcpu *vcpu, unsigned int number,
			enum watch_state state);

/* Adds to watches_guest_lost(). */
void watch_count_guest_lost(struct watches *watches, struct vcpu *vcpu, unsigned int count);

/* ns, CLOCK_MONOTONIC: the arbiter's clock. Any thread. */
uint64_t watch_now(void);

#endif
