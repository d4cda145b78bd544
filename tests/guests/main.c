/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/guests/guest.h"

#define SERIAL_DATA     0x3f8
#define DEBUG_EXIT      0xf4
#define EXIT_NO_PROGRAM 0xfd

const char *command_line;

static const struct {
	const char *name;
	program *run;
} programs[] = {
	{ "hello", program_hello },       { "faults", program_faults },
	{ "timer", program_timer },       { "spaces", program_spaces },
	{ "cpus", program_cpus },         { "memory", program_memory },
	{ "spin", program_spin },         { "shares", program_shares },
	{ "xrstor", program_xrstor },     { "crash", program_crash },
	{ "reset", program_reset },       { "power_off", program_power_off },
	{ "poke", program_poke },         { "pmu", program_pmu },
	{ "debug", program_debug },       { "hostile", program_hostile },
	{ "resets", program_resets },     { "sums", program_sums },
	{ "idle", program_idle },         { "skipped", program_skipped },
	{ "gaps", program_gaps },         { "plugged", program_plugged },
	{ "unmapped", program_unmapped },
};

void print(const char *text)
{
	for (; *text; text++)
		out8(SERIAL_DATA, (uint8_t)*text);
}

void print_number(uint64_t number)
{
	char text[21];
	size_t at = sizeof(text) - 1;

	text[at] = '\0';
	do
		text[--at] = (char)('0' + number % 10);
	while (number /= 10);
	print(text + at);
}

void print_hex(uint64_t number)
{
	char text[17];
	size_t at = sizeof(text) - 1;

	text[at] = '\0';
	do
		text[--at] = "0123456789abcdef"[number & 15];
	while (number >>= 4);
	print(text + at);
}

void debug_exit(uint32_t value)
{
	for (;;)
		out32(DEBUG_EXIT, value);
}

/* The length of PREFIX if TEXT starts with it, else 0. */
static size_t starts_with(const char *text, const char *prefix)
{
	size_t length = 0;

	for (; prefix[length]; length++)
		if (text[length] != prefix[length])
			return 0;
	return length;
}

static const char *option(const char *name)
{
	for (const char *at = command_line; *at; at++) {
		size_t length = starts_with(at, name);

		if (length && at[length] == '=' && (at == command_line || at[-1] == ' '))
			return at + length + 1;
	}
	return "";
}

bool option_is(const char *name, const char *value)
{
	const char *text = option(name);
	size_t length = starts_with(text, value);

	return length && (!text[length] || text[length] == ' ');
}

uint64_t option_number(const char *name, uint64_t otherwise)
{
	const char *text = option(name);
	unsigned int base = starts_with(text, "0x") ? 16 : 10;
	uint64_t number = 0;

	if (!*text)
		return otherwise;
	for (text += base == 16 ? 2 : 0; *text && *text != ' '; text++)
		number = number * base +
			 (unsigned int)(*text <= '9' ? *text - '0' : (*text | 0x20) - 'a' + 10);
	return number;
}

void guest_main(const char *boot_command_line);

void guest_main(const char *boot_command_line)
{
	command_line = boot_command_line;
	traps_init();
	for (size_t i = 0; i < sizeof(programs) / sizeof(*programs); i++)
		if (option_is("program", programs[i].name))
			debug_exit(programs[i].run());
	if (*option("kvmscope.run")) /* the workload of kvmscope demo, which needs a Linux guest */
		debug_exit(program_spin());
	print("no program named on the command line: ");
	print(command_line);
	debug_exit(EXIT_NO_PROGRAM);
}
