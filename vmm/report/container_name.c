/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/report/container_name.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define ID_DIGITS    64
#define ID_SHOWN     12
#define PART_MAX     256 /* NAME_MAX with the NUL */
#define SCOPE        ".scope"
#define HEXADECIMALS "0123456789abcdef"

/* Part of a path: PREFIX, id or name, SUFFIX. */
static const struct form {
	const char *prefix, *suffix, *runtime;
	bool has_id;
} forms[] = {
	{ "docker-", SCOPE, "docker", true },    { "cri-containerd-", SCOPE, "containerd", true },
	{ "crio-", SCOPE, "crio", true },        { "libpod-", SCOPE, "podman", true },
	{ "machine-", SCOPE, "machine", false }, { "lxc.payload.", "", "lxc", false },
};

/* Directories of the cgroupfs drivers, with ids or names below them. */
static const struct {
	const char *directory, *runtime;
	bool has_id;
} directories[] = {
	{ "docker", "docker", true },
	{ "kubepods", "kubernetes", true },
	{ "lxc", "lxc", false },
};

static bool is_id(const char *text)
{
	return strspn(text, HEXADECIMALS) == ID_DIGITS && !text[ID_DIGITS];
}

static bool write_name(const char *runtime, bool has_id, const char *what, char *name, size_t size)
{
	if (!*what || (has_id && !is_id(what)))
		return false;
	snprintf(name, size, "%s %.*s", runtime, has_id ? ID_SHOWN : (int)strlen(what), what);
	return true;
}

static bool match_form(const struct form *form, const char *part, char *name, size_t size)
{
	size_t prefix = strlen(form->prefix), suffix = strlen(form->suffix), length = strlen(part);
	char what[PART_MAX];

	if (length <= prefix + suffix || strncmp(part, form->prefix, prefix) != 0 ||
	    strcmp(part + length - suffix, form->suffix) != 0)
		return false;
	snprintf(what, sizeof(what), "%.*s", (int)(length - prefix - suffix), part + prefix);
	return write_name(form->runtime, form->has_id, what, name, size);
}

static bool match_part(const char *first, const char *above, const char *part, char *name,
		       size_t size)
{
	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
		if (match_form(&forms[i], part, name, size))
			return true;
	/* Ids may be at any depth below the directory; names are directly below it. */
	for (size_t i = 0; i < sizeof(directories) / sizeof(directories[0]); i++)
		if (!strcmp(directories[i].has_id ? first : above, directories[i].directory) &&
		    write_name(directories[i].runtime, directories[i].has_id, part, name, size))
			return true;
	return false;
}

void container_name(const char *cgroup, char *name, size_t size)
{
	char first[PART_MAX] = "", above[PART_MAX] = "", part[PART_MAX];

	*name = '\0';
	while (*(cgroup += strspn(cgroup, "/"))) {
		size_t length = strcspn(cgroup, "/");

		if (length >= sizeof(part))
			return;
		snprintf(part, sizeof(part), "%.*s", (int)length, cgroup);
		match_part(first, above, part, name, size);
		if (!*first)
			memcpy(first, part, sizeof(first));
		memcpy(above, part, sizeof(above));
		cgroup += length;
	}
}
