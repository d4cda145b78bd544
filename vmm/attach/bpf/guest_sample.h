/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* The interface between the BPF programs of guest_sample.c and their loader. */
#ifndef KVMSCOPE_ATTACH_BPF_GUEST_SAMPLE_H
#define KVMSCOPE_ATTACH_BPF_GUEST_SAMPLE_H

#include <linux/types.h>

#define BPF_SLOTS_MAX 32
#define BPF_CHAIN_MAX 127
/* Bytes per sample of each kernel stack, which has at most 16 KiB (THREAD_SIZE), of which mostly
 * some hundred are in use, */
#define BPF_KERNEL_STACK_MAX 8192
/* and of the user stack: at most, and of a process without a size of its own. */
#define BPF_USER_STACK_MAX   (32u << 10)
#define BPF_USER_STACK_FIRST 4096u
#define BPF_STACKS_MAX       (3 * BPF_KERNEL_STACK_MAX + BPF_USER_STACK_MAX)

/* Records of the iterator over a VMM's files. */
enum bpf_found_type { BPF_FOUND_VCPU = 1, BPF_FOUND_SLOT = 2, BPF_FOUND_VM = 3 };

struct bpf_found {
	__u32 type;
	__u32 id;             /* of the vCPU; of a VM: its descriptor */
	__u32 tid, inner_tid; /* of its thread, in the initial PID namespace and in its own; 0: it
				 has not run yet or, if PID is set, has exited */
	__u64 vcpu;           /* kernel address of its struct kvm_vcpu */
	__u64 pid;            /* of the struct pid of its thread */
	__u64 vm;             /* kernel address of its struct kvm */
	__u64 gpa, size, hva; /* of the memslot, in bytes */
	/* That of the memslots: before they are listed for a VM; after it was read for a memslot.
	 */
	__u64 generation;
};

/* The kernel's direct map: physical memory below LIMIT is mapped from BASE on; LEVELS is the
 * number of page table levels. LIMIT 0: unknown. */
struct direct_map {
	__u64 base, limit;
	__u32 levels;
};

/* A trial of a possible direct map: is the page of this process at HVA, which begins with the
 * random WORDS, found through it? */
#define DIRECT_MAP_WORDS 4
struct direct_map_trial {
	struct direct_map map;
	__u32 found;
	__u64 pgd; /* out: kernel address of the process's page tables */
	__u64 hva;
	__u64 words[DIRECT_MAP_WORDS];
};

/*
 * Maximum number of VMs that one process samples at the same time, and of maps for their vCPUs: the
 * vCPUs present at the start share one, each later one has its own. Arrays of this size are below
 * 32 KiB, for which the kernel uses memory with large pages (kernel: bpf_map_area_alloc()).
 */
#define BPF_VMS_MAX       4000
#define BPF_VCPU_MAPS_MAX 4000

/* The words that are read of a task, all aligned: first its address, then words of its struct
 * task_struct, of its struct mm_struct, of the first task of its process, and of the parent. */
enum bpf_task_word {
	BPF_TASK_AT,
	BPF_TASK_STACK,
	BPF_TASK_MM,
	BPF_TASK_PID,
	BPF_TASK_TGID,
	BPF_TASK_COMM,                    /* three words: it may begin anywhere in the first */
	BPF_TASK_SET = BPF_TASK_COMM + 3, /* struct css_set, which leads to the cgroup */
	BPF_TASK_LEADER,
	BPF_TASK_PAGE_TABLE, /* the first of the mm_struct's */
	BPF_TASK_SPACE,      /* the two words of struct guest_space_state */
	BPF_TASK_CHANGES,
	BPF_TASK_STARTED, /* the first of the leader's */
	BPF_TASK_PARENT,
	BPF_TASK_PROCESS_COMM, /* three words */
	BPF_TASK_PARENT_TGID = BPF_TASK_PROCESS_COMM + 3,
	BPF_TASK_WORDS,
	BPF_TASK_ROOM = 32, /* a power of two, for the verifier */
	BPF_TASK_RUN = 128, /* a power of two; upper bound of the bytes of consecutive words */
};

/* The current task, and the one that is being switched to: the same except during a context
 * switch. */
#define BPF_TASKS 2

