/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What travels through the ring: one sample of a guest vCPU, whatever took
 * it. Native byte order; the ring never leaves the machine.
 */
#ifndef KVMSCOPE_SHARED_SAMPLE_RECORD_H
#define KVMSCOPE_SHARED_SAMPLE_RECORD_H

#include <stddef.h>
#include <stdint.h>

/* Ring record types; RING_RECORD_* below 8 belong to the ring itself. */
enum {
	RECORD_SAMPLE = 8,
	RECORD_SIDEBAND = 9,    /* shared/sideband_record.h */
	RECORD_EVENT = 10,      /* struct sample_event */
	RECORD_GUEST_LOST = 11, /* struct sample_guest_lost */
	RECORD_LOST = 12,       /* struct sample_lost */
};

/* The longest callchain, both parts together. perf shows the first 127 of them unless told
 * --max-stack. */
#define SAMPLE_CALLCHAIN_MAX 128

/* The guest's task is not known: it could not be proven, or the guest is no Linux. 0 is the idle
 * task. */
#define SAMPLE_TASK_UNKNOWN UINT32_MAX

/* Ids of tasks are below (kernel: PID_MAX_LIMIT, include/linux/threads.h); SAMPLE_TASK_UNKNOWN is
 * not one. */
#define SAMPLE_TASK_LIMIT (4u << 20)

/* The name of a task, the NUL included (kernel: TASK_COMM_LEN, include/linux/sched.h). */
#define SAMPLE_COMM_SIZE 16

enum sample_flags {
	SAMPLE_KERNEL_TRUNCATED = 1 << 0, /* the kernel chain ends before its entry point */
	SAMPLE_USER_TRUNCATED = 1 << 1,   /* the user chain ends before its start */
	SAMPLE_IDLE = 1 << 2,             /* the vCPU was halted (wall clock only) */
	SAMPLE_UNSURE = 1 << 3,           /* what was mapped at RIP at its time is not sure */
	/*
	 * Another kernel ran than the one that is known, as far as could be told: its
	 * addresses have no names, it has no callchain and no task.
	 */
	SAMPLE_OTHER_KERNEL = 1 << 4,
	/* Taken outside of the guest, by a source that sees the vCPU's thread: RIP and CPL are the
	   host's. */
	SAMPLE_HOST = 1 << 5,
	SAMPLE_LOOK_CUT = 1 << 6, /* not all that was to be looked at was: cgroup or mappings */
};

/*
 * An address of the kernel's half in a callchain without this bit, which all such addresses have:
 * whose code was there is not sure.
 */
#define SAMPLE_ADDRESS_SURE (1ull << 62)

struct sample {
	uint64_t time;   /* ns, CLOCK_MONOTONIC_RAW of the host */
	uint64_t period; /* ns of the sampling clock that this sample stands for */
	uint64_t rip;
	uint64_t rsp;
	uint64_t rbp;
	uint64_t rflags;
	uint64_t cr3;
	uint32_t vcpu;         /* number of the vCPU, from 0 */
	uint32_t host_tid;     /* thread that ran the vCPU, in our PID namespace */
	uint32_t cost;         /* ns that taking this sample cost the vCPU thread */
	uint16_t event;        /* index of the event in the session, 0 the first */
	uint8_t cpl;           /* current privilege level, 0 to 3 */
	uint8_t flags;         /* enum sample_flags */
	uint16_t kernel_depth; /* entries of callchain[] in the kernel, first RIP itself */
	uint16_t user_depth;   /* entries behind them in user space */
	/*
	 * The guest's task, in the guest's initial PID namespace: id of the
	 * process (kernel: tgid) and of the thread, both SAMPLE_TASK_UNKNOWN or
	 * none. Its name is the thread's, "" where it is not known; the bytes
	 * are the guest's and may be anything, a NUL is among them. It stands in
	 * each sample because a ring that overwrites its oldest records keeps no
	 * state from before the first; the file says it once per change.
	 */
	uint32_t pid, tid;
	uint16_t mappings; /* entries of struct sample_mapping behind the callchain */
	uint16_t unlooked; /* 1: a struct sample_unlooked is the last of the sample; 0: it is not */
	char comm[SAMPLE_COMM_SIZE];
	/* That of the process's first thread; where STARTED is known. */
	char process_comm[SAMPLE_COMM_SIZE];
	uint32_t parent;  /* the process that PID is a child of; only where STARTED is known */
	uint32_t cgroups; /* the table that has the cgroup's path: vmm/guest/linux/guest_cgroup.h */
	uint64_t cgroup;  /* its id; 0: not known */
	/* When the process began, by a clock of the guest: one of the same id that began at another
	   time is another one. 0: not known. */
	uint64_t started;
	uint64_t callchain[]; /* innermost first: kernel_depth, then user_depth addresses */
};

