/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The records in the rings: one sample of a guest vCPU, from any source, and events of the source
 * itself. Native byte order; the ring never leaves the machine.
 */
#ifndef KVMSCOPE_SHARED_SAMPLE_RECORD_H
#define KVMSCOPE_SHARED_SAMPLE_RECORD_H

#include <stddef.h>
#include <stdint.h>

/* Ring record types; RING_RECORD_* below 8 belong to the ring itself. */
enum {
	RECORD_SAMPLE = 8,
	RECORD_SIDEBAND = 9,               /* shared/sideband_record.h */
	RECORD_EVENT = 10,                 /* struct sample_event */
	RECORD_GUEST_BREAKPOINT_LOST = 11, /* struct sample_guest_breakpoint_lost */
	RECORD_LOST = 12,                  /* struct sample_lost */
};

/* Entries of the longest call chain, kernel and user part together. perf shows 127 of them unless
 * it is run with --max-stack. */
#define SAMPLE_CALLCHAIN_MAX 128

/* Entries of the host's call chain, kernel and VMM together: as many as perf records. */
#define SAMPLE_HOST_CHAIN_MAX 127

/* pid and tid of a sample whose task could not be determined, or whose guest is not Linux. 0 is the
 * idle task. */
#define SAMPLE_TASK_UNKNOWN UINT32_MAX

/* Process and thread ids are below this (kernel: PID_MAX_LIMIT, include/linux/threads.h). */
#define SAMPLE_TASK_LIMIT (4u << 20)

/* Bytes of a task's name with the NUL (kernel: TASK_COMM_LEN, include/linux/sched.h). */
#define SAMPLE_COMM_SIZE 16

enum sample_flags {
	SAMPLE_KERNEL_TRUNCATED = 1 << 0, /* the kernel chain ends before its entry point */
	SAMPLE_USER_TRUNCATED = 1 << 1,   /* the user chain ends before its start */
	SAMPLE_IDLE = 1 << 2,             /* the vCPU was halted (wall clock only) */
	SAMPLE_UNCERTAIN = 1 << 3,        /* the mapping at RIP is uncertain */
	/*
	 * The guest probably ran another kernel than the known one: the sample's addresses stay
	 * unsymbolized, and it has neither call chain nor task.
	 */
	SAMPLE_OTHER_KERNEL = 1 << 4,
	/* Taken outside of the guest, by a source that samples the vCPU's thread: RIP and CPL are
	 * the host's. */
	SAMPLE_HOST = 1 << 5,
	SAMPLE_LOOKUP_INCOMPLETE = 1 << 6, /* cgroup or mappings could not all be looked up */
	/* Of time that the vCPU spent outside of the guest, which was where the sample shows: it
	 * has a struct sample_outside instead of a hit. Also of the clock, with a host chain. */
	SAMPLE_OUTSIDE = 1 << 7,
};

/*
 * Bit 62 is set in every kernel address. A kernel address in a call chain without it is one whose
 * code is uncertain.
 */
#define SAMPLE_ADDRESS_CERTAIN (1ull << 62)

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
	uint32_t cost;         /* ns that this sample cost the vCPU thread */
	uint16_t event;        /* index of the event in the session, 0 the first */
	uint8_t cpl;           /* current privilege level, 0 to 3 */
	uint8_t flags;         /* enum sample_flags */
	uint16_t kernel_depth; /* kernel entries of callchain[], the first is RIP itself */
	uint16_t user_depth;   /* user entries after them */
	/*
	 * The guest's task, in the guest's initial PID namespace: id of the process (kernel: tgid)
	 * and of the thread; both or neither are SAMPLE_TASK_UNKNOWN. comm is the thread's name,
	 * "" if unknown; its bytes come from the guest and may be anything, with a NUL among them.
	 * Each sample carries the name because an overwriting ring keeps no earlier state; the
	 * file records it once per change.
	 */
	uint32_t pid, tid;
	uint8_t mappings; /* number of struct sample_mapping after the call chain */
	uint8_t deferred; /* 1 if the sample ends with a struct sample_deferred, else 0 */
	/*
	 * Entries of the host's call chain, innermost first: of the kernel, then of the VMM,
	 * together at most SAMPLE_HOST_CHAIN_MAX. With any, the vCPU's thread was outside of the
	 * guest, and the rest of the sample, unless it has SAMPLE_HOST, shows where the guest is.
	 */
	uint8_t host_kernel, host_user;
	char comm[SAMPLE_COMM_SIZE];
	char process_comm[SAMPLE_COMM_SIZE]; /* of the process's first thread; valid with STARTED */
	uint32_t parent;                     /* parent process of PID; valid with STARTED */
	uint32_t cgroups; /* number of the table of cgroups: vmm/guest/linux/guest_cgroup.h */
	uint64_t cgroup;  /* id in that table; 0: unknown */
	/* Start time of the process by a clock of the guest: tells processes that had the same pid
	 * apart. 0: unknown. */
	uint64_t started;
	uint64_t callchain[]; /* innermost first: kernel_depth, then user_depth addresses */
};

