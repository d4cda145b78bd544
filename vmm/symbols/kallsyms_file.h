/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel symbols from a text file in the form of /proc/kallsyms: of the build-id cache, or given by
 * the user.
 */
#ifndef KVMSCOPE_SYMBOLS_KALLSYMS_FILE_H
#define KVMSCOPE_SYMBOLS_KALLSYMS_FILE_H

#include "vmm/guest/symbol_table.h"

/*
 * Reads "ADDRESS TYPE NAME [MODULE]" lines; types other than text and data
 * are left out as perf leaves them out. The table is the caller's. Lines of
 * another form are -EINVAL, a file whose addresses are all 0 (kptr_restrict)
 * is -EPERM, one without symbols -ENODATA; else the errors of open() and
 * read(). Any thread.
 */
int kallsyms_file_load(struct symbols **symbols, const char *path);

#endif
