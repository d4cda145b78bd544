/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes and their address spaces over time. What has ended stays until the horizon has passed
 * its end, as samples of earlier times may need it. Each function applies from its TIME on; times
 * come in any order, but not before the horizon. Collector thread.
 */
#ifndef KVMSCOPE_RESOLVE_RESOLVER_LIFETIMES_H
#define KVMSCOPE_RESOLVE_RESOLVER_LIFETIMES_H

#include <stdbool.h>

#include "shared/sideband_record.h"
#include "vmm/resolve/resolver_space.h"

/* A process between two changes of its address space: fork, execve, exit. */
struct resolver_lifetime {
	uint64_t number;     /* unique, from 1 */
	uint64_t born, died; /* ns; died is UINT64_MAX while it is alive */
	uint32_t born_error; /* ns, error of BORN */
	struct resolver_process *process;
	struct resolver_lifetime *newer, *older; /* of the same process id */
	struct resolver_space space;
	uint32_t threads; /* known to be alive in it */
	struct resolver_root *roots[2];
	struct resolver_lifetime *next_dead,
		*next_past; /* in the lists of struct resolver_lifetimes */
	bool in_past;
};

/* A process id, which many processes may have had. */
struct resolver_process {
	struct resolver_node node;
	uint32_t pid;
	struct resolver_lifetime *newest;
};

/* Zeroed: none. */
struct resolver_lifetimes {
	struct resolver_table processes, roots;
	struct resolver_lifetime *dead; /* that have ended */
	struct resolver_lifetime *past; /* those whose spaces keep something that will expire */
	uint64_t begun;                 /* so far */
	size_t kept;                    /* not freed */
};

/* The process PID at TIME; NULL: unknown. Valid until it is forgotten. */
struct resolver_lifetime *resolver_lifetimes_find(const struct resolver_lifetimes *lifetimes,
						  uint32_t pid, uint64_t time);
/* The latest process PID that had begun by TIME, whether it has ended or not; NULL. */
struct resolver_lifetime *resolver_lifetimes_latest(const struct resolver_lifetimes *lifetimes,
						    uint32_t pid, uint64_t time);
/* The process with the page tables in CR3, of a sample in user space, by reports after LOST (ns; 0:
 * nothing was lost); NULL. */
struct resolver_lifetime *resolver_lifetimes_find_root(const struct resolver_lifetimes *lifetimes,
						       uint64_t cr3, uint64_t time, uint64_t lost);

/* A new process PID, which ends the previous one. NULL without memory. */
struct resolver_lifetime *resolver_lifetimes_begin(struct resolver_lifetimes *lifetimes,
						   struct resolver_store *store, uint32_t pid,
						   uint64_t time);
void resolver_lifetimes_end(struct resolver_lifetimes *lifetimes,
			    struct resolver_lifetime *lifetime, uint64_t time);

/*
 * Sets the page tables of LIFETIME from FROM on to those of RECORD, if it has any. The first report
 * counts, until it is older than LOST (ns; 0: nothing was lost) and another one is not. 0 or
 * -ENOMEM.
 */
int resolver_lifetimes_root(struct resolver_lifetimes *lifetimes, struct resolver_store *store,
			    struct resolver_lifetime *lifetime, const struct sideband *record,
			    uint64_t from, uint64_t lost);

/* CR3 without its low bits, if it was reported after LOST (ns); else 0. */
uint64_t resolver_lifetime_root(const struct resolver_lifetime *lifetime, uint64_t lost,
				bool *pair);

/* To be called when the space of LIFETIME has changed. */
void resolver_lifetimes_changed(struct resolver_lifetimes *lifetimes,
				struct resolver_lifetime *lifetime);

/* Frees what had ended by HORIZON (ns): no lookup of an earlier time follows. */
void resolver_lifetimes_forget(struct resolver_lifetimes *lifetimes, struct resolver_store *store,
			       uint64_t horizon);
void resolver_lifetimes_free(struct resolver_lifetimes *lifetimes, struct resolver_store *store);

#endif
