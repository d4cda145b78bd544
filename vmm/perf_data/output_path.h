/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a user names to be written: a file, which may be replaced, or something else, which is
 * written to as it is. Who is root must not lose /dev/stdout to a recording, nor anybody a link.
 * Any thread.
 */
#ifndef KVMSCOPE_PERF_DATA_OUTPUT_PATH_H
#define KVMSCOPE_PERF_DATA_OUTPUT_PATH_H

#include <limits.h>
#include <stdbool.h>

/* "-", or a link that leads to what our standard output is, as /dev/stdout. */
bool output_path_is_standard(const char *path);

/*
 * May what PATH names be replaced by a new file of the name TARGET? True of a regular file, which
 * is TARGET where links lead to it, where there is nothing, and of a link of another user's, but
 * root: it is followed nowhere, and is itself what is replaced. (Links on the way to PATH, and
 * those that an own link leads to, are followed.) Not of a pipe, a device or a directory, of a link
 * to nothing, nor of one whose file is not found by its name, as of a descriptor whose file was
 * removed: TARGET is nothing then, and PATH itself may be opened.
 */
bool output_path_is_file(const char *path, char target[PATH_MAX]);

#endif
