/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the seccomp filters of other processes' threads by BPF. The kernel shows them by ptrace(2)
 * only to who has CAP_SYS_ADMIN and no filters itself (kernel: seccomp_get_filter()), as a service
 * of systemd has them; to BPF it shows all of its memory. Takes CAP_BPF and CAP_PERFMON, Linux 6.1
 * and BTF. Nothing is stopped.
 *
 * Any thread; the filters of one thread at a time.
 */
#ifndef KVMSCOPE_ATTACH_FILTER_READER_H
#define KVMSCOPE_ATTACH_FILTER_READER_H

#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/types.h>

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
