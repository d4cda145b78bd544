/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A list of builds that a VM's disks do not have, or have without more symbols. It is stored next
 * to the symbols that were found, so that a repeated search reads the disks for each build once a
 * day only, or after the VM's disks have changed.
 *
 *	DIRECTORY/not-on-disks:	"since SECONDS-SINCE-1970 DISKS\n", then one
 *				build id in hex per line
 *
 * One thread. If two processes write at the same time, the later file is kept.
 */
#ifndef KVMSCOPE_DISK_DISK_MISSES_H
#define KVMSCOPE_DISK_DISK_MISSES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/bytes.h"
#include "shared/span.h"

#define DISK_MISSES_FILE "not-on-disks"

struct disk_misses {
	struct bytes text; /* of the file */
	bool changed;
};

/* Reads the file of DIRECTORY, a build-id cache, for DISKS (paths). Starts empty if it is missing,
 * unreadable or outdated. */
void disk_misses_read(struct disk_misses *misses, const char *directory, const char *const *disks,
		      size_t count);

bool disk_misses_has(const struct disk_misses *misses, struct span build_id);
void disk_misses_add(struct disk_misses *misses, struct span build_id);

/* Writes the file if it changed, and frees MISSES. The errors of cache_write_file(). */
int disk_misses_write(struct disk_misses *misses, const char *directory);

#endif
