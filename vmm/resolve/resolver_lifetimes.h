/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes and their address spaces, by time. What ended stays, for
 * questions about times before, until the horizon has passed it: this is the
 * mortuary. Each function counts from the time that it is given on, in
 * whatever order the times come, none before the horizon. The resolver's thread.
 */
#ifndef KVMSCOPE_RESOLVE_RESOLVER_LIFETIMES_H
#define KVMSCOPE_RESOLVE_RESOLVER_LIFETIMES_H

#include <stdbool.h>

#include "shared/sideband_record.h"
#include "vmm/resolve/resolver_space.h"

/* A process between two moments at which its address space became another: fork, execve, exit. */
struct resolver_lifetime {
	uint64_t number;     /* from 1; no two lives have the same one */
	uint64_t born, died; /* ns; died is UINT64_MAX while it lives */
	uint32_t born_error; /* ns: so much before or after BORN */
	struct resolver_process *process;
	struct resolver_lifetime *newer, *older; /* of the same process id */
	struct resolver_space space;
	uint32_t threads; /* that are known to live in it */
	struct resolver_root *roots[2];
	struct resolver_lifetime *next_dead,
		*next_past; /* in the lists of struct resolver_lifetimes */
	bool in_past;
};

/* A process id, whoever had it. */
struct resolver_process {
	struct resolver_node node;
	uint32_t pid;
	struct resolver_lifetime *newest;
};

/* Zeroed: none. */
struct resolver_lifetimes {
	struct resolver_table processes, roots;
	struct resolver_lifetime *dead; /* the mortuary */
	struct resolver_lifetime *past; /* those whose spaces have something to forget */
	uint64_t begun;                 /* so far */
	size_t kept;                    /* that are not freed */
};

/* The life of PID at TIME, NULL where nothing is known of it. Valid until it is forgotten. */
struct resolver_lifetime *resolver_lifetimes_find(const struct resolver_lifetimes *lives,
						  uint32_t pid, uint64_t time);
/* The latest life of PID that had begun by TIME, ended or not; NULL. */
struct resolver_lifetime *resolver_lifetimes_latest(const struct resolver_lifetimes *lives,
						    uint32_t pid, uint64_t time);
/* The same by a CR3 as a sample in user space has it, of what was told behind LOST, ns; 0: nothing
 * was lost.
 */
struct resolver_lifetime *resolver_lifetimes_find_root(const struct resolver_lifetimes *lives,
						       uint64_t cr3, uint64_t time, uint64_t lost);

/* A new life of PID, which ends one that it had. NULL without memory. */
struct resolver_lifetime *resolver_lifetimes_begin(struct resolver_lifetimes *lives,
						   struct resolver_store *store, uint32_t pid,
						   uint64_t time);
void resolver_lifetimes_end(struct resolver_lifetimes *lives, struct resolver_lifetime *life,
			    uint64_t time);

/* LIFE's page tables, from FROM on, are those that RECORD tells, if any. The first are believed,
 * until others are told behind LOST, ns, and they were not; 0: nothing was lost. 0 or -ENOMEM.
 */
int resolver_lifetimes_root(struct resolver_lifetimes *lives, struct resolver_store *store,
			    struct resolver_lifetime *life, const struct sideband *record,
			    uint64_t from, uint64_t lost);

/* As they were told there behind LOST, ns: CR3 without its low bits; 0 where none was. */
uint64_t resolver_lifetime_root(const struct resolver_lifetime *life, uint64_t lost, bool *pair);

/* To be called when LIFE's space has changed. */
void resolver_lifetimes_changed(struct resolver_lifetimes *lives, struct resolver_lifetime *life);

/* Nobody will ask for a time before HORIZON any more: the mortuary is emptied up to there. */
void resolver_lifetimes_forget(struct resolver_lifetimes *lives, struct resolver_store *store,
			       uint64_t horizon);
void resolver_lifetimes_free(struct resolver_lifetimes *lives, struct resolver_store *store);

#endif
