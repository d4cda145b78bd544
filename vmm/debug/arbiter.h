/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocates the four breakpoint registers of each vCPU. A holder is a reservation of the host. The
 * guest's own breakpoints are holders too: they come and go without a request and keep their
 * register.
 *
 * A holder is pinned (always in a register) or flexible (takes turns), for one vCPU or all, and may
 * be bound to a guest address space. The rule is that of the kernel's breakpoints
 * (kernel/events/hw_breakpoint.c). For a vCPU,
 *
 *	P  the pinned holders of any address space, plus the largest number that
 *	   one address space has pinned, plus the guest's own breakpoints
 *	F  the flexible holders
 *
 *	flexible is granted if F > 0 or P < 4		it joins the others
 *	pinned is granted if P + (F > 0 ? 1 : 0) < 4	the flexible ones keep one register
 *
 * For all vCPUs the largest P and F count, and each vCPU must grant a flexible holder on its own as
 * well, because it could otherwise lack a register for it. A request for all vCPUs is granted on
 * all or on none in one step: no other request is refused for one that is then undone.
 *
 * Each vCPU's thread assigns holders to its registers in arbiter_schedule(). Pinned ones come
 * first. Pinned ones of different address spaces take turns if they do not fit, because address
 * space switches of the guest are not seen. Flexible ones share the rest.
 *
 * All functions may be called on any thread at the same time (one lock), except for those that
 * change something of a given vCPU: they are for its thread. The clock is the caller's: ns,
 * monotonic.
 */
#ifndef KVMSCOPE_DEBUG_ARBITER_H
#define KVMSCOPE_DEBUG_ARBITER_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/debug/debug_registers.h"

#define ARBITER_HOLDERS_MAX   64
#define ARBITER_ALL_VCPUS     (-1)
#define ARBITER_ANY_SPACE     0
#define ARBITER_PERIOD        10000000ull /* ns; the default */
#define ARBITER_SLOT_FREE     (-1)
#define ARBITER_SLOT_OF_GUEST (-2)
#define ARBITER_NEVER         UINT64_MAX

struct arbiter;

/* Which side gets a register that both need. */
enum breakpoint_priority { BREAKPOINT_PRIORITY_GUEST, BREAKPOINT_PRIORITY_HOST };

struct arbiter_options {
	unsigned int vcpus;
	uint64_t period; /* ns until the next holder's turn; 0: the default */
	enum breakpoint_priority priority;
};

struct arbiter_request {
	bool pinned;
	int vcpu;       /* or ARBITER_ALL_VCPUS */
	uint64_t space; /* any number that identifies the address space, or ARBITER_ANY_SPACE */
};

/* The contents of a vCPU's registers. */
struct arbiter_schedule {
	int holders[DEBUG_SLOTS]; /* number of a holder, ARBITER_SLOT_FREE or _OF_GUEST */
	uint64_t suspended;       /* a bit for each pinned holder without a register because of the
				     guest's breakpoints */
	uint8_t guest_lost; /* slots that the guest uses but a holder has (BREAKPOINT_PRIORITY_HOST)
			     */
	uint64_t next;      /* latest time of the next schedule, or ARBITER_NEVER */
};

/* Time in ns for which a holder was enabled on a vCPU, and in a register. */
struct arbiter_times {
	uint64_t enabled, running;
};

/* The caller calls arbiter_destroy(). 0, or -ENOMEM with a message. */
int arbiter_create(struct arbiter **arbiter, const struct arbiter_options *options);
/* No other thread may use it. NULL is a no-op. */
void arbiter_destroy(struct arbiter *arbiter);

/*
 * Reserves. Returns the holder's number (0 to ARBITER_HOLDERS_MAX - 1), -ENOSPC with a message
 * about the current holders, or -EMFILE above ARBITER_HOLDERS_MAX. The holder is disabled: it
 * counts, but is in no register yet.
 */
int arbiter_reserve(struct arbiter *arbiter, const struct arbiter_request *request);

/* Frees the number HOLDER at NOW and removes it from all schedules. Kick the vCPUs afterwards:
 * they may still have it in a register. */
void arbiter_release(struct arbiter *arbiter, int holder, uint64_t now);

/* Enables a reserved holder or keeps it out of the registers from NOW on. Kick the vCPUs
 * afterwards, for immediate effect. */
void arbiter_set_enabled(struct arbiter *arbiter, int holder, bool enabled, uint64_t now);

/* Increases with each change that needs arbiter_schedule(). Costs one load. */
uint64_t arbiter_generation(const struct arbiter *arbiter);

/* The guest uses these registers of VCPU: a bit for each. True if they have changed. */
bool arbiter_set_guest(struct arbiter *arbiter, unsigned int vcpu, uint8_t slots);

/* Keeps HOLDER out of VCPU's registers until UNTIL, because it had too many hits. */
void arbiter_pause(struct arbiter *arbiter, unsigned int vcpu, int holder, uint64_t now,
		   uint64_t until);

/*
 * Assigns VCPU's registers from NOW on, and stores the result in SCHEDULE. Holders keep their
 * register unless it has to be shared. Call it at SCHEDULE's `next` at the latest, after
 * arbiter_generation() has increased, and after arbiter_set_guest() returned true: turns only
 * change in this call. VCPU's thread.
 */
void arbiter_schedule(struct arbiter *arbiter, unsigned int vcpu, uint64_t now,
		      struct arbiter_schedule *schedule);

/* Times of HOLDER on VCPU until NOW. Any thread. */
void arbiter_times(struct arbiter *arbiter, unsigned int vcpu, int holder, uint64_t now,
		   struct arbiter_times *times);

#endif
