/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In which cgroup each process is at the base of struct flight_sideband, and what that is called: a
 * file that begins there has to be told. The collector's thread.
 */
#ifndef KVMSCOPE_RECORD_FLIGHT_CGROUPS_H
#define KVMSCOPE_RECORD_FLIGHT_CGROUPS_H

#include <stddef.h>

#include "vmm/record/process_cgroups.h"

/* With more all are forgotten: those that processes are in and are not told of again have no name
 * then. */
#define FLIGHT_CGROUPS_MAX 16384u

/* Zeroed: nothing is known. */
struct flight_cgroups {
	struct process_cgroups *processes;
	void *records; /* tree, tsearch(3): struct sideband_cgroup by process_cgroups_id(), the
			* latest of each
			*/
	size_t count;
};

/* Takes what RECORD says, as process_cgroups_apply(), into the memory of ACCOUNT, always the same
 * one. 0 or -ENOMEM.
 */
int flight_cgroups_apply(struct flight_cgroups *cgroups, const struct sideband *record,
			 struct guest_account *account);

/* The latest record of the cgroup of process PID, of whatever process; NULL: it is not known. */
const struct sideband_cgroup *flight_cgroups_of(const struct flight_cgroups *cgroups, uint32_t pid);

/* Frees what it holds; zeroed, it holds nothing. */
void flight_cgroups_free(struct flight_cgroups *cgroups, struct guest_account *account);

#endif
