/* SPDX-License-Identifier: Apache-2.0 */
/* A process's list of functions that it generated at run time: /tmp/perf-PID.map in its own mount
 * and pid namespace (tools/perf/Documentation/jit-interface.txt). Only a file that this process
 * wrote is used: earlier processes with the same pid leave their files in /tmp.
 */
#ifndef KVMSCOPE_GUEST_AGENT_JIT_MAP_H
#define KVMSCOPE_GUEST_AGENT_JIT_MAP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#define JIT_MAP_MARK 64u

struct jit_map {
	int process;      /* /proc/PID, which pins this process; -1: unused */
	int directory;    /* the process's /tmp; -1: not opened yet */
	int fd;           /* the file; -1: not opened yet */
	uint64_t stack;   /* start of the program's stack: identifies the program */
	bool is_random;   /* the stack's start changes with each execve(2), as of jit_map_begin() */
	char name[32];    /* of the file in the directory */
	struct stat seen; /* of the file, at the latest poll */
	off_t offset;     /* bytes read so far */
	uint8_t mark[JIT_MAP_MARK]; /* the last bytes read, to detect a rewritten file */
	size_t mark_size;
};

/* Prepares MAP for process PID, whose file may appear later. -ESRCH: no such process. */
int jit_map_begin(struct jit_map *map, pid_t pid);

/* Opens the file. *BORN gets its creation time (ns of clock_raw()), or 0 if that is unknown but
 * this process has written all of it. -ENOENT: the process has no file (yet).
 */
int jit_map_open(struct jit_map *map, uint64_t *born);

enum jit_map_change {
	JIT_MAP_UNCHANGED, /* since the latest poll */
	JIT_MAP_GREW,
	JIT_MAP_REPLACED, /* rewritten, or another file has the name */
};

enum jit_map_change jit_map_poll(struct jit_map *map);

/* Bytes not read yet, as of the latest poll. */
static inline uint64_t jit_map_left(const struct jit_map *map)
{
	return map->seen.st_size > map->offset ? (uint64_t)(map->seen.st_size - map->offset) : 0;
}

/* Reads up to SIZE of those bytes, whole lines only. 0: no whole line; -EFBIG: a line is longer
 * than SIZE; errors of pread(2). */
ssize_t jit_map_read(struct jit_map *map, char *to, size_t size);

/* Closes the file if it is open; jit_map_open() may open another one. */
void jit_map_close(struct jit_map *map);

/* Also closes the directory, so that the process's file systems can be unmounted. */
void jit_map_release(struct jit_map *map);

enum jit_map_process {
	JIT_MAP_RUNS,  /* the program of jit_map_begin() */
	JIT_MAP_EXEC,  /* another program */
	JIT_MAP_ENDED, /* the process exited */
};

enum jit_map_process jit_map_process(const struct jit_map *map);

/* True if jit_map_process() detects every execve since jit_map_begin(). */
bool jit_map_detects_exec(const struct jit_map *map);

void jit_map_end(struct jit_map *map);

#endif
