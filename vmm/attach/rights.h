/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drops capabilities of a thread that samples other programs' VMs. It keeps CAP_PERFMON and CAP_BPF
 * for hot-plugged vCPUs, and CAP_SYS_PTRACE to inspect the process. Memory, events and programs are
 * already open.
 */
#ifndef KVMSCOPE_ATTACH_RIGHTS_H
#define KVMSCOPE_ATTACH_RIGHTS_H

#include <stdbool.h>
#include <stddef.h>

/* A file to be used later; if it does not exist, it will be created. */
struct rights_file {
	const char *path; /* NULL: none */
	int mode;         /* as for access(2) */
};

/*
 * Drops all other capabilities of the calling thread and of threads it creates later, and forbids
 * gaining any by execve(). Keeps, if present: CAP_DAC_OVERRIDE, if one of FILES needs it, e.g. in
 * another user's directory; CAP_SYS_ADMIN, if perf needs it (before Linux 5.8 with
 * kernel.perf_event_paranoid at 2, on Debian's kernels at 3), or with READS_FILTERS, to read other
 * threads' seccomp filters (ptrace(2), PTRACE_SECCOMP_GET_FILTER). 0, also if there is nothing to
 * drop; -EPERM: the kernel refuses.
 */
int rights_keep(const struct rights_file *files, size_t count, bool reads_filters);

/* The same for processes that attach to many VMs of any user: keeps only those of CAPABILITIES,
 * COUNT of them, that are present. 0 or -EPERM. */
int rights_keep_only(const unsigned int *capabilities, size_t count);

#endif
