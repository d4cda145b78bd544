/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Downloads files from debuginfod servers by build id (libdebuginfod of elfutils;
 * debuginfod_find_debuginfo(3)). The servers learn which builds a guest runs, so this is used only
 * at the user's request. Files go to the library's own cache, where gdb and perf find them too;
 * timeouts and limits are set by the library's environment variables. The library is loaded on
 * demand. One thread at a time.
 */
#ifndef KVMSCOPE_SYMBOLS_DEBUGINFOD_H
#define KVMSCOPE_SYMBOLS_DEBUGINFOD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/span.h"

struct debuginfod;

enum debuginfod_kind {
	DEBUGINFOD_EXECUTABLE, /* the program, library or kernel itself */
	DEBUGINFOD_DEBUGINFO,  /* its separate debug file */
};

/*
 * URLS, separated by blanks, replace DEBUGINFOD_URLS of the environment; NULL: it is used as it is.
 * Shows progress if standard error is a terminal. -EINVAL: no URL; -ENOENT: no library; -ENOMEM.
 * Call it before other threads start, as it calls setenv().
 */
int debuginfod_open(struct debuginfod **debuginfod, const char *urls);
void debuginfod_close(struct debuginfod *debuginfod); /* NULL is a no-op */

/*
 * Copies the file's name to PATH of SYMBOL_PATH_MAX bytes. False: no server has it. If no server
 * answers, this is reported once and later calls fail at once. The caller checks the file's build
 * id. False for NULL.
 */
bool debuginfod_find(struct debuginfod *debuginfod, enum debuginfod_kind kind, char *path,
		     struct span build_id);

#endif
