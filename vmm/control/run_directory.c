/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/control/run_directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/control/control_client.h"
#include "vmm/control/control_server.h"
#include "vmm/devices/unix_listener.h"

#define SYSTEM_DIRECTORY "/run/kvmscope"
#define SUFFIX           ".sock"

static bool is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool control_name_is_good(const char *name)
{
	size_t length = strlen(name);

	if (!is_letter(*name) || length > CONTROL_NAME_MAX)
		return false;
	for (size_t i = 0; i < length; i++)
		if (!is_letter(name[i]) && !strchr("0123456789._-", name[i]))
			return false;
	return true;
}

/* NULL: not set to an absolute path (XDG Base Directory Specification). */
static const char *user_directory(void)
{
	const char *directory = getenv("XDG_RUNTIME_DIR");

	return directory && *directory == '/' ? directory : NULL;
}

int control_directory(char *path, size_t size)
{
	const char *user = user_directory();
	int length = user ? snprintf(path, size, "%s/kvmscope", user)
			  : snprintf(path, size, "%s", SYSTEM_DIRECTORY);

	return length < (int)size ? 0 : error_set(-ENAMETOOLONG, "$XDG_RUNTIME_DIR is too long");
}

/* Another user with write access could replace a run's socket by his own. */
static int check_owner(int directory, const char *path)
{
	struct stat status;

	if (fstat(directory, &status))
		return error_set(-errno, "cannot stat %s: %s", path, strerror(errno));
	if (status.st_uid != geteuid() || status.st_mode & (S_IWGRP | S_IWOTH))
		return error_set(
			-EPERM,
			"%s is not safe for control sockets: another user owns it or can write to it",
			path);
	return 0;
}

/* The lock of the descriptor keeps two runs from treating a socket that one of them has bound, but
 * does not listen on yet, as dead. */
static int open_own_directory(const char *path)
{
	int directory, error;

	if (mkdir(path, S_IRWXU) && errno != EEXIST)
		return error_set(-errno, "cannot create the directory %s: %s", path,
				 strerror(errno));
	directory = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (directory < 0)
		return error_set(-errno, "cannot open the directory %s: %s", path, strerror(errno));
	error = check_owner(directory, path);
	if (!error && flock(directory, LOCK_EX))
		error = error_set(-errno, "cannot lock the directory %s: %s", path,
				  strerror(errno));
	if (!error)
		return directory;
	close(directory);
	return error;
}

static int socket_filter(const struct dirent *entry)
{
	size_t length = strlen(entry->d_name);

	return length > strlen(SUFFIX) && *entry->d_name != '.' &&
	       !strcmp(entry->d_name + length - strlen(SUFFIX), SUFFIX);
}

static void free_entries(struct dirent **entries, int count)
{
	while (count > 0)
		free(entries[--count]);
	free(entries);
}

/* Removes sockets that refuse connections: their runs have ended without doing so. */
static void remove_dead(const char *directory)
{
	struct dirent **entries;
	int count = scandir(directory, &entries, socket_filter, NULL);
	char path[PATH_MAX];

	for (int i = 0; i < count; i++) {
		if (snprintf(path, sizeof(path), "%s/%s", directory, entries[i]->d_name) >=
		    (int)sizeof(path))
			continue;
		if (control_is_dead(path) && !unlink(path))
			log_debug("removed %s, which a run that has ended left behind", path);
	}
	if (count >= 0)
		free_entries(entries, count);
}

/* With a backlog, clients of a busy or stopped run wait instead of being refused. */
static int open_listener(const char *path)
{
	int fd = unix_listener_open(path);

	if (fd >= 0)
		listen(fd, CONTROL_CLIENTS_MAX);
	return fd;
}

static int listen_in(struct control_socket *socket, const char *directory, const char *name)
{
	int length =
		name ? snprintf(socket->path, sizeof(socket->path), "%s/%s" SUFFIX, directory, name)
		     : snprintf(socket->path, sizeof(socket->path), "%s/%d" SUFFIX, directory,
				getpid());

	if (length >= (int)sizeof(socket->path))
		return error_set(-ENAMETOOLONG, "the directory %s has a name too long for a socket",
				 directory);
	remove_dead(directory);
	socket->fd = open_listener(socket->path);
	if (socket->fd == -EADDRINUSE && name)
		return error_set(-EADDRINUSE, "a run named %s exists already", name);
	return socket->fd < 0 ? socket->fd : 0;
}

