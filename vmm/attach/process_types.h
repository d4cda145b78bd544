/* SPDX-License-Identifier: Apache-2.0 */
/* A VMM process and its vCPUs, as vmm/attach/process.h opens and scans them. */
#ifndef KVMSCOPE_ATTACH_PROCESS_TYPES_H
#define KVMSCOPE_ATTACH_PROCESS_TYPES_H

#include <stdbool.h>
#include <stddef.h>
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
	struct vmm_vcpu vcpus[VMM_VCPUS_MAX]; /* ordered by id */
	size_t vcpu_count;
};

#endif
