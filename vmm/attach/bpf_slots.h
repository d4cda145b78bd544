/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the memslots of a VM from KVM by BPF, and publishes them to the program. The attach
 * thread. */
#ifndef KVMSCOPE_ATTACH_BPF_SLOTS_H
#define KVMSCOPE_ATTACH_BPF_SLOTS_H

#include "vmm/attach/bpf/guest_sample.h"
#include "vmm/attach/vmm_memory.h"

/*
 * Stores in SLOTS (room for VMM_SLOTS_MAX) the memslots of the VM with descriptor VM_FD (0: the
 * only one) of the process behind PID_FD, the largest first. If there are more, small ones are left
 * out, and their memory cannot be read. LARGEST gets those for the program, with KVM's generation
 * if it did not change. Returns their number, above 0; or -ENOTSUP: none is found in this kernel,
 * and the errors of bpf_programs_iterate(), with the message.
 */
int bpf_slots_find(int pid_fd, int vm_fd, struct vmm_slot *slots, struct bpf_slots *largest);

/* Copies SLOTS to SHARED, of a vCPU whose program may be running: while SHARED changes, its
 * generation is odd and the program does not use it. One thread at a time. */
void bpf_slots_publish(struct bpf_slots *told, const struct bpf_slots *slots);

#endif
