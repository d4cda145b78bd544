/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/boot/agent_initrd.h"

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "shared/span.h"
#include "vmm/boot/linux_parameters.h"

#define AGENT "kvmscope-agent"

/* The path is relative to the project's root, where make runs; module.mk has the rule for the
 * file. */
__asm__(".pushsection .rodata\n"
	"agent_initrd_program_start:\n"
	".incbin \"build/agent/kvmscope-agent\"\n"
	"agent_initrd_program_end:\n"
	".popsection\n");

extern const uint8_t agent_initrd_program_start[], agent_initrd_program_end[];

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

/* Writes an entry to TO, which is all zero. Returns the position of the next entry. */
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

/*
 * A cpio archive ("newc", Documentation/driver-api/early-userspace/buffer-format.rst) with one
 * executable file NAME. Linux unpacks consecutive archives, compressed or not, if the size of each
 * is a multiple of 4, as here. The caller frees it; NULL without memory.
 */
static uint8_t *cpio_program(const char *name, struct span content, size_t *size)
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

uint8_t *agent_initrd_archive(size_t *size)
{
	size_t program = (size_t)(agent_initrd_program_end - agent_initrd_program_start);

	return cpio_program(AGENT, span_of(agent_initrd_program_start, program), size);
}

char *agent_initrd_command_line(const char *append)
{
	const char *init;
	size_t before = linux_parameter_find(append, "rdinit=", &init);
	char *line = NULL;
	bool blank = !before || append[before - 1] == ' ';
	int length;

	if (init)
		length = asprintf(&line, "%.*s%srdinit=/" AGENT " kvmscope_init=%.*s%s%s",
				  (int)before, append, blank ? "" : " ", (int)strcspn(init, " "),
				  init, append[before] ? " " : "", append + before);
	else
		length = asprintf(&line, "%.*s%srdinit=/" AGENT "%s%s", (int)before, append,
				  blank ? "" : " ", append[before] ? " " : "", append + before);
	return length < 0 ? NULL : line;
}
