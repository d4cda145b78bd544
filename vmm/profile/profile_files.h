/* SPDX-License-Identifier: Apache-2.0 */
/* Where perf looks for files with symbols (tools/perf/util/symbol.c, build-id.c). Any thread. */
#ifndef KVMSCOPE_PROFILE_PROFILE_FILES_H
#define KVMSCOPE_PROFILE_PROFILE_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct profile_image;
struct profile_kernel;
struct profile_options;

#define PROFILE_PATH_MAX 4096
#define PROFILE_HEX_MAX  80

/* BUILD_ID in hexadecimal digits into TEXT of PROFILE_HEX_MAX bytes, which is returned; without trailing
 * padding. */
const char *profile_files_hex(char *text, const uint8_t *build_id, size_t build_id_size);

/*
 * The file KIND ("kallsyms", "elf", "vdso") of a build in the cache into PATH
 * of PROFILE_PATH_MAX bytes; false: it is not there. DIRECTORY NULL is perf's
 * default: buildid.dir of its configuration, else $HOME/.debug.
 */
bool profile_files_cached(char *path, const char *directory, const uint8_t *build_id, size_t build_id_size,
			  const char *kind);

/* The directory whose directories hold the symbols of one boot each; false: none can be named. It need not
 * exist. */
bool profile_files_boots(char *path, const char *directory, const uint8_t *build_id, size_t build_id_size);

/* The INDEXth place to look for the ELF file of a program or a kernel; false behind the last. It need not
 * exist. */
bool profile_files_elf(size_t index, char *path, const struct profile_options *options,
		       const struct profile_image *image);
bool profile_files_vmlinux(size_t index, char *path, const struct profile_options *options,
			   const struct profile_kernel *kernel);

/*
 * The file that the guest calls RECORDED below SYMFS; false where that can be none. It need not
 * exist, and its links may lead out of SYMFS: who reads it is to check its build id.
 */
bool profile_files_symfs(char *path, const char *symfs, const char *recorded);

/* The INDEXth place to look for a separate file with the symbols or the DWARF of a build; false behind the
 * last. It need not exist. */
bool profile_files_debug(size_t index, char *path, const struct profile_options *options,
			 const uint8_t *build_id, size_t build_id_size);

/* The separate file of a build as distributions install it, below the directory ROOT ("": of this machine).
 * It need not exist. */
bool profile_files_installed_debug(char *path, const char *root, const uint8_t *build_id,
				   size_t build_id_size);

/* Is it this machine's kernel, as running now? */
bool profile_files_is_running_kernel(const uint8_t *build_id, size_t build_id_size);

#endif
