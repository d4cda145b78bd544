/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The BPF programs (bpf/guest_sample.c), and what they have of each VM: a bell, and of each vCPU
 * what is known of it, with the ring that its samples come through. They are loaded when the first
 * VM of this process is opened, and unloaded with the last: that takes a good part of a second of a
 * CPU, and some tens of MiB for that long, which a daemon that attaches to many pays for once.
 *
 * A VM by one thread at a time, several VMs by several.
 */
#ifndef KVMSCOPE_ATTACH_BPF_SKELETONS_H
#define KVMSCOPE_ATTACH_BPF_SKELETONS_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/attach/bpf/guest_sample.h"
#include "vmm/attach/bpf_ringbuf.h"

struct bpf_link;
struct bpf_vm;

/* For tests: programs that are loaded from now on work as on a kernel without bpf_rdonly_cast(),
 * before 6.2.
 */
void bpf_programs_avoid_cast(bool avoid);

/* -ENOTSUP: this kernel can not do it; -EACCES: rights are missing; -EMFILE: there are too many
 * VMs; all with the message. */
int bpf_vm_open(struct bpf_vm **vm);

/* Its vCPUs are closed. Works on NULL. */
void bpf_vm_close(struct bpf_vm *vm);

/* A map of type BPF_MAP_TYPE_RINGBUF that has something to read when a ring that is waited for has.
 */
int bpf_vm_bell_fd(const struct bpf_vm *vm);

struct bpf_vcpu_map;

/* One of its vCPUs. */
struct bpf_vm_vcpu {
	struct bpf_ring ring; /* ring.vcpu is the caller's to write, where it is the loader's: all 0
				 at first */
	uint32_t chunks;
	struct bpf_vcpu_map *place;
	uint32_t first; /* element in the map of its place */
};

/*
 * The next COUNT vCPUs of VM that are opened, all with as many chunks, share a map: the kernel
 * waits until no program runs for each map that is shown to them or hidden, some ten milliseconds.
 * Without it, and from then on, each has one of its own.
 */
void bpf_vm_reserve(struct bpf_vm *vm, uint32_t count);

/* With a ring of CHUNKS (a power of two) chunks. -EMFILE: there are too many maps of vCPUs; others,
 * all with the message. */
int bpf_vcpu_open(struct bpf_vm *vm, struct bpf_vm_vcpu *vcpu, uint32_t chunks);

/* What runs its program is gone (bpf_vcpu_sample()). */
void bpf_vcpu_close(struct bpf_vm *vm, struct bpf_vm_vcpu *vcpu);

/*
 * Runs the program on EVENT_FD, a perf event of the vCPU's thread. The link, which is ended by
 * bpf_link__destroy(), owns EVENT_FD; an error, with the message, leaves it as it was.
 */
int bpf_vcpu_sample(const struct bpf_vm *vm, const struct bpf_vm_vcpu *vcpu, int event_fd,
		    struct bpf_link **link);

/* Do they sample guests of kvm_intel, whose RSP and CR3 are mostly not known to them? While some VM
 * is open.
 */
bool bpf_programs_are_intel(void);

/* Bytes that no memslot has. */
#define BPF_NO_SLOTS UINT64_MAX

/*
 * EACH gets what the files of the process behind PID_FD tell: VMs, and of the one at its descriptor
 * VM_FD (0: of all) vCPUs, and memslots of SLOT_SIZE_MIN bytes at least. While some VM is open.
 * -E2BIG: there is more to tell of one file than fits; -ESRCH: the process or the VM has ended;
 * others, all with the message.
 */
int bpf_programs_iterate(int pid_fd, int vm_fd, uint64_t slot_size_min,
			 void (*each)(void *context, const struct bpf_found *found), void *context);

#endif
