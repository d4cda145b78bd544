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
 * own (see seccomp_filter.h). No messages.
 */
int seccomp_filters_check(pid_t tid, const struct seccomp_data *calls, size_t count);

/*
 * Reads the seccomp filters of other processes' threads by BPF. The kernel shows them by ptrace(2)
 * only to who has CAP_SYS_ADMIN and no filters itself (kernel: seccomp_get_filter()), as a service
 * of systemd has them; to BPF it shows all of its memory. Takes CAP_BPF and CAP_PERFMON, Linux 6.1
 * and BTF. Nothing is stopped.
 *
 * Any thread; the filters of one thread at a time.
 */

struct filter_reader;

/* Loads the program. -EACCES, -ENOTSUP, -ENOMEM: it can not be, with the message. */
int filter_reader_open(struct filter_reader **reader);
void filter_reader_close(struct filter_reader *reader); /* NULL is a no-op */

/*
 * As seccomp_filters_check(), of the thread TID of our PID namespace, which has FILTERS of them: 0,
 * -EACCES, or -EPERM: they can not be read, or are others by now. No messages.
 */
int filter_reader_check(struct filter_reader *reader, pid_t tid, unsigned int filters,
			const struct seccomp_data *calls, size_t count);

#endif
