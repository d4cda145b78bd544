/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/report/time_ranges.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/parse_number.h"

/* Seconds with up to nine decimals. "" leaves *TIME alone. */
static bool read_seconds(const char *text, uint64_t *time)
{
	uint64_t seconds = 0, part = 0, unit = NS_PER_S;

	if (!*text)
		return true;
	text = parse_decimal(text, UINT32_MAX, &seconds);
	if (!text || (*text && *text != '.'))
		return false;
	for (text += *text == '.'; isdigit((unsigned char)*text) && unit > 1; text++) {
		unit /= 10;
		part += (uint64_t)(*text - '0') * unit;
	}
	*time = seconds * NS_PER_S + part;
	return !*text;
}

static bool read_times(char *text, struct time_range *range)
{
	char *end = text;

	text = strsep(&end, ",");
	return end && read_seconds(text, &range->start) && read_seconds(end, &range->end) &&
	       (!range->end || range->start <= range->end);
}

/* "12.5%" as 0.125. *END is the rest of TEXT. */
static bool read_percent(const char *text, double *part, const char **end)
{
	size_t length = strspn(text, "0123456789.");

	*part = strtod(text, NULL) / 100;
	*end = text + length + 1;
	return length && text[length] == '%';
}

static bool read_part(char *text, struct time_range *range)
{
	const char *end;
	uint64_t number = 1;
	double part;

	if (!read_percent(text, &part, &end))
		return false;
	if (*end == '-') {
		range->from = part;
		if (!read_percent(end + 1, &range->to, &end))
			return false;
	} else {
		if (*end == '/')
			end = parse_decimal(end + 1, UINT32_MAX, &number);
		range->from = part * ((double)number - 1);
		range->to = part * (double)number;
	}
	return end && !*end && range->from >= 0 && range->from <= range->to && range->to <= 1;
}

int time_ranges_parse(struct time_ranges *ranges, const char *text)
{
	char *copy = strdup(text), *rest = NULL, *word;
	bool good = copy;

	*ranges = (struct time_ranges){ .parts = strchr(text, '%'), .text = text };
	for (word = copy ? strtok_r(copy, ranges->parts ? ", " : " ", &rest) : NULL; word && good;
	     word = strtok_r(NULL, ranges->parts ? ", " : " ", &rest)) {
		struct time_range *range = &ranges->list[ranges->count];

		good = ranges->count++ < TIME_RANGES_MAX - 1 &&
		       (ranges->parts ? read_part(word, range) : read_times(word, range));
	}
	free(copy);
	return good && ranges->count
		       ? 0
		       : error_set(-EINVAL,
				   "--time %s: it must be START,STOP in seconds, 10%%-20%% or "
				   "10%%/2",
				   text);
}

void time_ranges_resolve(struct time_ranges *ranges, uint64_t first, uint64_t last)
{
	double all = last > first ? (double)(last - first) : 0;

	for (size_t i = 0; i < ranges->count && ranges->parts; i++) {
		struct time_range *range = &ranges->list[i];

		range->start = first + (uint64_t)(range->from * all + 0.5);
		range->end = first + (uint64_t)(range->to * all + 0.5);
		/* The next part begins there. */
		if (range->end > range->start && range->end != last)
			range->end--;
	}
}

bool time_ranges_have(const struct time_ranges *ranges, uint64_t time)
{
	for (size_t i = 0; i < ranges->count; i++) {
		const struct time_range *range = &ranges->list[i];

		if (time >= range->start && (!range->end || time <= range->end))
			return true;
	}
	return !ranges->count || !time;
}
