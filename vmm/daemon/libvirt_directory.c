/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/daemon/libvirt_directory.h"

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
#include "shared/parse_number.h"

#define STATUS ".xml"

/* Maps the errors of missing things to -ENOENT, as opposed to those that may pass. */
static int missing_or(int error)
{
	return error == ENOENT || error == ENOTDIR || error == ENAMETOOLONG || error == ELOOP ||
			       error == ESRCH
		       ? -ENOENT
		       : -error;
}

/* Opens FILE with SUFFIX in the directory itself. */
static int open_file(const char *directory, const char *file, const char *suffix)
{
	char path[PATH_MAX];
	int fd;

	if (!*file || strchr(file, '/') ||
	    snprintf(path, sizeof(path), "%s/%s%s", directory, file, suffix) >= (int)sizeof(path))
		return error_set(-ENOENT, "libvirt cannot have a domain of this name");
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	return fd < 0 ? error_set(missing_or(errno), "cannot open a file of the domain in %s: %s",
				  directory, strerror(errno))
		      : fd;
}

/* How libvirt writes BYTE in the name of a pid file; NULL: unchanged. */
static const char *entity_of(char byte)
{
	static const char *const entities[] = {
		['"'] = "&quot;", ['&'] = "&amp;", ['\''] = "&apos;", ['<'] = "&lt;", ['>'] = "&gt;"
	};
	size_t index = (unsigned char)byte;

	return index < sizeof(entities) / sizeof(entities[0]) ? entities[index] : NULL;
}

/* libvirt escapes the name as in XML, virBufferEscapeString(), for this file only. */
static int open_pid_file(const char *directory, const char *name)
{
	char file[DOMAIN_NAME_SIZE * sizeof("&quot;")], *end = file;

	for (; *name && end + sizeof("&quot;") < file + sizeof(file); name++) {
		const char *entity = entity_of(*name);

		if (entity)
			end = stpcpy(end, entity);
		else
			*end++ = *name;
	}
	*end = '\0';
	return open_file(directory, *name ? "" : file, ".pid");
}

static int no_process(void)
{
	return error_set(-ENOENT, "the domain has no process");
}

static int unknown_process(int error)
{
	return error == -ENOENT
		       ? no_process()
		       : error_set(error, "cannot find the domain's process: %s", strerror(-error));
}

static int read_pid(int fd, pid_t *pid)
{
	char text[16] = "";
	ssize_t size = pread(fd, text, sizeof(text) - 1, 0);
	const char *end;
	uint64_t number = 0;

	if (size < 0)
		return unknown_process(-errno);
	end = parse_decimal(text, INT_MAX, &number);
	if (!end || (*end && *end != '\n') || !number)
		return no_process();
	*pid = (pid_t)number;
	return 0;
}

/* An owner of 0 or less is in another PID namespace, or the lock has no owner. */
static int check_lock(int fd, pid_t pid)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	if (fcntl(fd, F_GETLK, &lock))
		return unknown_process(-errno);
	return lock.l_type != F_UNLCK && (lock.l_pid <= 0 || lock.l_pid == pid) ? 0 : no_process();
}

/* pidfd_open(2) fails with EINVAL, or ENOENT since Linux 6.16, if the number is a thread's. */
static int open_process(pid_t pid)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);

	return fd >= 0 ? fd : unknown_process(errno == EINVAL ? -ENOENT : missing_or(errno));
}

/* The process first: while it runs its pid is not reused, and the lock is its own. */
static int find_process(int fd, struct libvirt_process *process)
{
	int error = read_pid(fd, &process->pid);

	if (error)
		return error;
	process->fd = open_process(process->pid);
	if (process->fd < 0)
		return process->fd;
	error = check_lock(fd, process->pid);
	if (error)
		close(process->fd);
	return error;
}

int libvirt_directory_process(const char *directory, const char *name,
			      struct libvirt_process *process)
{
	int fd = open_pid_file(directory, name), error;

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
	int error =
		size < 0 ? error_set(text ? -errno : -ENOMEM, "cannot read the status of a domain")
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
		error = error_set(-EINVAL, "the status of a domain has another name");
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
		return error_set(-errno, "cannot read libvirt's domains in %s: %s", directory,
				 strerror(errno));
	while ((entry = readdir(entries)))
		if (is_status(entry->d_name, name))
			each(context, name);
	closedir(entries);
	return 0;
}
