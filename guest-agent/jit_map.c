/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-agent/jit_map.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/stat.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "guest-agent/mapped_file.h"
#include "guest-agent/timing.h"
#include "shared/clock_ns.h"
#include "shared/read_file.h"

/* ns: resolution of file times and process start times, which are those of the last tick. */
#define TICK (NS_PER_S / 100) /* 100 Hz */
/* Most descriptors of a process that are checked. */
#define DESCRIPTORS_MAX 4096u

#define RANDOMIZE "/proc/sys/kernel/randomize_va_space"

/* Fields of /proc/PID/stat. */
#define STAT_STARTTIME  22
#define STAT_STARTSTACK 28

/* Reads a file of the process's directory in /proc. */
static bool read_about(const struct jit_map *map, const char *name, char *to, size_t size)
{
	return read_small_file(map->process, name, to, size);
}

/* Field NUMBER, 3 or higher, of its stat; the name before it may contain blanks (proc(5)). */
static bool read_field(const struct jit_map *map, int number, uint64_t *value)
{
	char text[1024], *at;

	if (!read_about(map, "stat", text, sizeof(text)))
		return false;
	at = strrchr(text, ')');
	for (int field = 2; field < number && at; field++)
		at = strchr(at + 1, ' ');
	if (at)
		*value = strtoull(at, NULL, 10);
	return at;
}

enum jit_map_process jit_map_process(const struct jit_map *map)
{
	uint64_t stack;

	if (!read_field(map, STAT_STARTSTACK, &stack))
		return JIT_MAP_ENDED;
	return !stack || stack == map->stack ? JIT_MAP_RUNS : JIT_MAP_EXEC; /* a zombie has none */
}

/* fs/binfmt_elf.c, randomize_stack_top(): PF_RANDOMIZE is set by load_elf_binary(). */
static bool is_stack_random(const struct jit_map *map)
{
	char text[32];

	return read_small_file(AT_FDCWD, RANDOMIZE, text, sizeof(text)) &&
	       strtoul(text, NULL, 10) && read_about(map, "personality", text, sizeof(text)) &&
	       !(strtoul(text, NULL, 16) & ADDR_NO_RANDOMIZE);
}

bool jit_map_detects_exec(const struct jit_map *map)
{
	return map->is_random && is_stack_random(map);
}

/* The pid in the process's own namespace: the last of "NSpid:"; PID if the kernel has no such line.
 */
static int own_pid(const struct jit_map *map, int pid)
{
	char text[4096], *at;

	if (!read_about(map, "status", text, sizeof(text)) || !(at = strstr(text, "\nNSpid:")))
		return pid;
	at += strlen("\nNSpid:");
	at[strcspn(at, "\n")] = '\0';
	at = strrchr(at, '\t');
	return at && atoi(at) > 0 ? atoi(at) : pid;
}

int jit_map_begin(struct jit_map *map, pid_t pid)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d", pid);
	*map = (struct jit_map){ .directory = -1, .fd = -1 };
	map->process = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (map->process < 0)
		return -ESRCH;
	if (!read_field(map, STAT_STARTSTACK, &map->stack)) {
		jit_map_end(map);
		return -ESRCH;
	}
	map->is_random = is_stack_random(map);
	snprintf(map->name, sizeof(map->name), "perf-%d.map", own_pid(map, pid));
	return 0;
}

/* Follows no symlinks: an absolute one would lead to the agent's root. */
static int open_directory(const struct jit_map *map)
{
	int root = openat(map->process, "root", O_PATH | O_DIRECTORY | O_CLOEXEC), directory;

	if (root < 0)
		return -1;
	directory = openat(root, "tmp", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	close(root);
	return directory;
}

/* Only the process's user and root may provide its symbols. */
static bool is_trusted(const struct jit_map *map, const struct stat *file)
{
	struct stat process;

	return S_ISREG(file->st_mode) && !fstat(map->process, &process) &&
	       (!file->st_uid || file->st_uid == process.st_uid);
}

/* Start time of the process in ns of CLOCK_BOOTTIME. */
static bool read_start(const struct jit_map *map, uint64_t *time)
{
	if (!read_field(map, STAT_STARTTIME, time))
		return false;
	*time *= NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK);
	return true;
}

/* When FD was created, in ns of CLOCK_REALTIME at that time: statx(2), for which musl has no
 * function. False if the file system does not store it (tmpfs before Linux 6.0). */
static bool file_birth(int fd, uint64_t *time)
{
	struct statx status = { 0 };

	if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_BTIME, &status) ||
	    !(status.stx_mask & STATX_BTIME))
		return false;
	*time = (uint64_t)status.stx_btime.tv_sec * 1000000000u + status.stx_btime.tv_nsec;
	return true;
}

/* True if the file was created after the process started; *BORN gets the time. */
static bool is_younger(const struct jit_map *map, uint64_t *born)
{
	uint64_t birth, start, real = clock_ns(CLOCK_REALTIME), age;

	if (!file_birth(map->fd, &birth) || birth > real || !read_start(map, &start))
		return false;
	age = real - birth;
	if (age >= clock_raw() || age > clock_ns(CLOCK_BOOTTIME) ||
	    clock_ns(CLOCK_BOOTTIME) - age + TICK < start)
		return false;
	*born = clock_raw() - age;
	return true;
}

