/* SPDX-License-Identifier: Apache-2.0 */
/* The control group of a process, from /proc/PID/cgroup. Reported with the snapshot and after each
 * execve: a service or container is moved into its cgroup before its program is executed.
 */
#ifndef KVMSCOPE_GUEST_AGENT_PROCESS_CGROUP_H
#define KVMSCOPE_GUEST_AGENT_PROCESS_CGROUP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "guest-agent/send_queue.h"

/* Processes per second that are read outside of snapshots; more are not reported. */
#define CGROUP_RATE 100u

#define CGROUP_PATH_MAX 4096u /* PATH_MAX of Linux */

struct cgroup {
	uint64_t id; /* inode of its directory; 0: version 1 */
	char path[CGROUP_PATH_MAX];
};

/* Reads PID's cgroup: of the unified hierarchy, unless PID is in its root and not in the root of a
 * version 1 hierarchy. False if the process exited or the kernel has no cgroups.
 */
bool cgroup_read(pid_t pid, struct cgroup *cgroup);

/* Queues the process of RECORD, a whole record of the kernel, if it is an execve. */
void cgroup_observe(const uint8_t *record);

/* Reports the queued processes, as far as the rate and OUTPUT allow. */
void cgroup_send(struct output *output);

/* Drops the queued processes. */
void cgroup_reset(void);

#endif
