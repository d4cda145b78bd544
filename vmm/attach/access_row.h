/* SPDX-License-Identifier: Apache-2.0 */
/* Accesses of vCPUs to one MMIO address, port or MSR, or one hypercall: sums and names. Any thread.
 */
#ifndef KVMSCOPE_ATTACH_ACCESS_ROW_H
#define KVMSCOPE_ATTACH_ACCESS_ROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/attach/bpf/exit_program.h"

struct access_row {
	enum access_kind kind;
	uint64_t address; /* physical address, port, MSR or number */
	struct access_counts counts;
};

struct access_rows {
	struct access_row *rows; /* the caller's to free() */
	size_t count;
	uint64_t lost; /* accesses that were not counted: too many addresses */
};

/* Sorts ROWS by vCPU if BY_VCPU, kind and address, and merges those that are equal then. */
void access_rows_merge(struct access_rows *rows, bool by_vcpu);

/* Removes EARLIER, the state at an earlier time, and then rows without accesses. Both are merged by
 * vCPU. The maxima of rows that were in it are unknown: 0. */
void access_rows_subtract(struct access_rows *rows, const struct access_rows *earlier);

/* Sorts ROWS by their time, the most first. */
void access_rows_sort(struct access_row *rows, size_t count);

/* "mmio", "ioport", "msr" or "hypercall"; and "read", "write", "in", "out", or NULL. */
const char *access_kind_name(enum access_kind kind);
const char *access_direction_name(enum access_kind kind);

#endif
