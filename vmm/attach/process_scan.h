/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The VMs that a process has, by its descriptors of KVM, and the vCPUs of the one that is meant. It
 * is not told by a descriptor which VM a vCPU is of: of a process with several VMs only KVM tells
 * it (kvm_debugfs.h). Any one thread at a time.
 */
#ifndef KVMSCOPE_ATTACH_PROCESS_SCAN_H
#define KVMSCOPE_ATTACH_PROCESS_SCAN_H

#include <stddef.h>
#include <sys/types.h>

#include "vmm/attach/process_types.h"

/*
 * Finds the VM of PROCESS, requested_vm if that is not 0, its vCPUs, in no order, and their
 * threads. 0, or the errors of vmm_process_scan(), with a message; then PROCESS is as it was. Its
 * number, directory and name are to be there.
 */
int process_scan_vm(struct vmm_process *process);

/* The first descriptors of the VMs that process PID has, as far as it may be looked at; their
 * number, at most VMM_VMS_MAX. 0 also where there is no such process. Any thread. */
size_t process_list_vms(pid_t pid, int vm_fds[VMM_VMS_MAX]);

#endif
