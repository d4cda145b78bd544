/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/qemu_command_line.h"

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shared/read_file.h"
#include "vmm/attach/process.h"

char *qemu_command_line_read(pid_t pid, size_t *size)
{
	char path[32], *line = NULL;

	*size = 0;
	snprintf(path, sizeof(path), "/proc/%d/cmdline", pid);
	return read_file(path, QEMU_COMMAND_LINE_MAX, &line, size) ? NULL : line;
}

struct qemu_arguments qemu_arguments_of(const char *line, size_t size)
{
	return size && !line[size - 1] ? (struct qemu_arguments){ line, line + size }
				       : (struct qemu_arguments){ 0 };
}

bool qemu_next_pair(struct qemu_arguments *words, const char **option, const char **value)
{
	if (words->at == words->end)
		return false;
	*option = words->at;
	*value = *option + strlen(*option) + 1;
	words->at = *value;
	return *value < words->end;
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

/* The value without a key: "-name" implies guest (QEMU: softmmu/vl.c, qemu_name_opts). */
static bool implied_name(const char *options, char *name, size_t size)
{
	char option[QEMU_OPTION_MAX];

	return qemu_next_option(&options, option, sizeof(option)) && *option &&
	       !strchr(option, '=') && snprintf(name, size, "%s", option) < (int)size;
}

bool qemu_name_parse(const char *command_line, size_t size, char name[QEMU_NAME_SIZE])
{
	struct qemu_arguments words = qemu_arguments_of(command_line, size);
	const char *option, *value;

	while (qemu_next_pair(&words, &option, &value))
		if (!strcmp(option, "-name"))
			return implied_name(value, name, QEMU_NAME_SIZE) ||
			       qemu_get_option(value, "guest", name, QEMU_NAME_SIZE);
	return false;
}

bool qemu_name(pid_t pid, char name[QEMU_NAME_SIZE])
{
	size_t size;
	char *line = qemu_command_line_read(pid, &size);
	bool found = qemu_name_parse(line, size, name);

	free(line);
	return found;
}

static const char *const levels[] = { "sockets", "dies", "modules", "cores", "threads" };

/* The value of KEY, at most VMM_VCPUS_MAX; 0: absent. */
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

/* A level without a value gets what remains of maxcpus. */
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
	struct qemu_arguments words = qemu_arguments_of(command_line, size);
	const char *option, *value;

	while (qemu_next_pair(&words, &option, &value))
		if (!strcmp(option, "-smp"))
			return count_ids(value);
	return 0;
}

unsigned int qemu_vcpu_ids(pid_t pid)
{
	size_t size;
	char *line = qemu_command_line_read(pid, &size);
	unsigned int ids = qemu_vcpu_ids_parse(line, size);

	free(line);
	return ids;
}

#define SEV_POLICY_ES 4

static bool is_encrypting_machine(const char *options)
{
	char value[QEMU_OPTION_MAX];

	return qemu_get_option(options, "confidential-guest-support", value, sizeof(value)) ||
	       qemu_get_option(options, "memory-encryption", value, sizeof(value));
}

static enum guest_encryption encryption_of(const char *type, uint64_t policy)
{
	if (!strcmp(type, "sev-guest"))
		return policy & SEV_POLICY_ES ? GUEST_SEV_ES : GUEST_SEV;
	if (!strcmp(type, "sev-snp-guest"))
		return GUEST_SEV_SNP;
	return !strcmp(type, "tdx-guest") ? GUEST_TDX : GUEST_PLAIN;
}

/* {"qom-type":"sev-guest","policy":5,...} */
static enum guest_encryption encryption_of_json(const char *value)
{
	json_t *object = json_loads(value, 0, NULL);
	const char *type = json_string_value(json_object_get(object, "qom-type"));
	json_int_t policy = json_integer_value(json_object_get(object, "policy"));
	enum guest_encryption encryption =
		type ? encryption_of(type, (uint64_t)policy) : GUEST_PLAIN;

	json_decref(object);
	return encryption;
}

/* "sev-guest,policy=0x5,..."; "qom-type" is implied. */
static enum guest_encryption encryption_of_options(const char *value)
{
	char type[32], policy[32] = "0";

	if (!implied_name(value, type, sizeof(type)) &&
	    !qemu_get_option(value, "qom-type", type, sizeof(type)))
		return GUEST_PLAIN;
	qemu_get_option(value, "policy", policy, sizeof(policy));
	return encryption_of(type, strtoull(policy, NULL, 0));
}

enum guest_encryption qemu_encryption_parse(const char *command_line, size_t size)
{
	struct qemu_arguments words = qemu_arguments_of(command_line, size);
	enum guest_encryption encryption = GUEST_PLAIN;
	const char *option, *value;
	bool is_used = false;

	while (qemu_next_pair(&words, &option, &value)) {
		if (!strcmp(option, "-machine") || !strcmp(option, "-M"))
			is_used |= is_encrypting_machine(value);
		if (!strcmp(option, "-object") && encryption == GUEST_PLAIN)
			encryption = *value == '{' ? encryption_of_json(value)
						   : encryption_of_options(value);
	}
	return is_used ? encryption : GUEST_PLAIN;
}

enum guest_encryption qemu_encryption(pid_t pid)
{
	size_t size;
	char *line = qemu_command_line_read(pid, &size);
	enum guest_encryption encryption = qemu_encryption_parse(line, size);

	free(line);
	return encryption;
}
