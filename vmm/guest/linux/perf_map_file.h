/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file in which a process of the guest tells what functions it made at run
 * time, /tmp/perf-PID.map (perf_map.h), with nothing in the guest: most JITs
 * keep it open while they write it, so it is found among the process's own
 * files, and its bytes are in the page cache.
 *
 *	task -> files -> table -> file -> inode -> mapping -> pages
 *	     -> cred  ==       file -> cred
 *
 * A file is a process's map if it is called so, with the number that the
 * process has for itself, and this very program of it opened it: a file keeps
 * the credentials of its opener (f_cred), of which each fork(2) and execve(2)
 * makes new ones (kernel/cred.c, copy_creds(), prepare_exec_creds()); and if
 * it is open for writing, not to append, with all that is in it before the place
 * where it is written next, and is its opener's own. So what a former process
 * of that number has left and what was inherited is none.
 *
 * Not seen is what a forked child writes through the descriptor that it shares
 * with its parent, nor that a program opened an old file without emptying it
 * and went to its end: both count as the program's own.
 *
 * The guest runs and may change all of it at any time: what was found is read
 * again behind the bytes. No vCPU thread.
 */
#ifndef KVMSCOPE_GUEST_LINUX_PERF_MAP_FILE_H
#define KVMSCOPE_GUEST_LINUX_PERF_MAP_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/guest/linux/guest_kernel.h"

/* Descriptors of a process that are looked at, from the first on. */
#define PERF_MAP_DESCRIPTORS_MAX 1024u
#define PERF_MAP_MARK            64u

/* A process and its map. */
struct perf_map_file {
	uint32_t pid;     /* in the guest's initial namespace */
	uint64_t started; /* when it began, by the guest's clock */
	uint64_t task;    /* GVA of its first thread's struct task_struct */
	uint64_t execs;   /* changes with each execve(2) */
	uint64_t file;    /* GVA of its struct file; 0: none was found yet */
	uint32_t descriptor;
	uint64_t inode;              /* GVA */
	uint64_t offset;             /* bytes up to which it was read */
	uint8_t mark[PERF_MAP_MARK]; /* the last of those */
	size_t mark_size;
};

/* Of the process that is PID now, whose file is to be found. False: there is none, or its kernel
 * does not tell. */
bool perf_map_file_begin(struct perf_map_file *map, const struct guest_kernel *kernel,
			 const struct guest_view *view, uint32_t pid);

enum perf_map_result {
	PERF_MAP_ENDED,    /* the program is not there any more; or nothing is told of it */
	PERF_MAP_NONE,     /* it has no map (yet) */
	PERF_MAP_REPLACED, /* what was read is the map no more: the next look begins anew */
	PERF_MAP_UNKNOWN,  /* it is being written to or can't be read: perhaps the next time */
	PERF_MAP_MORE,     /* SIZE bytes were read, and there are others */
	PERF_MAP_READ,     /* all that is there was read, SIZE bytes of it now */
};

/*
 * Reads what has come to the map: whole lines, *SIZE bytes of TO at most, which becomes the number
 * of them. Those that were in the map when the look began have been read behind PERF_MAP_READ.
 */
enum perf_map_result perf_map_file_read(struct perf_map_file *map,
					const struct guest_kernel *kernel,
					const struct guest_view *view, uint8_t *to, size_t *size);

#endif