/* Bytes of a sample with DEPTH call chain entries; a multiple of 8. */
static inline size_t sample_size(size_t depth)
{
	return sizeof(struct sample) + depth * sizeof(uint64_t);
}

enum sample_hit_flags {
	SAMPLE_HIT_BEFORE = 1 << 0, /* before is valid */
	SAMPLE_HIT_AFTER = 1 << 1,  /* after is valid */
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

/* Most mappings that one sample has. */
#define SAMPLE_MAPPINGS_MAX 16

/*
 * A mapping that contains an address of the user call chain, as the guest's kernel had it when the
 * sample was taken. Mappings of a sample do not overlap; for an address in none of them the
 * mapping could not be determined.
 */
struct sample_mapping {
	uint64_t start, end; /* GVA */
	uint64_t offset;     /* of START in the image, bytes */
	uint32_t image;      /* its number in the table of images, vmm/guest/linux/user_image.h */
	uint32_t images;     /* number of that table */
	uint32_t flags;      /* PROT_READ, WRITE and EXEC of Linux, and 8: shared */
	uint32_t reserved;
};

/* Why the vCPU was outside of the guest: follows the mappings of a sample with SAMPLE_OUTSIDE. If
 * the event is not 0, the sample's period is in ns. */
struct sample_outside {
	char reason[48]; /* "exit EPT_VIOLATION"; zeros follow, at least one */
};

/* A watchpoint hit: follows the mappings of another sample whose event is not 0. The sample's
 * period is in hits. */
struct sample_hit {
	uint64_t address; /* GVA that is watched */
	/* The value at the previous hit on any vCPU (on this one for a per-CPU variable), and at
	 * this one. */
	uint64_t before, after;
	uint32_t length; /* bytes of the value */
	uint32_t flags;  /* enum sample_hit_flags */
	uint64_t hits;   /* of the watch on this vCPU, including this one */
	/* After an instruction that accessed watched data; before a watched instruction. */
	uint64_t registers[SAMPLE_REGISTERS];
};

/*
 * What a sample with SAMPLE_LOOKUP_INCOMPLETE needs for looking up the rest later, and what must be
 * unchanged by then: vmm/guest/linux/deferred_lookup.h.
 */
struct sample_deferred {
	uint64_t task, set; /* GVAs of the task and its css_set; 0: no cgroup to look up */
	/* GVA of the address space, its number and its change count; 0: no mappings to look up. */
	uint64_t mm, space, changes;
	uint32_t cgroups,
		images; /* numbers of the tables, as in struct sample and sample_mapping */
	uint32_t parts; /* enum deferred_lookup_part: all lookups that were skipped */
	uint32_t reserved;
};

/* Offset of the mappings in SAMPLE, bytes. */
static inline size_t sample_mappings_offset(const struct sample *sample)
{
	return sample_size((size_t)sample->kernel_depth + sample->user_depth);
}

/* Offset of why it was outside, or of the hit, which a sample of another event than 0 has. */
static inline size_t sample_hit_offset(const struct sample *sample)
{
	return sample_mappings_offset(sample) + sample->mappings * sizeof(struct sample_mapping);
}

static inline size_t sample_host_depth(const struct sample *sample)
{
	return (size_t)sample->host_kernel + sample->host_user;
}

/* Offset of the host's call chain. */
static inline size_t sample_host_offset(const struct sample *sample)
{
	size_t hit = sample->event ? sizeof(struct sample_hit) : 0;

	return sample_hit_offset(sample) +
	       (sample->flags & SAMPLE_OUTSIDE ? sizeof(struct sample_outside) : hit);
}

/* Offset of the deferred lookup, which a sample has if DEFERRED is set. */
static inline size_t sample_deferred_offset(const struct sample *sample)
{
	return sample_host_offset(sample) + sample_host_depth(sample) * sizeof(uint64_t);
}

/* Bytes of the whole sample with all that follows its call chain. */
static inline size_t sample_length(const struct sample *sample)
{
	return sample_deferred_offset(sample) +
	       (sample->deferred ? sizeof(struct sample_deferred) : 0);
}

/* The largest sample_length(). */
#define SAMPLE_LENGTH_MAX                                                                          \
	(sizeof(struct sample) + SAMPLE_CALLCHAIN_MAX * sizeof(uint64_t) +                         \
	 SAMPLE_MAPPINGS_MAX * sizeof(struct sample_mapping) + sizeof(struct sample_hit) +         \
	 SAMPLE_HOST_CHAIN_MAX * sizeof(uint64_t) + sizeof(struct sample_deferred))

static inline const struct sample_mapping *sample_mappings(const struct sample *sample)
{
	return (const void *)((const char *)sample + sample_mappings_offset(sample));
}

/* NULL for a sample that is not of a watch. */
static inline const struct sample_hit *sample_hit(const struct sample *sample)
{
	return sample->event && !(sample->flags & SAMPLE_OUTSIDE)
		       ? (const void *)((const char *)sample + sample_hit_offset(sample))
		       : NULL;
}

/* NULL for a sample of other time. */
static inline const struct sample_outside *sample_outside(const struct sample *sample)
{
	return sample->flags & SAMPLE_OUTSIDE
		       ? (const void *)((const char *)sample + sample_hit_offset(sample))
		       : NULL;
}

/* sample_host_depth() entries. */
static inline const uint64_t *sample_host_chain(const struct sample *sample)
{
	return (const void *)((const char *)sample + sample_host_offset(sample));
}

/* NULL if all lookups were made. */
static inline const struct sample_deferred *sample_deferred(const struct sample *sample)
{
	return sample->deferred
		       ? (const void *)((const char *)sample + sample_deferred_offset(sample))
		       : NULL;
}

/* The same parts for a sample that is being written. The part must be present. */
static inline struct sample_mapping *sample_write_mappings(struct sample *sample)
{
	return (void *)((char *)sample + sample_mappings_offset(sample));
}

static inline struct sample_hit *sample_write_hit(struct sample *sample)
{
	return (void *)((char *)sample + sample_hit_offset(sample));
}

static inline struct sample_outside *sample_write_outside(struct sample *sample)
{
	return (void *)((char *)sample + sample_hit_offset(sample));
}

static inline uint64_t *sample_write_host_chain(struct sample *sample)
{
	return (void *)((char *)sample + sample_host_offset(sample));
}

static inline struct sample_deferred *sample_write_deferred(struct sample *sample)
{
	return (void *)((char *)sample + sample_deferred_offset(sample));
}

/* Number of samples that the source lost before it could write them to the ring. */
struct sample_lost {
	uint64_t count;
};

/* An event other than the clock stops sampling on a vCPU, or resumes. */
struct sample_event {
	uint64_t time; /* ns, as in struct sample */
	uint32_t vcpu;
	uint16_t event;
	uint16_t stopped; /* 1 or 0 */
};

/* From this time on COUNT breakpoints that the guest set do not work, because watches use their
 * debug registers. */
struct sample_guest_breakpoint_lost {
	uint64_t time; /* ns, as in struct sample */
	uint32_t vcpu;
	uint32_t count;
};

#endif
