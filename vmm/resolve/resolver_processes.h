/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What sideband records say, taken into lives of processes, names of threads
 * and the kernel's own space. The resolver's thread.
 */
#ifndef KVMSCOPE_RESOLVE_RESOLVER_PROCESSES_H
#define KVMSCOPE_RESOLVE_RESOLVER_PROCESSES_H

#include "vmm/resolve/resolver_lifetimes.h"
#include "vmm/resolve/resolver_threads.h"

/* Zeroed: nothing is known. */
struct resolver_processes {
	struct resolver_store store;
	struct resolver_lifetimes lives;
	struct resolver_threads threads;
	struct resolver_space kernel; /* modules */
	bool mappings_known;          /* there was a mapping, of any process */
	uint64_t lost; /* ns: what was told of this time or earlier may be so no more; 0: nothing
			  was lost */
};

/*
 * Takes one record of any type, as of its own time: times may come in any
 * order, none before the horizon. -ENOMEM, -E2BIG: it is not, or only in part, in, and so lost.
 */
int resolver_processes_apply(struct resolver_processes *processes, const struct sideband *record);

/* Nobody will ask for, nor tell of a time before HORIZON any more. */
void resolver_processes_forget(struct resolver_processes *processes, uint64_t horizon);
void resolver_processes_free(struct resolver_processes *processes);

#endif
