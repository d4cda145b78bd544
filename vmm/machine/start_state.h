/* SPDX-License-Identifier: Apache-2.0 */
/* The first vCPU's registers, from what the boot protocol wants. */
#ifndef KVMSCOPE_MACHINE_START_STATE_H
#define KVMSCOPE_MACHINE_START_STATE_H

#include "vmm/boot/kernel_boot.h"
#include "vmm/kvm/vcpu.h"

/* Sets all registers of the vCPU, which must not have run. The errors of the ioctls. */
int start_state_set(struct vcpu *vcpu, const struct boot_start *start);

#endif
