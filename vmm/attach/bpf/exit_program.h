/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* What the BPF program exit_program.c and its loader share. */
#ifndef KVMSCOPE_ATTACH_BPF_EXIT_PROGRAM_H
#define KVMSCOPE_ATTACH_BPF_EXIT_PROGRAM_H

#include <linux/types.h>

/*
 * Buckets of times in ns: 0 to 7, then eight for each power of two. A bucket is at most an eighth
 * as wide as its times. A power of two, for BPF's verifier; the last ones are not used.
 */
#define EXIT_BUCKETS 512

struct exit_key {
	__u32 tid;    /* in the initial PID namespace */
	__u32 reason; /* as in the tracepoint: VMX's basic reason and flags, or SVM's exit code */
};

/* The exits of a vCPU thread for one reason that were followed by an entry. */
struct exit_counts {
	__u64 count, ns, ns_max;
	__u32 vcpu; /* KVM's id */
	__u32 isa;  /* of KVM's tracepoint: 1 VMX, 2 SVM */
	__u32 buckets[EXIT_BUCKETS];
};

#endif
