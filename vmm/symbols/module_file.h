/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A module's functions as an ELF file: what perf looks for under the module's
 * own build id. Addresses are relative to the module's text, so the file serves
 * wherever and whenever that build is loaded. No code is in it.
 */
#ifndef KVMSCOPE_SYMBOLS_MODULE_FILE_H
#define KVMSCOPE_SYMBOLS_MODULE_FILE_H

#include "shared/bytes.h"
#include "vmm/guest/linux/guest_kernel.h"
#include "vmm/guest/symbol_table.h"

/*
 * The functions that are MODULE's in FIRST, or else in SECOND (either may be NULL), of those with
 * plain names. TO is empty where there is none, or no build id. TO's data is the caller's to free;
 * check TO->failed. Any thread.
 */
void module_file_make(struct bytes *to, const struct guest_module *module,
		      const struct symbols *first, const struct symbols *second);

#endif
