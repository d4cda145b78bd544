/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs and libraries out of the guest's disks, into the build-id cache, where perf finds them,
 * too: in the place of names that a guest's memory gave, of others' files in no place. One thread
 * at a time.
 */
#ifndef KVMSCOPE_DISK_DISK_IMAGES_H
#define KVMSCOPE_DISK_DISK_IMAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct guest_disk;

/*
 * Copies the file RECORDED of a build, an absolute path in the guest, from the first of the COUNT
 * DISKS that has it into the build-id cache BUILDID_DIR (NULL: perf's default), and writes the
 * copy's path into PATH of SYMBOL_PATH_MAX bytes. False: no disk has it.
 */
bool disk_images_fetch(char *path, struct guest_disk *const *disks, size_t count,
		       const char *buildid_dir, const char *recorded, const uint8_t *build_id,
		       size_t build_id_size);

#endif
