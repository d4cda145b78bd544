/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds that a VM's disks do not have, or not with more symbols, remembered next to the symbols
 *that were found: a repeated search looks for each build once a day, or when the VM's disks change.
 *
 *	DIRECTORY/not-on-disks:	"since SECONDS-SINCE-1970 DISKS\n", then one build id in hexadecimal
 *				digits per line
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
