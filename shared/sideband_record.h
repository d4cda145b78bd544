/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sideband: what happened in a guest that samples can not tell themselves:
 * processes that forked, ran a program, took a name, ended; files and modules
 * that came into and left an address space. Records have variable size and a
 * common head, native byte order, 8-byte alignment; the same ones whatever
 * saw it happen: the guest's own perf events (the agent), or guest memory.
 *
 *	perf in the guest                  here
 *	PERF_RECORD_FORK, EXIT             SIDEBAND_FORK, SIDEBAND_EXIT
 *	PERF_RECORD_COMM                   SIDEBAND_COMM, with SIDEBAND_COMM_EXEC for MISC_COMM_EXEC
 *	PERF_RECORD_MMAP2                  SIDEBAND_MMAP
 *	(perf has none)                    SIDEBAND_MUNMAP
 *	PERF_RECORD_KSYMBOL                SIDEBAND_MODULE_LOAD, SIDEBAND_MODULE_UNLOAD
 *	PERF_RECORD_LOST                   SIDEBAND_LOST
 *	/tmp/perf-PID.map                  SIDEBAND_JIT_MAP, SIDEBAND_JIT_CODE
 *
 * Threads and ways. A record is the payload of a ring record of type
 * RECORD_SIDEBAND, and may stand in any ring that the collector drains: in a
 * vCPU's own (then written on the vCPU's thread, as all of that ring), or in
 * one of the rings that a source has for itself (one writer thread each; the
 * collector takes them in its options). The collector's thread gives all of
 * them to the resolver (vmm/resolve/resolver.h), which puts them in order of
 * time with the samples: a record may come somewhat after the samples that it
 * is for, and before or after records of other rings.
 *
 * What a source finds there when it begins is told with the time at which it
 * looked: a COMM for each thread, a MMAP for each mapping, without a FORK. What
 * was before that time, it does not know. A process that was never
 * forked before our eyes begins with the first record that names it.
 */
#ifndef KVMSCOPE_SHARED_SIDEBAND_RECORD_H
#define KVMSCOPE_SHARED_SIDEBAND_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "shared/span.h"

#define SIDEBAND_COMM_SIZE    16   /* TASK_COMM_LEN of Linux */
#define SIDEBAND_NAME_MAX     4096 /* PATH_MAX of Linux; both with the NUL */
#define SIDEBAND_BUILD_ID_MAX 20
#define SIDEBAND_SIZE_MAX     (128 + SIDEBAND_NAME_MAX)

enum sideband_type {
	SIDEBAND_FORK =
		1, /* struct sideband_fork: a new thread, or a process with its parent's mappings */
	SIDEBAND_COMM,   /* struct sideband_comm: a thread has this name */
	SIDEBAND_EXIT,   /* struct sideband: a thread ended; the process ends with its last one */
	SIDEBAND_MMAP,   /* struct sideband_mmap */
	SIDEBAND_MUNMAP, /* struct sideband_munmap */
	SIDEBAND_MODULE_LOAD,   /* struct sideband_module */
	SIDEBAND_MODULE_UNLOAD, /* struct sideband_munmap: of the kernel's space */
	SIDEBAND_LOST,          /* struct sideband_lost */
	SIDEBAND_ROUND, /* struct sideband: the source has told of everything before this time */
	/*
	 * struct sideband: the address space that PID has at this time is that of CR3, from its
	 * beginning (fork, execve) to its end. Says nothing of a process that no other record has
	 * told of.
	 */
	SIDEBAND_ADDRESS_SPACE,
	SIDEBAND_JIT_MAP,  /* struct sideband_jit_map: what is known of a process's map from here on
			    */
	SIDEBAND_JIT_CODE, /* struct sideband_jit_code: a line of it */
	SIDEBAND_CGROUP,   /* struct sideband_cgroup */
};

enum sideband_flags {
	/*
	 * COMM: because of execve(); nothing that was mapped before is left, and
	 * TID is the only thread. The MMAPs of the new image come later.
	 */
	SIDEBAND_COMM_EXEC = 1 << 0,
	/*
	 * The guest isolates its page tables: in user space CR3 has bit 12 set in
	 * addition (PTI_USER_PGTABLE_BIT, arch/x86/mm/pti.c). Only where cr3 is known.
	 */
	SIDEBAND_CR3_PAIR = 1 << 1,
	/* MODULE_LOAD: no module of the kernel's list, but code made at run time (BPF,
	   trampolines). */
	SIDEBAND_MODULE_GENERATED = 1 << 2,
	/* JIT_MAP: the lines behind it are the map's first; those told before count no more. */
	SIDEBAND_JIT_BEGIN = 1 << 4,
	/* JIT_MAP: it has lines that are not told yet: a SIDEBAND_ROUND says nothing of it until a
	 * JIT_MAP without this. With pid 0 it is said of all maps. */
	SIDEBAND_JIT_INCOMPLETE = 1 << 5,
	SIDEBAND_JIT_END = 1 << 6, /* JIT_MAP: the process has ended */
	/*
	 * FORK: it began at some time before, and has nothing of its parent's. Only what we tell
	 * ourselves has it: sideband_check() refuses it.
	 */
	SIDEBAND_FORK_EARLIER = 1 << 7,
};

