/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/daemon/domain_name.h"

#include <errno.h>
#include <openssl/sha.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "shared/error.h"

#define DIGEST_MARK  "%-"
#define DIGEST_BYTES 16
#define TAIL         (sizeof(DIGEST_MARK) - 1 + 2 * (size_t)DIGEST_BYTES)

static const char digits[] = "0123456789ABCDEF";

static bool is_plain(char byte, bool first)
{
	return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
	       (byte >= '0' && byte <= '9') || byte == '-' || byte == '_' ||
	       (byte == '.' && !first);
}

/* Escapes as much of NAME as fits into ROOM bytes and a zero. True: all of it. */
static bool escape(const char *name, char *file, size_t room)
{
	size_t length = 0;

	for (const char *next = name; *next; next++) {
		bool plain = is_plain(*next, next == name);

		file[length] = '\0';
		if (length + (plain ? 1 : 3) > room)
			return false;
		if (plain) {
			file[length++] = *next;
			continue;
		}
		file[length++] = '%';
		file[length++] = digits[(unsigned char)*next >> 4];
		file[length++] = digits[(unsigned char)*next & 15];
	}
	file[length] = '\0';
	return true;
}

static void append_digest(const char *name, char *file)
{
	unsigned char digest[SHA256_DIGEST_LENGTH];
	char *end = stpcpy(file + strlen(file), DIGEST_MARK);

	SHA256((const unsigned char *)name, strlen(name), digest);
	for (size_t i = 0; i < DIGEST_BYTES; i++)
		end += snprintf(end, 3, "%02X", digest[i]);
}

void domain_name_escape(const char *name, char file[DOMAIN_FILE_SIZE])
{
	if (!*name) {
		snprintf(file, DOMAIN_FILE_SIZE, "%%");
	} else if (!escape(name, file, DOMAIN_FILE_MAX)) {
		escape(name, file, DOMAIN_FILE_MAX - TAIL);
		append_digest(name, file);
	}
}

/* The byte of the two digits at TEXT; -1: they are not digits. */
static int byte_of(const char *text)
{
	const char *high = *text ? strchr(digits, text[0]) : NULL;
	const char *low = high && text[1] ? strchr(digits, text[1]) : NULL;

	return low ? (int)((high - digits) << 4 | (low - digits)) : -1;
}

int domain_name_unescape(const char *file, char name[DOMAIN_FILE_SIZE])
{
	char again[DOMAIN_FILE_SIZE];
	size_t length = 0;

	if (strlen(file) > DOMAIN_FILE_MAX)
		return error_set(-EINVAL, "no domain has a file name of %zu bytes", strlen(file));
	if (strstr(file, DIGEST_MARK))
		return error_set(-ENAMETOOLONG, "%s does not contain the whole name of its domain",
				 file);
	for (const char *next = file; *next && strcmp(file, "%") != 0; next++) {
		int byte = *next == '%' ? byte_of(next + 1) : *next;

		if (byte <= 0)
			return error_set(-EINVAL, "%s is not the file of a domain", file);
		name[length++] = (char)byte;
		next += *next == '%' ? 2 : 0;
	}
	name[length] = '\0';
	domain_name_escape(name, again); /* only the canonical form is accepted */
	return strcmp(again, file) ? error_set(-EINVAL, "%s is not the file of a domain", file) : 0;
}
