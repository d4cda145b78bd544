/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* BPF: state of the program for the current sample. */
#ifndef KVMSCOPE_ATTACH_BPF_SCRATCH_H
#define KVMSCOPE_ATTACH_BPF_SCRATCH_H

#include "vmm/attach/bpf/guest_memory.h"

/* Upper bound of the part of struct kvm_vcpu_arch that is read at once. */
#define ARCH_SIZE 256
/* Bytes of the stack that are read at once: most frames are smaller, and each cache line counts. */
#define WINDOW 128
/* Limits VALUE to an array size or MASK, which the verifier cannot derive. */
#ifdef __bpf__
#define BOUND(value, mask) __asm__ volatile("%0 &= %1" : "+r"(value) : "i"(mask))
#else
#define BOUND(value, mask) ((value) &= (mask))
#endif

/* A walk of frame pointers. */
struct chain {
	__u64 frame;
	__u64 below;                 /* lower bound of the frame's address */
	__u64 end;                   /* of user space */
	__u64 window, words;         /* of the stack: GVA, and number of words read */
	__u64 stack[WINDOW / 8 + 1]; /* one more word for the verifier */
};

/* A vCPU and the state of its current sample. It is not on the stack, where the verifier would
 * track each value. */
struct scratch {
	struct bpf_vcpu vcpu;
	struct space space;
	struct bpf_address code; /* the last one */
	struct chain chain;
	__u8 arch[ARCH_SIZE]; /* of the vCPU's state, from the registers on */
};

/* Context of a bpf_loop() walk, which has to be on the stack. */
struct walk {
	struct scratch *scratch;
	struct bpf_whole_sample *sample;
};

#endif
