/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In which cgroup each process is, as the guest itself told last: for samples that do not say it.
 * In order of time; one thread at a time.
 */
#ifndef KVMSCOPE_RECORD_PROCESS_CGROUPS_H
#define KVMSCOPE_RECORD_PROCESS_CGROUPS_H

#include <stdbool.h>
#include <stdint.h>

#include "shared/sideband_record.h"
#include "vmm/guest/guest_account.h"

struct process_cgroups;

/* Of processes that ACCOUNT has no memory for nothing is known. NULL without memory. */
struct process_cgroups *process_cgroups_new(struct guest_account *account);
void process_cgroups_free(struct process_cgroups *cgroups); /* NULL is a no-op */

/*
 * The id that a file has for the cgroup of RECORD: its own, or, for one of version 1, which has
 * none, one made of its path, with bit 63 set.
 */
uint64_t process_cgroups_id(const struct sideband_cgroup *record);
bool process_cgroups_id_is_made(uint64_t id);

/*
 * Takes what RECORD says: CGROUP, FORK, EXIT, LOST, and COMM with SIDEBAND_COMM_EXEC; others are
 * passed over. A child begins in its parent's. Whoever starts a service moves it before it runs its
 * program, and the guest tells of each one that does: from there on nothing is known until it did;
 * so it is of all processes where something was lost. What is older than the latest record about a
 * process is not taken.
 */
void process_cgroups_apply(struct process_cgroups *cgroups, const struct sideband *record);

/* The id of the cgroup of process PID; 0: nobody told. */
uint64_t process_cgroups_of(const struct process_cgroups *cgroups, uint32_t pid);

#endif
