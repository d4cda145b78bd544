/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/daemon/recording_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/log.h"

/* Depth of directories below names; ours are not as deep. */
#define SYMBOLS_DEPTH 16

void recording_file_name(uint64_t time, enum recording_state state, char name[RECORDING_NAME_SIZE])
{
	const time_t seconds = (time_t)(time / 1000);
	struct tm parts;
	char day[32];

	gmtime_r(&seconds, &parts);
	strftime(day, sizeof(day), "%Y%m%dT%H%M%S", &parts);
	snprintf(name, RECORDING_NAME_SIZE, "%s.%03uZ%s", day, (unsigned int)(time % 1000),
		 recording_name_ending(state));
}

bool recording_file_parse(const char *name, uint64_t *time, enum recording_state *state)
{
	struct tm parts = { 0 };
	char again[RECORDING_NAME_SIZE];
	unsigned int ms;
	int length = 0;

	if (sscanf(name, "%4d%2d%2dT%2d%2d%2d.%3uZ%n", &parts.tm_year, &parts.tm_mon,
		   &parts.tm_mday, &parts.tm_hour, &parts.tm_min, &parts.tm_sec, &ms,
		   &length) != 7 ||
	    !length || parts.tm_year < 1970 || !recording_name_state(name + length, state))
		return false;
	parts.tm_year -= 1900;
	parts.tm_mon--;
	*time = (uint64_t)timegm(&parts) * 1000 + ms;
	recording_file_name(*time, *state, again);
	return !strcmp(again, name);
}

static int check_owner(int fd, const char *path)
{
	struct stat status;

	if (fstat(fd, &status))
		return error_set(-errno, "cannot stat %s: %s", path, strerror(errno));
	if (status.st_uid != geteuid())
		return error_set(-EPERM, "%s belongs to user %u, not to us", path, status.st_uid);
	if (status.st_mode & 077 && fchmod(fd, 0700))
		return error_set(-errno, "cannot close %s to others: %s", path, strerror(errno));
	return 0;
}

