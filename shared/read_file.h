/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a whole file of bounded size into memory. Any thread. */
#ifndef KVMSCOPE_SHARED_READ_FILE_H
#define KVMSCOPE_SHARED_READ_FILE_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Reads the rest of the open file FD into *TEXT, which gets a NUL after its *SIZE bytes and is the
 * caller's to free. -EFBIG: it has more than MAX bytes; -ENOMEM; the errors of read(2). No error
 * message is set: the caller has the name of the file.
 */
int read_descriptor(int fd, size_t max, char **text, size_t *size);

/* The same for the file at PATH, with O_CLOEXEC and O_NONBLOCK: a FIFO or a device is -EINVAL. Also
 * the errors of open(2). */
int read_file(const char *path, size_t max, char **text, size_t *size);

/* Reads the beginning of PATH, relative to DIRECTORY as in openat(2), by one read(2): for small
 * files of /proc and sysfs. Adds a NUL. Returns the bytes before it, less than SIZE; 0 on failure.
 */
size_t read_small_file(int directory, const char *path, char *to, size_t size);

/* True if PATH can be opened for reading with the rights that the process has now: access(2) looks
 * at those of the real user, without capabilities. Any thread. */
bool file_is_readable(const char *path);

/* Writes all SIZE bytes to FD; 0, or a negative errno of write(2). */
int write_descriptor(int fd, const void *data, size_t size);

#endif
