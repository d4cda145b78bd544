/* SPDX-License-Identifier: Apache-2.0 */
/* Prints accesses of vCPUs by address, and durations. Main thread. */
#ifndef KVMSCOPE_CLI_ACCESS_TABLE_H
#define KVMSCOPE_CLI_ACCESS_TABLE_H

#include <jansson.h>
#include <stdio.h>

#include "vmm/attach/access_row.h"

/* Prints COUNT rows, in SECONDS and WALL ns of vCPUs. */
void access_table_print(const struct access_row *rows, size_t count, double seconds, double wall,
			FILE *to);

/* An array with an object for each row. */
json_t *access_table_json(const struct access_row *rows, size_t count);

/* Stores NS with three digits and a unit, as perf bench prints times, in TEXT, and returns it. */
const char *duration_text(double ns, char text[16]);

#endif
