/* SPDX-License-Identifier: Apache-2.0 */
/* Where perf looks for files with symbols (tools/perf/util/symbol.c, build-id.c). Any thread. */
#ifndef KVMSCOPE_SYMBOLS_SYMBOL_PATHS_H
#define KVMSCOPE_SYMBOLS_SYMBOL_PATHS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where to search, beside the places that perf searches on this machine. */
struct symbol_sources {
	const char *buildid_dir; /* NULL: perf's default, $HOME/.debug or its configuration */
	const char *symfs; /* directory that holds the guest's files by their paths there; NULL */
	struct debuginfod
		*debuginfod; /* servers to ask for a file that is not here (debuginfod.h); NULL */
};

#define SYMBOL_PATH_MAX  4096
#define BUILD_ID_HEX_MAX 80

/* BUILD_ID in hexadecimal digits into TEXT of BUILD_ID_HEX_MAX bytes, which is returned; without
 * trailing padding. */
const char *symbol_paths_hex(char *text, const uint8_t *build_id, size_t build_id_size);

/*
 * The file KIND ("kallsyms", "elf", "vdso") of a build in the cache into PATH
 * of SYMBOL_PATH_MAX bytes; false: it is not there. DIRECTORY NULL is perf's
 * default: buildid.dir of its configuration, else $HOME/.debug.
 */
bool symbol_paths_cached(char *path, const char *directory, const uint8_t *build_id,
			 size_t build_id_size, const char *kind);

/* The directory whose directories hold the symbols of one boot each; false: none can be named. It
 * need not exist. */
bool symbol_paths_boots(char *path, const char *directory, const uint8_t *build_id,
			size_t build_id_size);

/* The INDEXth place to look for the ELF file of a program or a kernel; false behind the last. It
 * need not exist. */
bool symbol_paths_elf(size_t index, char *path, const struct symbol_sources *sources,
		      const char *recorded, const uint8_t *build_id, size_t build_id_size);
bool symbol_paths_vmlinux(size_t index, char *path, const struct symbol_sources *sources,
			  const uint8_t *build_id, size_t build_id_size);

/*
 * The file that the guest calls RECORDED below SYMFS; false where that can be none. It need not
 * exist, and its links may lead out of SYMFS: who reads it is to check its build id.
 */
bool symbol_paths_symfs(char *path, const char *symfs, const char *recorded);

/* The INDEXth place to look for a separate file with the symbols or the DWARF of a build; false
 * behind the last. It need not exist. */
bool symbol_paths_debug(size_t index, char *path, const struct symbol_sources *sources,
			const uint8_t *build_id, size_t build_id_size);

/* The separate file of a build as distributions install it, below the directory ROOT ("": of this
 * machine). It need not exist. */
bool symbol_paths_installed_debug(char *path, const char *root, const uint8_t *build_id,
				  size_t build_id_size);

/* Is it this machine's kernel, as running now? */
bool symbol_paths_is_running_kernel(const uint8_t *build_id, size_t build_id_size);

#endif
