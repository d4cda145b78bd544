/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Symbols of the very boot that was recorded: kallsyms with the modules where
 * they lay then. perf's cache keeps them below [kernel.kcore], one directory
 * for each boot, see vmm/symbols/build_id_cache.h.
 */
#ifndef KVMSCOPE_REPORT_BOOT_SYMBOLS_H
#define KVMSCOPE_REPORT_BOOT_SYMBOLS_H

#include "vmm/report/profile_image.h"

/*
 * The kallsyms file of a boot in which KERNEL and each of its recorded
 * modules lie where they were recorded, into PATH of SYMBOL_PATH_MAX bytes;
 * false: there is none. DIRECTORY as in struct profile_options.
 */
bool boot_symbols_find(char *path, const struct profile_kernel *kernel, const char *directory);

#endif
