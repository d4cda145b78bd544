/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Would the seccomp filters of another process's thread let a system call pass? A call that they do
 * not let pass may kill the VM, so it is known before it is made. seccomp(2); kernel:
 * net/core/filter.c and kernel/seccomp.c.
 */
#ifndef KVMSCOPE_ATTACH_SECCOMP_FILTER_H
#define KVMSCOPE_ATTACH_SECCOMP_FILTER_H

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* What FILTER, of COUNT instructions, makes of CALL: SECCOMP_RET_*; of what it has that no seccomp
 * filter can have, to kill. */
__u32 seccomp_filter_run(const struct sock_filter *filter, size_t count,
			 const struct seccomp_data *call);

/* Does FILTER let all of CALLS pass? */
bool seccomp_filter_passes(const struct sock_filter *filter, size_t length,
			   const struct seccomp_data *calls, size_t count);

/*
 * Do all filters of the stopped thread TID, which we trace, let all of CALLS pass? 0; -EACCES: they
 * do not; -EPERM: ptrace(2) does not show them, which takes CAP_SYS_ADMIN, and no filters of our
 * own (see filter_reader.h). No messages.
 */
int seccomp_filters_check(pid_t tid, const struct seccomp_data *calls, size_t count);

#endif
