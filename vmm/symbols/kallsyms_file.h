/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel symbols from a text file in the form of /proc/kallsyms: in the build-id cache, or given by
 * the user. */
#ifndef KVMSCOPE_SYMBOLS_KALLSYMS_FILE_H
#define KVMSCOPE_SYMBOLS_KALLSYMS_FILE_H

#include "vmm/guest/symbol_table.h"

/*
 * Reads lines "ADDRESS TYPE NAME [MODULE]" into a table that the caller frees; like perf, skips
 * types other than text and data. -EINVAL: other lines; -EPERM: all addresses are 0
 * (kptr_restrict); -ENODATA: no symbols; the errors of open() and read_descriptor(). Any thread.
 */
int kallsyms_file_load(struct symbols **symbols, const char *path);

#endif
