/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Distinguishes output files, which may be replaced, from pipes and devices, which are written in
 * place. A recording made by root must not replace /dev/stdout, nor follow another user's link. Any
 * thread.
 */
#ifndef KVMSCOPE_PERF_DATA_OUTPUT_PATH_H
#define KVMSCOPE_PERF_DATA_OUTPUT_PATH_H

#include <limits.h>
#include <stdbool.h>

/* True for "-", and for a link to the file that is our standard output, such as /dev/stdout. */
bool output_path_is_standard(const char *path);

/*
 * True if PATH may be replaced by a new file at TARGET: PATH does not exist, is a regular file, or
 * is a link. Links of root and of our user are followed to TARGET; a link of another user is itself
 * replaced. (Links among the parent directories, and after an own link, are always followed.)
 * False for pipes, devices, directories, dangling links, and links to a file that no longer has a
 * name, such as the descriptor of a removed file: TARGET is then unset, and PATH itself may be
 * opened.
 */
bool output_path_is_file(const char *path, char target[PATH_MAX]);

#endif
