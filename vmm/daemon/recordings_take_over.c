// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/daemon/recordings_state.h"

static int by_time(const void *left, const void *right)
{
	uint64_t a = ((const struct recorded_file *)left)->time,
		 b = ((const struct recorded_file *)right)->time;

	return (a > b) - (a < b);
}

/* A file that a former daemon left. What was partial is complete as it is: nobody writes it any
 * more. */
static int take_over(struct recordings *all, struct recorded_domain *domain, const char *name)
{
	struct recorded_file entry = { 0 };
	char from[RECORDING_PATH_SIZE], to[RECORDING_PATH_SIZE];
	enum recording_state state;
	struct stat status;

	if (!recording_file_parse(name, &entry.time, &state))
		return 0;
	entry.is_new = all->options.hand_on && state != RECORDING_COMPLETE;
	recorded_file_path(domain, entry.time, state, from);
	recorded_file_path(domain, entry.time, recorded_file_state(&entry), to);
	if (fstatat(all->fd, from, &status, AT_SYMLINK_NOFOLLOW) || !S_ISREG(status.st_mode))
		return 0;
	if (state != recorded_file_state(&entry) && renameat(all->fd, from, all->fd, to))
		return error_set(-errno, "can't rename %s/%s: %s", all->directory, from,
				 strerror(errno));
	all->statistics.taken_over += state == RECORDING_PARTIAL;
	entry.size = (uint64_t)status.st_size;
	if (entry.is_new)
		eventfd_write(all->new_fd, 1);
	return recorded_domain_append(domain, &entry);
}

static int take_over_files(struct recordings *all, struct recorded_domain *domain, DIR *directory)
{
	const struct dirent *file;
	int error = 0;

	while (!error && (file = readdir(directory)))
		error = take_over(all, domain, file->d_name);
	if (domain->count) {
		qsort(domain->files, domain->count, sizeof(*domain->files), by_time);
		domain->latest = recorded_file_at(domain, domain->count - 1)->time;
	}
	return error;
}

static int take_over_domain(struct recordings *all, const char *file)
{
	char name[RECORDING_DOMAIN_MAX + 1];
	struct recorded_domain *domain;
	DIR *directory;
	int fd, error;

	fd = recording_directory_open(all->fd, file);
	if (fd < 0)
		return 0; /* none of ours; said */
	if (recording_directory_domain(fd, file, name)) {
		log_warning("%s/%s is left alone: %s", all->directory, file, error_message());
		close(fd);
		return 0;
	}
	directory = fdopendir(fd);
	domain = directory ? recordings_new_domain(all, file, name) : NULL;
	error = domain ? take_over_files(all, domain, directory) : -ENOMEM;
	if (domain)
		domain->names = recording_names_size(all->fd, file);
	if (directory)
		closedir(directory);
	else
		close(fd);
	return error;
}

int recordings_take_over(struct recordings *all)
{
	int fd = openat(all->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), error = 0;
	DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;
	const struct dirent *file;

	if (!directory)
		return error_set(-errno, "can't read %s: %s", all->directory, strerror(errno));
	while (!error && (file = readdir(directory)))
		if (*file->d_name != '.')
			error = take_over_domain(all, file->d_name);
	closedir(directory);
	return error;
}
