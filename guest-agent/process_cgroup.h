/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which control group a process is in, as /proc/PID/cgroup has it: told with the snapshot, and for
 * each process that runs a new program, as whoever starts a service or a container puts it into its
 * cgroup before.
 */
#ifndef KVMSCOPE_GUEST_AGENT_PROCESS_CGROUP_H
#define KVMSCOPE_GUEST_AGENT_PROCESS_CGROUP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "guest-agent/send_queue.h"

/* Processes a second that are looked at besides the snapshot: what is more is not told. */
#define CGROUP_RATE 100u

#define CGROUP_PATH_MAX 4096u /* PATH_MAX of Linux */

struct cgroup {
	uint64_t id; /* the inode of its directory; 0: of version 1 */
	char path[CGROUP_PATH_MAX];
};

/*
 * That of PID: of the unified hierarchy, unless that has it in its root and one of version 1 does
 * not. False: the process has ended, or the kernel has no cgroups.
 */
bool cgroup_read(pid_t pid, struct cgroup *cgroup);

/* Notes RECORD, a whole one of the kernel's, if it says that a process runs a new program. */
void cgroup_observe(const uint8_t *record);

/* Tells of those that were noted, as far as there is room and time. */
void cgroup_send(struct output *output);

/* Forgets those that were noted. */
void cgroup_reset(void);

#endif
