/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state that sideband records add up to: processes, names of threads, and the kernel's modules.
 * Collector thread.
 */
#ifndef KVMSCOPE_RESOLVE_RESOLVER_PROCESSES_H
#define KVMSCOPE_RESOLVE_RESOLVER_PROCESSES_H

#include "vmm/resolve/resolver_lifetimes.h"
#include "vmm/resolve/resolver_threads.h"

/* Zeroed: nothing is known. */
struct resolver_processes {
	struct resolver_store store;
	struct resolver_lifetimes lifetimes;
	struct resolver_threads threads;
	struct resolver_space kernel; /* modules */
	bool mappings_known;          /* a mapping of any process was reported */
	uint64_t lost; /* ns: reports of this time or earlier are stale; 0: nothing was
			  lost */
};

/* Applies one record of any type at its own time. Times come in any order, not before the horizon.
 * -ENOMEM, -E2BIG: it was applied in part or not at all, and counts as a loss. */
int resolver_processes_apply(struct resolver_processes *processes, const struct sideband *record);

/* Frees what had ended by HORIZON (ns): no lookup and no record of an earlier time follows. */
void resolver_processes_forget(struct resolver_processes *processes, uint64_t horizon);
void resolver_processes_free(struct resolver_processes *processes);

#endif
