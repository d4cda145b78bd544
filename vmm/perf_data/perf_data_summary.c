// SPDX-License-Identifier: Apache-2.0
#include "vmm/perf_data/perf_data_summary.h"

#include <stdio.h>
#include <string.h>

/* A string of a section: its padded length, then its bytes. Cut to SIZE - 1. */
static bool copy_string(struct span content, uint64_t offset, char *to, size_t size, uint64_t *next)
{
	uint32_t length;
	struct span string;

	if (!span_u32(content, offset, &length) ||
	    !span_part(content, offset + sizeof(length), length, &string))
		return false;
	*next = offset + sizeof(length) + length;
	snprintf(to, size, "%.*s", (int)strnlen((const char *)string.data, string.size),
		 (const char *)string.data);
	return true;
}

static void take_string(struct span content, char *to, size_t size)
{
	uint64_t next;

	copy_string(content, 0, to, size, &next);
}

static void take_command_line(struct perf_data_summary *summary, struct span content)
{
	char line[sizeof(summary->command_line)], argument[sizeof(line)];
	uint64_t next = sizeof(uint32_t);
	uint32_t count;
	size_t used = 0;

	if (!span_u32(content, 0, &count))
		return;
	line[0] = '\0';
	for (uint32_t i = 0; i < count && used < sizeof(line); i++) {
		if (!copy_string(content, next, argument, sizeof(argument), &next))
			break;
		used += (size_t)snprintf(line + used, sizeof(line) - used, "%s%s", i ? " " : "",
					 argument);
	}
	memcpy(summary->command_line, line, sizeof(line));
}

/* Number of events, size of their attributes; then of each: attribute, number of ids, name, ids. */
static void take_event_name(struct perf_data_summary *summary, struct span content)
{
	uint32_t events, attribute_size;
	uint64_t next;

	if (!span_u32(content, 0, &events) || !events || !span_u32(content, 4, &attribute_size))
		return;
	copy_string(content, 8 + (uint64_t)attribute_size + 4, summary->event_name,
		    sizeof(summary->event_name), &next);
}

/* Version, clock id, then the two times. */
static void take_clock_data(struct perf_data_summary *summary, struct span content)
{
	uint64_t wall_time, clock_time;

	if (!span_u64(content, 8, &wall_time) || !span_u64(content, 16, &clock_time))
		return;
	summary->wall_time = wall_time;
	summary->clock_time = clock_time;
}

void perf_data_summary_feature(struct perf_data_summary *summary, enum perf_data_feature feature,
			       struct span content)
{
	uint32_t cpus;

	switch (feature) {
	case FEATURE_HOSTNAME:
		take_string(content, summary->hostname, sizeof(summary->hostname));
		break;
	case FEATURE_OSRELEASE:
		take_string(content, summary->release, sizeof(summary->release));
		break;
	case FEATURE_VERSION:
		take_string(content, summary->version, sizeof(summary->version));
		break;
	case FEATURE_ARCH:
		take_string(content, summary->arch, sizeof(summary->arch));
		break;
	case FEATURE_NRCPUS:
		if (span_u32(content, 4, &cpus)) /* online; available stands before it */
			summary->cpus = cpus;
		break;
	case FEATURE_CPUDESC:
		take_string(content, summary->cpu_description, sizeof(summary->cpu_description));
		break;
	case FEATURE_CMDLINE:
		take_command_line(summary, content);
		break;
	case FEATURE_EVENT_DESC:
		take_event_name(summary, content);
		break;
	case FEATURE_COMPRESSED:
		summary->compressed = true;
		break;
	case FEATURE_CLOCK_DATA:
		take_clock_data(summary, content);
		break;
	default:
		break;
	}
}

void perf_data_summary_event(struct perf_data_summary *summary, const struct perf_data_event *event)
{
	summary->frequency =
		event->frequency > UINT32_MAX ? UINT32_MAX : (unsigned int)event->frequency;
	if (*summary->event_name)
		return;
	if (event->type == PERF_TYPE_SOFTWARE && event->config == PERF_COUNT_SW_CPU_CLOCK)
		strcpy(summary->event_name, "cpu-clock");
	else if (event->type == PERF_TYPE_HARDWARE && event->config == PERF_COUNT_HW_CPU_CYCLES)
		strcpy(summary->event_name, "cycles");
	else
		snprintf(summary->event_name, sizeof(summary->event_name), "type %u config %#llx",
			 event->type, (unsigned long long)event->config);
}
