/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line of a QEMU, as /proc/PID/cmdline has it: words that end with NUL, written by
 * whoever started the process, or by itself. Options have the form "a=b,c,d=e", commas in values
 * are doubled (QEMU: util/qemu-option.c, get_opt_value()). Any thread.
 */
#ifndef KVMSCOPE_ATTACH_QEMU_WORDS_H
#define KVMSCOPE_ATTACH_QEMU_WORDS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define QEMU_WORDS_MAX  (256u << 10)
#define QEMU_OPTION_MAX PATH_MAX

/* The command line of process PID, as far as it fits, into QEMU_WORDS_MAX bytes at LINE; the bytes,
 * 0: there is none. */
size_t qemu_words_read(pid_t pid, char *line);

struct qemu_words {
	const char *at, *end;
};

/* The next word and the one behind it; false: there are no two any more. */
bool qemu_next_pair(struct qemu_words *words, const char **option, const char **value);

/* One of OPTIONS, and where the next one begins. False: there is none any more, or one is too long.
 */
bool qemu_next_option(const char **options, char *option, size_t size);

/* The value of KEY in OPTIONS; a flag alone is "on". False: it is not there, or is too long. */
bool qemu_get_option(const char *options, const char *key, char *value, size_t size);

#endif
