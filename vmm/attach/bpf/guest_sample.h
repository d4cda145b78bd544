/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* What the BPF programs of guest_sample.c and their loader say to each other. */
#ifndef KVMSCOPE_ATTACH_BPF_GUEST_SAMPLE_H
#define KVMSCOPE_ATTACH_BPF_GUEST_SAMPLE_H

#include <linux/types.h>

#define BPF_SLOTS_MAX 32
#define BPF_CHAIN_MAX 127
/* Bytes of the kernel's stack; it has no more than 16 KiB (THREAD_SIZE), and uses some hundreds
 * mostly. */
#define BPF_STACK_MAX 4096

/* The iterator over a VMM's files writes these. */
enum bpf_found_type { BPF_FOUND_VCPU = 1, BPF_FOUND_SLOT = 2, BPF_FOUND_VM = 3 };

struct bpf_found {
	__u32 type;
	__u32 id;             /* of the vCPU; the VM's descriptor */
	__u32 tid, inner_tid; /* of its thread, in the first PID namespace and in its own; 0: it has
				 not run yet or, with a PID, that has ended */
	__u64 vcpu;           /* kernel address of its struct kvm_vcpu */
	__u64 pid;            /* of the struct pid of its thread */
	__u64 vm;             /* of its struct kvm */
	__u64 gpa, size, hva; /* of the memslot, bytes */
	/* Of all memslots: of a VM, before they are told; of a memslot, when it had been read. */
	__u64 generation;
};

/* All physical memory below LIMIT, from BASE on in the kernel's address space; page tables have so
 * many levels. LIMIT 0: it is not known. */
struct direct_map {
	__u64 base, limit;
	__u32 levels;
};

/* Where it might be, for a program that tries that: is a page of the process at HVA, which begins
 * with WORDS that nobody else has, found by it? */
#define DIRECT_MAP_WORDS 4
struct direct_map_trial {
	struct direct_map map;
	__u32 found;
	__u64 pgd; /* out: of the process, a kernel address */
	__u64 hva;
	__u64 words[DIRECT_MAP_WORDS];
};

/* VMs that one process samples at the same time, and maps with vCPUs of them: those that are there
 * at the start share one, each that comes later has its own. An array of so many is below 32 KiB:
 * the kernel has it where it maps all memory by large pages (kernel: bpf_map_area_alloc()). */
#define BPF_VMS_MAX       4000
#define BPF_VCPU_MAPS_MAX 4000

/*
 * What is read of a task, as aligned words with what is wanted in them: first its address, then
 * words of its struct task_struct, the last of its struct mm_struct.
 */
enum bpf_task_word {
	BPF_TASK_AT,
	BPF_TASK_STACK,
	BPF_TASK_MM,
	BPF_TASK_PID,
	BPF_TASK_TGID,
	BPF_TASK_COMM,                    /* three of them: it may begin anywhere in the first */
	BPF_TASK_SET = BPF_TASK_COMM + 3, /* struct css_set, which says in which cgroup it is */
	BPF_TASK_PAGE_TABLE,
	BPF_TASK_WORDS,
	BPF_TASK_ROOM = 16, /* a power of two, which bounds are easily proven by */
	BPF_TASK_RUN = 64,  /* so is this; bytes of words in a row are less */
};

/* The current task, and the one that is current next, which is that one but for a moment. */
#define BPF_TASKS 2

/* Where the guest's kernel has the tasks of a vCPU. */
struct bpf_cpu {
	__u64 cr3; /* page tables that map the kernel, of so many levels; 0: it is not known */
	__u32 levels;
	__u32 offsets[BPF_TASK_ROOM]; /* bytes, multiples of 8; of BPF_TASK_AT none */
	__u32 sizes[BPF_TASK_ROOM];   /* bytes that are read there; 0: none, they came with a word
					 before */
	__u64 tasks[BPF_TASKS];       /* GVAs of pointers to them; 0: there is no such pointer */
	__u32 generation;             /* of all that; 0 while it changes */
};

#define BPF_NO_GENERATION (~0ull)

