// SPDX-License-Identifier: Apache-2.0
#include "vmm/attach/qemu_name.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/attach/qemu_words.h"

/* The value alone: guest is what "-name" implies (QEMU: softmmu/vl.c, qemu_name_opts). */
static bool implied_name(const char *options, char *name, size_t size)
{
	char option[QEMU_OPTION_MAX];

	return qemu_next_option(&options, option, sizeof(option)) && *option &&
	       !strchr(option, '=') && snprintf(name, size, "%s", option) < (int)size;
}

bool qemu_name_parse(const char *command_line, size_t size, char name[QEMU_NAME_SIZE])
{
	struct qemu_words words = { .at = command_line };
	const char *option, *value;

	if (!size || command_line[size - 1])
		return false;
	words.end = command_line + size;
	while (qemu_next_pair(&words, &option, &value))
		if (!strcmp(option, "-name"))
			return implied_name(value, name, QEMU_NAME_SIZE) ||
			       qemu_get_option(value, "guest", name, QEMU_NAME_SIZE);
	return false;
}

bool qemu_name(pid_t pid, char name[QEMU_NAME_SIZE])
{
	char *line = malloc(QEMU_WORDS_MAX);
	size_t size = line ? qemu_words_read(pid, line) : 0;
	bool found = qemu_name_parse(line, size, name);

	free(line);
	return found;
}
