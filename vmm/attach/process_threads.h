/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which threads of a process run the vCPUs of its VM. Whoever can say it first does:
 *
 *	KVM	kvm_directory.h
 *	name	of the thread: "CPU 0/KVM" of QEMU, "vCPU 0", "fc_vcpu 0", ...
 *	call	it waits in ioctl(KVM_RUN) of the vCPU's descriptor
 *
 * A vCPU whose thread nobody tells has none: none is guessed. One whose thread has ended, as KVM
 *tells, was unplugged: it is none, until another thread is known. Any one thread at a time.
 */
#ifndef KVMSCOPE_ATTACH_PROCESS_THREADS_H
#define KVMSCOPE_ATTACH_PROCESS_THREADS_H

#include <stdbool.h>
#include <stddef.h>

#include "vmm/attach/process.h"

struct process_vcpu {
	struct vmm_vcpu is;
	int fd;     /* its first descriptor, in the process */
	bool ended; /* its thread has, as KVM tells */
};

/* A VM as its process's descriptors tell it. */
struct process_vm {
	int fd;     /* its first descriptor, in the process */
	bool alone; /* the process has no other: names and descriptors tell whose a vCPU is */
	struct process_vcpu vcpus[VMM_VCPUS_MAX]; /* their ids differ */
	size_t vcpu_count;
};

/* The vCPU of VM with that ID; NULL: it has none. */
struct process_vcpu *process_vm_vcpu(struct process_vm *vm, unsigned int id);

/*
 * Fills in the threads of VM's vCPUs, which have none yet, as far as somebody tells: first those
 * that PROCESS had and that are there still. Leaves out those that were unplugged. Waits up to 20
 * ms where neither KVM tells all of them, nor any has a name.
 */
void process_vm_find_threads(struct process_vm *vm, const struct vmm_process *process);

#endif
