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

enum access_kind {
	ACCESS_MMIO_READ,
	ACCESS_MMIO_WRITE,
	ACCESS_PORT_IN,
	ACCESS_PORT_OUT,
	ACCESS_MSR_READ,
	ACCESS_MSR_WRITE,
	ACCESS_HYPERCALL,
	ACCESS_KINDS,
};

struct access_key {
	__u64 address; /* physical address, port, MSR or number of the hypercall */
	__u32 tid;     /* in the initial PID namespace */
	__u32 kind;    /* enum access_kind */
};

/* Accesses of a vCPU thread, and the time outside of the guest of their exits. */
struct access_counts {
	__u64 count, ns, ns_max;
	__u32 vcpu; /* KVM's id */
	__u32 unused;
};

/* What a vCPU thread does. At any time it is in one state. */
enum vcpu_state {
	VCPU_GUEST,   /* on a CPU, from an entry to the next exit */
	VCPU_KVM,     /* on a CPU, from an exit to the next entry, or until KVM_RUN returns */
	VCPU_VMM,     /* on a CPU, from the return of KVM_RUN to the next entry */
	VCPU_RUNNING, /* on a CPU: one of the above */
	VCPU_WAITING, /* ready to run, but another thread has the CPU */
	VCPU_HALTED,  /* asleep, because the guest halted the vCPU or has not started it */
	VCPU_BLOCKED, /* asleep for another reason */
	VCPU_ASLEEP,  /* one of the two above */
	VCPU_STATES,  /* a power of two, for BPF's verifier */
};

/* A vCPU thread of the process. */
struct vcpu_thread {
	__u64 ns[VCPU_STATES]; /* until SINCE, of CLOCK_MONOTONIC, when STATE began */
	__u64 since;
	__u64 exited;      /* as SINCE; 0: it is in the guest, or its exit was not seen */
	__u32 sequence;    /* odd while ns, since and state are written */
	__u32 state;       /* enum vcpu_state; VCPU_STATES: the thread has exited */
	__u32 place;       /* the state while it is on a CPU */
	__u32 vcpu;        /* KVM's id */
	__u32 reason, isa; /* of its last exit */
	__u32 halting;     /* KVM_RUN has returned because of a halt */
	__u32 access;      /* the last access since its exit: enum access_kind, and 1; 0: none */
	__u64 address;     /* of that access */
	/* Interrupts of the host that ended the guest's execution, by the half of the address space
	 * in which it was: 0 user space, 1 kernel. */
	__u64 interrupted[2];
};

#endif
