/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cgroup of each process, by the latest report of the guest: for samples that do not carry it.
 * In order of time; one thread.
 */
#ifndef KVMSCOPE_RECORD_PROCESS_CGROUPS_H
#define KVMSCOPE_RECORD_PROCESS_CGROUPS_H

#include <stdbool.h>
#include <stdint.h>

#include "shared/sideband_record.h"
#include "vmm/guest/guest_account.h"

struct process_cgroups;

/* Processes that ACCOUNT has no memory for are left out. NULL without memory. */
struct process_cgroups *process_cgroups_new(struct guest_account *account);
void process_cgroups_free(struct process_cgroups *cgroups); /* NULL is a no-op */

/* The id of the cgroup of RECORD in a file: its own, or, for version 1, which has none, a hash of
 * its path with bit 63 set. */
uint64_t process_cgroups_id(const struct sideband_cgroup *record);
bool process_cgroups_id_is_made(uint64_t id);

/*
 * Applies CGROUP, FORK, EXIT, LOST, and COMM with SIDEBAND_COMM_EXEC; ignores other types. A child
 * starts in its parent's cgroup. A service manager moves a service before it execs, and the guest
 * reports that at the exec: from an exec until that report the cgroup is unknown, and, after a
 * loss, that of all processes. Records older than the latest one of the process are ignored.
 */
void process_cgroups_apply(struct process_cgroups *cgroups, const struct sideband *record);

/* The id of the cgroup of process PID; 0: unknown. */
uint64_t process_cgroups_of(const struct process_cgroups *cgroups, uint32_t pid);

#endif
