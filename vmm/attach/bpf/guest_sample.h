/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* What the BPF programs of guest_sample.c and their loader say to each other. */
#ifndef KVMSCOPE_ATTACH_BPF_GUEST_SAMPLE_H
#define KVMSCOPE_ATTACH_BPF_GUEST_SAMPLE_H

#include <linux/types.h>

#define BPF_SLOTS_MAX 32
#define BPF_CHAIN_MAX 127
/* Bytes of the kernel's stack; it has no more than 16 KiB (THREAD_SIZE), and uses some hundreds mostly. */
#define BPF_STACK_MAX 4096

/* The iterator over a VMM's files writes these. */
enum bpf_found_type { BPF_FOUND_VCPU = 1, BPF_FOUND_SLOT = 2 };

struct bpf_found {
	__u32 type;
	__u32 id;             /* of the vCPU */
	__u32 tid, inner_tid; /* of its thread, in the first PID namespace and in its own; 0: it has not run
				 yet */
	__u64 vcpu;           /* kernel address of its struct kvm_vcpu */
	__u64 pid;            /* of the struct pid of its thread */
	__u64 gpa, size, hva; /* of the memslot, bytes */
};

/* VMs that one process samples at the same time. An array of so many is below 32 KiB: the kernel has it where
 * it maps all memory by large pages (kernel: bpf_map_area_alloc()). */
#define BPF_VMS_MAX 4000

/* What the sampler has of a vCPU. */
struct bpf_vcpu {
	__u64 vcpu; /* kernel address of its struct kvm_vcpu; 0: it is not sampled */
	__u64 pid;  /* of the struct pid of the thread that runs it */
	__u32 id;
	__u32 tid, inner_tid; /* of that thread, as in struct bpf_found */
	__u32 want_chains;    /* callers, too */
	__u32 by_nmi;         /* the event interrupts by NMI: a counter does, the clock does not */
	__u64 lost;           /* samples for which there was no room */
};

/* What a perf event's program is given (its cookie): which vCPU of which VM its thread runs. */
#define BPF_COOKIE(vm, vcpu)    ((__u64)(vm) << 32 | (vcpu))
#define BPF_COOKIE_VM(cookie)   ((__u32)((cookie) >> 32))
#define BPF_COOKIE_VCPU(cookie) ((__u32)(cookie))

/*
 * What is read of a task, as aligned words with what is wanted in them: first its address, then words of its
 * struct task_struct, the last of its struct mm_struct.
 */
enum bpf_task_word {
	BPF_TASK_AT,
	BPF_TASK_STACK,
	BPF_TASK_MM,
	BPF_TASK_PID,
	BPF_TASK_TGID,
	BPF_TASK_COMM, /* three of them: it may begin anywhere in the first */
	BPF_TASK_PAGE_TABLE = BPF_TASK_COMM + 3,
	BPF_TASK_WORDS,
	BPF_TASK_ROOM = 16, /* a power of two, which bounds are easily proven by */
};

/* The current task, and the one that is current next, which is that one but for a moment. */
#define BPF_TASKS 2

/* Where the guest's kernel has the tasks of a vCPU. */
struct bpf_cpu {
	__u64 cr3; /* page tables that map the kernel, of so many levels; 0: it is not known */
	__u32 levels;
	__u32 offsets[BPF_TASK_ROOM]; /* bytes, multiples of 8; of BPF_TASK_AT none */
	__u64 tasks[BPF_TASKS];       /* GVAs of pointers to them; 0: there is no such pointer */
	__u32 generation;             /* of all that; 0 while it changes */
};

/* Where guest memory is in the VMM's address space; in order of size, the largest first. */
struct bpf_slots {
	__u64 count;
	struct {
		__u64 gpa, size, hva;
	} slot[BPF_SLOTS_MAX];
};

enum bpf_sample_flags {
	BPF_IN_GUEST = 1 << 0,
	BPF_RIP_KNOWN = 1 << 1,
	BPF_CR3_KNOWN = 1 << 2,
	BPF_CPL_KNOWN = 1 << 3,
	BPF_CHAIN_CUT = 1 << 4, /* the chain did not come to its end, or to its beginning */
	BPF_CODE_32 = 1 << 5,   /* as the VMCB tells */
	BPF_NESTED = 1 << 6,    /* a guest of the guest ran: the registers are that one's */
	BPF_TASKS_KNOWN = 1 << 7,
	BPF_RSP_KNOWN = 1 << 8,
};

/* The order of the registers is that of KVM (arch/x86/include/asm/kvm_host.h, enum kvm_reg). */
enum bpf_register {
	BPF_RAX,
	BPF_RCX,
	BPF_RDX,
	BPF_RBX,
	BPF_RSP,
	BPF_RBP,
	BPF_RSI,
	BPF_RDI,
	BPF_R8,
	BPF_R15 = BPF_R8 + 7,
	BPF_RIP,
	BPF_REGISTERS,
};

/* Where the guest was in user space, and where the page of that code lay. */
struct bpf_address {
	__u64 gva;
	__u64 page; /* GPA */
};

/* RIP, and its callers. */
#define BPF_ADDRESSES_MAX (BPF_CHAIN_MAX + 1)

/*
 * Behind it, of user space, RIP and the chain of frame pointers; of the kernel, which may have none, the
 * stack itself. Then, with BPF_TASKS_KNOWN, struct bpf_tasks. Only what there is: each line of the cache
 * counts.
 */
struct bpf_sample {
	__u64 time;   /* ns, CLOCK_MONOTONIC */
	__u64 cost;   /* ns that the program took until it gave the sample away */
	__u64 period; /* of the event */
	__u32 vcpu, tid;
	__u32 flags;
	__u32 cpl;
	__u64 registers[BPF_REGISTERS]; /* of the guest; of the host only RIP */
	__u64 cr0, cr3, cr4, efer;
	__u32 addresses;  /* struct bpf_address, the first is RIP's */
	__u32 pages;      /* of the first so many the pages are known */
	__u32 stack_size; /* bytes of the stack, from RSP on; then there are no addresses */
	__u32 generation; /* of the struct bpf_cpu that tasks were found by */
};

/* Their words. The second is 0 where it is the first. */
struct bpf_tasks {
	__u64 words[BPF_TASKS][BPF_TASK_WORDS];
};

struct bpf_whole_sample {
	struct bpf_sample head;
	union {
		struct bpf_address addresses[BPF_ADDRESSES_MAX];
		__u8 stack[2 * BPF_STACK_MAX]; /* as its second part begins anywhere in the first half */
	};
	struct bpf_tasks room; /* for what is put behind all that */
};

#endif
