/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of the build-id cache: its files, created whole or not at all, by any thread of any
 * number of processes; and the kcore. */
#ifndef KVMSCOPE_SYMBOLS_BUILD_ID_CACHE_FILES_H
#define KVMSCOPE_SYMBOLS_BUILD_ID_CACHE_FILES_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "vmm/symbols/build_id_cache.h"

/* A file that is being written under a temporary name. */
struct cache_file {
	int fd;
	char path[PATH_MAX]; /* final */
	char temporary[PATH_MAX];
};

/* Concatenates the parts, up to NULL; -ENAMETOOLONG. */
int cache_path(char path[PATH_MAX], const char *first, ...) __attribute__((sentinel));

/* mkdir -p. */
int cache_make_directory(const char *path);

/* Symbols that any distribution publishes are readable by all; the addresses and code of a guest
 * only by the user. */
#define CACHE_MODE_PUBLIC  0644
#define CACHE_MODE_OF_BOOT 0600

/* Creates a file that cache_file_end() renames to DIRECTORY/NAME, or removes if ERROR is not 0. */
int cache_file_begin(struct cache_file *file, const char *directory, const char *name, mode_t mode);
int cache_file_end(struct cache_file *file, int error);

/* Writes DIRECTORY/NAME whole. */
int cache_write_file(const char *directory, const char *name, mode_t mode,
		     const struct bytes *content);

/* True if DIRECTORY/NAME has exactly CONTENT. */
bool cache_file_is(const char *directory, const char *name, const struct bytes *content);
/* True if DIRECTORY/NAME exists and is not empty. */
bool cache_file_exists(const char *directory, const char *name);
/* True if DIRECTORY/NAME is a symbol file in the form of an earlier version (SYMBOL_FILE_FORM). */
bool cache_file_is_outdated(const char *directory, const char *name);

/* Creates DIRECTORY/.build-id/xx/yyyy -> ../../ENTRY/xxyyyy for build ID, unless it exists. */
int cache_link_build(const char *directory, const char *entry, const char *id);

/* The build id as perf writes it: at most 40 hexadecimal digits. */
void cache_id_text(struct span build_id, char text[41]);

/*
 * Writes the code of a kernel to FD, an empty file, as an ELF core in the form of /proc/kcore, as
 * far as perf reads it (tools/perf/util/symbol-elf.c): a PT_LOAD for each range, at its guest
 * addresses. Pages that are not mapped in the guest become holes. The kernel is one PT_LOAD of its
 * whole image, and the file ends after its text: later addresses had init code, which has symbols
 * but no content. (perf fits one map after the other into the map of the kernel, the first PT_LOAD
 * last, and would lose a separate one.) The errors of pwrite(); -EINVAL for sizes that no kernel
 * has.
 */
int kcore_write(int fd, const struct kernel_image *image, const struct guest_view *view,
		const struct guest_paging *paging);

#endif