static bool is_same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* True if descriptor NAME refers to FILE. Does not wait for an unreachable file server. */
static bool leads_to(int descriptors, const char *name, const struct stat *file)
{
	struct statx found;

	return !syscall(SYS_statx, descriptors, name, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT,
			STATX_INO, &found) &&
	       makedev(found.stx_dev_major, found.stx_dev_minor) == file->st_dev &&
	       found.stx_ino == file->st_ino;
}

/* True if descriptor NAME refers to the file and has written it from its beginning. */
static bool is_writer(const struct jit_map *map, int descriptors, const char *name, off_t size)
{
	char path[300], text[256], *flags;
	long mode;

	if (!leads_to(descriptors, name, &map->seen))
		return false;
	snprintf(path, sizeof(path), "fdinfo/%s", name);
	if (!read_about(map, path, text, sizeof(text)) || strncmp(text, "pos:", 4) != 0 ||
	    !(flags = strstr(text, "\nflags:")))
		return false;
	mode = strtol(flags + strlen("\nflags:"), NULL, 8);
	return (mode & O_ACCMODE) != O_RDONLY && !(mode & O_APPEND) && atoll(text + 4) >= size;
}

/* True if the process has the file open, and all its content is before the write position. */
static bool is_written_by_process(const struct jit_map *map, off_t size)
{
	int fd = openat(map->process, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *descriptors = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	bool found = false;

	if (!descriptors && fd >= 0)
		close(fd);
	for (unsigned int i = 0; descriptors && !found && i < DESCRIPTORS_MAX; i++) {
		entry = readdir(descriptors);
		if (!entry)
			break;
		found = *entry->d_name != '.' && is_writer(map, fd, entry->d_name, size);
	}
	if (descriptors)
		closedir(descriptors);
	return found;
}

static bool is_of_process(const struct jit_map *map, off_t size, uint64_t *born)
{
	*born = 0;
	return is_younger(map, born) || is_written_by_process(map, size);
}

/* Opens only a regular file, even if a device or FIFO takes its name meanwhile. */
static int open_trusted(const struct jit_map *map)
{
	int named = openat(map->directory, map->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	struct stat file;

	if (named >= 0 && !fstat(named, &file) && is_trusted(map, &file))
		return mapped_file_read(named);
	if (named >= 0)
		close(named);
	return -1;
}

int jit_map_open(struct jit_map *map, uint64_t *born)
{
	if (map->directory < 0)
		map->directory = open_directory(map);
	if (map->directory < 0)
		return -ENOENT;
	map->fd = open_trusted(map);
	if (map->fd < 0)
		return -ENOENT;
	map->offset = 0;
	map->mark_size = 0;
	if (!fstat(map->fd, &map->seen) && is_trusted(map, &map->seen) &&
	    is_of_process(map, map->seen.st_size, born)) {
		map->seen.st_size = 0; /* nothing was read yet */
		return 0;
	}
	jit_map_close(map);
	return -ENOENT;
}

/* An unlinked file stays the process's until another file gets its name. */
static bool find_named_file(const struct jit_map *map, struct stat *file)
{
	return !fstatat(map->directory, map->name, file, AT_SYMLINK_NOFOLLOW) ||
	       !fstat(map->fd, file);
}

static bool is_unchanged(const struct stat *now, const struct stat *before)
{
	return now->st_size == before->st_size && now->st_mtim.tv_sec == before->st_mtim.tv_sec &&
	       now->st_mtim.tv_nsec == before->st_mtim.tv_nsec;
}

static bool has_mark(const struct jit_map *map)
{
	uint8_t mark[JIT_MAP_MARK];

	return pread(map->fd, mark, map->mark_size, map->offset - (off_t)map->mark_size) ==
		       (ssize_t)map->mark_size &&
	       !memcmp(mark, map->mark, map->mark_size);
}

enum jit_map_change jit_map_poll(struct jit_map *map)
{
	struct stat now;

	if (!find_named_file(map, &now) || !is_same_file(&now, &map->seen))
		return JIT_MAP_REPLACED;
	if (is_unchanged(&now, &map->seen))
		return JIT_MAP_UNCHANGED;
	map->seen = now;
	return has_mark(map) ? JIT_MAP_GREW : JIT_MAP_REPLACED;
}

ssize_t jit_map_read(struct jit_map *map, char *to, size_t size)
{
	size_t wanted = jit_map_left(map) < size ? (size_t)jit_map_left(map) : size;
	ssize_t got = pread(map->fd, to, wanted, map->offset);
	const char *last;
	size_t lines;

	if (got <= 0)
		return got ? -errno : 0;
	last = memrchr(to, '\n', (size_t)got);
	if (!last)
		return (size_t)got == size ? -EFBIG : 0;
	lines = (size_t)(last + 1 - to);
	map->mark_size = lines < sizeof(map->mark) ? lines : sizeof(map->mark);
	memcpy(map->mark, to + lines - map->mark_size, map->mark_size);
	map->offset += (off_t)lines;
	return (ssize_t)lines;
}

void jit_map_close(struct jit_map *map)
{
	if (map->fd >= 0)
		close(map->fd);
	map->fd = -1;
}

void jit_map_release(struct jit_map *map)
{
	jit_map_close(map);
	if (map->directory >= 0)
		close(map->directory);
	map->directory = -1;
}

void jit_map_end(struct jit_map *map)
{
	jit_map_release(map);
	close(map->process);
	map->process = -1;
}
