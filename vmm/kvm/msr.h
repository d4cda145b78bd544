/* SPDX-License-Identifier: Apache-2.0 */
/* Model specific registers: their values after firmware, and access to single ones. */
#ifndef KVMSCOPE_KVM_MSR_H
#define KVMSCOPE_KVM_MSR_H

#include <stdint.h>

/* Sets the MSRs of a new vCPU to what a PC's firmware leaves. Skips those that this KVM lacks. */
void msr_reset(int vcpu_fd);

/* Access one MSR. 0, -ENOENT if KVM lacks it (with this CPUID), or an errno of the ioctl. */
int msr_get(int vcpu_fd, uint32_t index, uint64_t *value);
int msr_set(int vcpu_fd, uint32_t index, uint64_t value);

#endif
