/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who waits for spinlocks of the guest's kernel while a vCPU that may hold the lock has no CPU: the
 * preemption of lock holders.
 */
#ifndef KVMSCOPE_REPORT_LOCKS_H
#define KVMSCOPE_REPORT_LOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "shared/pool.h"
#include "vmm/report/profile_stacks.h"

/* The same code of the same command, which lost its CPU while others waited. */
struct lock_row {
	const struct profile_stack *stack;
	size_t first;            /* its innermost frame that is not of an interrupt handler */
	uint64_t waited;         /* ns that others waited while only it may have held */
	uint64_t off_cpu, times; /* ns without a CPU in this code, and how often */
};

/* All times are ns, estimated from samples. */
struct locks {
	uint64_t cpu_time; /* of the recording's clock */
	/* Waiting, by what the vCPUs without a CPU were doing. */
	uint64_t one;     /* one of them may have held the lock */
	uint64_t several; /* more than one may have */
	uint64_t queued;  /* none may have, but one waits, too, and may be first in the queue */
	uint64_t none;    /* neither */
	struct lock_row **rows; /* the longest waited first; a vCPU waited for each */
	size_t count;
	struct pool pool; /* of the rows */
};

/*
 * A vCPU waits if it executes a function of Linux that spins until another one releases a lock
 * (kernel/locking/qspinlock.c, qrwlock.c, osq_lock.c, mutex.c, rwsem.c), or has left the guest
 * there by PAUSE or HLT, but not while it is preempted there. It may hold a lock if it has no CPU
 * (kvm:off-cpu, but not halted) since it executed kernel code that neither waits nor is idle.
 * Interrupt handlers are left out of its row. PROFILE was loaded with all events, all vCPUs and its
 * samples, and must live as long as LOCKS. 0; -ENODATA: it has no event kvm:off-cpu; -ENOMEM.
 * One thread at a time.
 */
int locks_find(struct locks *locks, const struct profile *profile);
void locks_free(struct locks *locks);

/* Print at most LIMIT rows (0: all), as text or as one JSON object. 0 or a negative errno. */
int locks_print_text(const struct locks *locks, size_t limit, FILE *to);
int locks_print_json(const struct locks *locks, size_t limit, FILE *to);

#endif
