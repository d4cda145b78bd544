/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file behind a mapping of a process: reached through the process, in its
 * mount namespace, and checked to be that file. A path alone may by now be
 * another file's.
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
	uint32_t major, minor; /* of the device; these and the inode 0 where not known */
	uint64_t inode;
	const char *path; /* in the process's root */
};

/*
 * The ways to what may be MAPPING's file, in the order to be tried: what is
 * mapped at these addresses now (/proc/PID/map_files); the path in the
 * process's root; the path in that of the first process, as the one asked for may have ended.
 */
#define MAPPED_FILE_WAYS 3u

/*
 * The regular file to which one of the ways leads, with its STATUS, as a descriptor that only names
 * it (O_PATH): no device and no FIFO is opened. -ENOENT. Not checked to be the mapping's.
 */
int mapped_file_name(const struct mapped_file *mapping, unsigned int way, struct stat *status);

/*
 * The same by all ways, but only the mapping's: at its addresses with its inode or path, or by the
 * path with its device and inode; else -ENOENT.
 */
int mapped_file_find(const struct mapped_file *mapping, struct stat *status);

/*
 * Is the mapping's path, as the agent itself sees it, of its file, by device and inode? With its
 * STATUS. For most files that saves the ways above; false says nothing.
 */
bool mapped_file_is_at_path(const struct mapped_file *mapping, struct stat *status);

/* A descriptor to read what FOUND names; negative errno. FOUND is closed in any case. */
int mapped_file_read(int found);

#endif