/* Where the guest's kernel has the tasks of a vCPU. */
struct bpf_cpu {
	__u64 cr3; /* page tables that map the kernel, with LEVELS levels; 0: unknown */
	__u32 levels;
	__u32 offsets[BPF_TASK_ROOM]; /* in bytes, multiples of 8; unused for BPF_TASK_AT */
	__u32 sizes[BPF_TASK_ROOM];   /* bytes to read; 0: part of the read of an earlier word
				       */
	__u64 tasks[BPF_TASKS]; /* GVAs of pointers to the tasks; 0: there is no such pointer */
	__u64 irq_top;          /* GVA of the end of the interrupt stack; 0: unknown */
	__u32 stack_size;       /* bytes of a task's stack */
	__u32 copies;           /* user stacks are copied: the reader can unwind them */
	__u32 generation;       /* of this struct; 0 while it changes */
};

#define BPF_NO_GENERATION (~0ull)

/* Where guest memory is in the VMM's address space; the largest slot first. */
struct bpf_slots {
	__u32 count;
	__u32 generation;        /* of this struct; odd while it changes */
	__u64 generation_of_kvm; /* of KVM's memslots when these were read; BPF_NO_GENERATION:
				    unknown */
	struct {
		__u64 gpa, size, hva;
	} slot[BPF_SLOTS_MAX];
};

/*
 * What the reader knows of a process. It stores each word separately; none depends on another.
 * Processes that share a place replace each other.
 */
#define BPF_PROCESSES         256u
#define BPF_PROCESS_INDEX(mm) (((mm) >> 6 ^ (mm) >> 14) & (BPF_PROCESSES - 1))
#define BPF_PROCESS_PAGES     6
#define BPF_CODE_PAGES        (1 + BPF_PROCESS_PAGES)

struct bpf_process {
	/* The GVA of its struct mm_struct, without its upper 16 bits, in the upper 48 bits, and the
	 * number of bytes to copy of its user stack. Another process has BPF_USER_STACK_FIRST. */
	__u64 mm_size;
	/* The state of the address space (struct guest_space_state) in which its mappings are
	 * known. A sample in another one wakes the reader, before the mappings change again, */
	__u64 number, changes;
	/* and has the GPAs of these pages of code: GVAs, one in each of its mappings; 0: none. */
	__u64 pages[BPF_PROCESS_PAGES];
};

/* The program's state of a vCPU: an element of a map that the reader has mapped, too. The
 * elements of its ring follow (vmm/attach/bpf_ringbuf.h), then the next vCPU. */
struct bpf_vcpu {
	/* Written by the loader. */
	__u64 vcpu; /* kernel address of its struct kvm_vcpu; 0: not sampled */
	__u64 pid;  /* of the struct pid of the thread that runs it */
	__u32 vm;   /* whose bell to ring */
	__u32 id;
	__u32 tid, inner_tid; /* of that thread, as in struct bpf_found */
	__u32 callchains;     /* record call chains */
	__u32 host_stacks;    /* and those of the host, outside of the guest */
	__u32 by_nmi; /* the event interrupts by NMI: a hardware counter does, the clock does not */
	/* Written by the programs. */
	__u32 writing; /* a sample of time outside of the guest: an NMI must not write another one
			*/
	__u64 head;    /* of the ring: bytes written since the start */
	__u64 lost;    /* samples without room in the ring */
	/* Written by the reader. */
	__u64 tail;         /* of the ring: bytes read since the start */
	__u32 reader_waits; /* for the bell; the program rings it once and clears this */
	__u32 chunks;       /* of the ring; a power of two */
	struct bpf_cpu cpu;
	struct bpf_slots slots;
	struct bpf_process processes[BPF_PROCESSES]; /* written by the reader */
};

/* Bytes of a map element. */
#define BPF_CHUNK (128u << 10)

enum bpf_event { BPF_EVENT_CLOCK, BPF_EVENT_EXIT, BPF_EVENT_OFF_CPU, BPF_EVENTS };

/* Why a vCPU thread leaves its CPU. */
enum bpf_off_cpu {
	BPF_PREEMPTED,
	BPF_HALTED,
	BPF_BLOCKED,
	BPF_OFF_CPU_REASONS,
	BPF_OFF_CPU_ROOM, /* a power of two, for the verifier */
};

/* The time that a vCPU thread spends outside of the guest: an element of a map by thread, which
 * the loader adds and removes. All times are in ns. */
struct bpf_outside {
	/* Written by the loader. */
	__u64 place;  /* of the vCPU: number of its map in the upper half, and its element */
	__u64 period; /* of a sample */
	__u64 wanted; /* bit mask of enum bpf_event */
	/* Written by the programs. */
	__u64 exited;                /* when the guest's execution ended; 0: it runs */
	__u64 rip;                   /* of the guest, at that time */
	__u32 reason, isa;           /* of that exit */
	__u64 left;                  /* when the thread left its CPU; 0: it has one */
	__u64 why;                   /* enum bpf_off_cpu */
	__u64 rest[BPF_EVENTS];      /* time of no sample yet: less than PERIOD */
	__u64 due[BPF_OFF_CPU_ROOM]; /* time off CPU of samples that the next entry records */
};

