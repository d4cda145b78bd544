/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Symbols of the very boot that was recorded: kallsyms with the modules where
 * they lay then. perf's cache keeps them below [kernel.kcore], one directory
 * for each boot, see vmm/profile/build_id_cache.h.
 */
#ifndef KVMSCOPE_PROFILE_PROFILE_BOOT_H
#define KVMSCOPE_PROFILE_PROFILE_BOOT_H

#include "vmm/profile/profile_image.h"

/*
 * The kallsyms file of a boot in which KERNEL and each of its recorded
 * modules lie where they were recorded, into PATH of PROFILE_PATH_MAX bytes;
 * false: there is none. DIRECTORY as in struct profile_options.
 */
bool profile_boot_find(char *path, const struct profile_kernel *kernel, const char *directory);

#endif
