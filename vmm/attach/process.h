/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A VMM process of any make, seen from outside: which vCPUs its VM has, and
 * which threads run them.
 *
 * KVM gives each VM and each vCPU a file descriptor whose link tells what it
 * is, "anon_inode:kvm-vm" and "anon_inode:kvm-vcpu:N" (virt/kvm/kvm_main.c,
 * kvm_dev_ioctl_create_vm() and create_vcpu_fd()); N is the vCPU's id. Which
 * thread runs it, whoever can say it first does:
 *
 *	KVM	DEBUGFS/kvm/PID-FD/vcpuN/pid (arch/x86/kvm/debugfs.c)
 *	name	of the thread: "CPU 0/KVM" of QEMU, "vCPU 0", "fc_vcpu 0", ...
 *	call	it waits in ioctl(KVM_RUN) of the vCPU's descriptor (/proc/PID/task/TID/syscall)
 *
 * A vCPU whose thread nobody tells has none: none is guessed. Of a process with several VMs only KVM tells
 * which vCPUs are whose; the VM that is meant is named by its descriptor. Any one thread at a time.
 */
#ifndef KVMSCOPE_ATTACH_PROCESS_H
#define KVMSCOPE_ATTACH_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* VMs of one process that are told apart. */
#define VMM_VMS_MAX 64

/* Ids are below (kernel: KVM_MAX_VCPU_IDS is larger; what a recording can hold is not). */
#define VMM_VCPUS_MAX 1024

struct vmm_vcpu {
	unsigned int id;   /* KVM's */
	pid_t tid;         /* in our PID namespace; 0: not known */
	const char *found; /* how, for messages; NULL: not known */
};

struct vmm_process {
	pid_t pid;
	int pid_fd;    /* can be polled: readable once the process has ended */
	int directory; /* /proc/PID, of this process and no later one with its number */
	char name[64]; /* of its program, safe to print */
	int wanted_vm; /* see vmm_process_open_vm() */
	int vm_fd;     /* the number of its VM's first descriptor, in that process */
	size_t vms;    /* that it has; of several it is that one alone */
	/* Its vCPUs are those that QEMU's monitor tells: it has no VM of KVM, or it may not be looked at. */
	bool monitored;
	struct vmm_vcpu vcpus[VMM_VCPUS_MAX]; /* in order of their ids */
	size_t vcpu_count;
};

/*
 * Opens process PID and finds its VM. -ESRCH: there is no such process; -EACCES: it may not be looked at;
 * -ENOENT: it has no VM (any more); -E2BIG: it has several, which the message names; -ENOMEM and the errors
 * of open().
 */
int vmm_process_open(struct vmm_process **process, pid_t pid);

/*
 * The same, of its VM at descriptor VM_FD; 0: the only one. -ENOENT: that is none; -ENOTSUP: it has several,
 * and KVM does not tell their vCPUs apart (debugfs, from Linux 5.19).
 */
int vmm_process_open_vm(struct vmm_process **process, pid_t pid, int vm_fd);

/* The first descriptors of the VMs that process PID has, as far as it may be looked at; their number, at most
 * VMM_VMS_MAX. */
size_t vmm_process_list_vms(pid_t pid, int vm_fds[VMM_VMS_MAX]);

/*
 * The same for a process whose vCPUs its monitor tells (vmm_process_set_vcpus()); it has none until then.
 * -ESRCH, -ENOMEM and the errors of open().
 */
int vmm_process_open_monitored(struct vmm_process **process, pid_t pid);

/*
 * Looks again: vCPUs come and go (hot-plug), and threads that were not known may be by now; so may VMs beside
 * its own, which it stays with. 0, or as above; then it is as it was.
 */
int vmm_process_scan(struct vmm_process *process);

/*
 * How many threads and descriptors it has, which tells at once that vCPUs may have come or gone. Descriptors
 * are counted from Linux 6.2 on (fs/proc/fd.c, proc_readfd_count()), and are 0 before.
 */
struct vmm_process_size {
	unsigned long threads, descriptors;
};

struct vmm_process_size vmm_process_size(const struct vmm_process *process);

/* ns of CPU time that it has used, with all its threads; 0: it has ended. Any thread. */
uint64_t vmm_process_cpu_time(const struct vmm_process *process);

/* Somebody knows that thread TID runs vCPU ID; false: it is none of this process, or there is no such vCPU.
 */
bool vmm_process_learn_thread(struct vmm_process *process, unsigned int id, pid_t tid);

/* Is TID one of its threads, now? */
bool vmm_process_has_thread(const struct vmm_process *process, pid_t tid);

/* QEMU's monitor tells these vCPUs, at most VMM_VCPUS_MAX; if KVM does, only the threads of those that it has
 * are taken from them. */
void vmm_process_set_vcpus(struct vmm_process *process, const struct vmm_vcpu *vcpus, size_t count);

/* The thread that has number TID in the process's own PID namespace; 0: there is none. */
pid_t vmm_process_find_thread(const struct vmm_process *process, pid_t tid);

/* The last number of the line "NSpid:" in TEXT, a thread's status; 0: there is none. */
pid_t vmm_parse_own_tid(const char *text);

/* Has it ended? */
bool vmm_process_ended(const struct vmm_process *process);

void vmm_process_close(struct vmm_process *process);

/* The processes that have VMs, as far as we may look; their number, at most MAX. */
size_t vmm_process_list(pid_t *pids, size_t max);

/* The parsers of what a process says of itself; anybody may have written it. */

/* Is LINK, of a descriptor, that of a vCPU? */
bool vmm_parse_vcpu_link(const char *link, unsigned int *id);

/* Does the thread's NAME end with the number of a vCPU? */
bool vmm_parse_thread_name(const char *name, unsigned int *id);

/* Does TEXT, a thread's system call as /proc tells it, say that it is in KVM_RUN? FD is its descriptor. */
bool vmm_parse_run_call(const char *text, int *fd);

#endif
