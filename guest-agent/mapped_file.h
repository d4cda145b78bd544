/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the file of a process's mapping, through the process's mount namespace, and verifies that
 * it is that file: its path may belong to another file by now.
 */
#ifndef KVMSCOPE_GUEST_AGENT_MAPPED_FILE_H
#define KVMSCOPE_GUEST_AGENT_MAPPED_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

struct mapped_file {
	pid_t pid;
	uint64_t start, end;
	uint32_t major, minor; /* of the device; these and the inode are 0 if unknown */
	uint64_t inode;
	const char *path; /* in the process's root */
};

/* Ways to reach a mapping's file, in the order to try them: the mapping at these addresses now
 * (/proc/PID/map_files); the path in the process's root; the path in the root of process 1, as the
 * process may have exited.
 */
#define MAPPED_FILE_WAYS 3u

/* Opens the regular file that WAY leads to with O_PATH, so that no device or FIFO is opened, and
 * gets its STATUS. -ENOENT. Does not verify that it is the mapping's.
 */
int mapped_file_name(const struct mapped_file *mapping, unsigned int way, struct stat *status);

/* Tries all ways and verifies the file: at the addresses by inode or path, at a path by device and
 * inode. Else -ENOENT.
 */
int mapped_file_find(const struct mapped_file *mapping, struct stat *status);

/* True if the path in the agent's own root is the mapping's file, by device and inode; gets its
 * STATUS. A fast path for most files: false means unknown.
 */
bool mapped_file_is_at_path(const struct mapped_file *mapping, struct stat *status);

/* Reopens the O_PATH descriptor FOUND for reading; negative errno. Always closes FOUND. */
int mapped_file_read(int found);

#endif
