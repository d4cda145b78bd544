/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cgroup of each process at the base of struct flight_sideband, with its path: files that begin
 * there need it. Collector thread.
 */
#ifndef KVMSCOPE_RECORD_FLIGHT_CGROUPS_H
#define KVMSCOPE_RECORD_FLIGHT_CGROUPS_H

#include <stddef.h>

#include "vmm/record/process_cgroups.h"

/* Beyond this all paths are dropped: those that are not reported again stay unknown. */
#define FLIGHT_CGROUPS_MAX 16384u

/* Zeroed: nothing is known. */
struct flight_cgroups {
	struct process_cgroups *processes;
	void *records; /* tree, tsearch(3): the latest struct sideband_cgroup of each id */
	size_t count;
};

/* Applies RECORD as process_cgroups_apply() does; ACCOUNT, always the same one, is charged. 0 or
 * -ENOMEM. */
int flight_cgroups_apply(struct flight_cgroups *cgroups, const struct sideband *record,
			 struct guest_account *account);

/* The latest record of the cgroup of process PID, whichever process it names; NULL: unknown. */
const struct sideband_cgroup *flight_cgroups_of(const struct flight_cgroups *cgroups, uint32_t pid);

/* Frees what it holds; zeroed, it holds nothing. */
void flight_cgroups_free(struct flight_cgroups *cgroups, struct guest_account *account);

#endif
