/* SPDX-License-Identifier: Apache-2.0 */
/* A VMM process and its vCPUs, as vmm/attach/process.h opens and scans them. */
#ifndef KVMSCOPE_ATTACH_PROCESS_TYPES_H
#define KVMSCOPE_ATTACH_PROCESS_TYPES_H

#include <stdbool.h>
#include <stddef.h>
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

/*
 * One that was unplugged is none, as far as somebody tells that its thread has ended: QEMU keeps
 * its descriptor for when it is plugged in again (QEMU: kvm_destroy_vcpu()).
 */
struct vmm_process {
	pid_t pid;
	int pid_fd;       /* can be polled: readable once the process has ended */
	int directory;    /* /proc/PID, of this process and no later one with its number */
	char name[64];    /* of its program, safe to print */
	int requested_vm; /* see vmm_process_open_vm() */
	int vm_fd;        /* the number of its VM's first descriptor, in that process */
	size_t vms;       /* that it has; of several it is that one alone */
	/* Its vCPUs are those that QEMU's monitor tells: it has no VM of KVM, or it may not be
	 * looked at. */
	bool monitored;
	struct vmm_vcpu vcpus[VMM_VCPUS_MAX]; /* in order of their ids */
	size_t vcpu_count;
};

#endif
