/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The BPF programs (bpf/guest_sample.c) with their maps: a bell per VM, and per vCPU its state and
 * ring. They are loaded when this process opens the first VM, and unloaded with the last one:
 * loading takes a good part of a second of CPU time and, temporarily, some tens of MiB. VMs whose
 * time outside is sampled share other copies than those without.
 *
 * One thread at a time per VM; several VMs in parallel.
 */
#ifndef KVMSCOPE_ATTACH_BPF_SKELETONS_H
#define KVMSCOPE_ATTACH_BPF_SKELETONS_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/attach/bpf/guest_sample.h"
#include "vmm/attach/bpf_ringbuf.h"

struct bpf_link;
struct bpf_vm;

/* For tests: loads programs as for kernels before 6.2, without bpf_rdonly_cast(). */
void bpf_programs_avoid_cast(bool avoid);

/* OUTSIDE: for bpf_outside_add(). -ENOTSUP: not in this kernel; -EACCES: missing rights; -EMFILE:
 * too many VMs; all with the message. */
int bpf_vm_open(struct bpf_vm **vm, bool outside);

/* All vCPUs are closed before. NULL is allowed. */
void bpf_vm_close(struct bpf_vm *vm);

/* The descriptor of the VM's bell, a BPF_MAP_TYPE_RINGBUF that becomes readable when a ring for
 * which bpf_ring_wait() was called has samples. */
int bpf_vm_bell_fd(const struct bpf_vm *vm);

struct bpf_vcpu_map;

/* A vCPU of the VM. */
struct bpf_vm_vcpu {
	struct bpf_ring ring; /* the caller writes the loader's fields of ring.vcpu, initially 0 */
	uint32_t chunks;
	struct bpf_vcpu_map *map;
	uint32_t first; /* element in its map */
};

/*
 * Lets the next COUNT vCPUs, all with the same number of chunks, share a map: for each map that is
 * added to or removed from the outer one, the kernel waits some ten ms until no program runs. Other
 * vCPUs have maps of their own.
 */
void bpf_vm_reserve(struct bpf_vm *vm, uint32_t count);

/* Opens a vCPU with a ring of CHUNKS (a power of two) chunks. -EMFILE: too many maps; others;
 * all with the message. */
int bpf_vcpu_open(struct bpf_vm *vm, struct bpf_vm_vcpu *vcpu, uint32_t chunks);

/* The link of bpf_vcpu_sample() is destroyed before. */
void bpf_vcpu_close(struct bpf_vm *vm, struct bpf_vm_vcpu *vcpu);

/* Runs the program on EVENT_FD, a perf event of the vCPU's thread. LINK, for
 * bpf_link__destroy(), then owns EVENT_FD; on an error, with the message, the caller still does. */
int bpf_vcpu_sample(const struct bpf_vm *vm, const struct bpf_vm_vcpu *vcpu, int event_fd,
		    struct bpf_link **link);

/*
 * Samples the time that thread TID, in the initial PID namespace, spends outside of the guest as
 * time of VCPU, which it runs: each PERIOD ns of the events WANTED, a bit mask of enum bpf_event.
 * The VM was opened with OUTSIDE. Before a period or vCPU changes, the thread is removed.
 * Errors of the map, with the message.
 */
int bpf_outside_add(const struct bpf_vm *vm, const struct bpf_vm_vcpu *vcpu, __u32 tid,
		    uint64_t period, uint32_t wanted);
void bpf_outside_remove(const struct bpf_vm *vm, __u32 tid);

/* Whose KVM this kernel has, built in or as a module. Any thread. */
enum bpf_kvm { BPF_KVM_OTHER, BPF_KVM_AMD, BPF_KVM_INTEL };
enum bpf_kvm bpf_kvm(void);

/* True for guests of kvm_intel, whose RSP and CR3 are mostly unknown. */
bool bpf_programs_are_intel(const struct bpf_vm *vm);

/* A size that no memslot has. */
#define BPF_NO_SLOTS UINT64_MAX

/*
 * Calls EACH for the VMs of the process of PID_FD, and for the vCPUs, and memslots of at least
 * SLOT_SIZE_MIN bytes, of its VM with descriptor VM_FD (0: of all). While a VM is open. -E2BIG: one
 * file has too many records; -ESRCH: the process or the VM has ended; others; all with the message.
 */
int bpf_programs_iterate(int pid_fd, int vm_fd, uint64_t slot_size_min,
			 void (*each)(void *context, const struct bpf_found *found), void *context);

#endif