int recording_directory_open(int directory, const char *path)
{
	int fd = openat(directory, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int error;

	if (fd < 0)
		return error_set(-errno, "cannot open the directory %s: %s", path, strerror(errno));
	error = check_owner(fd, path);
	if (!error)
		return fd;
	close(fd);
	return error;
}

int recording_directory_claim(const char *path)
{
	int fd, error;

	if (mkdir(path, 0700) && errno != EEXIST)
		return error_set(-errno, "cannot create the directory %s: %s", path,
				 strerror(errno));
	fd = recording_directory_open(AT_FDCWD, path);
	if (fd < 0 || !flock(fd, LOCK_EX | LOCK_NB))
		return fd;
	error = error_set(-errno, "cannot lock %s: %s; is another kvmscoped using it?", path,
			  strerror(errno));
	close(fd);
	return error;
}

/* Written as a whole or not at all: without this file the directory is not a domain's. */
static int write_name(int fd, const char *name)
{
	int file = openat(fd, RECORDING_DOMAIN ".partial",
			  O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	size_t length = strlen(name);
	bool written;

	if (file < 0)
		return error_set(-errno, "cannot write a domain's name: %s", strerror(errno));
	written = write(file, name, length) == (ssize_t)length;
	if (close(file) || !written ||
	    renameat(fd, RECORDING_DOMAIN ".partial", fd, RECORDING_DOMAIN))
		return error_set(errno ? -errno : -EIO, "cannot write a domain's name: %s",
				 strerror(errno));
	return 0;
}

int recording_directory_make(int directory, const char *file, const char *name)
{
	int fd, error;

	if (mkdirat(directory, file, 0700) && errno != EEXIST)
		return error_set(-errno, "cannot create the directory %s: %s", file,
				 strerror(errno));
	fd = recording_directory_open(directory, file);
	if (fd < 0)
		return fd;
	error = write_name(fd, name);
	close(fd);
	return error;
}

static int read_name(int fd, char *name)
{
	int file = openat(fd, RECORDING_DOMAIN, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	ssize_t length = file < 0 ? -1 : read(file, name, RECORDING_DOMAIN_MAX + 1);

	if (file >= 0)
		close(file);
	if (length < 0 || length > RECORDING_DOMAIN_MAX)
		return error_set(-EINVAL, "it has no file with a domain's name");
	name[length] = '\0';
	return strlen(name) == (size_t)length ? 0
					      : error_set(-EINVAL, "its domain's name is invalid");
}

int recording_directory_domain(int fd, const char *file, char *name)
{
	char expected[DOMAIN_FILE_SIZE];
	int error = read_name(fd, name);

	if (error)
		return error;
	domain_name_escape(name, expected);
	return strcmp(expected, file) ? error_set(-EINVAL, "it should be %s", expected) : 0;
}

DIR *recording_directory_list(int directory, const char *path)
{
	int fd = openat(directory, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *opened = fd < 0 ? NULL : fdopendir(fd);

	if (fd >= 0 && !opened)
		close(fd);
	return opened;
}

static bool is_dots(const char *name)
{
	return !strcmp(name, ".") || !strcmp(name, "..");
}

/*
 * Returns the bytes of the files below PATH, and removes them with REMOVE. Does not follow links.
 */
static uint64_t walk(int directory, const char *path, unsigned int depth, bool remove)
{
	DIR *opened = depth ? recording_directory_list(directory, path) : NULL;
	const struct dirent *entry;
	struct stat status;
	uint64_t bytes = 0;

	while (opened && (entry = readdir(opened))) {
		if (is_dots(entry->d_name) ||
		    fstatat(dirfd(opened), entry->d_name, &status, AT_SYMLINK_NOFOLLOW))
			continue;
		if (S_ISDIR(status.st_mode))
			bytes += walk(dirfd(opened), entry->d_name, depth - 1, remove);
		else
			bytes += (uint64_t)status.st_size;
		if (remove)
			unlinkat(dirfd(opened), entry->d_name,
				 S_ISDIR(status.st_mode) ? AT_REMOVEDIR : 0);
	}
	if (opened)
		closedir(opened);
	return bytes;
}

static uint64_t walk_symbols(int directory, const char *file, bool remove)
{
	char path[DOMAIN_FILE_SIZE + sizeof(RECORDING_NAMES)];
	uint64_t bytes;

	snprintf(path, sizeof(path), "%s/" RECORDING_NAMES, file);
	bytes = walk(directory, path, SYMBOLS_DEPTH, remove);
	if (remove)
		unlinkat(directory, path, AT_REMOVEDIR);
	return bytes;
}

uint64_t recording_symbols_size(int directory, const char *file)
{
	return walk_symbols(directory, file, false);
}

/* Any other file may be a recording that needs the symbols. */
static bool has_only_symbols(int directory, const char *file)
{
	DIR *opened = recording_directory_list(directory, file);
	const struct dirent *entry;
	bool alone = opened;

	while (alone && (entry = readdir(opened)))
		alone = is_dots(entry->d_name) || !strcmp(entry->d_name, RECORDING_DOMAIN) ||
			!strcmp(entry->d_name, RECORDING_NAMES);
	if (opened)
		closedir(opened);
	return alone;
}

void recording_directory_remove(int directory, const char *file, const char *name)
{
	char path[DOMAIN_FILE_SIZE + sizeof(RECORDING_DOMAIN)];

	if (has_only_symbols(directory, file))
		walk_symbols(directory, file, true);
	snprintf(path, sizeof(path), "%s/%s", file, RECORDING_DOMAIN);
	unlinkat(directory, path, 0);
	if (!unlinkat(directory, file, AT_REMOVEDIR) || errno == ENOENT)
		return;
	/* It has other files: it stays a domain's. */
	if (recording_directory_make(directory, file, name))
		log_warning("%s", error_message());
}
