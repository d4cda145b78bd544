/* SPDX-License-Identifier: Apache-2.0 */
/* The exits of vCPUs for one reason: sums, percentiles and names. Any thread. */
#ifndef KVMSCOPE_ATTACH_EXIT_ROW_H
#define KVMSCOPE_ATTACH_EXIT_ROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/attach/bpf/exit_program.h"

/* The exits of one vCPU, or of several after exit_row_add(), for one reason. */
struct exit_row {
	uint32_t reason;
	struct exit_counts counts;
};

/* Adds MORE, of the same reason, to ROW. */
void exit_row_add(struct exit_row *row, const struct exit_row *more);

/* Removes EARLIER, the state of the same row at an earlier time. The maximum is then unknown: 0. */
void exit_row_subtract(struct exit_row *row, const struct exit_row *earlier);

/* The smallest time, in ns, that at least SHARE (0 to 1) of the exits do not exceed, at most an
 * eighth too large. 0 without exits. */
uint64_t exit_row_percentile(const struct exit_row *row, double share);

struct exit_rows {
	struct exit_row *rows; /* the caller's to free() */
	size_t count;
	uint64_t lost; /* exits that were not counted: too many kinds of exits */
};

/* Merges rows of the same reason, and of the same vCPU if BY_VCPU, and sorts them: by vCPU, then by
 * reason. */
void exit_rows_merge(struct exit_rows *exits, bool by_vcpu);

/* Both are merged by vCPU. Rows without exits since EARLIER are removed. */
void exit_rows_subtract(struct exit_rows *exits, const struct exit_rows *earlier);

#define EXIT_NAME_SIZE 40

/* Stores the name of the reason as the kernel's tracepoint and perf kvm stat print it
 * (arch/x86/include/uapi/asm/vmx.h, svm.h), or its number. Returns NAME. Any thread. */
const char *exit_reason_name(uint32_t isa, uint32_t reason, char name[EXIT_NAME_SIZE]);

#endif
