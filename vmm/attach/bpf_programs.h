/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The BPF programs (bpf/guest_sample.c), and what they have of each VM: its vCPUs, its memslots and the ring
 * that its samples come through. They are loaded when the first VM of this process is opened, and unloaded
 * with the last: that takes a good part of a second of a CPU, and some tens of MiB for that long, which a
 * daemon that attaches to many pays for once.
 *
 * A VM by one thread at a time, several VMs by several.
 */
#ifndef KVMSCOPE_ATTACH_BPF_PROGRAMS_H
#define KVMSCOPE_ATTACH_BPF_PROGRAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/attach/bpf/guest_sample.h"

struct bpf_link;
struct bpf_vm;

/*
 * RING_SIZE in bytes, a power of two and of whole pages; the ids of its vCPUs are below VCPUS. -ENOTSUP: this
 * kernel can not do it; -EACCES: rights are missing; -EMFILE: there are too many VMs; all with the message.
 */
int bpf_vm_open(struct bpf_vm **vm, uint32_t ring_size, unsigned int vcpus);

/* Those that run its program are gone (bpf_vm_sample()). Works on NULL. */
void bpf_vm_close(struct bpf_vm *vm);

/* A map of type BPF_MAP_TYPE_RINGBUF: each record is as long of a struct bpf_whole_sample as it needs. */
int bpf_vm_ring_fd(const struct bpf_vm *vm);

/* Each 0 or a negative errno, without a message. */
int bpf_vm_set_slots(struct bpf_vm *vm, const struct bpf_slots *slots);
int bpf_vm_set_vcpu(struct bpf_vm *vm, unsigned int id, const struct bpf_vcpu *vcpu);
int bpf_vm_set_cpu(struct bpf_vm *vm, unsigned int id, const struct bpf_cpu *cpu);
int bpf_vm_get_vcpu(const struct bpf_vm *vm, unsigned int id, struct bpf_vcpu *vcpu);

/*
 * Runs the program on EVENT_FD, a perf event of the thread of vCPU ID. The link, which is ended by
 * bpf_link__destroy(), owns EVENT_FD; an error, with the message, leaves it as it was.
 */
int bpf_vm_sample(struct bpf_vm *vm, unsigned int id, int event_fd, struct bpf_link **link);

/* Do they sample guests of kvm_intel, of which they know little but where they are? While some VM is open. */
bool bpf_programs_are_intel(void);

/*
 * EACH gets what the files of the process behind PID_FD tell: vCPUs, and memslots of SLOT_SIZE_MIN bytes at
 * least. While some VM is open. -E2BIG: there is more to tell of one file than fits; -ESRCH: the process has
 * ended; others, all with the message.
 */
int bpf_programs_look(int pid_fd, uint64_t slot_size_min,
		      void (*each)(void *context, const struct bpf_found *found), void *context);

#endif
