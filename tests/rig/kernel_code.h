/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of a guest's kernel, and its code as it stood in its memory. */
#ifndef KVMSCOPE_TESTS_RIG_KERNEL_CODE_H
#define KVMSCOPE_TESTS_RIG_KERNEL_CODE_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/guest/symbol_table.h"

/* Where the guest's disk has the kernel's code (tests/rig/guest/kernel_text.c), behind its
 * /proc/kallsyms: 16 MiB. */
#define KERNEL_TEXT_OFFSET "16777216"

struct kernel_code {
	struct symbols *symbols; /* functions, of modules too */
	uint8_t *text;
	uint64_t start, end;             /* of it */
	uint64_t entry_start, entry_end; /* of entry code in it */
};

/*
 * KALLSYMS, as the guest's /proc has it, begins the file; DISK has the code, which may be that of
 * another boot of the same kernel: wherever the kernel lies, its calls are the same bytes. False:
 * they are not to be had, which is the test's failure, and CODE is empty. Else kernel_code_close()
 * frees it.
 */
bool kernel_code_open(struct kernel_code *code, const char *kallsyms, const char *disk);
void kernel_code_close(struct kernel_code *code);

#endif
