// SPDX-License-Identifier: Apache-2.0
#include "vmm/daemon/libvirt_directory.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shared/error.h"

#define STATUS ".xml"

/* A name of one file in the directory itself; the descriptor, or -ENOENT. */
static int open_file(const char *directory, const char *name, const char *suffix)
{
	char path[PATH_MAX];
	int fd;

	if (!*name || *name == '.' || strchr(name, '/') ||
	    snprintf(path, sizeof(path), "%s/%s%s", directory, name, suffix) >= (int)sizeof(path))
		return error_set(-ENOENT, "libvirt can not have a domain of such a name");
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	return fd < 0 ? error_set(-ENOENT, "a file of the domain in %s can not be opened: %s", directory,
				  strerror(errno))
		      : fd;
}

static pid_t read_pid(int fd)
{
	char text[16] = "", *end;
	long pid;

	if (pread(fd, text, sizeof(text) - 1, 0) <= 0 || !isdigit((unsigned char)*text))
		return 0;
	pid = strtol(text, &end, 10);
	return (*end && *end != '\n') || pid > INT_MAX ? 0 : (pid_t)pid;
}

/* An owner of 0 or less is one of another PID namespace, or a lock without owner. */
static bool is_locked_by(int fd, pid_t pid)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	return !fcntl(fd, F_GETLK, &lock) && lock.l_type != F_UNLCK && (lock.l_pid <= 0 || lock.l_pid == pid);
}

/* The process first: while it lives its number is no other's, and the lock its own. */
static int find_process(int fd, struct libvirt_process *process)
{
	pid_t pid = read_pid(fd);

	process->pid = pid;
	process->fd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
	if (process->fd >= 0 && is_locked_by(fd, pid))
		return 0;
	if (process->fd >= 0)
		close(process->fd);
	return error_set(-ENOENT, "the domain has no process");
}

int libvirt_directory_process(const char *directory, const char *name, struct libvirt_process *process)
{
	int fd = open_file(directory, name, ".pid"), error;

	if (fd < 0)
		return fd;
	error = find_process(fd, process);
	close(fd);
	return error;
}

static int read_status(int fd, struct domain_xml *domain)
{
	char *text = malloc(DOMAIN_XML_MAX + 1);
	ssize_t size = text ? pread(fd, text, DOMAIN_XML_MAX + 1, 0) : -1;
	int error = size < 0 ? error_set(text ? -errno : -ENOMEM, "the status of a domain can not be read")
			     : domain_xml_read(domain, text, (size_t)size);

	free(text);
	return error;
}

int libvirt_directory_domain(const char *directory, const char *name, struct domain_xml *domain)
{
	int fd = open_file(directory, name, STATUS), error;

	if (fd < 0)
		return fd;
	error = read_status(fd, domain);
	close(fd);
	if (!error && strcmp(domain->name, name) != 0)
		error = error_set(-EINVAL, "the status of a domain has another one's name");
	return error;
}

static bool is_status(const char *file, char name[DOMAIN_NAME_SIZE])
{
	size_t length = strlen(file), suffix = strlen(STATUS);

	if (length <= suffix || length - suffix >= DOMAIN_NAME_SIZE ||
	    strcmp(file + length - suffix, STATUS) != 0)
		return false;
	memcpy(name, file, length - suffix);
	name[length - suffix] = '\0';
	return true;
}

int libvirt_directory_each(const char *directory, void (*each)(void *context, const char *name),
			   void *context)
{
	DIR *entries = opendir(directory);
	const struct dirent *entry;
	char name[DOMAIN_NAME_SIZE];

	if (!entries)
		return error_set(-errno, "can not look at libvirt's domains in %s: %s", directory,
				 strerror(errno));
	while ((entry = readdir(entries)))
		if (is_status(entry->d_name, name))
			each(context, name);
	closedir(entries);
	return 0;
}
