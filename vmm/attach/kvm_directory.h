/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What KVM tells of a VM where debugfs is mounted at /sys/kernel/debug: its directory there is
 * kvm/TID-FD, by the thread that made it and its descriptor (virt/kvm/kvm_main.c,
 * kvm_create_vm_debugfs()). vcpuN/pid in it, which thread runs a vCPU, is there from Linux 5.19
 * (arch/x86/kvm/debugfs.c). It is root's. Any thread.
 */
#ifndef KVMSCOPE_ATTACH_KVM_DIRECTORY_H
#define KVMSCOPE_ATTACH_KVM_DIRECTORY_H

#include <stdbool.h>
#include <sys/types.h>

#include "vmm/attach/process.h"

struct kvm_directory {
	char path[64];
};

/* That of the VM at descriptor VM_FD of PROCESS; false: it is not seen, and DIRECTORY is not to be
 * used. */
bool kvm_directory_find(struct kvm_directory *directory, const struct vmm_process *process,
			int vm_fd);

/* Has the VM vCPU ID? False also where the kernel does not tell. */
bool kvm_directory_has_vcpu(const struct kvm_directory *directory, unsigned int id);

/* The thread that runs vCPU ID, which may have ended, in our PID namespace; 0: it is not told. */
pid_t kvm_directory_thread(const struct kvm_directory *directory, unsigned int id);

#endif
