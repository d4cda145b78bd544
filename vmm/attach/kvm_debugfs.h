/* SPDX-License-Identifier: Apache-2.0 */
/*
 * KVM's directory of a VM in debugfs, if that is mounted at /sys/kernel/debug: kvm/TID-FD, named
 * after the creating thread and its descriptor (virt/kvm/kvm_main.c, kvm_create_vm_debugfs()).
 * vcpuN/pid in it, the vCPU's thread, exists since Linux 5.19 (arch/x86/kvm/debugfs.c). Readable by
 * root. Any thread.
 */
#ifndef KVMSCOPE_ATTACH_KVM_DEBUGFS_H
#define KVMSCOPE_ATTACH_KVM_DEBUGFS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct kvm_directory {
	char path[64];
};

/* Finds the directory of the VM with descriptor VM_FD of the process whose /proc/PID is open as
 * PROCESS. False: not found. */
bool kvm_directory_find(struct kvm_directory *directory, int process, int vm_fd);

/* True if the VM has vCPU ID. False also if the kernel does not show it. */
bool kvm_directory_has_vcpu(const struct kvm_directory *directory, unsigned int id);

/* The thread that runs vCPU ID, or did before it exited, in our PID namespace; 0: not shown. */
pid_t kvm_directory_thread(const struct kvm_directory *directory, unsigned int id);

/*
 * KVM's counters of nested guests in a VM's directory (virt/kvm/kvm_main.c,
 * kvm_create_vm_debugfs(); arch/x86/kvm/x86.c): "nested_run" counts entries since Linux 5.11,
 * "guest_mode" the vCPUs that are in one now, since 5.13. One thread at a time.
 */

struct nested_count {
	uint64_t entered, inside;
	bool known;
};

struct nested_runs {
	int entered_fd, inside_fd; /* -1: not available */
};

/* Opens the counters of a VM; PROCESS and VM_FD as for kvm_directory_find(). False: one is not
 * available, and nested_runs_read() reports neither. */
bool nested_runs_open(struct nested_runs *runs, int process, int vm_fd);
/* Descriptors may be -1. */
void nested_runs_close(struct nested_runs *runs);

struct nested_count nested_runs_read(const struct nested_runs *runs);

/* True if a nested guest may have run between FIRST and LAST. False if the counters are not
 * available. */
bool nested_runs_between(const struct nested_count *first, const struct nested_count *last);

#endif
