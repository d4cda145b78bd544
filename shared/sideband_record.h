/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sideband events: changes in a guest that samples need for attribution, i.e. processes that fork,
 * execute, are renamed or exit, and files and modules that are mapped and unmapped. Records have
 * variable size, a common head, native byte order and 8-byte alignment. Their form does not depend
 * on the source: the guest's perf events (the agent) or guest memory.
 *
 *	perf in the guest                  here
 *	PERF_RECORD_FORK, EXIT             SIDEBAND_FORK, SIDEBAND_EXIT
 *	PERF_RECORD_COMM                   SIDEBAND_COMM, with SIDEBAND_COMM_EXEC for MISC_COMM_EXEC
 *	PERF_RECORD_MMAP2                  SIDEBAND_MMAP
 *	(perf has none)                    SIDEBAND_MUNMAP
 *	PERF_RECORD_KSYMBOL                SIDEBAND_MODULE_LOAD, SIDEBAND_MODULE_UNLOAD
 *	PERF_RECORD_LOST                   SIDEBAND_LOST
 *	PERF_RECORD_FINISHED_ROUND         SIDEBAND_ROUND
 *	/tmp/perf-PID.map                  SIDEBAND_JIT_MAP, SIDEBAND_JIT_CODE
 *
 * Transport: a record is the payload of a ring record of type RECORD_SIDEBAND, in any ring that the
 * collector drains: a vCPU's own (written on the vCPU's thread, like the rest of that ring) or a
 * ring of the source (one writer thread each). The collector's thread passes all of them to the
 * resolver (vmm/resolve/resolver.h), which orders them by time with the samples. A record may
 * arrive after samples that it affects, and before or after records of other rings.
 *
 * State that exists when a source starts is reported with the time of that scan: a COMM for each
 * thread and a MMAP for each mapping, without a FORK. The source knows nothing about earlier times.
 * A process without a FORK starts with the first record that has its pid.
 */
#ifndef KVMSCOPE_SHARED_SIDEBAND_RECORD_H
#define KVMSCOPE_SHARED_SIDEBAND_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "shared/span.h"

#define SIDEBAND_COMM_SIZE    16   /* TASK_COMM_LEN of Linux, with the NUL */
#define SIDEBAND_NAME_MAX     4096 /* PATH_MAX of Linux, with the NUL */
#define SIDEBAND_BUILD_ID_MAX 20
#define SIDEBAND_SIZE_MAX     (128 + SIDEBAND_NAME_MAX)

enum sideband_type {
	/* struct sideband_fork: a new thread, or a process with its parent's mappings */
	SIDEBAND_FORK = 1,
	SIDEBAND_COMM,        /* struct sideband_comm: the name of a thread */
	SIDEBAND_EXIT,        /* struct sideband: a thread exited; the last one ends the process */
	SIDEBAND_MMAP,        /* struct sideband_mmap */
	SIDEBAND_MUNMAP,      /* struct sideband_munmap */
	SIDEBAND_MODULE_LOAD, /* struct sideband_module */
	SIDEBAND_MODULE_UNLOAD, /* struct sideband_munmap: in the kernel's address space */
	SIDEBAND_LOST,          /* struct sideband_lost */
	SIDEBAND_ROUND, /* struct sideband: the source has reported everything before this time */
	/*
	 * struct sideband: CR3 is the address space that PID has at this time, for that address
	 * space's whole lifetime (fork or execve to its end). Ignored for a process that no other
	 * record has reported.
	 */
	SIDEBAND_ADDRESS_SPACE,
	SIDEBAND_JIT_MAP,  /* struct sideband_jit_map: state of a process's JIT map from now on */
	SIDEBAND_JIT_CODE, /* struct sideband_jit_code: one line of a JIT map */
	SIDEBAND_CGROUP,   /* struct sideband_cgroup */
};

enum sideband_flags {
	/*
	 * COMM: caused by execve(). Earlier mappings no longer exist, and TID is the only thread.
	 * The MMAPs of the new image follow.
	 */
	SIDEBAND_COMM_EXEC = 1 << 0,
	/*
	 * The guest isolates its page tables: in user space CR3 additionally has bit 12 set
	 * (PTI_USER_PGTABLE_BIT, arch/x86/mm/pti.c). Only with a known cr3.
	 */
	SIDEBAND_CR3_PAIR = 1 << 1,
	/* MODULE_LOAD: code generated at run time (BPF, trampolines), not a module. */
	SIDEBAND_MODULE_GENERATED = 1 << 2,
	/* JIT_MAP: the following lines are the map's first; earlier ones are obsolete. */
	SIDEBAND_JIT_BEGIN = 1 << 4,
	/* JIT_MAP: some lines are not reported yet. A SIDEBAND_ROUND does not cover this map until
	 * a JIT_MAP without this flag. With pid 0 this applies to all maps. */
	SIDEBAND_JIT_INCOMPLETE = 1 << 5,
	SIDEBAND_JIT_END = 1 << 6, /* JIT_MAP: the process exited */
	/*
	 * FORK: the process started at some earlier time and inherits nothing from its parent. For
	 * records made by this program only: sideband_check() rejects it.
	 */
	SIDEBAND_FORK_EARLIER = 1 << 7,
};

