/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs and libraries out of the guest's disks, into the build-id cache, where perf finds them, too: in
 * the place of names that a guest's memory gave, of others' files in no place. One thread at a time.
 */
#ifndef KVMSCOPE_PROFILE_DISK_IMAGES_H
#define KVMSCOPE_PROFILE_DISK_IMAGES_H

#include <stdbool.h>

#include "vmm/profile/profile_image.h"

/* The image's file, of its build, into PATH of PROFILE_PATH_MAX bytes; false: none was found, or was looked
 * for before. */
bool disk_images_fetch(struct profile_image *image, const struct profile_options *options, char *path);

#endif
