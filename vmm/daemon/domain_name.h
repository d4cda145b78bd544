/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The name of a domain as a file's name. Whoever may define a domain chooses its name, so it is any
 * string:
 * "..", "a/b", one with newlines, one of a thousand bytes. Any thread.
 *
 * Letters, digits, '-', '_' and '.' stand for themselves (a '.' only behind another character), any
 * other byte is '%' and two upper-case hexadecimal digits, and the empty name is "%". What would be
 * longer than DOMAIN_FILE_MAX is cut, and ends with "%-" and the first 16 bytes of the name's
 * SHA-256 in hexadecimal: so no two names have one file, whoever chose them.
 */
#ifndef KVMSCOPE_DAEMON_DOMAIN_NAME_H
#define KVMSCOPE_DAEMON_DOMAIN_NAME_H

#include <stddef.h>

#define DOMAIN_FILE_MAX  200 /* bytes: a suffix fits behind it into NAME_MAX */
#define DOMAIN_FILE_SIZE (DOMAIN_FILE_MAX + 1)

/* NAME as a file's name; it is safe in a terminal and a log line, too. */
void domain_name_escape(const char *name, char file[DOMAIN_FILE_SIZE]);

/*
 * The name that FILE stands for, into NAME of DOMAIN_FILE_SIZE bytes. -EINVAL: none does;
 * -ENAMETOOLONG: it was cut, and what is left of it does not tell.
 */
int domain_name_unescape(const char *file, char name[DOMAIN_FILE_SIZE]);

#endif
