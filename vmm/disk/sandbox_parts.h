/* SPDX-License-Identifier: Apache-2.0 */
/* What sandboxes of programs (sandbox.h) and of functions (sandbox_work.h) have in common. All
 * functions confine the calling process; errors are negative errno values. */
#ifndef KVMSCOPE_DISK_SANDBOX_PARTS_H
#define KVMSCOPE_DISK_SANDBOX_PARTS_H

#include <linux/landlock.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANDBOX_SANITIZED 1 /* shadow memory is large, and makes other system calls */
#else
#define SANDBOX_SANITIZED 0
#endif

/* Of Landlock's first version. */
#define SANDBOX_ALL_FILE ((LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1)

int sandbox_limit(int resource, rlim_t most);

/* A ruleset that allows nothing yet; -1: this kernel has no Landlock, and the user's rights are the
 * limit. */
int sandbox_rules_create(int *rules);
/* Allows ACCESS below PATH, or to the file PATH. A missing file needs no rule. */
int sandbox_rules_allow(int rules, const char *path, uint64_t access);
/* Programs, libraries, and the dynamic linker's cache: ACCESS to files. */
int sandbox_rules_allow_system(int rules, uint64_t access);
/* Puts the rules into force and closes them. */
int sandbox_rules_enter(int rules);

/* Installs the filter of a program, which may start itself, or of a function: it may write files
 * with WRITES, and connect to servers with NETWORK. Other calls fail with EPERM. */
int sandbox_restrict_program(void);
int sandbox_restrict_function(bool writes, bool network);

#endif
