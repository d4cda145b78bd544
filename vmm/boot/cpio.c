/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/boot/cpio.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define HEADER_SIZE 110u /* a magic of 6 digits and 13 fields of 8 */
#define END_NAME    "TRAILER!!!"

static size_t padded(size_t size)
{
	return (size + 3) / 4 * 4;
}

static size_t entry_size(const char *name, size_t content)
{
	return padded(HEADER_SIZE + strlen(name) + 1) + padded(content);
}

/* TO is all zero; returns where the next entry goes. */
static uint8_t *add_entry(uint8_t *to, const char *name, unsigned int mode, struct span content)
{
	unsigned int number = mode ? 1 : 0, links = 1;
	char header[HEADER_SIZE + 1];
	int length = snprintf(header, sizeof(header),
			      "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x", number,
			      mode, 0, 0, links, 0, (unsigned int)content.size, 0, 0, 0, 0,
			      (unsigned int)strlen(name) + 1, 0);

	assert(length == HEADER_SIZE);
	memcpy(to, header, HEADER_SIZE);
	memcpy(to + HEADER_SIZE, name, strlen(name) + 1);
	if (content.size)
		memcpy(to + padded(HEADER_SIZE + strlen(name) + 1), content.data, content.size);
	return to + entry_size(name, content.size);
}

uint8_t *cpio_program(const char *name, struct span content, size_t *size)
{
	uint8_t *archive, *end;

	assert(content.size <= UINT32_MAX);
	*size = entry_size(name, content.size) + entry_size(END_NAME, 0);
	archive = calloc(1, *size);
	if (!archive)
		return NULL;
	end = add_entry(archive, name, S_IFREG | 0755, content);
	end = add_entry(end, END_NAME, 0, span_of(NULL, 0));
	assert(end == archive + *size);
	return archive;
}
