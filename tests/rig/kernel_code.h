/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of a guest's kernel, and its code as it was in memory. */
#ifndef KVMSCOPE_TESTS_RIG_KERNEL_CODE_H
#define KVMSCOPE_TESTS_RIG_KERNEL_CODE_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/guest/symbol_table.h"

/*
 * The offset of the kernel's code (tests/rig/guest/kernel_text.c) on the guest's disk, after its
 * /proc/kallsyms: 16 MiB.
 */
#define KERNEL_TEXT_OFFSET "16777216"

struct kernel_jump; /* a result that tests/rig/kernel_calls.c keeps */
#define KERNEL_JUMPS 4096u

struct kernel_code {
	struct symbols *symbols; /* functions, including those of modules */
	uint8_t *text;
	uint64_t start, end;             /* of the code */
	uint64_t entry_start, entry_end; /* of the entry code */
	struct kernel_jump *jumps;       /* KERNEL_JUMPS; NULL until the first one */
};

/*
 * KALLSYMS begins with a copy of the guest's /proc/kallsyms; DISK has the code, which may be from
 * another boot of the same kernel: calls are relative, so their bytes do not depend on KASLR.
 * False: not available, which fails the test, and CODE is empty. Otherwise, kernel_code_close()
 * frees it.
 */
bool kernel_code_open(struct kernel_code *code, const char *kallsyms, const char *disk);
void kernel_code_close(struct kernel_code *code);

#endif
