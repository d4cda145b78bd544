/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lines of a perf map, in which a process tells what code it made at run
 * time: "START SIZE name", both numbers hexadecimal, in bytes
 * (tools/perf/Documentation/jit-interface.txt). The text is a guest's and is
 * believed nothing. Any thread.
 */
#ifndef KVMSCOPE_GUEST_LINUX_PERF_MAP_H
#define KVMSCOPE_GUEST_LINUX_PERF_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "shared/span.h"

/* Bytes of a name with its NUL. The end of a longer one is left out, and "..." stands there. */
#define PERF_MAP_NAME_MAX 1024u

struct perf_map_line {
	uint64_t start, length; /* GVA; bytes, not 0; the range does not run over the end of the
				   address space */
	char name[PERF_MAP_NAME_MAX]; /* not empty; bytes other than printable ASCII as \xNN */
};

/*
 * Takes the next line off TEXT. What is no line is passed over; so is what stands behind the last
 * newline. False: there is none.
 */
bool perf_map_next(struct span *text, struct perf_map_line *line);

#endif
