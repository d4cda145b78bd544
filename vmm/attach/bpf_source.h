/* SPDX-License-Identifier: Apache-2.0 */
/* What the backend of BPF (backend_bpf.c) has of a VM. The attachment's thread. */
#ifndef KVMSCOPE_ATTACH_BPF_SOURCE_H
#define KVMSCOPE_ATTACH_BPF_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/attach/backend.h"
#include "vmm/attach/bpf/guest_sample.h"
#include "vmm/attach/bpf_skeletons.h"
#include "vmm/attach/perf_event.h"
#include "vmm/guest/linux/task.h"

struct ring_buffer;

struct bpf_thread {
	struct vmm_vcpu vcpu;
	int event_fd;
	struct bpf_link *link;     /* owns event_fd */
	struct bpf_vm_vcpu memory; /* shared with the program */
	/* Of the kernel whose tasks are seen, and of what the program was told of them. */
	struct guest_task_layout layout;
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
	bool paused;         /* vCPUs are known, and have no events */
	uint32_t chunks;     /* of a vCPU's ring */
	uint32_t expected;   /* vCPUs that share a map: for so many CHUNKS are not too many */
	uint64_t emitted;    /* samples */
	uint64_t raw_offset; /* ns: CLOCK_MONOTONIC_RAW less CLOCK_MONOTONIC, modulo 2^64 */
};

/* Gives the sink all samples of THREAD that are in its ring now, and tells it of those that were
 * lost. */
void bpf_source_drain(struct attach_source *source, struct bpf_thread *thread);

/* Which words the program of BPF reads of a guest's task (enum bpf_task_word), as the layout of its
 * kernel has them. Any thread. */

/* CPU's offsets and sizes become those of LAYOUT: bytes, multiples of 8. The caller keeps the
 * program from reading them meanwhile. */
void bpf_task_words_set(struct bpf_cpu *cpu, const struct guest_task_layout *layout);

#endif
