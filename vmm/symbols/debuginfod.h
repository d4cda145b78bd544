/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of a build from debuginfod servers, by build id (elfutils' libdebuginfod;
 * debuginfod_find_debuginfo(3)). A server learns so which builds a guest runs: none is asked unless
 * the user says so. What comes lies in the library's own cache, where gdb and perf find it, too;
 * timeouts and limits are the library's, by its own variables. The library is loaded when it is
 * wanted. One thread at a time.
 */
#ifndef KVMSCOPE_SYMBOLS_DEBUGINFOD_H
#define KVMSCOPE_SYMBOLS_DEBUGINFOD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct debuginfod;

enum debuginfod_kind {
	DEBUGINFOD_EXECUTABLE, /* the program, library or kernel itself */
	DEBUGINFOD_DEBUGINFO,  /* its separate debugging file */
};

/*
 * URLS, blank-separated, are what the environment's DEBUGINFOD_URLS becomes; NULL: it is asked as
 * it is. Shows progress on standard error if that is a terminal. -EINVAL: no URL is given; -ENOENT:
 * there is no such library; -ENOMEM. While there is one thread alone.
 */
int debuginfod_open(struct debuginfod **debuginfod, const char *urls);
void debuginfod_close(struct debuginfod *debuginfod); /* NULL is a no-op */

/*
 * The file's name into PATH of SYMBOL_PATH_MAX bytes. False: no server has it, or none answers,
 * which is told once, and then none is asked any more. Whether the file is of that build is for the
 * caller to see. DEBUGINFOD may be NULL: there is nothing then.
 */
bool debuginfod_find(struct debuginfod *debuginfod, enum debuginfod_kind kind, char *path,
		     const uint8_t *build_id, size_t build_id_size);

#endif
