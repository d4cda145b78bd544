/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kvmscoped calls a recording (docs/continuous-profiling.md): it is renamed when it is
 * complete, and where it is handed on once more behind that, so whoever was told a name may find it
 * under a later one. Names go forward only: each is looked for once, in their order, and no rename
 * is missed. Any thread.
 */
#ifndef KVMSCOPE_PERF_DATA_RECORDING_NAME_H
#define KVMSCOPE_PERF_DATA_RECORDING_NAME_H

#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>

enum recording_state {
	RECORDING_PARTIAL, /* is being written */
	RECORDING_NEW,     /* is complete, and waits to be handed on */
	RECORDING_COMPLETE,
};

/* What the name ends with: ".perf.data.partial". */
const char *recording_name_ending(enum recording_state state);

/* The state that the end of NAME tells; false: it is none of these names. */
bool recording_name_state(const char *name, enum recording_state *state);

/* Opens PATH for reading, or what it is called by now. A descriptor, or -1 with errno as of
 * open(2). */
int recording_name_open(const char *path);

/* Where PATH lies: FOUND is PATH, or what it is called by now, and STATUS that file's. 0, or the
 * negative errno of stat(2). */
int recording_name_find(const char *path, char found[PATH_MAX], struct stat *status);

#endif
