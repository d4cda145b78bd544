// SPDX-License-Identifier: Apache-2.0
#include "vmm/attach/qemu_words.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

size_t qemu_words_read(pid_t pid, char *line)
{
	char name[32];
	ssize_t length;
	int fd;

	snprintf(name, sizeof(name), "/proc/%d/cmdline", pid);
	fd = open(name, O_RDONLY | O_CLOEXEC);
	length = fd < 0 ? -1 : read(fd, line, QEMU_WORDS_MAX);
	if (fd >= 0)
		close(fd);
	return length > 0 ? (size_t)length : 0;
}

bool qemu_next_pair(struct qemu_words *words, const char **option, const char **value)
{
	*option = words->at;
	*value = *option + strlen(*option) + 1;
	if (*value >= words->end)
		return false;
	words->at = *value;
	return true;
}

bool qemu_next_option(const char **options, char *option, size_t size)
{
	const char *at = *options;
	size_t used = 0;

	if (!*at)
		return false;
	for (; *at && (*at != ',' || at[1] == ','); at++) {
		if (used == size - 1)
			return false;
		option[used++] = *at;
		at += *at == ',';
	}
	option[used] = '\0';
	*options = *at ? at + 1 : at;
	return true;
}

bool qemu_get_option(const char *options, const char *key, char *value, size_t size)
{
	size_t length = strlen(key);
	char option[QEMU_OPTION_MAX] = "";

	while (qemu_next_option(&options, option, sizeof(option))) {
		const char *found = option + length;

		if (strncmp(option, key, length) != 0 || (*found && *found != '='))
			continue;
		found = *found ? found + 1 : "on";
		return *found && snprintf(value, size, "%s", found) < (int)size;
	}
	return false;
}
