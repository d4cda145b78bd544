/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* BPF: what a sample is made by. */
#ifndef KVMSCOPE_ATTACH_BPF_SCRATCH_H
#define KVMSCOPE_ATTACH_BPF_SCRATCH_H

#include "vmm/attach/bpf/guest_memory.h"

/* A bound of what of struct kvm_vcpu_arch is read at once. */
#define ARCH_SIZE 256
/* Bytes of the stack that are read at once: frames of most functions are smaller, and each line of
 * the cache counts. */
#define WINDOW 128
/* What is below MASK + 1, or a place in an array: for the verifier, which does not see that it is.
 */
#ifdef __bpf__
#define BOUND(value, mask) __asm__ volatile("%0 &= %1" : "+r"(value) : "i"(mask))
#else
#define BOUND(value, mask) ((value) &= (mask))
#endif

/* A walk along frame pointers. */
struct chain {
	__u64 frame;
	__u64 below;                 /* where the frame can begin */
	__u64 end;                   /* of user space */
	__u64 window, words;         /* of the stack: its GVA, and how much of it has been read */
	__u64 stack[WINDOW / 8 + 1]; /* the last is for the verifier */
};

/* A vCPU, and what its samples are made by, of which there is one at a time. Nothing of it is on
 * the stack, where the verifier would follow each number. */
struct scratch {
	struct bpf_vcpu vcpu;
	struct space space;
	struct bpf_address code; /* that was found last */
	struct chain chain;
	__u8 arch[ARCH_SIZE]; /* of the vCPU's state, what begins with its registers */
};

/* Of a walk by bpf_loop(), which has its context on the stack. */
struct walk {
	struct scratch *scratch;
	struct bpf_whole_sample *sample;
};

#endif
