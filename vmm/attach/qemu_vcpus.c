// SPDX-License-Identifier: Apache-2.0
#include "vmm/attach/qemu_vcpus.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/attach/process.h"
#include "vmm/attach/qemu_words.h"

static const char *const levels[] = { "sockets", "dies", "modules", "cores", "threads" };

/* Of KEY, VMM_VCPUS_MAX at most; 0: it is not there. */
static uint64_t number_of(const char *options, const char *key)
{
	char text[32];
	uint64_t number;

	if (!qemu_get_option(options, key, text, sizeof(text)))
		return 0;
	number = strtoull(text, NULL, 10);
	return number < VMM_VCPUS_MAX ? number : VMM_VCPUS_MAX;
}

static uint64_t power_of_two(uint64_t least)
{
	uint64_t power = 1;

	while (power < least)
		power *= 2;
	return power;
}

/* A level that is not named has what makes up the number. */
static unsigned int count_ids(const char *options)
{
	uint64_t most = number_of(options, "maxcpus"), named = 1, ids = 1;

	if (!most)
		return 0;
	for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++) {
		uint64_t number = number_of(options, levels[i]);

		named *= number ? number : 1;
		ids *= power_of_two(number);
	}
	if (named < most)
		ids *= power_of_two((most + named - 1) / named);
	return ids < VMM_VCPUS_MAX ? (unsigned int)ids : VMM_VCPUS_MAX;
}

unsigned int qemu_vcpu_ids_parse(const char *command_line, size_t size)
{
	struct qemu_words words = { .at = command_line };
	const char *option, *value;

	if (!size || command_line[size - 1])
		return 0;
	words.end = command_line + size;
	while (qemu_next_pair(&words, &option, &value))
		if (!strcmp(option, "-smp"))
			return count_ids(value);
	return 0;
}

unsigned int qemu_vcpu_ids(pid_t pid)
{
	char *line = malloc(QEMU_WORDS_MAX);
	size_t size = line ? qemu_words_read(pid, line) : 0;
	unsigned int ids = qemu_vcpu_ids_parse(line, size);

	free(line);
	return ids;
}
