/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The perf map of a guest process, /tmp/perf-PID.map (perf_map.h), read without an agent. Most JITs
 * keep the file open while they write it, so it is found among the process's open files, and its
 * bytes are in the page cache.
 *
 *	task -> files -> table -> file -> inode -> mapping -> pages
 *	     -> cred  ==       file -> cred
 *
 * A file is accepted as the map if
 * - its name has the pid that the process has in its own namespace;
 * - this program opened it: the file has its opener's credentials (f_cred), and every fork(2) and
 *   execve(2) creates new ones (kernel/cred.c, copy_creds(), prepare_exec_creds());
 * - it is open for writing, not for appending, all its content is before the write position, and
 *   its opener owns it.
 *
 * Files of an earlier process with the same pid, and inherited files, are therefore not accepted.
 *
 * Not detected: writes of a forked child through a shared descriptor, and a program that opens an
 * old file without truncating it and seeks to its end. Both count as the program's own map.
 *
 * The guest may change all of this at any time, so it is verified again after the bytes were read.
 * Not on a vCPU thread.
 */
#ifndef KVMSCOPE_GUEST_LINUX_PERF_MAP_FILE_H
#define KVMSCOPE_GUEST_LINUX_PERF_MAP_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/guest/guest_view.h"

struct btf;
struct guest_kernel;

/* Byte offsets in the structure that a member is named after; immutable once read. */
struct perf_map_layout {
	bool known; /* the rest is valid */
	uint32_t task_files, task_cred, task_execs, task_pid;
	uint32_t files_table;              /* fdt of struct files_struct */
	uint32_t table_count, table_slots; /* max_fds and fd of struct fdtable */
	uint32_t file_mode, file_flags, file_position, file_cred, file_inode, file_dentry;
	uint32_t inode_mode, inode_owner, inode_size;
	uint32_t cred_owner;             /* fsuid of struct cred */
	uint32_t pid_level, pid_numbers; /* of struct pid */
	uint32_t number, number_size;    /* nr of struct upid, and the size of that */
};

/* LAYOUT->known is false if a part is missing. */
void perf_map_layout_read(struct perf_map_layout *layout, const struct btf *btf);

#define PERF_MAP_DESCRIPTORS_MAX 1024u /* descriptors of a process that are searched */
#define PERF_MAP_MARK            64u

/* A process and its map. */
struct perf_map_file {
	uint32_t pid;     /* in the guest's initial namespace */
	uint64_t started; /* start time of the process, by the guest's clock */
	uint64_t task;    /* GVA of its first thread's struct task_struct */
	uint64_t execs;   /* changes with each execve(2) */
	uint64_t file;    /* GVA of its struct file; 0: not found yet */
	uint32_t descriptor;
	uint64_t inode;              /* GVA */
	uint64_t offset;             /* number of bytes read so far */
	uint8_t mark[PERF_MAP_MARK]; /* the last of those bytes */
	size_t mark_size;
};

/*
 * Starts with the process that has PID now. False: there is none, or the kernel's layout is
 * unknown.
 */
bool perf_map_file_begin(struct perf_map_file *map, const struct guest_kernel *kernel,
			 const struct guest_view *view, uint32_t pid);

enum perf_map_result {
	PERF_MAP_ENDED,    /* the program has ended, or cannot be read */
	PERF_MAP_NONE,     /* it has no map (yet) */
	PERF_MAP_REPLACED, /* the map is another file now: the next read starts over */
	PERF_MAP_UNKNOWN,  /* it is being written, or cannot be read: try again */
	PERF_MAP_MORE,     /* SIZE bytes were read, and there are more */
	PERF_MAP_READ,     /* the rest, SIZE bytes, was read */
};

/*
 * Reads whole new lines, at most *SIZE bytes, to TO and sets *SIZE to the number of bytes. After
 * PERF_MAP_READ everything that was in the map at the start of the call has been read.
 */
enum perf_map_result perf_map_file_read(struct perf_map_file *map,
					const struct guest_kernel *kernel,
					const struct guest_view *view, uint8_t *to, size_t *size);

#endif
