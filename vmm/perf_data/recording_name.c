/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/perf_data/recording_name.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

static const char *const endings[] = {
	[RECORDING_PARTIAL] = ".perf.data.partial",
	[RECORDING_NEW] = ".perf.data.new",
	[RECORDING_COMPLETE] = ".perf.data",
};

const char *recording_name_ending(enum recording_state state)
{
	return endings[state];
}

bool recording_name_state(const char *name, enum recording_state *state)
{
	size_t length = strlen(name);

	for (int i = RECORDING_PARTIAL; i <= RECORDING_COMPLETE; i++) {
		size_t end = strlen(endings[i]);

		if (length < end || strcmp(name + length - end, endings[i]) != 0)
			continue;
		*state = (enum recording_state)i;
		return true;
	}
	return false;
}

/* Replaces PATH by the next, shorter name; false: there is none. */
static bool next_name(char path[PATH_MAX])
{
	enum recording_state state;
	char *ending;

	if (!recording_name_state(path, &state) || state == RECORDING_COMPLETE)
		return false;
	ending = path + strlen(path) - strlen(endings[state]);
	memcpy(ending, endings[state + 1], strlen(endings[state + 1]) + 1);
	return true;
}

int recording_name_open(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	char name[PATH_MAX];

	if (fd >= 0 || errno != ENOENT ||
	    snprintf(name, sizeof(name), "%s", path) >= (int)sizeof(name))
		return fd;
	while (fd < 0 && errno == ENOENT && next_name(name))
		fd = open(name, O_RDONLY | O_CLOEXEC);
	return fd;
}

int recording_name_find(const char *path, char found[PATH_MAX], struct stat *status)
{
	if (snprintf(found, PATH_MAX, "%s", path) >= PATH_MAX)
		return -ENAMETOOLONG;
	while (stat(found, status))
		if (errno != ENOENT || !next_name(found))
			return -errno;
	return 0;
}
