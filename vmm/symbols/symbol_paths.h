/* SPDX-License-Identifier: Apache-2.0 */
/* The paths where perf looks for files with symbols (tools/perf/util/symbol.c, build-id.c). All
 * paths have SYMBOL_PATH_MAX bytes. Any thread. */
#ifndef KVMSCOPE_SYMBOLS_SYMBOL_PATHS_H
#define KVMSCOPE_SYMBOLS_SYMBOL_PATHS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/span.h"

/* Where to search, in addition to perf's own paths on this machine. */
struct symbol_sources {
	const char *buildid_dir;       /* NULL: perf's default, $HOME/.debug or its configuration */
	const char *symfs;             /* directory with a copy of the guest's files; NULL */
	struct debuginfod *debuginfod; /* servers for files that are missing here; NULL */
	bool cache_only; /* no other files of this machine, whose paths a guest may name */
};

#define SYMBOL_PATH_MAX  4096
#define BUILD_ID_HEX_MAX 80

/* Writes BUILD_ID without padding as hexadecimal digits to TEXT of BUILD_ID_HEX_MAX bytes; returns
 * TEXT. */
const char *symbol_paths_hex(char *text, struct span build_id);

/* The file KIND ("kallsyms", "elf", "vdso") of a build in the cache DIRECTORY (NULL: perf's
 * default); false if it does not exist. */
bool symbol_paths_cached(char *path, const char *directory, struct span build_id, const char *kind);

/*
 * The paths below need not exist.
 */

/* The directory with one directory per boot of a kernel; false without build id or cache. */
bool symbol_paths_boots(char *path, const char *directory, struct span build_id);

/* The INDEXth candidate for the ELF file of an image or a kernel; false after the last. */
bool symbol_paths_elf(size_t index, char *path, const struct symbol_sources *sources,
		      const char *recorded, struct span build_id);
bool symbol_paths_vmlinux(size_t index, char *path, const struct symbol_sources *sources,
			  struct span build_id);

/* The guest's file RECORDED below SYMFS; false if that is not a plain absolute path. Links may lead
 * out of SYMFS: the reader checks the build id. */
bool symbol_paths_symfs(char *path, const char *symfs, const char *recorded);

/* The INDEXth candidate for a separate file with the symbols or DWARF of a build; false after the
 * last. */
bool symbol_paths_debug(size_t index, char *path, const struct symbol_sources *sources,
			struct span build_id);

/* The separate file of a build as distributions install it, below ROOT ("": this machine). */
bool symbol_paths_installed_debug(char *path, const char *root, struct span build_id);

/* Stores the build id in the notes at PATH in BUILD_ID of ELF_BUILD_ID_MAX bytes; returns its size,
 * 0 without one. */
size_t symbol_paths_notes_build_id(const char *path, uint8_t *build_id);

/* True if the build id is that of this machine's running kernel. */
bool symbol_paths_is_running_kernel(struct span build_id);

#endif
