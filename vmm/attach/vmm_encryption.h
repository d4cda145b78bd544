/* SPDX-License-Identifier: Apache-2.0 */
/* Is a VMM's guest encrypted, by its command line or its open files? Any thread. */
#ifndef KVMSCOPE_ATTACH_VMM_ENCRYPTION_H
#define KVMSCOPE_ATTACH_VMM_ENCRYPTION_H

#include <stdbool.h>

#include "vmm/attach/process.h"
#include "vmm/attach/qemu_command_line.h"

/*
 * The same for any VMM, by the descriptors in the /proc/PID at DIRECTORY:
 *
 *   /dev/sev   KVM_MEMORY_ENCRYPT_OP needs it to start a guest (Documentation/virt/kvm/x86/
 *              amd-memory-encryption.rst, sev_fd): one kind of SEV
 *   guest_memfd (virt/kvm/guest_memfd.c) is memory that only the guest can read, but not in every
 *              VM that uses it: TDX if HAS_TDX, as KVM creates TDX guests on this host
 *
 * A VMM that has closed /dev/sev is not recognized.
 */
enum guest_encryption encryption_by_files(int directory, bool has_tdx);

/* Of PROCESS, whatever VMM it is. */
enum guest_encryption vmm_encryption(const struct vmm_process *process);

#endif
