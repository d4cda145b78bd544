/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A VMM process of any kind, seen from outside: the vCPUs of its VM, and the threads that run them.
 *
 * KVM's descriptors of a VM and its vCPUs are recognized by their links (proc_files.h); several
 * sources show which threads run vCPUs (process_scan.c). If the process has several VMs, the VM is
 * selected by its descriptor, and only KVM shows which vCPUs belong to it.
 *
 * One thread at a time, unless noted.
 */
#ifndef KVMSCOPE_ATTACH_PROCESS_H
#define KVMSCOPE_ATTACH_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Maximum number of VMs per process. */
#define VMM_VMS_MAX 64

/* Upper limit of vCPU ids (kernel: KVM_MAX_VCPU_IDS is larger; recordings cannot hold more). */
#define VMM_VCPUS_MAX 1024

struct vmm_vcpu {
	unsigned int id;   /* KVM's */
	pid_t tid;         /* in our PID namespace; 0: unknown */
	const char *found; /* source of TID, for messages; NULL: unknown */
};

/* Unplugged vCPUs are left out if their threads are known to have exited: QEMU keeps their
 * descriptors for reuse (QEMU: kvm_destroy_vcpu()). */
struct vmm_process {
	pid_t pid;
	int pid_fd;       /* for poll(): readable after the process has exited */
	int directory;    /* /proc/PID, of this process even if its PID is reused */
	char name[64];    /* of the program, safe to print */
	int requested_vm; /* see vmm_process_open() */
	int vm_fd;        /* the VM's first descriptor in that process */
	size_t vms;       /* number of its VMs */
	/* vCPUs are those that QEMU's monitor reports: there is no VM of KVM, or it may not be
	 * inspected. */
	bool monitored;
	bool quick; /* scans do not wait for threads to make system calls: the next one is soon */
	struct vmm_vcpu vcpus[VMM_VCPUS_MAX]; /* ordered by id */
	size_t vcpu_count;
};

/*
 * Opens process PID and finds its VM with descriptor VM_FD; 0: the only one. -ESRCH: no such
 * process; -EACCES: it may not be inspected; -ENOENT: it has no VM (any longer), or VM_FD is none;
 * -E2BIG: it has several, which the message lists; -ENOTSUP: it has several, and KVM does not show
 * their vCPUs (kvm_debugfs.h); -ENOMEM and the errors of open(2); all with the message.
 */
int vmm_process_open(struct vmm_process **process, pid_t pid, int vm_fd);

/* Opens process PID without searching for a VM: it has no vCPUs until QEMU's monitor reports
 * them (vmm_process_set_vcpus()). -ESRCH, -ENOMEM and the errors of open(2), with the message. */
int vmm_process_open_monitored(struct vmm_process **process, pid_t pid);

/* NULL is allowed. */
void vmm_process_close(struct vmm_process *process);

/*
 * Scans again: vCPUs are plugged and unplugged, threads become known, and other VMs may appear,
 * which are ignored. The errors of vmm_process_open(), or -ESRCH after its end; PROCESS is then
 * unchanged. For a monitored process it only detects the end. Takes up to 20 ms if a thread is hard
 * to identify (process_scan.c).
 */
int vmm_process_scan(struct vmm_process *process);

/* Number of threads and descriptors, a quick test for changed vCPUs. Descriptors are counted
 * since Linux 6.2 (fs/proc/fd.c, proc_readfd_count()), and are 0 before. */
struct vmm_process_size {
	unsigned long threads, descriptors;
};

/* Any thread. */
struct vmm_process_size vmm_process_size(const struct vmm_process *process);

/* The user whose rights the process has; unchanged after its end. Any thread. */
void vmm_process_user(const struct vmm_process *process, uid_t *uid, gid_t *gid);

/* CPU time of all threads, in ns; 0: the process has exited. Any thread. */
uint64_t vmm_process_cpu_time(const struct vmm_process *process);

/* Any thread. */
bool vmm_process_ended(const struct vmm_process *process);

/* Sets the thread of vCPU ID to TID. False: not a thread of this process, or no such vCPU. */
bool vmm_process_set_thread(struct vmm_process *process, unsigned int id, pid_t tid);

/* The thread that ran vCPU ID has exited: removes the vCPU, unless another thread is known. */
void vmm_process_drop_vcpu(struct vmm_process *process, unsigned int id);

/* Sets the vCPUs that QEMU's monitor reports, at most VMM_VCPUS_MAX. If the process has a VM of
 * KVM, only sets the threads of its vCPUs. */
void vmm_process_set_vcpus(struct vmm_process *process, const struct vmm_vcpu *vcpus, size_t count);

/* Translates TID from the process's own PID namespace to ours; 0: no such thread. Any thread. */
pid_t vmm_process_find_thread(const struct vmm_process *process, pid_t tid);

/* Stores the processes that have VMs, as far as we may inspect them, in any order. Returns their
 * number, at most MAX. Any thread. */
size_t vmm_process_list(pid_t *pids, size_t max);

/*
 * Part of vmm_process_scan(): finds the VM of PROCESS (requested_vm if not 0), its vCPUs, in any
 * order, and their threads. Descriptors do not show which VM a vCPU belongs to: with several VMs,
 * only KVM does (kvm_debugfs.h). Needs the process's number, directory and name. Errors as of
 * vmm_process_scan(), with the message; PROCESS is then unchanged.
 */
int process_scan_vm(struct vmm_process *process);

/* Stores the first descriptor of each VM of process PID, as far as it may be inspected. Returns
 * their number, at most VMM_VMS_MAX; 0 also without such a process. Any thread. */
size_t process_list_vms(pid_t pid, int vm_fds[VMM_VMS_MAX]);

#endif