int control_socket_open(struct control_socket *socket, const char *name)
{
	char path[PATH_MAX - NAME_MAX - 1];
	int error = control_directory(path, sizeof(path));
	int directory = error ? error : open_own_directory(path);

	socket->fd = -1;
	if (directory < 0)
		return directory;
	error = listen_in(socket, path, name);
	close(directory);
	return error;
}

int control_socket_open_at(struct control_socket *socket, const char *path)
{
	char *absolute = NULL;

	socket->fd = open_listener(path);
	if (socket->fd < 0)
		return socket->fd;
	absolute = realpath(path, NULL);
	snprintf(socket->path, sizeof(socket->path), "%s", absolute ? absolute : path);
	free(absolute);
	return 0;
}

void control_socket_close(struct control_socket *socket)
{
	if (socket->fd < 0)
		return;
	unlink(socket->path);
	close(socket->fd);
	socket->fd = -1;
}

/* Adds the runs with sockets in DIRECTORY; a missing directory has none. */
static int list_directory(const char *directory, struct control_run **runs, size_t *count)
{
	struct dirent **entries;
	int found = scandir(directory, &entries, socket_filter, alphasort);
	struct control_run *more;

	if (found <= 0) {
		if (!found)
			free(entries);
		return 0;
	}
	more = reallocarray(*runs, *count + (size_t)found, sizeof(**runs));
	if (!more) {
		free_entries(entries, found);
		return error_set(-ENOMEM, "no memory for the list of runs");
	}
	*runs = more;
	for (int i = 0; i < found; i++) {
		struct control_run *run = &more[*count];

		snprintf(run->name, sizeof(run->name), "%.*s",
			 (int)(strlen(entries[i]->d_name) - strlen(SUFFIX)), entries[i]->d_name);
		if (snprintf(run->path, sizeof(run->path), "%s/%s", directory,
			     entries[i]->d_name) >= (int)sizeof(run->path))
			continue;
		run->fd = control_connect(run->path);
		if (run->fd < 0)
			continue;
		run->pid = control_connected_pid(run->fd);
		(*count)++;
	}
	free_entries(entries, found);
	return 0;
}

int control_runs_list(struct control_run **runs, size_t *count)
{
	char path[PATH_MAX];
	int error = control_directory(path, sizeof(path));

	*runs = NULL;
	*count = 0;
	if (!error)
		error = list_directory(path, runs, count);
	if (!error && user_directory()) /* of the system, or of a shell without the variable */
		error = list_directory(SYSTEM_DIRECTORY, runs, count);
	if (error) {
		control_runs_free(*runs, *count);
		*runs = NULL;
		*count = 0;
	}
	return error;
}

void control_runs_free(struct control_run *runs, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (runs[i].fd >= 0)
			close(runs[i].fd);
	free(runs);
}

static bool matches(const struct control_run *run, pid_t pid, const char *name)
{
	return (!pid || run->pid == pid) && (!name || !strcmp(run->name, name));
}

static int report_none(pid_t pid, const char *name)
{
	if (pid)
		return error_set(
			-ENOENT,
			"process %d is not a run that can be controlled; kvmscope ctl list shows them",
			pid);
	if (name)
		return error_set(-ENOENT,
				 "there is no run named %s; kvmscope ctl list shows all runs",
				 name);
	return error_set(-ENOENT, "no running kvmscope can be controlled");
}

int control_runs_connect(pid_t pid, const char *name)
{
	struct control_run *runs, *found = NULL;
	size_t count, match_count = 0;
	int result = control_runs_list(&runs, &count);

	if (result)
		return result;
	for (size_t i = 0; i < count; i++) {
		if (!matches(&runs[i], pid, name))
			continue;
		found = &runs[i];
		match_count++;
	}
	if (!match_count) {
		result = report_none(pid, name);
	} else if (match_count > 1) {
		result = error_set(-ENOTUNIQ,
				   "there are %zu runs: select one by --pid, --name or --socket; "
				   "kvmscope ctl list shows them",
				   match_count);
	} else {
		result = found->fd;
		found->fd = -1;
	}
	control_runs_free(runs, count);
	return result;
}
