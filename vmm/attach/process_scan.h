/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scans a process for its VMs, by their descriptors, and for the vCPUs of one of them. Descriptors
 * do not show which VM a vCPU belongs to: with several VMs, only KVM does (kvm_debugfs.h). One
 * thread at a time.
 */
#ifndef KVMSCOPE_ATTACH_PROCESS_SCAN_H
#define KVMSCOPE_ATTACH_PROCESS_SCAN_H

#include <stddef.h>
#include <sys/types.h>

#include "vmm/attach/process_types.h"

/*
 * Finds the VM of PROCESS (requested_vm if not 0), its vCPUs, in any order, and their threads.
 * Needs the process's number, directory and name. The errors of vmm_process_scan(), with the
 * message; PROCESS is then unchanged.
 */
int process_scan_vm(struct vmm_process *process);

/* Stores the first descriptor of each VM of process PID, as far as it may be inspected. Returns
 * their number, at most VMM_VMS_MAX; 0 also without such a process. Any thread. */
size_t process_list_vms(pid_t pid, int vm_fds[VMM_VMS_MAX]);

#endif
