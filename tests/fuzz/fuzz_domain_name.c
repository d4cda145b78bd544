/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every domain name becomes a safe file name, and a file name that can be read back is the one that
 * its domain name becomes.
 */
#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/daemon/domain_name.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_is_safe(const char *file)
{
	assert(*file && *file != '.' && strlen(file) <= DOMAIN_FILE_MAX);
	for (; *file; file++)
		assert(*file > ' ' && *file < 0x7f && *file != '/');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = strndup((const char *)data, size);
	char file[DOMAIN_FILE_SIZE], name[DOMAIN_FILE_SIZE];
	int error;

	domain_name_escape(text, file);
	check_is_safe(file);
	error = domain_name_unescape(file, name);
	assert(error ? error == -ENAMETOOLONG : !strcmp(name, text));
	if (!domain_name_unescape(text, name)) {
		domain_name_escape(name, file);
		assert(!strcmp(file, text));
	}
	free(text);
	return 0;
}
