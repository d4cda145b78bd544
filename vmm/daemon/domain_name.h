/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Domain names as file names. Whoever may define a domain chooses its name, which can be any
 * string: "..", "a/b", one with newlines, one of a thousand bytes. Any thread.
 *
 * Letters, digits, '-', '_' and '.' (not as the first character) are kept, any other byte becomes
 * '%' and two upper-case hexadecimal digits, and the empty name becomes "%". A result longer than
 * DOMAIN_FILE_MAX is cut and ends with "%-" and the first 16 bytes of the name's SHA-256 in
 * hexadecimal, so no two names get the same file.
 */
#ifndef KVMSCOPE_DAEMON_DOMAIN_NAME_H
#define KVMSCOPE_DAEMON_DOMAIN_NAME_H

#include <stddef.h>

#define DOMAIN_FILE_MAX  200 /* bytes; leaves room for a suffix in NAME_MAX */
#define DOMAIN_FILE_SIZE (DOMAIN_FILE_MAX + 1)

/* Converts NAME to a file name, which is also safe in a terminal and a log line. */
void domain_name_escape(const char *name, char file[DOMAIN_FILE_SIZE]);

/* Converts FILE back, into NAME of DOMAIN_FILE_SIZE bytes. -EINVAL: it is not such a file name;
 * -ENAMETOOLONG: it was cut. */
int domain_name_unescape(const char *file, char name[DOMAIN_FILE_SIZE]);

#endif
