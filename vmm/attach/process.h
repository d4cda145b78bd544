/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A VMM process of any make, seen from outside: which vCPUs its VM has, and
 * which threads run them.
 *
 * KVM gives each VM and each vCPU a file descriptor whose link tells what it
 * is (proc_files.h); which thread runs a vCPU is told by several
 * (process_threads.h). Of a process with several VMs only KVM tells which vCPUs
 * are whose; the VM that is meant is named by its descriptor (process_scan.h).
 *
 * Any one thread at a time, but where another rule is said.
 */
#ifndef KVMSCOPE_ATTACH_PROCESS_H
#define KVMSCOPE_ATTACH_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "vmm/attach/process_types.h"

/*
 * Opens process PID and finds its VM, for vmm_process_close(). 0, or with a message: -ESRCH, there
 * is no such process; -EACCES, it may not be looked at; -ENOENT, it has no VM (any more); -E2BIG,
 * it has several, which the message names; -ENOMEM and the errors of open(2).
 */
int vmm_process_open(struct vmm_process **process, pid_t pid);

/*
 * The same, of its VM at descriptor VM_FD; 0: the only one. -ENOENT also: that is none; -ENOTSUP:
 * it has several, and KVM does not tell their vCPUs apart (kvm_debugfs.h).
 */
int vmm_process_open_vm(struct vmm_process **process, pid_t pid, int vm_fd);

/*
 * Opens process PID, whose vCPUs QEMU's monitor tells (vmm_process_set_vcpus()), for
 * vmm_process_close(); it has none until then, and no VM is looked for. 0, or with a message:
 * -ESRCH, -ENOMEM and the errors of open(2).
 */
int vmm_process_open_monitored(struct vmm_process **process, pid_t pid);

/* NULL is allowed. */
void vmm_process_close(struct vmm_process *process);

/*
 * Looks again: vCPUs come and go (hot-plug), and threads that were not known may be by now; so may
 * VMs beside its own, which it stays with. 0, or the errors of vmm_process_open_vm(), -ESRCH where
 * it has ended; then it is as it was. Of a monitored one only that is looked for. Takes 20 ms where
 * a thread is not told by others (process_threads.h).
 */
int vmm_process_scan(struct vmm_process *process);

/*
 * How many threads and descriptors it has, which tells at once that vCPUs may have come or gone.
 * Descriptors are counted from Linux 6.2 on (fs/proc/fd.c, proc_readfd_count()), and are 0 before.
 */
struct vmm_process_size {
	unsigned long threads, descriptors;
};

/* Any thread. */
struct vmm_process_size vmm_process_size(const struct vmm_process *process);

/* ns of CPU time that it has used, with all its threads; 0: it has ended. Any thread. */
uint64_t vmm_process_cpu_time(const struct vmm_process *process);

/* Has it ended? Any thread. */
bool vmm_process_ended(const struct vmm_process *process);

/* Somebody knows that thread TID runs vCPU ID; false: it is none of this process, or there is no
 * such vCPU.
 */
bool vmm_process_set_thread(struct vmm_process *process, unsigned int id, pid_t tid);

/* Somebody knows that the thread that ran vCPU ID has ended: there is none, unless another thread
 * is known.
 */
void vmm_process_drop_vcpu(struct vmm_process *process, unsigned int id);

/* QEMU's monitor tells these vCPUs, at most VMM_VCPUS_MAX; if KVM does, only the threads of those
 * that it has are taken from them. */
void vmm_process_set_vcpus(struct vmm_process *process, const struct vmm_vcpu *vcpus, size_t count);

/* The thread that has number TID in the process's own PID namespace, by its number in ours; 0:
 * there is none. Any thread. */
pid_t vmm_process_find_thread(const struct vmm_process *process, pid_t tid);

/* The processes that have VMs, as far as we may look, in no order; their number, at most MAX. Any
 * thread. */
size_t vmm_process_list(pid_t *pids, size_t max);

#endif
