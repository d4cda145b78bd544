/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watches: breakpoints and data watchpoints of the host in a guest that goes
 * on beside its own. Each hit is told once; the guest notices nothing.
 *
 * watch_add() reserves (see arbiter.h) and watch_arm() gives the address,
 * which may come much later: the kernel has to be found first. Each vCPU's
 * thread then puts the watch into its registers by itself when it is next
 * kicked.
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

/* Of all that were ever added: a number is not used again. */
#define WATCHES_MAX ARBITER_HOLDERS_MAX

/* Hits of one watch on one vCPU are counted for so long (ns), and those over the limit have to
 * wait. */
#define WATCH_STORM_PERIOD 100000000ull
#define WATCH_STORM_LIMIT  2500u

enum watch_state {
	WATCH_RUNNING,   /* in a register, or waiting for its turn; a vCPU begins with it */
	WATCH_DISARMED,  /* has no address (yet), or was removed */
	WATCH_SUSPENDED, /* the guest uses the registers that it would need */
	WATCH_THROTTLED, /* had too many hits */
};

struct watch_request {
	enum breakpoint_kind kind; /* not BREAKPOINT_IO */
	uint8_t length;            /* bytes */
	bool pinned;
	int vcpu;     /* or ARBITER_ALL_VCPUS */
	uint64_t cr3; /* only while the guest's is this (its low 12 bits are not looked at); 0: any
		       */
	uint64_t space;           /* of the arbiter: a number that stands for what it is bound to */
	uint64_t period;          /* hits that one sample stands for; at least 1 */
	unsigned int storm_limit; /* as in struct watches_options, for this one; 0: that */
};

/* A watch was hit PERIOD times since the one before. */
struct watch_hit {
	unsigned int watch;
	enum breakpoint_kind kind;
	uint8_t length; /* bytes */
	uint64_t address;
	uint64_t period;
	uint64_t hits; /* on this vCPU so far, with this one */
};

struct watches_options {
	unsigned int vcpus;
	enum breakpoint_priority priority;
	uint64_t rotation;        /* ns; 0: ARBITER_PERIOD */
	unsigned int storm_limit; /* hits in WATCH_STORM_PERIOD; 0: WATCH_STORM_LIMIT */
	/* On the vCPU's thread, its registers being those of the hit. */
	void (*hit)(void *context, struct vcpu *vcpu, const struct watch_hit *hit);
	/* On the vCPU's thread: does a hit count here, as far as CR3 does not tell? May be NULL:
	 * all do. */
	bool (*wanted)(void *context, struct vcpu *vcpu, unsigned int watch);
	/* On the vCPU's thread, under a lock: the state of a watch there has changed. May be NULL.
	 */
	void (*changed)(void *context, struct vcpu *vcpu, unsigned int watch,
			enum watch_state state);
	/* On the vCPU's thread: COUNT more of what watches_guest_lost() counts. May be NULL. */
	void (*guest_lost)(void *context, struct vcpu *vcpu, unsigned int count);
	void *context;
};

struct watch_statistics {
	uint64_t hits;                 /* told or not */
	uint64_t throttled, suspended; /* times */
	uint64_t disarmed; /* times that its address was taken away, on all vCPUs at once */
	struct arbiter_times times; /* ns, summed over the vCPUs */
};

/* -ENOMEM. */
int watches_create(struct watches **watches, const struct watches_options *options);
/* No vCPU may be in it. NULL is a no-op. */
void watches_destroy(struct watches *watches);

/*
 * Its number, the next one; -EINVAL, and the errors of arbiter_reserve(). It has
 * a reservation and no address: `changed` is told nothing of it before the first
 * watch_arm() or watch_disarm(), so the caller may give it a name first.
 */
int watch_add(struct watches *watches, const struct watch_request *request);

/*
 * From now on at ADDRESS: kick the vCPUs behind it. -EINVAL, with its message, if
 * no register can watch it: then it stays as it was.
 */
int watch_arm(struct watches *watches, unsigned int watch, uint64_t address);
/* Another address on one vCPU than on the others, before watch_arm(): of a per-CPU variable. */
void watch_set_address_on(struct watches *watches, unsigned int watch, unsigned int vcpu,
			  uint64_t address);
/* It has no address, and each vCPU takes it out when it is next kicked. */
void watch_disarm(struct watches *watches, unsigned int watch);
/* The same, and its reservation is free for others at once. What was counted stays. */
void watch_remove(struct watches *watches, unsigned int watch);

/* How many were added. */
unsigned int watch_count(const struct watches *watches);
/* On VCPU, or the sums with ARBITER_ALL_VCPUS. */
void watch_statistics(struct watches *watches, unsigned int watch, int vcpu,
		      struct watch_statistics *statistics);

/* What is in a debug register of a vCPU. */
enum watch_owner {
	WATCH_OWNER_NONE,
	WATCH_OWNER_GUEST,
	WATCH_OWNER_WATCH,
	WATCH_OWNER_UNKNOWN, /* nothing of the host's: the guest's are not followed then */
};

struct watch_slot {
	enum watch_owner owner;
	unsigned int watch; /* of WATCH_OWNER_WATCH */
	bool guest_lost; /* the guest has a breakpoint of its own here, which does not work for it
			  */
	struct breakpoint breakpoint;
};

/*
 * As it was when the vCPU's thread last changed something. The guest's are
 * followed while there is a watch that wants a register of this vCPU, and are
 * WATCH_OWNER_UNKNOWN else.
 */
void watch_slots(struct watches *watches, unsigned int vcpu, struct watch_slot slots[DEBUG_SLOTS]);

/* How often a breakpoint of a guest's own lost its register, or a #DB of its own could not be given
 * to it. */
uint64_t watches_guest_lost(const struct watches *watches);

/*
 * Before the vCPU's first vcpu_run(), or again after watch_leave(). The errors of timer_create()
 * and of the KVM ioctls. While nothing was ever added KVM is asked for nothing.
 */
int watch_enter(struct watches *watches, struct vcpu *vcpu);
/* After its last one. A no-op if it is not in. */
void watch_leave(struct watches *watches, struct vcpu *vcpu);
/* The `kicked` and the `debug` handler's work: see struct vcpu_handlers. */
void watch_kicked(struct watches *watches, struct vcpu *vcpu);
void watch_debug(struct watches *watches, struct vcpu *vcpu);

#endif
