/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watches: breakpoints and data watchpoints of the host in a running guest, beside the guest's own.
 * Each hit is reported once; the guest does not notice.
 *
 * watch_add() reserves a register (see arbiter.h). watch_arm() sets the address, possibly much
 * later, after the kernel has been found. Each vCPU's thread then puts the watch into its registers
 * at its next kick.
 *
 *	enter, leave, kicked, debug	the vCPU's thread
 *	everything else			any thread between create and destroy
 */
#ifndef KVMSCOPE_DEBUG_WATCHES_H
#define KVMSCOPE_DEBUG_WATCHES_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/debug/arbiter.h"
#include "vmm/debug/debug_registers.h"

struct vcpu;
struct watches;

/* Over the lifetime of struct watches: numbers are not reused. */
#define WATCHES_MAX ARBITER_HOLDERS_MAX

/* Hits of one watch on one vCPU are counted in this interval (ns); above the limit the watch
 * pauses. */
#define WATCH_STORM_PERIOD 100000000ull
#define WATCH_STORM_LIMIT  2500u

enum watch_state {
	WATCH_RUNNING,   /* in a register, or waiting for its turn; the initial state */
	WATCH_DISARMED,  /* without an address (yet), or removed */
	WATCH_SUSPENDED, /* the guest uses the registers that it needs */
	WATCH_THROTTLED, /* paused after too many hits */
};

struct watch_request {
	enum breakpoint_kind kind; /* not BREAKPOINT_IO */
	uint8_t length;            /* bytes */
	bool pinned;
	int vcpu;     /* or ARBITER_ALL_VCPUS */
	uint64_t cr3; /* only while the guest's CR3 is this (low 12 bits are ignored); 0: always */
	uint64_t space;           /* for the arbiter: identifies what the watch is bound to */
	uint64_t period;          /* hits per sample; at least 1 */
	unsigned int storm_limit; /* as in struct watches_options, for this watch; 0: that one */
};

/* A watch was hit PERIOD times since the last report. */
struct watch_hit {
	unsigned int watch;
	enum breakpoint_kind kind;
	uint8_t length; /* bytes */
	uint64_t address;
	uint64_t period;
	uint64_t hits; /* of this watch on this vCPU, including this one */
};

struct watches_options {
	unsigned int vcpus;
	enum breakpoint_priority priority;
	uint64_t rotation;        /* ns; 0: ARBITER_PERIOD */
	unsigned int storm_limit; /* hits in WATCH_STORM_PERIOD; 0: WATCH_STORM_LIMIT */
	/* On the vCPU's thread, with the registers of the hit. */
	void (*hit)(void *context, struct vcpu *vcpu, const struct watch_hit *hit);
	/* On the vCPU's thread: does the hit count, apart from its CR3? NULL: always. */
	bool (*matches)(void *context, struct vcpu *vcpu, unsigned int watch);
	/* On the vCPU's thread, under a lock: the state of a watch has changed there. May be
	 * NULL. */
	void (*changed)(void *context, struct vcpu *vcpu, unsigned int watch,
			enum watch_state state);
	/* On the vCPU's thread: watches_guest_lost() has increased by COUNT. May be NULL. */
	void (*guest_lost)(void *context, struct vcpu *vcpu, unsigned int count);
	void *context;
};

struct watch_statistics {
	uint64_t hits;                 /* reported or not */
	uint64_t throttled, suspended; /* times */
	uint64_t disarmed; /* number of times that its address was removed, on all vCPUs at once */
	struct arbiter_times times; /* ns, summed over the vCPUs */
};

/* -ENOMEM. */
int watches_create(struct watches **watches, const struct watches_options *options);
/* No vCPU may be entered. NULL is a no-op. */
void watches_destroy(struct watches *watches);

/*
 * Adds a watch and returns its number, which is the next one; -EINVAL and the errors of
 * arbiter_reserve(). It has a reservation, but no address. `changed` is not called for it before
 * the first watch_arm() or watch_disarm(), so the caller can name it first.
 */
int watch_add(struct watches *watches, const struct watch_request *request);

/* Sets ADDRESS; kick the vCPUs afterwards. -EINVAL with a message, and no change, if no register
 * can watch it. */
int watch_arm(struct watches *watches, unsigned int watch, uint64_t address);
/* Sets the address for one vCPU, before watch_arm(): for per-CPU variables. */
void watch_set_address_on(struct watches *watches, unsigned int watch, unsigned int vcpu,
			  uint64_t address);
/* Removes the address. Each vCPU removes the watch from its registers at its next kick. */
void watch_disarm(struct watches *watches, unsigned int watch);
/* The same, and releases its reservation at once. Its counts stay. */
void watch_remove(struct watches *watches, unsigned int watch);

/* Number of watches added. */
unsigned int watch_count(const struct watches *watches);
/* For VCPU, or summed for ARBITER_ALL_VCPUS. */
void watch_statistics(struct watches *watches, unsigned int watch, int vcpu,
		      struct watch_statistics *statistics);

/* The owner of a debug register of a vCPU. */
enum watch_owner {
	WATCH_OWNER_NONE,
	WATCH_OWNER_GUEST,
	WATCH_OWNER_WATCH,
	WATCH_OWNER_UNKNOWN, /* the host uses none: the guest's are not tracked then */
};

struct watch_slot {
	enum watch_owner owner;
	unsigned int watch; /* with WATCH_OWNER_WATCH */
	bool guest_lost;    /* the guest has a breakpoint here that does not work for it */
	struct breakpoint breakpoint;
};

/* State after the last change by the vCPU's thread. The guest's breakpoints are tracked while a
 * watch needs a register of this vCPU; otherwise they are WATCH_OWNER_UNKNOWN. */
void watch_slots(struct watches *watches, unsigned int vcpu, struct watch_slot slots[DEBUG_SLOTS]);

/* Number of times that a breakpoint of the guest lost its register, or that its #DB could not be
 * delivered. */
uint64_t watches_guest_lost(const struct watches *watches);

/* Before the vCPU's first vcpu_run(), or again after watch_leave(). The errors of timer_create()
 * and of the KVM ioctls. Makes no ioctl while no watch has ever been added. */
int watch_enter(struct watches *watches, struct vcpu *vcpu);
/* After the last vcpu_run(). A no-op if the vCPU is not entered. */
void watch_leave(struct watches *watches, struct vcpu *vcpu);
/* For the `kicked` and `debug` handlers of struct vcpu_handlers. */
void watch_kicked(struct watches *watches, struct vcpu *vcpu);
void watch_debug(struct watches *watches, struct vcpu *vcpu);

#endif
