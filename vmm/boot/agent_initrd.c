/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/boot/agent_initrd.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/boot/cpio.h"

#define AGENT "kvmscope-agent"

/* The path is relative to the project's root, where make runs; module.mk has the rule that makes
 * the file. */
__asm__(".pushsection .rodata\n"
	"agent_initrd_program_start:\n"
	".incbin \"build/agent/kvmscope-agent\"\n"
	"agent_initrd_program_end:\n"
	".popsection\n");

extern const uint8_t agent_initrd_program_start[], agent_initrd_program_end[];

uint8_t *agent_initrd_archive(size_t *size)
{
	size_t program = (size_t)(agent_initrd_program_end - agent_initrd_program_start);

	return cpio_program(AGENT, span_of(agent_initrd_program_start, program), size);
}

static bool starts(const char *word, const char *with)
{
	return !strncmp(word, with, strlen(with));
}

/* Bytes before a word "--", which ends what is for the kernel; *INIT: the value of the last
 * rdinit=, or NULL.
 */
static size_t kernel_part(const char *line, const char **init)
{
	const char *word = line;

	*init = NULL;
	while (*(word += strspn(word, " "))) {
		size_t length = strcspn(word, " ");

		if (length == 2 && starts(word, "--"))
			break;
		if (starts(word, "rdinit="))
			*init = word + strlen("rdinit=");
		word += length;
	}
	return (size_t)(word - line);
}

char *agent_initrd_command_line(const char *append)
{
	const char *init;
	size_t before = kernel_part(append, &init);
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
