/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions called by code that is compiled for the search (search.h): the compiler's hooks,
 * and the system calls as that code sees them.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "shared/ring_layout.h"
#include "tests/ring/search.h"

/* Declared by the compiler only. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

void __tsan_init(void)
{
}

void __tsan_func_entry(void *caller)
{
	(void)caller;
}

void __tsan_func_exit(void)
{
}

#define PLAIN(name, bytes)                                                                         \
	void __tsan_read##name(void *address)                                                      \
	{                                                                                          \
		search_point(address, bytes, SEARCH_LOAD);                                         \
	}                                                                                          \
	void __tsan_write##name(void *address)                                                     \
	{                                                                                          \
		search_point(address, bytes, SEARCH_STORE);                                        \
	}                                                                                          \
	void __tsan_unaligned_read##name(void *address)                                            \
	{                                                                                          \
		search_point(address, bytes, SEARCH_LOAD);                                         \
	}                                                                                          \
	void __tsan_unaligned_write##name(void *address)                                           \
	{                                                                                          \
		search_point(address, bytes, SEARCH_STORE);                                        \
	}

PLAIN(1, 1)
PLAIN(2, 2)
PLAIN(4, 4)
PLAIN(8, 8)
PLAIN(16, 16)

void __tsan_read_range(void *address, unsigned long size)
{
	search_point(address, size, SEARCH_LOAD);
}

void __tsan_write_range(void *address, unsigned long size)
{
	search_point(address, size, SEARCH_STORE);
}

#define ATOMIC(bits)                                                                               \
	typedef uint##bits##_t word##bits;                                                         \
	word##bits __tsan_atomic##bits##_load(const volatile word##bits *word, int order)          \
	{                                                                                          \
		(void)order;                                                                       \
		search_point(word, bits / 8, SEARCH_LOAD);                                         \
		return *word;                                                                      \
	}                                                                                          \
	void __tsan_atomic##bits##_store(volatile word##bits *word, word##bits value, int order)   \
	{                                                                                          \
		search_point(word, bits / 8,                                                       \
			     order == __ATOMIC_SEQ_CST ? SEARCH_LOCKED : SEARCH_STORE);            \
		*word = value;                                                                     \
	}                                                                                          \
	word##bits __tsan_atomic##bits##_exchange(volatile word##bits *word, word##bits value,     \
						  int order)                                       \
	{                                                                                          \
		word##bits found;                                                                  \
                                                                                                   \
		search_point(word, bits / 8,                                                       \
			     order == __ATOMIC_SEQ_CST ? SEARCH_LOCKED : SEARCH_UPDATE);           \
		found = *word;                                                                     \
		*word = value;                                                                     \
		return found;                                                                      \
	}                                                                                          \
	word##bits __tsan_atomic##bits##_compare_exchange_val(                                     \
		volatile word##bits *word, word##bits expected, word##bits desired, int order,     \
		int failure)                                                                       \
	{                                                                                          \
		word##bits found;                                                                  \
                                                                                                   \
		(void)failure;                                                                     \
		search_point(word, bits / 8,                                                       \
			     order == __ATOMIC_SEQ_CST ? SEARCH_LOCKED : SEARCH_UPDATE);           \
		found = *word;                                                                     \
		if (found == expected)                                                             \
			*word = desired;                                                           \
		return found;                                                                      \
	}                                                                                          \
	int __tsan_atomic##bits##_compare_exchange_strong(                                         \
		volatile word##bits *word, word##bits *expected, word##bits desired, int order,    \
		int failure)                                                                       \
	{                                                                                          \
		word##bits wanted = *expected;                                                     \
                                                                                                   \
		*expected = __tsan_atomic##bits##_compare_exchange_val(word, wanted, desired,      \
								       order, failure);            \
		return *expected == wanted;                                                        \
	}

ATOMIC(8)
ATOMIC(32)
ATOMIC(64)

#define FETCH(bits, name, operator)                                                                \
	uint##bits##_t __tsan_atomic##bits##_fetch_##name(volatile uint##bits##_t *word,           \
							  uint##bits##_t value, int order)         \
	{                                                                                          \
		uint##bits##_t found;                                                              \
                                                                                                   \
		search_point(word, bits / 8,                                                       \
			     order == __ATOMIC_SEQ_CST ? SEARCH_LOCKED : SEARCH_UPDATE);           \
		found = *word;                                                                     \
		*word = found operator value;                                                      \
		return found;                                                                      \
	}

FETCH(32, add, +)
FETCH(64, add, +)
FETCH(64, sub, -)
FETCH(64, and, &)
FETCH(64, or, |)

void __tsan_atomic_thread_fence(int order)
{
	if (order == __ATOMIC_SEQ_CST)
		search_point(search_shared(), 8, SEARCH_FENCE);
}

/* Copies word by word, as far as possible; racing copies are then observed in every state. */
void *world_copy(void *to, const void *from, size_t size)
{
	uint8_t *target = to;
	const uint8_t *source = from;
	uint64_t word;

	for (size_t step; size; size -= step, target += step, source += step) {
		step = size >= 8 ? 8 : size >= 4 ? 4 : 1;
		search_point(source, step, SEARCH_LOAD);
		memcpy(&word, source, step);
		search_point(target, step, SEARCH_STORE);
		memcpy(target, &word, step);
	}
	return to;
}

