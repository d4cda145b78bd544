/* SPDX-License-Identifier: Apache-2.0 */
/*
 * File names of kvmscoped's recordings (docs/continuous-profiling.md). A recording is renamed when
 * it is complete, and again after its profiles were pushed, so a reader may hold an outdated name.
 * The names only move forward: trying each of them once, in order, cannot miss a rename. Any
 * thread.
 */
#ifndef KVMSCOPE_PERF_DATA_RECORDING_NAME_H
#define KVMSCOPE_PERF_DATA_RECORDING_NAME_H

#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>

enum recording_state {
	RECORDING_PARTIAL, /* being written */
	RECORDING_NEW,     /* complete, not pushed yet */
	RECORDING_COMPLETE,
};

/* The suffix of a recording's name in STATE, e.g. ".perf.data.partial". */
const char *recording_name_ending(enum recording_state state);

/* Reads the state from the suffix of NAME; false if NAME is not a recording's. */
bool recording_name_state(const char *name, enum recording_state *state);

/* Opens PATH, or the name it has now, for reading. A descriptor, or -1 with the errno of open(2).
 */
int recording_name_open(const char *path);

/* Copies PATH, or the name it has now, to FOUND, and stats it. 0, or the negative errno of stat(2).
 */
int recording_name_find(const char *path, char found[PATH_MAX], struct stat *status);

#endif
