/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What KVM tells of a VM where debugfs is mounted at /sys/kernel/debug: its directory there is
 * kvm/TID-FD, by the thread that made it and its descriptor (virt/kvm/kvm_main.c,
 * kvm_create_vm_debugfs()). vcpuN/pid in it, which thread runs a vCPU, is there from Linux 5.19
 * (arch/x86/kvm/debugfs.c). It is root's. Any thread.
 */
#ifndef KVMSCOPE_ATTACH_KVM_DEBUGFS_H
#define KVMSCOPE_ATTACH_KVM_DEBUGFS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct kvm_directory {
	char path[64];
};

/* That of the VM at descriptor VM_FD of PROCESS; false: it is not seen, and DIRECTORY is not to be
 * used. */
bool kvm_directory_find(struct kvm_directory *directory, int process, int vm_fd);

/* Has the VM vCPU ID? False also where the kernel does not tell. */
bool kvm_directory_has_vcpu(const struct kvm_directory *directory, unsigned int id);

/* The thread that runs vCPU ID, which may have ended, in our PID namespace; 0: it is not told. */
pid_t kvm_directory_thread(const struct kvm_directory *directory, unsigned int id);

/*
 * Whether guests of the guest may have run, by what KVM counts of a VM in debugfs (Linux:
 * virt/kvm/kvm_main.c, kvm_create_vm_debugfs(); arch/x86/kvm/x86.c): "nested_run", how often one
 * was entered, from Linux 5.11 on, and "guest_mode", how many vCPUs are in one now, from 5.13 on.
 * One thread at a time.
 */

struct nested_count {
	uint64_t entered, inside;
	bool known;
};

struct nested_runs {
	int entered_fd, inside_fd; /* -1: KVM does not tell */
};

/* Of the VM whose directory is DIRECTORY. False: it does not tell, and nested_runs_read() neither.
 */
bool nested_runs_open(struct nested_runs *runs, const char *directory);
/* Works on descriptors that are -1. */
void nested_runs_close(struct nested_runs *runs);

struct nested_count nested_runs_read(const struct nested_runs *runs);

/* May one have run between the looks FIRST and LAST? If KVM tells nothing, none is thought to. */
bool nested_runs_between(const struct nested_count *first, const struct nested_count *last);

#endif
