/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may use the four breakpoint registers of each vCPU. A holder is a
 * reservation of the host's; the guest's own breakpoints are holders, too,
 * that come and go without asking and keep their register.
 *
 * A holder is pinned (always in a register) or flexible (takes turns), for
 * one vCPU or all, and may be bound to a guest address space. The rule is that
 * of the kernel's breakpoints (kernel/events/hw_breakpoint.c). For a vCPU,
 *
 *	P  the pinned holders of any address space, plus the largest number that
 *	   one address space has pinned, plus the guest's own breakpoints
 *	F  the flexible holders
 *
 *	flexible is granted if F > 0 or P < 4		it joins the others
 *	pinned is granted if P + (F > 0 ? 1 : 0) < 4	the flexible ones keep one register
 *
 * For all vCPUs the largest P and F of them count, and a flexible one must
 * be granted by each vCPU on its own as well: else it could come to a vCPU
 * without a register for it. A request for all vCPUs is granted on all or on none,
 * in one step, so nobody is ever refused for one that is then taken back.
 *
 * Which holder is in which register is decided by each vCPU's thread for itself,
 * in arbiter_schedule(). Pinned ones come first. Pinned ones of different address
 * spaces share registers in time where they do not fit, as it is not seen when the guest
 * changes its address space; flexible ones share what is left.
 *
 * All functions may be called on any thread at the same time (one lock), but
 * those with a vCPU's number that change something: they are its thread's.
 * The clock is the caller's: ns, monotonic.
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

/* Who gets a register that both want. */
enum breakpoint_priority { BREAKPOINT_PRIORITY_GUEST, BREAKPOINT_PRIORITY_HOST };

struct arbiter_options {
	unsigned int vcpus;
	uint64_t period; /* ns until the next one's turn; 0: the default */
	enum breakpoint_priority priority;
};

struct arbiter_request {
	bool pinned;
	int vcpu;       /* or ARBITER_ALL_VCPUS */
	uint64_t space; /* any number that stands for the address space, or ARBITER_ANY_SPACE */
};

/* What is in a vCPU's registers from now on. */
struct arbiter_schedule {
	int holders[DEBUG_SLOTS]; /* a holder's number, ARBITER_SLOT_FREE or _OF_GUEST */
	uint64_t suspended; /* a bit for each pinned holder that the guest's breakpoints left no
			       register */
	uint8_t guest_lost; /* slots that the guest uses, but a holder has
			       (BREAKPOINT_PRIORITY_HOST) */
	uint64_t next;      /* when to schedule again at the latest, or ARBITER_NEVER */
};

/* For how long a holder was enabled on a vCPU, and in a register; ns. */
struct arbiter_times {
	uint64_t enabled, running;
};

/* For arbiter_destroy(). 0 or, with a message, -ENOMEM. */
int arbiter_create(struct arbiter **arbiter, const struct arbiter_options *options);
/* Nobody may use it any more. NULL is a no-op. */
void arbiter_destroy(struct arbiter *arbiter);

/*
 * Reserves. The holder's number (0 to ARBITER_HOLDERS_MAX - 1), or -ENOSPC
 * with a message that says who holds the registers; -EMFILE for one holder
 * too many. It is disabled: it counts, but is in no register yet.
 */
int arbiter_reserve(struct arbiter *arbiter, const struct arbiter_request *request);

/* HOLDER's number is free at NOW, and in no schedule any more: kick the vCPUs behind this, which
 * have it in a register still. */
void arbiter_release(struct arbiter *arbiter, int holder, uint64_t now);

/* A reserved holder comes into a register, or is kept out of them, from NOW on. Kick the vCPUs
 * behind these for them to hold at once. */
void arbiter_enable(struct arbiter *arbiter, int holder, uint64_t now);
void arbiter_disable(struct arbiter *arbiter, int holder, uint64_t now);

/* Grows with each change that arbiter_schedule() has to be called for. At the cost of a load. */
uint64_t arbiter_generation(const struct arbiter *arbiter);

/* The guest uses these registers of VCPU now: a bit for each. True if others than before. */
bool arbiter_set_guest(struct arbiter *arbiter, unsigned int vcpu, uint8_t slots);

/* No register of VCPU for HOLDER before UNTIL: it had too many hits. */
void arbiter_pause(struct arbiter *arbiter, unsigned int vcpu, int holder, uint64_t now,
		   uint64_t until);

/*
 * Decides what is in VCPU's registers from NOW on, and tells it in SCHEDULE: who has a register
 * keeps it, as far as it need not be shared. To be called at SCHEDULE's `next` at the latest, when
 * arbiter_generation() has grown and when arbiter_set_guest() says so: turns come with a call, not
 * without. VCPU's thread.
 */
void arbiter_schedule(struct arbiter *arbiter, unsigned int vcpu, uint64_t now,
		      struct arbiter_schedule *schedule);

/* For how long HOLDER was enabled on VCPU, and in one of its registers, until NOW. Any thread. */
void arbiter_times(struct arbiter *arbiter, unsigned int vcpu, int holder, uint64_t now,
		   struct arbiter_times *times);

#endif
