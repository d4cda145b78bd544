/* SPDX-License-Identifier: Apache-2.0 */
/* State of the BPF backend (backend_bpf.c) for one VM. The attach thread. */
#ifndef KVMSCOPE_ATTACH_BPF_SOURCE_H
#define KVMSCOPE_ATTACH_BPF_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/attach/backend.h"
#include "vmm/attach/bpf/guest_sample.h"
#include "vmm/attach/bpf_skeletons.h"
#include "vmm/attach/perf_event.h"
#include "vmm/attach/vmm_memory.h"
#include "vmm/guest/linux/task.h"

struct ring_buffer;

struct bpf_thread {
	struct vmm_vcpu vcpu;
	int event_fd;
	struct bpf_link *link;     /* owns event_fd */
	__u32 outside;             /* TID whose time outside is sampled; 0: none */
	struct bpf_vm_vcpu memory; /* shared with the program */
	/* The layout of tasks that was published to the program, and its generation. */
	struct guest_task_layout layout;
	bool has_changes; /* the layout of the memory's state was published, too */
	__u32 generation;
	struct bpf_thread *next;
};

struct attach_source {
	const struct attach_target *target;
	struct perf_event_choice choice;
	struct bpf_vm *vm;
	struct ring_buffer *bell;   /* the VM's */
	struct bpf_thread *threads; /* owned */
	struct bpf_slots slots;
	bool outside;           /* exits are traced */
	bool paused;            /* vCPUs are known, but have no events */
	unsigned int frequency; /* Hz */
	uint32_t chunks;        /* of a new ring */
	uint32_t user_stack;    /* bytes: the largest copy that was requested for a process */
	uint32_t expected;      /* vCPUs that share a map */
	uint64_t emitted;       /* samples */
	uint64_t raw_offset;    /* ns: CLOCK_MONOTONIC_RAW less CLOCK_MONOTONIC, modulo 2^64 */
};

/* Passes all samples in the ring of THREAD, and the number of lost ones, to the sink. */
void bpf_source_drain(struct attach_source *source, struct bpf_thread *thread);

/* Sets the offsets and sizes of the words of a task that the program reads (enum bpf_task_word),
 * in bytes and multiples of 8, for LAYOUT and VMAS. The program must not be reading them. Any
 * thread. */
void bpf_task_words_set(struct bpf_cpu *cpu, const struct guest_task_layout *layout,
			const struct guest_vma_layout *vmas);

/*
 * Stores in SLOTS (room for VMM_SLOTS_MAX) the memslots of the VM with descriptor VM_FD (0: the
 * only one) of the process of PID_FD, the largest first. If there are more, small ones are left
 * out, and their memory cannot be read. LARGEST gets those for the program, with KVM's generation
 * if it did not change. Returns their number, above 0; or -ENOTSUP: none is found in this kernel,
 * and the errors of bpf_programs_iterate(), with the message.
 */
int bpf_slots_find(int pid_fd, int vm_fd, struct vmm_slot *slots, struct bpf_slots *largest);

/* Copies SLOTS to SHARED, of a vCPU whose program may be running: while SHARED changes, its
 * generation is odd and the program does not use it. One thread at a time. */
void bpf_slots_publish(struct bpf_slots *shared, const struct bpf_slots *slots);

#endif
