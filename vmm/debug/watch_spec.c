/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/debug/watch_spec.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shared/error.h"

#define PARTS_MAX 16
#define LIMIT_MIN 10 /* one hit in each WATCH_STORM_PERIOD */

/* The parts of the user's text. */
struct parts {
	char copy[512];
	char *target, *length, *access, *vcpu; /* NULL if missing */
	char *options[PARTS_MAX];
	size_t option_count;
};

static int refuse(const char *text, const char *what)
{
	return error_set(
		-EINVAL,
		"cannot watch '%s': %s (examples: jiffies_64:8:w, schedule:x, 0xADDRESS:4:rw@0)",
		text, what);
}

static int cut(struct parts *parts, const char *text)
{
	char *rest = parts->copy, *field;

	parts->target = parts->copy;
	if (strlen(text) >= sizeof(parts->copy))
		return refuse("...", "it is too long");
	memcpy(parts->copy, text, strlen(text) + 1);
	strsep(&rest, ",");
	while ((field = strsep(&rest, ","))) {
		if (parts->option_count == PARTS_MAX)
			return refuse(text, "it has too many options");
		parts->options[parts->option_count++] = field;
	}
	rest = parts->copy;
	strsep(&rest, "@");
	parts->vcpu = rest;
	rest = parts->copy;
	strsep(&rest, ":");
	parts->length = strsep(&rest, ":");
	parts->access = strsep(&rest, ":");
	return rest ? refuse(text, "too many colons") : 0;
}

/* Decimal, or hexadecimal with 0x; no sign. */
static bool read_number(const char *text, uint64_t most, uint64_t *number)
{
	char *end;

	if (!text || !isdigit((unsigned char)*text))
		return false;
	errno = 0;
	*number = strtoull(text, &end, 0);
	return !errno && !*end && *number <= most;
}

static bool read_target(struct watch_spec *spec, char *target)
{
	char *plus;

	if (read_number(target, UINT64_MAX, &spec->offset))
		return true;
	plus = strchr(target, '+');
	if (plus)
		*plus++ = '\0';
	if (!*target || isdigit((unsigned char)*target) || strlen(target) >= sizeof(spec->symbol))
		return false;
	memcpy(spec->symbol, target, strlen(target) + 1);
	return !plus || read_number(plus, UINT32_MAX, &spec->offset);
}

static const char *read_access(struct watch_spec *spec, const char *text)
{
	if (!text)
		return NULL;
	if (!strcmp(text, "r"))
		return "x86 cannot watch reads only; use rw";
	if (!strcmp(text, "w"))
		spec->kind = BREAKPOINT_WRITE;
	else if (!strcmp(text, "rw") || !strcmp(text, "wr"))
		spec->kind = BREAKPOINT_ACCESS;
	else if (!strcmp(text, "x"))
		spec->kind = BREAKPOINT_EXECUTE;
	else
		return "the access must be w, rw or x";
	return NULL;
}

/* The length may be omitted: sym:x. */
static const char *read_kind(struct watch_spec *spec, const struct parts *parts)
{
	const char *access = parts->access, *error;
	uint64_t length = 4;

	if (parts->length && !access && !isdigit((unsigned char)*parts->length))
		access = parts->length;
	else if (parts->length && !read_number(parts->length, 8, &length))
		return "the length must be 1, 2, 4 or 8";
	error = read_access(spec, access);
	if (error)
		return error;
	if (spec->kind == BREAKPOINT_EXECUTE)
		length = 1;
	spec->length = (uint8_t)length;
	if (!breakpoint_valid(&(struct breakpoint){ 0, spec->kind, spec->length }))
		return "the length must be 1, 2, 4 or 8";
	if (!*spec->symbol && spec->offset % length)
		return "the address must be a multiple of the length";
	return NULL;
}

static const char *read_option(struct watch_spec *spec, const char *text)
{
	uint64_t number;

	if (!strcmp(text, "pinned")) {
		spec->pinned = true;
	} else if (!strncmp(text, "cr3=", 4)) {
		if (!read_number(text + 4, UINT64_MAX, &spec->cr3) || !spec->cr3)
			return "cr3= needs the address of page tables";
	} else if (!strncmp(text, "pid=", 4)) {
		if (!read_number(text + 4, INT_MAX, &number))
			return "pid= needs the number of a process";
		spec->pid = (uint32_t)number;
	} else if (!strncmp(text, "comm=", 5)) {
		if (!text[5] || strlen(text + 5) >= sizeof(spec->comm))
			return "comm= needs the name of a task, at most 15 bytes";
		memcpy(spec->comm, text + 5, strlen(text + 5) + 1);
	} else if (!strncmp(text, "period=", 7)) {
		if (!read_number(text + 7, UINT32_MAX, &spec->period) || !spec->period)
			return "period= needs a number of hits";
	} else if (!strncmp(text, "limit=", 6)) {
		if (!read_number(text + 6, UINT32_MAX, &number) || number < LIMIT_MIN)
			return "limit= needs a number of hits per second, at least 10";
		spec->limit = (uint32_t)number;
	} else {
		return "the options are pinned, cr3=, pid=, comm=, period= and limit=";
	}
	return NULL;
}

int watch_spec_parse(struct watch_spec *spec, const char *text)
{
	struct parts parts = { .target = NULL };
	int error = cut(&parts, text);
	const char *what;
	uint64_t number;

	if (error)
		return error;
	*spec = (struct watch_spec){
		.kind = BREAKPOINT_ACCESS, .length = 4, .vcpu = -1, .pid = WATCH_NO_PID, .period = 1
	};
	if (!read_target(spec, parts.target))
		return refuse(text, "it must begin with a symbol or an address");
	what = read_kind(spec, &parts);
	if (parts.vcpu && !what) {
		if (!read_number(parts.vcpu, INT_MAX, &number))
			what = "@ must be followed by the number of a vCPU";
		else
			spec->vcpu = (int)number;
	}
	for (size_t i = 0; i < parts.option_count && !what; i++)
		what = read_option(spec, parts.options[i]);
	return what ? refuse(text, what) : 0;
}

void watch_spec_name(const struct watch_spec *spec, char *name, size_t size)
{
	static const char *const accesses[] = {
		[BREAKPOINT_EXECUTE] = "x", [BREAKPOINT_WRITE] = "w", [BREAKPOINT_ACCESS] = "rw"
	};
	unsigned long long offset = spec->offset;

	if (!*spec->symbol)
		snprintf(name, size, "mem:0x%llx:%s", offset, accesses[spec->kind]);
	else if (offset)
		snprintf(name, size, "mem:%s+0x%llx:%s", spec->symbol, offset,
			 accesses[spec->kind]);
	else
		snprintf(name, size, "mem:%s:%s", spec->symbol, accesses[spec->kind]);
}
