/* SPDX-License-Identifier: Apache-2.0 */
/* The table of a VM's exits by reason, with its wall time above. Main thread. */
#ifndef KVMSCOPE_CLI_EXIT_TABLE_H
#define KVMSCOPE_CLI_EXIT_TABLE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "vmm/attach/access_row.h"
#include "vmm/attach/exit_row.h"
#include "vmm/attach/vcpu_times.h"

struct exit_table {
	const struct exit_row *rows;
	size_t count;
	struct access_row *accesses;
	size_t access_count;
	bool with_accesses;
	struct vcpu_times times;
	bool of_vcpu;        /* times.vcpu, else of all */
	const char *missing; /* why not everything can be measured, or empty */
	enum vcpu_times_detail detail;
	double seconds; /* of wall time */
	double end;     /* of this time, in s of the clock of recordings (CLOCK_MONOTONIC_RAW) */
	double wall;    /* ns of all these vCPUs */
};

void exit_table_print(const struct exit_table *table, FILE *to);
json_t *exit_table_json(const struct exit_table *table);

/* The most time first. */
void exit_rows_sort(struct exit_row *rows, size_t count);

#endif
