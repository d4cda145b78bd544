/* SPDX-License-Identifier: Apache-2.0 */
/* Directories below TMPDIR (/var/tmp) that are removed with the process, also if it is killed: a
 * child process waits for that. Main thread. */
#ifndef KVMSCOPE_CLI_PRIVATE_DIRECTORY_H
#define KVMSCOPE_CLI_PRIVATE_DIRECTORY_H

#include <limits.h>

/* Creates a directory with mode 0700 and writes its path to PATH. At most two. 0 or a negative
 * errno with its message. */
int private_directory_make(char path[PATH_MAX]);

#endif
