/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a thread that samples VMs of others keeps of its rights: CAP_PERFMON and CAP_BPF for vCPUs
 * that come, CAP_SYS_PTRACE to look at the process. Memory, events and programs are open by then.
 */
#ifndef KVMSCOPE_ATTACH_RIGHTS_H
#define KVMSCOPE_ATTACH_RIGHTS_H

#include <stdbool.h>
#include <stddef.h>

/* A file that is used later; one that does not exist is made in its directory. */
struct rights_file {
	const char *path; /* NULL: none */
	int mode;         /* R_OK, W_OK as for access(2) */
};

/*
 * The calling thread, and those that it makes from now on, give up all other capabilities, and
 * those that programs which they execute would get. Kept if the thread has them: CAP_DAC_OVERRIDE,
 * if one of FILES can not be used without it, as in the directory of another user; CAP_SYS_ADMIN,
 * if perf takes that (Debian's kernels, with kernel.perf_event_paranoid at 3), or if READS_FILTERS:
 * seccomp's filters of other threads will be read (ptrace(2), PTRACE_SECCOMP_GET_FILTER). 0, also
 * where there is nothing to give up; -EPERM: the kernel refuses.
 */
int rights_keep(const struct rights_file *files, size_t count, bool reads_filters);

/*
 * The same for who attaches to one VM after the other, of any user, by any way: of CAPABILITIES,
 * COUNT of them, it keeps those that it has, and can never get others. 0 or -EPERM.
 */
int rights_keep_only(const unsigned int *capabilities, size_t count);

#endif
