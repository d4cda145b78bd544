/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks whether the seccomp filters of another process's thread let system calls pass, before the
 * thread makes them: a forbidden call may kill the VM. seccomp(2); kernel: net/core/filter.c,
 * kernel/seccomp.c.
 */
#ifndef KVMSCOPE_ATTACH_SECCOMP_FILTER_H
#define KVMSCOPE_ATTACH_SECCOMP_FILTER_H

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* The result of FILTER, COUNT instructions, for CALL: SECCOMP_RET_*; kill for instructions that
 * seccomp filters cannot have. */
__u32 seccomp_filter_run(const struct sock_filter *filter, size_t count,
			 const struct seccomp_data *call);

/* True if FILTER lets all of CALLS pass. */
bool seccomp_filter_passes(const struct sock_filter *filter, size_t length,
			   const struct seccomp_data *calls, size_t count);

/*
 * Checks CALLS against all filters of the stopped thread TID, which we trace. -EACCES: a call is
 * forbidden; -EPERM: ptrace(2) does not show the filters, which needs CAP_SYS_ADMIN and no filters
 * of our own (see filter_reader_check()). No messages.
 */
int seccomp_filters_check(pid_t tid, const struct seccomp_data *calls, size_t count);

/*
 * Reads the filters of other processes' threads by BPF. ptrace(2) shows them only to tracers with
 * CAP_SYS_ADMIN and without filters (kernel: seccomp_get_filter()), unlike services of systemd.
 * Needs CAP_BPF and CAP_PERFMON, Linux 6.1 and BTF. Stops nothing. Any thread; reads one thread at
 * a time.
 */

struct filter_reader;

/* Loads the program. -EACCES, -ENOTSUP, -ENOMEM, with the message. */
int filter_reader_open(struct filter_reader **reader);
void filter_reader_close(struct filter_reader *reader); /* NULL is allowed */

/* As seccomp_filters_check(), for the thread TID of our PID namespace, which has FILTERS
 * filters. -EPERM also: they have changed. No messages. */
int filter_reader_check(struct filter_reader *reader, pid_t tid, unsigned int filters,
			const struct seccomp_data *calls, size_t count);

#endif