int world_nothing(void)
{
	return 0;
}

void *world_allocate(size_t alignment, size_t size)
{
	(void)alignment;
	return search_allocate(size);
}

/* The ring's reader requests more room for copies, and never needs the old content. */
void *world_reallocate(void *memory, size_t size)
{
	(void)memory;
	return search_allocate(size);
}

void *world_map(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
	(void)size, (void)protection, (void)fd, (void)offset;
	return flags & MAP_FIXED ? at : search_shared();
}

/*
 * Open file descriptions by number, and their locks (fcntl(2)). A system call is a step that no
 * store can pass: locks use locked instructions.
 */
#define FIRST_FILE 100
#define LOCKS_MAX  (RING_CONSUMERS + 1)

static struct files {
	int opened;
	struct {
		int file; /* 0: not locked */
		int thread;
		off_t offset;
	} locks[LOCKS_MAX];
} * files;

int world_memory(void)
{
	files = search_allocate(sizeof(*files));
	return FIRST_FILE;
}

int world_open(void)
{
	return FIRST_FILE + ++files->opened;
}

static bool is_locked(int file, off_t offset)
{
	for (int i = 0; i < LOCKS_MAX; i++)
		if (files->locks[i].file && files->locks[i].file != file &&
		    files->locks[i].offset == offset)
			return true;
	return false;
}

static void unlock(int file, off_t offset)
{
	for (int i = 0; i < LOCKS_MAX; i++)
		if (files->locks[i].file == file &&
		    (offset < 0 || files->locks[i].offset == offset))
			memset(&files->locks[i], 0, sizeof(files->locks[i]));
}

static void lock(int file, off_t offset)
{
	int i = 0;

	unlock(file, offset);
	while (files->locks[i].file)
		i++;
	files->locks[i].file = file;
	files->locks[i].thread = search_thread();
	files->locks[i].offset = offset;
}

static int lock_command(int fd, int command, struct flock *wanted)
{
	off_t offset = wanted->l_start;

	search_point(search_shared(), 8, SEARCH_FENCE);
	if (command == F_OFD_GETLK) {
		wanted->l_type = is_locked(fd, offset) ? F_WRLCK : F_UNLCK;
	} else if (wanted->l_type == F_UNLCK) {
		unlock(fd, offset);
	} else if (is_locked(fd, offset)) {
		errno = EAGAIN;
		return -1;
	} else {
		lock(fd, offset);
	}
	return 0;
}

int world_control(int fd, int command, ...)
{
	va_list arguments;
	struct flock *wanted;

	if (command == F_GET_SEALS)
		return F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	if (command == F_ADD_SEALS)
		return 0;
	if (command == F_DUPFD_CLOEXEC)
		return fd;
	va_start(arguments, command);
	wanted = va_arg(arguments, struct flock *);
	va_end(arguments);
	return lock_command(fd, command, wanted);
}

int world_close(int fd)
{
	search_point(search_shared(), 8, SEARCH_FENCE);
	unlock(fd, -1);
	return 0;
}

/* The kernel closes the descriptors of a dead thread. */
void world_died(int thread)
{
	for (int i = 0; i < LOCKS_MAX; i++)
		if (files->locks[i].file && files->locks[i].thread == thread)
			memset(&files->locks[i], 0, sizeof(files->locks[i]));
}

static bool holders_are_unlocked(void)
{
	return !is_locked(0, offsetof(struct ring_header, holders));
}

/*
 * The ring sleeps only while another thread has locked the holders. Time does not matter: it wakes
 * up after that.
 */
int world_sleep(void)
{
	search_wait(holders_are_unlocked);
	return 0;
}

int world_status(int fd, struct stat *status)
{
	(void)fd;
	memset(status, 0, sizeof(*status));
	status->st_size = RING_DATA_OFFSET + 4096;
	return 0;
}

ssize_t world_read_at(int fd, void *to, size_t size, off_t offset)
{
	(void)fd;
	memcpy(to, (const uint8_t *)search_shared() + offset, size);
	return size;
}
