/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/report/symbolizer_state.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/read_file.h"

static bool is_read_once(const char *path)
{
	struct stat status;
	int error = strcmp(path, "-") ? stat(path, &status) : fstat(STDIN_FILENO, &status);

	return !error && (S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode));
}

/* Some file systems lack O_TMPFILE (open(2)). */
static int open_and_unlink(const char *directory)
{
	char path[PATH_MAX];
	int fd;

	if (snprintf(path, sizeof(path), "%s/kvmscope-XXXXXX", directory) >= (int)sizeof(path))
		return -1;
	fd = mkostemp(path, O_CLOEXEC);
	if (fd >= 0)
		unlink(path);
	return fd;
}

static int open_nameless(void)
{
	const char *directory = getenv("TMPDIR");
	int fd;

	if (!directory || !*directory)
		directory = "/var/tmp";
	fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	return fd >= 0 || errno != EOPNOTSUPP ? fd : open_and_unlink(directory);
}

static int copy(int from, int to)
{
	static char buffer[1 << 16];
	ssize_t size;
	int error;

	while ((size = read(from, buffer, sizeof(buffer)))) {
		if (size < 0 && errno == EINTR)
			continue;
		error = size < 0 ? -errno : write_descriptor(to, buffer, (size_t)size);
		if (error)
			return error;
	}
	return 0;
}

const char *profile_input_open(struct profile_input *input, const char *path)
{
	int from, error;

	input->fd = -1;
	if (!is_read_once(path))
		return path;
	from = strcmp(path, "-") ? open(path, O_RDONLY | O_CLOEXEC) : dup(STDIN_FILENO);
	input->fd = from < 0 ? -1 : open_nameless();
	error = from < 0 || input->fd < 0 ? -errno : copy(from, input->fd);
	if (from >= 0)
		close(from);
	if (error) {
		profile_input_close(input);
		error_set(error, "cannot copy the data from %s: %s (TMPDIR sets the directory)",
			  strcmp(path, "-") ? path : "standard input", strerror(-error));
		return NULL;
	}
	snprintf(input->path, sizeof(input->path), "/proc/self/fd/%d", input->fd);
	return input->path;
}

void profile_input_close(struct profile_input *input)
{
	if (input->fd >= 0)
		close(input->fd);
	input->fd = -1;
}
