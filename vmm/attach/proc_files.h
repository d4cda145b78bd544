/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What /proc/PID has of a process: proc(5). It is asked for below a descriptor of that directory,
 * which stays that process's when its number is given to another one: then all of it is gone
 * (ESRCH). What is read was written by the process, or by whoever began it. Any thread.
 */
#ifndef KVMSCOPE_ATTACH_PROC_FILES_H
#define KVMSCOPE_ATTACH_PROC_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Opens /proc/PID, for the caller to close; else the errors of open(2), negative: -ENOENT, there is
 * no such process. */
int proc_open(pid_t pid);

/*
 * The begin of file PATH below DIRECTORY, or AT_FDCWD, with a NUL behind it: SIZE bytes of TEXT at
 * the most. Its bytes without the NUL; else the errors of open(2) and read(2), negative, and TEXT
 * is empty or as it was.
 */
ssize_t proc_read(int directory, const char *path, char *text, size_t size);

/*
 * EACH for every entry of the directory PATH below DIRECTORY, or AT_FDCWD, whose name is a number:
 * of a process, a thread or a descriptor, in no order. It ends where EACH returns false. 0, or the
 * errors of open(2), negative.
 */
int proc_each_number(int directory, const char *path, bool (*each)(void *context, int number),
		     void *context);

/*
 * Where descriptor FD of the process at DIRECTORY leads, as far as it fits, into SIZE bytes at
 * LINK, which end with NUL. False: LINK is empty, as there is no such descriptor, or what it is may
 * not be seen; errno is that of readlink(2) then (EACCES: the latter).
 */
bool proc_read_link(int directory, int fd, char *link, size_t size);

#endif