/* The head of each record; SIDEBAND_EXIT and others consist of it alone. */
struct sideband {
	uint32_t size;  /* bytes of the whole record, a multiple of 8 */
	uint16_t type;  /* enum sideband_type */
	uint16_t flags; /* enum sideband_flags */
	uint64_t time;  /* ns, CLOCK_MONOTONIC_RAW of the host, as in struct sample */
	/*
	 * ns: TIME may be wrong by this much in both directions, where the source has only the
	 * guest's clock. The order of one source's records is exact.
	 */
	uint32_t time_error;
	uint32_t reserved;
	uint32_t pid; /* the process (tgid), in the guest's initial pid namespace; 0: the kernel */
	uint32_t tid; /* the thread; equal to pid where only the process is known */
	/*
	 * GPA of the root of the process's page tables from now on (CR3 without its low 12 bits and
	 * bit 63). 0: unknown; samples without a pid are then not attributed to the process.
	 */
	uint64_t cr3;
};

struct sideband_fork {
	struct sideband head; /* of the child; a new thread has its parent's pid */
	uint32_t parent_pid, parent_tid;
};

struct sideband_comm {
	struct sideband head;
	char comm[SIDEBAND_COMM_SIZE]; /* NUL-terminated, not sanitized */
};

struct sideband_mmap {
	struct sideband head;
	uint64_t start;        /* GVA, bytes */
	uint64_t length;       /* bytes, not 0 */
	uint64_t offset;       /* in the file, bytes */
	uint32_t prot;         /* PROT_* of Linux; code has PROT_EXEC */
	uint32_t map_flags;    /* MAP_* of Linux; 0: unknown */
	uint32_t major, minor; /* of the device; these and the next two are 0 if unknown */
	uint64_t inode;
	uint64_t generation;   /* of the inode */
	uint8_t build_id_size; /* bytes; 0: unknown */
	uint8_t build_id[SIDEBAND_BUILD_ID_MAX];
	uint8_t reserved[3];
	/* As in the guest: a path, "[vdso]", "//anon"; NUL-terminated, not sanitized. */
	char name[];
};

struct sideband_munmap {
	struct sideband head;
	uint64_t start, length; /* GVA; bytes, not 0 */
};

struct sideband_module {
	struct sideband head;
	uint64_t start, length; /* GVA; bytes, not 0 */
	uint8_t build_id_size;  /* bytes; 0: unknown */
	uint8_t build_id[SIDEBAND_BUILD_ID_MAX];
	uint8_t reserved[3];
	char name[]; /* "virtio_blk", without brackets; NUL-terminated, not sanitized */
};

struct sideband_jit_map {
	struct sideband head; /* TIME: when the map was read */
	/*
	 * ns as TIME, with its error: the new lines were not in the map yet; with
	 * SIDEBAND_JIT_BEGIN, the map was empty. 0: unknown.
	 */
	uint64_t since;
	uint64_t program; /* ns: the process has executed its current program since this time or
			   * longer; 0: unknown */
};

struct sideband_jit_code {
	struct sideband head;   /* TIME: the line was in the map */
	uint64_t start, length; /* GVA; bytes, not 0 */
	uint64_t since;         /* ns: the line was certainly not in the map; 0: unknown */
	char name[];            /* printable ASCII, not empty; NUL-terminated */
};

/* The process is in this control group at this time; its future children start there. */
struct sideband_cgroup {
	struct sideband head;
	/* In the unified hierarchy: the inode of the cgroup's directory, below 2^63. 0: version 1.
	 */
	uint64_t id;
	/* From the hierarchy's root: "/system.slice/ssh.service"; NUL-terminated, not sanitized. */
	char path[];
};

/*
 * The source lost COUNT events, each of this time or later; 0 if it cannot rule out a loss. From
 * this time on, everything that it reported for times up to UNTIL is uncertain, whether before or
 * after this record, because a lost event may have ended it. What it reports for later times is
 * certain.
 */
struct sideband_lost {
	struct sideband head;
	uint64_t count;
	uint64_t until; /* ns as TIME, and not less */
};

/*
 * Returns the record at the start of SPAN, or NULL if it is incomplete or invalid. Checks the type,
 * the flags, the size, that strings end inside the record, that ids are below SAMPLE_TASK_LIMIT,
 * that ranges do not wrap, and that times do not run backwards. SPAN must begin at a multiple of 8
 * and must not change afterwards. Bytes after the record are ignored. Any thread.
 */
const struct sideband *sideband_check(struct span span);

/*
 * True if the executable mapping NAME is anonymous memory, i.e. contains generated code. A file of
 * memfd_create(2) is a program if it has a build id, else anonymous. Any thread.
 */
bool sideband_is_anonymous(const char *name, bool has_build_id);

/* True if NAME is a file of memfd_create(2), "/memfd:NAME (deleted)". Any thread. */
bool sideband_is_memfd(const char *name);

/* The head of a record of SIZE bytes about process PID. */
static inline struct sideband sideband_head(enum sideband_type type, size_t size, uint64_t time,
					    uint32_t pid)
{
	return (struct sideband){
		.size = (uint32_t)size, .type = type, .time = time, .pid = pid, .tid = pid
	};
}

/* Size of a record in bytes: FIXED bytes followed by NAME. */
static inline uint32_t sideband_size(size_t fixed, const char *name)
{
	return (uint32_t)((fixed + strlen(name) + 1 + 7) & ~(size_t)7);
}

#endif