/* Where guest memory is in the VMM's address space; in order of size, the largest first. */
struct bpf_slots {
	__u32 count;
	__u32 generation;        /* of all that; odd while it changes */
	__u64 generation_of_kvm; /* of its memslots, when they were these; BPF_NO_GENERATION: not
				    known */
	struct {
		__u64 gpa, size, hva;
	} slot[BPF_SLOTS_MAX];
};

/*
 * What the program has of a vCPU: an element of a map, which is mapped by whoever reads its
 * samples, too. Behind it are elements with its ring (vmm/attach/bpf_ringbuf.h), then those of the
 * next vCPU.
 */
struct bpf_vcpu {
	/* The loader's. */
	__u64 vcpu; /* kernel address of its struct kvm_vcpu; 0: it is not sampled */
	__u64 pid;  /* of the struct pid of the thread that runs it */
	__u32 vm;   /* whose bell rings */
	__u32 id;
	__u32 tid, inner_tid; /* of that thread, as in struct bpf_found */
	__u32 callchains;     /* callers, too */
	__u32 by_nmi;         /* the event interrupts by NMI: a counter does, the clock does not */
	/* The program's. */
	__u64 head; /* of the ring: bytes that were ever written */
	__u64 lost; /* samples for which there was no room */
	/* The reader's. */
	__u64 tail;         /* of the ring: bytes that were ever read */
	__u32 reader_waits; /* for the bell, which the program rings once and clears this */
	__u32 chunks;       /* of the ring: a power of two */
	struct bpf_cpu cpu;
	struct bpf_slots slots;
};

/* Bytes of an element of that map. */
#define BPF_CHUNK (32u << 10)

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
	BPF_CR3_OF_TASK =
		1 << 9, /* CR3 is that of the task, in user space; the processor's is not known */
	BPF_CLOCK_KNOWN = 1 << 10,
};

/* Where the guest was in user space, and where the page of that code lay. */
struct bpf_address {
	__u64 gva;
	__u64 page; /* GPA, or BPF_NO_PAGE: it was not found */
};

#define BPF_NO_PAGE (~0ull)

/* RIP, and its callers. */
#define BPF_ADDRESSES_MAX (BPF_CHAIN_MAX + 1)

/* The words of tasks. The second is 0 where it is the first. */
struct bpf_tasks {
	__u64 words[BPF_TASKS][BPF_TASK_WORDS];
};

/*
 * Behind it, of user space, RIP and the chain of frame pointers; of the kernel, which may have
 * none, the stack itself. Only what there is: each line of the cache counts.
 */
struct bpf_sample {
	__u32 size;   /* of all of it, bytes, a multiple of 8 */
	__u32 flags;  /* enum bpf_sample_flags */
	__u64 time;   /* ns, CLOCK_MONOTONIC */
	__u64 period; /* of the event */
	__u32 cost;   /* ns that the program took until it gave the sample away */
	__u32 tid;
	__u32 cpl;
	__u32 addresses;  /* struct bpf_address, the first is RIP's */
	__u32 stack_size; /* bytes of the stack, from RSP on; then there are no addresses */
	__u32 generation; /* of the struct bpf_cpu that tasks were found by */
	__u64 rip; /* of the guest or, without BPF_IN_GUEST, of the host; all others of the guest */
	__u64 rsp, rbp;
	__u64 cr0, cr3, cr4, efer;
	__u64 clock; /* MSR_KVM_SYSTEM_TIME: where KVM writes the time for the guest; 0: nowhere */
	__u64 rdx, rdi, r10,
		r13; /* in the kernel: ORC finds frames by them, too (kernel: unwind_orc.c) */
	struct bpf_tasks tasks; /* with BPF_TASKS_KNOWN */
};

/* The longest. */
struct bpf_whole_sample {
	struct bpf_sample head;
	union {
		struct bpf_address addresses[BPF_ADDRESSES_MAX];
		__u8 stack[2 * BPF_STACK_MAX]; /* as its second part begins anywhere in the first
						  half */
	};
};

#endif
