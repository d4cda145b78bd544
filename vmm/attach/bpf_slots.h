/* SPDX-License-Identifier: Apache-2.0 */
/* The memslots of a VM, as the BPF programs find them in KVM, and those that the program on its
 * vCPUs is told. The attachment's thread. */
#ifndef KVMSCOPE_ATTACH_BPF_SLOTS_H
#define KVMSCOPE_ATTACH_BPF_SLOTS_H

#include "vmm/attach/bpf/guest_sample.h"
#include "vmm/attach/vmm_memory.h"

/*
 * The memslots of the VM at descriptor VM_FD (0: the only one) of the process behind PID_FD, the
 * largest first, into SLOTS, room for VMM_SLOTS_MAX; where there are more, small ones are left out,
 * and what lies in them can not be read. LARGEST: those that a program looks through, with KVM's
 * generation if all were read at that one; its own generation is 0. Their number, above 0; else
 * with a message: -ENOTSUP, none is found in this kernel, and the errors of bpf_programs_iterate().
 */
int bpf_slots_find(int pid_fd, int vm_fd, struct vmm_slot *slots, struct bpf_slots *largest);

/* TOLD, of a vCPU whose program may run, becomes SLOTS but for its generation: while they change
 * the program reads nothing by them. One thread at a time. */
void bpf_slots_publish(struct bpf_slots *told, const struct bpf_slots *slots);

#endif
