/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines of a perf map, in which a process lists the code that it generated at run time:
 * "START SIZE name", both numbers hexadecimal, in bytes
 * (tools/perf/Documentation/jit-interface.txt). The text is the guest's and untrusted. Any thread.
 */
#ifndef KVMSCOPE_GUEST_LINUX_PERF_MAP_H
#define KVMSCOPE_GUEST_LINUX_PERF_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "shared/span.h"

/* Bytes of a name with its NUL. Longer ones are truncated and end with "...". */
#define PERF_MAP_NAME_MAX 1024u

struct perf_map_line {
	uint64_t start, length;       /* GVA; bytes, not 0; start + length does not overflow */
	char name[PERF_MAP_NAME_MAX]; /* not empty; bytes other than printable ASCII as \xNN */
};

/*
 * Consumes the next valid line of TEXT, skipping invalid ones. False: there is none. The rest after
 * the last newline is not consumed.
 */
bool perf_map_next(struct span *text, struct perf_map_line *line);

#endif