/* Bytes of a sample with DEPTH callchain entries; a multiple of 8. */
static inline size_t sample_size(size_t depth)
{
	return sizeof(struct sample) + depth * sizeof(uint64_t);
}

enum sample_hit_flags {
	SAMPLE_HIT_BEFORE = 1 << 0, /* before is known */
	SAMPLE_HIT_AFTER = 1 << 1,  /* after is known */
};

/* The general registers that struct sample does not have. */
enum sample_register {
	SAMPLE_RAX,
	SAMPLE_RBX,
	SAMPLE_RCX,
	SAMPLE_RDX,
	SAMPLE_RSI,
	SAMPLE_RDI,
	SAMPLE_R8,
	SAMPLE_R15 = SAMPLE_R8 + 7,
	SAMPLE_REGISTERS,
};

/* As many as a stop looks at. */
#define SAMPLE_MAPPINGS_MAX 16

/*
 * Where addresses of the user part of the callchain were mapped, as the guest's kernel had it at
 * the stop; they do not overlap. An address of that part that is in none of them: what is mapped
 * there could not be told.
 */
struct sample_mapping {
	uint64_t start, end; /* GVA */
	uint64_t offset;     /* of START in the image, bytes */
	uint32_t image;      /* its number, and the table of images that has it:
				vmm/guest/linux/user_image.h */
	uint32_t images;
	uint32_t flags; /* PROT_READ, WRITE and EXEC of Linux, and 8: shared */
	uint32_t reserved;
};

/* A watch was hit: stands behind the mappings of a sample whose event is not 0. Its period is in
 * hits. */
struct sample_hit {
	uint64_t address; /* GVA that is watched */
	/* Its value at the hit before this one, on whatever vCPU (of a per-CPU variable: on this
	 * one), and now. */
	uint64_t before, after;
	uint32_t length; /* bytes of the value */
	uint32_t flags;  /* enum sample_hit_flags */
	uint64_t hits;   /* of the watch on this vCPU, with this one */
	/* Behind the instruction that accessed data, before the one that is executed. */
	uint64_t registers[SAMPLE_REGISTERS];
};

/*
 * What of a sample with SAMPLE_LOOK_CUT can be looked up later, and what has to be as it was then:
 * vmm/guest/linux/deferred_lookup.h.
 */
struct sample_unlooked {
	uint64_t task, set;          /* GVAs of the task and of its css_set; 0: not its cgroup */
	uint64_t mm, space, changes; /* GVA of its address space, its number, its changes; 0: not
					its mappings */
	uint32_t cgroups, images;    /* the tables that these are of */
	uint32_t parts;              /* enum deferred_lookup_part: all that there was no time for */
	uint32_t reserved;
};

/* Bytes of the whole sample, with what stands behind its callchain. */
static inline size_t sample_length(const struct sample *sample)
{
	return sample_size((size_t)sample->kernel_depth + sample->user_depth) +
	       sample->mappings * sizeof(struct sample_mapping) +
	       (sample->event ? sizeof(struct sample_hit) : 0) +
	       (sample->unlooked ? sizeof(struct sample_unlooked) : 0);
}

/* Of the longest one that there can be. */
#define SAMPLE_LENGTH_MAX                                                                          \
	(sizeof(struct sample) + SAMPLE_CALLCHAIN_MAX * sizeof(uint64_t) +                         \
	 SAMPLE_MAPPINGS_MAX * sizeof(struct sample_mapping) + sizeof(struct sample_hit) +         \
	 sizeof(struct sample_unlooked))

static inline struct sample_mapping *sample_mappings(struct sample *sample)
{
	return (struct sample_mapping *)(sample->callchain + sample->kernel_depth +
					 sample->user_depth);
}

/* NULL for a sample of the clock. */
static inline struct sample_hit *sample_hit(struct sample *sample)
{
	return sample->event ? (struct sample_hit *)(sample_mappings(sample) + sample->mappings)
			     : NULL;
}

/* NULL: there is none. */
static inline struct sample_unlooked *sample_unlooked(struct sample *sample)
{
	return sample->unlooked
		       ? (struct sample_unlooked *)((char *)sample + sample_length(sample)) - 1
		       : NULL;
}

/* The source lost samples before it could put them into the ring. */
struct sample_lost {
	uint64_t count;
};

/* An event other than the clock gives no samples on a vCPU from now on, or does so again. */
struct sample_event {
	uint64_t time; /* ns, as in struct sample */
	uint32_t vcpu;
	uint16_t event;
	uint16_t stopped; /* 1 or 0 */
};

/* Breakpoints that the guest set itself do not work for it from now on: watches have their
 * registers. */
struct sample_guest_lost {
	uint64_t time; /* ns, as in struct sample */
	uint32_t vcpu;
	uint32_t count;
};

#endif
