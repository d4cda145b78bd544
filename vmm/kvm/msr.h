/* SPDX-License-Identifier: Apache-2.0 */
/* Model specific registers: what firmware would have set before the kernel starts, and single
 * accesses. */
#ifndef KVMSCOPE_KVM_MSR_H
#define KVMSCOPE_KVM_MSR_H

#include <stdint.h>

/*
 * Sets on a new vCPU (its fd) what the PC's firmware leaves behind. A KVM
 * that does not have one of them is not an error: the guest does without.
 */
void msr_reset(int vcpu_fd);

/* One MSR; 0, -ENOENT where KVM does not know it (for this CPUID), or the errors of the ioctl. */
int msr_get(int vcpu_fd, uint32_t index, uint64_t *value);
int msr_set(int vcpu_fd, uint32_t index, uint64_t value);

#endif
