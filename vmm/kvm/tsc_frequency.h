/* SPDX-License-Identifier: Apache-2.0 */
/* What a guest's time stamp counter has to do with the host's. */
#ifndef KVMSCOPE_KVM_TSC_FREQUENCY_H
#define KVMSCOPE_KVM_TSC_FREQUENCY_H

#include <stdint.h>

#include "vmm/kvm/vm.h"

/*
 * The guest's TSC less the host's, in cycles, modulo 2^64, on all vCPUs (KVM_VCPU_TSC_OFFSET,
 * Documentation/virt/kvm/devices/vcpu.rst; Linux 5.16). -ENXIO where this KVM
 * does not tell it, -ENODATA where the vCPUs do not agree. To be called while
 * none runs. What the guest does to its TSC afterwards is not seen.
 */
int vm_tsc_offset(const struct vm *vm, uint64_t *offset);

#endif