enum bpf_sample_flags {
	BPF_IN_GUEST = 1 << 0, /* the registers are the guest's */
	BPF_RIP_KNOWN = 1 << 1,
	BPF_CR3_KNOWN = 1 << 2,
	BPF_CPL_KNOWN = 1 << 3,
	BPF_CHAIN_CUT = 1 << 4, /* the chain is incomplete */
	BPF_CODE_32 = 1 << 5,   /* according to the VMCB */
	BPF_NESTED = 1 << 6,    /* a nested guest ran: the registers are of that one */
	BPF_TASKS_KNOWN = 1 << 7,
	BPF_RSP_KNOWN = 1 << 8,
	BPF_CR3_OF_TASK =
		1 << 9, /* CR3 is that of the user-space task; the processor's is unknown */
	BPF_CLOCK_KNOWN = 1 << 10,
	BPF_REASON_KNOWN = 1 << 11, /* of the clock: the vCPU's thread was outside of the guest */
};

/* An address of user code, and the page that it was in. */
struct bpf_address {
	__u64 gva;
	__u64 page; /* GPA, or BPF_NO_PAGE: not found */
};

#define BPF_NO_PAGE (~0ull)

/* Entries of each part of the host's call chain. */
#define BPF_HOST_CHAIN_MAX 127

/* RIP and its callers. */
#define BPF_ADDRESSES_MAX (BPF_CHAIN_MAX + 1)

/* The words of both tasks; the second is 0 if it is the first. */
struct bpf_tasks {
	__u64 words[BPF_TASKS][BPF_TASK_WORDS];
};

/* The stacks that may be copied. */
enum bpf_stack_kind {
	BPF_STACK_IN_USE,      /* of the kernel */
	BPF_STACK_INTERRUPTED, /* of the kernel, below that of an entry or exception */
	BPF_STACK_BELOW,       /* the task's, below that of an interrupt */
	BPF_STACK_USER,
	BPF_STACKS,
};

struct bpf_stack {
	__u64 gva;
	__u32 size; /* bytes; 0: not copied */
	__u32 at;   /* offset in the copies */
};

/*
 * A sample. It is followed by addresses, of user code: RIP and the chain of frame pointers. If
 * stacks were copied instead, it is followed by room for BPF_CODE_PAGES addresses, that at which
 * user code was left and the pages of its process, and the copies. The host's call chain is last.
 * With it, the vCPU's thread was outside of the guest. Nothing unused is written, to
 * save cache lines.
 */
struct bpf_sample {
	__u32 size;   /* total, in bytes, a multiple of 8 */
	__u32 flags;  /* enum bpf_sample_flags */
	__u64 time;   /* ns, CLOCK_MONOTONIC */
	__u64 period; /* of the event, in whole periods */
	__u32 event;  /* enum bpf_event */
	__u32 isa;    /* of an exit: KVM_ISA_VMX 1, KVM_ISA_SVM 2 (kernel: arch/x86/kvm/trace.h) */
	__u64 reason; /* of an exit: as the tracepoint has it; off CPU: enum bpf_off_cpu */
	__u32 cost;   /* ns that the program took */
	__u32 tid;
	__u32 cpl;
	__u32 addresses;  /* number of struct bpf_address that follow; the first is RIP's */
	__u32 copied;     /* bytes of all copies, a multiple of 8 */
	__u32 generation; /* of the struct bpf_cpu that the tasks were read with */
	__u32 host_kernel, host_user; /* entries of the host's call chain */
	__u64 rip;                    /* of the guest; without BPF_IN_GUEST, of the host */
	__u64 rsp, rbp;
	__u64 rax, rcx, rdx, rbx, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15;
	__u64 cr0, cr3, cr4, efer;
	__u64 clock; /* MSR_KVM_SYSTEM_TIME: where KVM writes the guest's clock; 0: nowhere */
	struct bpf_stack stacks[BPF_STACKS]; /* with COPIED */
	struct bpf_tasks tasks;              /* with BPF_TASKS_KNOWN */
};

/* The longest sample. */
struct bpf_whole_sample {
	struct bpf_sample head;
	union {
		struct bpf_address addresses[BPF_ADDRESSES_MAX];
		struct {
			struct bpf_address code[BPF_CODE_PAGES];
			__u8 stack[BPF_STACKS_MAX + 8192]; /* for the verifier */
		};
	};
};

#endif
