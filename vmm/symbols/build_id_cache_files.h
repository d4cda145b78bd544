/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of the build-id cache: made whole or not at all. Any thread, any
 * number of processes at a time.
 */
#ifndef KVMSCOPE_SYMBOLS_BUILD_ID_CACHE_FILES_H
#define KVMSCOPE_SYMBOLS_BUILD_ID_CACHE_FILES_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "shared/bytes.h"
#include "vmm/symbols/build_id_cache.h"

/* A file that is being written beside its place. */
struct cache_file {
	int fd;
	char path[PATH_MAX];      /* where it will be */
	char temporary[PATH_MAX]; /* where it is */
};

/* Joins parts to a path; -ENAMETOOLONG. The last argument is NULL. */
int cache_path(char path[PATH_MAX], const char *first, ...) __attribute__((sentinel));

/* mkdir -p. */
int cache_make_directory(const char *path);

/*
 * Who may read what: symbols that stand in any package anybody, where a guest
 * has its kernel and what code it runs only the user.
 */
#define CACHE_MODE_PUBLIC  0644
#define CACHE_MODE_OF_BOOT 0600

/* Begins DIRECTORY/NAME; ends it by putting it in place, or by removing it if ERROR is not 0
 * already. */
int cache_file_begin(struct cache_file *file, const char *directory, const char *name, mode_t mode);
int cache_file_end(struct cache_file *file, int error);

/* Writes DIRECTORY/NAME whole. */
int cache_write_file(const char *directory, const char *name, mode_t mode,
		     const struct bytes *content);

/* Does DIRECTORY/NAME hold exactly CONTENT? And does it exist with anything in it? */
bool cache_file_is(const char *directory, const char *name, const struct bytes *content);
bool cache_file_exists(const char *directory, const char *name);

/* Does DIRECTORY/NAME hold names alone, in a form that an earlier version wrote (SYMBOL_FILE_FORM)?
 */
bool cache_file_is_outdated(const char *directory, const char *name);

/* Is there a module in whose place others lay? */
bool cache_modules_overlap(const struct kernel_image *image);

/*
 * DIRECTORY/.build-id/xx/yyyy -> ../../ENTRY/xxyyyy, where perf has what it knows by build id, ID.
 * One that is there stays.
 */
int cache_link_build(const char *directory, const char *entry, const char *id);

/* The build id as perf writes it, 40 hexadecimal digits at most. */
void cache_id_text(const struct kernel_image *image, char text[41]);

#endif