/* The head of each record, and all there is of SIDEBAND_EXIT. */
struct sideband {
	uint32_t size;  /* bytes of the whole record, a multiple of 8 */
	uint16_t type;  /* enum sideband_type */
	uint16_t flags; /* enum sideband_flags */
	uint64_t time;  /* ns, CLOCK_MONOTONIC_RAW of the host, as struct sample's */
	/*
	 * ns: it was up to so much before or after TIME, where the source knows the
	 * guest's clock only. Between records of one source the order is exact.
	 */
	uint32_t time_error;
	uint32_t reserved;
	uint32_t pid; /* the process (tgid), in the guest's initial pid namespace; 0: the kernel */
	uint32_t tid; /* the thread; equal to pid where only the process is known */
	/*
	 * GPA of the root of the process's page tables from now on (CR3 without its
	 * low 12 bits and bit 63). 0 where it is not known: samples that know no pid
	 * then do not find the process.
	 */
	uint64_t cr3;
};

struct sideband_fork {
	struct sideband head; /* of the child; a new thread has its parent's pid */
	uint32_t parent_pid, parent_tid;
};

struct sideband_comm {
	struct sideband head;
	char comm[SIDEBAND_COMM_SIZE]; /* NUL-terminated, not cleaned */
};

struct sideband_mmap {
	struct sideband head;
	uint64_t start;        /* GVA, bytes */
	uint64_t length;       /* bytes, not 0 */
	uint64_t offset;       /* in the file, bytes */
	uint32_t prot;         /* PROT_* of Linux; code has PROT_EXEC */
	uint32_t map_flags;    /* MAP_* of Linux; 0 where not known */
	uint32_t major, minor; /* of the device; this and the next two 0 where not known */
	uint64_t inode;
	uint64_t generation;   /* of the inode */
	uint8_t build_id_size; /* bytes; 0: not known */
	uint8_t build_id[SIDEBAND_BUILD_ID_MAX];
	uint8_t reserved[3];
	/* As the guest sees it: a path, "[vdso]", "//anon"; NUL-terminated, not cleaned. */
	char name[];
};

struct sideband_munmap {
	struct sideband head;
	uint64_t start, length; /* GVA; bytes, not 0 */
};

struct sideband_module {
	struct sideband head;
	uint64_t start, length; /* GVA; bytes, not 0 */
	uint8_t build_id_size;  /* bytes; 0: not known */
	uint8_t build_id[SIDEBAND_BUILD_ID_MAX];
	uint8_t reserved[3];
	char name[]; /* "virtio_blk", without brackets; NUL-terminated, not cleaned */
};

struct sideband_jit_map {
	struct sideband head; /* TIME: when the map was looked at */
	/*
	 * ns as TIME, with its error: then what is new was not in the map; with SIDEBAND_JIT_BEGIN,
	 * nothing was. 0: not known.
	 */
	uint64_t since;
	uint64_t program; /* ns: the process has run the program that it runs now since then, or
			   * longer; 0: not known
			   */
};

struct sideband_jit_code {
	struct sideband head;   /* TIME: by then the line stood in the map */
	uint64_t start, length; /* GVA; bytes, not 0 */
	uint64_t since;         /* ns: then it did not, for sure; 0: not known */
	char name[];            /* printable ASCII, not empty; NUL-terminated */
};

/* At this time the process was in this control group; its children begin there. */
struct sideband_cgroup {
	struct sideband head;
	/* Of the unified hierarchy: the inode of its directory, below 2^63; 0: of one of version 1.
	 */
	uint64_t id;
	char path[]; /* from the hierarchy's root: "/system.slice/ssh.service"; NUL-terminated, not
			cleaned */
};

/*
 * The source can not tell of so many events, each of this time or later. 0: it does not know of
 * any, but can not exclude them. From this time on nothing is sure that it told of UNTIL or
 * earlier, before this record or behind it: something that was lost may have ended it. What it
 * tells of later times is.
 */
struct sideband_lost {
	struct sideband head;
	uint64_t count;
	uint64_t until; /* ns as TIME, and not less */
};

/*
 * The record at the start of SPAN, or NULL if there is no whole, valid one: of
 * known type and flags, its size inside the span and enough for its type, strings that end inside
 * of it, ids below SAMPLE_TASK_LIMIT, ranges that do not run over the end of the address space,
 * times that do not run back. The span must not change from here on and begin at a multiple of 8.
 * Bytes behind the record are not looked at. Any thread.
 */
const struct sideband *sideband_check(struct span span);

/*
 * Is NAME, of an executable mapping, memory that is no file's? Its code was made at run time. A
 * file of memfd_create(2) may be either: a program if it has a build id. Any thread.
 */
bool sideband_is_anonymous(const char *name, bool has_build_id);

/* Is NAME that of a file of memfd_create(2), "/memfd:NAME (deleted)"? Any thread. */
bool sideband_is_memfd(const char *name);

/* Bytes of a record whose fixed part has FIXED bytes with NAME at its end. */
static inline uint32_t sideband_size(size_t fixed, const char *name)
{
	return (uint32_t)((fixed + strlen(name) + 1 + 7) & ~(size_t)7);
}

#endif
