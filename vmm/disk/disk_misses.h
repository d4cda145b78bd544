/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds that a VM's disks do not have, or have no more names of, beside the names that were found:
 *so a search that is made again and again looks for each of them once a day, and anew where the VM
 *has other disks.
 *
 *	DIRECTORY/not-on-disks:	"since SECONDS-SINCE-1970 DISKS\n", then a build id in hexadecimal
 *digits a line
 *
 * One thread; of two processes at a time the later one's are kept.
 */
#ifndef KVMSCOPE_DISK_DISK_MISSES_H
#define KVMSCOPE_DISK_DISK_MISSES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/bytes.h"

#define DISK_MISSES_FILE "not-on-disks"

struct disk_misses {
	struct bytes text; /* of the file */
	bool changed;
};

/* Those of DIRECTORY, a build-id cache; none where there is no file, or it can not be read. DISKS:
 * paths. */
void disk_misses_read(struct disk_misses *misses, const char *directory, const char *const *disks,
		      size_t count);

bool disk_misses_has(const struct disk_misses *misses, const uint8_t *build_id, size_t size);
void disk_misses_add(struct disk_misses *misses, const uint8_t *build_id, size_t size);

/* Writes the file if there is anything new, and frees MISSES. The errors of cache_write_file(). */
int disk_misses_write(struct disk_misses *misses, const char *directory);

#endif
