/* SPDX-License-Identifier: Apache-2.0 */
#include "shared/parse_number.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DURATION_MAX (366 * 24 * 3600 * 1e9)

const char *parse_decimal(const char *text, uint64_t max, uint64_t *number)
{
	unsigned long long value;
	char *end;

	if (!isdigit((unsigned char)*text))
		return NULL;
	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno || value > max)
		return NULL;
	*number = value;
	return end;
}

static int suffix_shift(char suffix)
{
	switch (toupper((unsigned char)suffix)) {
	case '\0':
		return 0;
	case 'K':
		return 10;
	case 'M':
		return 20;
	case 'G':
		return 30;
	case 'T':
		return 40;
	default:
		return -1;
	}
}

int parse_size(const char *text, uint64_t *bytes)
{
	uint64_t number = 0;
	const char *end = parse_decimal(text, UINT64_MAX, &number);
	int shift = end ? suffix_shift(*end) : -1;

	if (shift < 0 || (*end && end[1]) || number > UINT64_MAX >> shift)
		return -EINVAL;
	*bytes = number << shift;
	return 0;
}

static double unit_duration(const char *suffix)
{
	static const struct {
		const char *name;
		double duration; /* ns */
	} units[] = {
		{ "us", 1e3 }, { "ms", 1e6 }, { "s", 1e9 }, { "min", 60e9 }, { "h", 3600e9 }
	};

	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (!strcmp(suffix, units[i].name))
			return units[i].duration;
	return 0;
}

int parse_duration(const char *text, uint64_t *duration)
{
	size_t digits = strspn(text, "0123456789.");
	double value;
	char *end;

	if (!isdigit((unsigned char)*text))
		return -EINVAL;
	value = strtod(text, &end) * unit_duration(text + digits);
	/* strtod() also accepts 1e3 and 0x10, which the check of the digits refuses. */
	if (end != text + digits || !unit_duration(end) || value > DURATION_MAX)
		return -EINVAL;
	*duration = (uint64_t)value;
	return 0;
}
