/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Included before each source that is searched (search.h): a ring of one page, and system calls and
 * memory that the search can restore.
 */
#ifndef KVMSCOPE_TESTS_RING_WORLD_H
#define KVMSCOPE_TESTS_RING_WORLD_H

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "shared/ring.h"

#undef RING_SIZE_MIN
#define RING_SIZE_MIN 4096ul

/* Copies that race with the writer are steps like all others. */
#define no_sanitize(what) unused

int world_nothing(void);
int world_memory(void);
int world_open(void);
int world_close(int fd);
int world_sleep(void);
void *world_allocate(size_t alignment, size_t size);
void *world_reallocate(void *memory, size_t size);
void *world_map(void *at, size_t size, int protection, int flags, int fd, off_t offset);
int world_control(int fd, int command, ...);
int world_status(int fd, struct stat *status);
ssize_t world_read_at(int fd, void *to, size_t size, off_t offset);
void *world_copy(void *to, const void *from, size_t size);

#define aligned_alloc(alignment, size) world_allocate(alignment, size)
#define malloc(size)                   world_allocate(16, size)
#define realloc(memory, size)          world_reallocate(memory, size)
#define reallocarray(memory, n, size)  world_reallocate(memory, (n) * (size))
#define free(memory)                   ((void)(memory))
#define mmap(...)                      world_map(__VA_ARGS__)
#define munmap(at, size)               world_nothing()
#define memfd_create(name, flags)      world_memory()
#define open(...)                      world_open()
#define usleep(time)                   world_sleep()
#define ftruncate(fd, size)            world_nothing()
#define eventfd(count, flags)          101
#define fcntl(...)                     world_control(__VA_ARGS__)
#define fstat(fd, status)              world_status(fd, status)
#define pread(fd, to, size, offset)    world_read_at(fd, to, size, offset)
#define write(fd, from, size)          ((void)(from), (ssize_t)(size))
#define close(fd)                      world_close(fd)
#define memcpy(to, from, size)         world_copy(to, from, size)

#endif
