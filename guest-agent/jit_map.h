/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file in which a process tells what functions it made at run time:
 * /tmp/perf-PID.map, in its own mount and pid namespace
 * (tools/perf/Documentation/jit-interface.txt). Only one that the process itself
 * has written is taken: files of processes that had the same pid are left
 * behind in /tmp.
 */
#ifndef KVMSCOPE_GUEST_AGENT_JIT_MAP_H
#define KVMSCOPE_GUEST_AGENT_JIT_MAP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#define JIT_MAP_MARK 64u

struct jit_map {
	int process;      /* /proc/PID, which stays this process's; -1: the map is not in use */
	int directory;    /* its /tmp; -1: not found yet */
	int fd;           /* the file; -1: there is none yet */
	uint64_t stack;   /* where the program's began */
	bool is_random;   /* it differs with each execve(2), as far as was known at the begin */
	char name[32];    /* of the file in the directory */
	struct stat seen; /* of the file, at the latest look */
	off_t offset;     /* up to which it was read */
	uint8_t mark[JIT_MAP_MARK]; /* the bytes before that */
	size_t mark_size;
};

/* Of process PID, whose map may be made later. -ESRCH: there is no such process. */
int jit_map_begin(struct jit_map *map, pid_t pid);

/*
 * Opens the file. *BORN gets when it was made (ns of clock_raw()), 0 if that is not known but that
 * the process now there has written all of it. -ENOENT: there is none (yet) that is the process's.
 */
int jit_map_open(struct jit_map *map, uint64_t *born);

enum jit_map_change {
	JIT_MAP_UNCHANGED, /* since the latest look */
	JIT_MAP_GREW,
	JIT_MAP_REPLACED, /* what was read is not there any more, or another file has the name */
};

enum jit_map_change jit_map_poll(struct jit_map *map);

/* Bytes that were not read, as of the latest look. */
static inline uint64_t jit_map_left(const struct jit_map *map)
{
	return map->seen.st_size > map->offset ? (uint64_t)(map->seen.st_size - map->offset) : 0;
}

/* Up to SIZE bytes of those: whole lines. 0: there is none; -EFBIG: a line is longer; other errors
 * of pread(2). */
ssize_t jit_map_read(struct jit_map *map, char *to, size_t size);

/* Closes the file, if one is open: jit_map_open() may open another one. */
void jit_map_close(struct jit_map *map);

/* The same, and nothing keeps the process's file systems from being unmounted until then. */
void jit_map_release(struct jit_map *map);

enum jit_map_process {
	JIT_MAP_RUNS,  /* the program that ran at jit_map_begin(), */
	JIT_MAP_EXEC,  /* or another one, */
	JIT_MAP_ENDED, /* or nothing any more */
};

enum jit_map_process jit_map_process(const struct jit_map *map);

/* Would the process, had it run another program since jit_map_begin(), be JIT_MAP_EXEC for sure? */
bool jit_map_detects_exec(const struct jit_map *map);

void jit_map_end(struct jit_map *map);

#endif
