/* SPDX-License-Identifier: Apache-2.0 */
#include "shared/duration.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DURATION_MAX (366 * 24 * 3600 * 1e9)

static double unit_of(const char *suffix)
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

int duration_parse(const char *text, uint64_t *duration)
{
	size_t digits = strspn(text, "0123456789.");
	double value;
	char *end;

	if (!isdigit((unsigned char)*text))
		return -EINVAL;
	value = strtod(text, &end) * unit_of(text + digits);
	/* No 1e3 and no 0x10: what strtod() reads must be what was counted. */
	if (end != text + digits || !unit_of(end) || value > DURATION_MAX)
		return -EINVAL;
	*duration = (uint64_t)value;
	return 0;
}
