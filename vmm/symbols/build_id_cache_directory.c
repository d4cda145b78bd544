// SPDX-License-Identifier: Apache-2.0
/* Where the build-id cache is: what perf's own configuration says (perf-config(1), buildid.dir). */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shared/error.h"
#include "vmm/symbols/build_id_cache.h"

#define SYSTEM_CONFIGURATION "/etc/perfconfig"

static char *trim(char *text)
{
	char *end;

	while (isspace((unsigned char)*text))
		text++;
	end = text + strlen(text);
	while (end > text && isspace((unsigned char)end[-1]))
		*--end = '\0';
	return text;
}

/* Comments start at # or ;. */
static char *strip(char *line)
{
	line[strcspn(line, "#;")] = '\0';
	return trim(line);
}

static void unquote(char *value)
{
	size_t length = strlen(value);

	if (length < 2 || value[0] != '"' || value[length - 1] != '"')
		return;
	memmove(value, value + 1, length - 2);
	value[length - 2] = '\0';
}

/* "~/" is the home directory, as in git's configuration. */
static void take_value(char *value, char *path, size_t size)
{
	const char *home = getenv("HOME");

	unquote(value);
	if (!strncmp(value, "~/", 2) && home)
		snprintf(path, size, "%s%s", home, value + 1);
	else
		snprintf(path, size, "%s", value);
}

static void take_line(char *line, bool *in_section, char *path, size_t size)
{
	char *text = strip(line), *equals = strchr(text, '=');

	if (*text == '[') {
		*in_section = !strncasecmp(text, "[buildid]", 9);
		return;
	}
	if (!*in_section || !equals)
		return;
	*equals = '\0';
	if (!strcasecmp(trim(text), "dir"))
		take_value(trim(equals + 1), path, size);
}

/* The last value wins; a file that is not there says nothing. */
static void read_configuration(const char *file, char *path, size_t size)
{
	char line[PATH_MAX + 64];
	bool in_section = false;
	FILE *from = fopen(file, "re");

	if (!from)
		return;
	while (fgets(line, sizeof(line), from))
		take_line(line, &in_section, path, size);
	fclose(from);
}

int build_id_cache_open(const struct build_id_cache_location *place, char *path, size_t size)
{
	if (!place)
		return build_id_cache_directory(path, size);
	return snprintf(path, size, "%s", place->directory) < (int)size
		       ? 0
		       : error_set(-ENAMETOOLONG, "%s is too long for a build-id cache",
				   place->directory);
}

int build_id_cache_directory(char *path, size_t size)
{
	const char *only = getenv("PERF_CONFIG"), *home = getenv("HOME");
	char own[PATH_MAX];

	*path = '\0';
	if (only) {
		read_configuration(only, path, size);
	} else {
		read_configuration(SYSTEM_CONFIGURATION, path, size);
		if (home && snprintf(own, sizeof(own), "%s/.perfconfig", home) < (int)sizeof(own))
			read_configuration(own, path, size);
	}
	if (*path)
		return 0;
	if (!home || !*home)
		return error_set(
			-ENOENT,
			"there is no build-id cache: HOME is not set; set it, or use --no-buildid-cache");
	if (snprintf(path, size, "%s/.debug", home) >= (int)size)
		return error_set(-ENAMETOOLONG, "HOME is too long for a build-id cache");
	return 0;
}
