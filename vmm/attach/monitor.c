// SPDX-License-Identifier: Apache-2.0
#include "vmm/attach/monitor.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "shared/error.h"
#include "vmm/attach/domain.h"
#include "vmm/attach/qmp.h"

#define COMMAND_LINE_MAX (256u << 10)
#define OPTION_MAX       PATH_MAX

struct monitor {
	struct qmp *qmp; /* one of them, the other is NULL */
	struct domain *domain;
};

/* QEMU's command line. */

/*
 * One of "a=b,c,d=e", and where the next one begins; commas in values are doubled (QEMU: util/qemu-option.c,
 * get_opt_value()). False: there is none any more, or one is too long.
 */
static bool next_option(const char **options, char *option, size_t size)
{
	const char *at = *options;
	size_t used = 0;

	if (!*at)
		return false;
	for (; *at && (*at != ',' || at[1] == ','); at++) {
		if (used == size - 1)
			return false;
		option[used++] = *at;
		at += *at == ',';
	}
	option[used] = '\0';
	*options = *at ? at + 1 : at;
	return true;
}

/* The value of KEY; a flag alone is "on". */
static bool get_option(const char *options, const char *key, char *value, size_t size)
{
	size_t length = strlen(key);
	char option[OPTION_MAX] = "";

	while (next_option(&options, option, sizeof(option))) {
		const char *found = option + length;

		if (strncmp(option, key, length) != 0 || (*found && *found != '='))
			continue;
		found = *found ? found + 1 : "on";
		return *found && snprintf(value, size, "%s", found) < (int)size;
	}
	return false;
}

static bool is_server(const char *options)
{
	char value[8];

	return get_option(options, "server", value, sizeof(value)) && !strcmp(value, "on");
}

/* "unix:PATH,server=on,wait=off" */
static bool get_legacy_socket(const char *value, char *path, size_t size)
{
	if (strncmp(value, "unix:", 5) != 0 || !is_server(value))
		return false;
	value += 5;
	return next_option(&value, path, size) && *path;
}

struct words {
	const char *at, *end;
};

static bool next_pair(struct words *words, const char **option, const char **value)
{
	*option = words->at;
	*value = *option + strlen(*option) + 1;
	if (*value >= words->end)
		return false;
	words->at = *value;
	return true;
}

/* "socket,id=ID,path=PATH,server=on" */
static bool get_chardev_socket(struct words words, const char *id, char *path, size_t size)
{
	const char *option, *value;
	char found[128];

	while (next_pair(&words, &option, &value))
		if (!strcmp(option, "-chardev") && !strncmp(value, "socket,", 7) &&
		    get_option(value, "id", found, sizeof(found)) && !strcmp(found, id))
			return is_server(value) && get_option(value, "path", path, size);
	return false;
}

/* "chardev=ID,mode=control" */
static bool get_mon_socket(struct words words, const char *value, char *path, size_t size)
{
	char id[128], mode[16];

	return get_option(value, "chardev", id, sizeof(id)) &&
	       get_option(value, "mode", mode, sizeof(mode)) && !strcmp(mode, "control") &&
	       get_chardev_socket(words, id, path, size);
}

bool monitor_parse_command_line(const char *command_line, size_t size, char *path, size_t path_size)
{
	const struct words all = { command_line, command_line + size };
	struct words words = all;
	const char *option, *value;

	if (!size || command_line[size - 1])
		return false;
	while (next_pair(&words, &option, &value)) {
		if ((!strcmp(option, "-qmp") || !strcmp(option, "-qmp-pretty")) &&
		    get_legacy_socket(value, path, path_size))
			return true;
		if (!strcmp(option, "-mon") && get_mon_socket(all, value, path, path_size))
			return true;
	}
	return false;
}

static bool read_socket(pid_t pid, char *path, size_t size)
{
	char *line = malloc(COMMAND_LINE_MAX), name[32];
	ssize_t length;
	bool found;
	int fd;

	snprintf(name, sizeof(name), "/proc/%d/cmdline", pid);
	fd = open(name, O_RDONLY | O_CLOEXEC);
	length = fd < 0 || !line ? -1 : read(fd, line, COMMAND_LINE_MAX);
	found = length > 0 && monitor_parse_command_line(line, (size_t)length, path, size);

	free(line);
	if (fd >= 0)
		close(fd);
	return found;
}

/* The path as that process sees it: in its own root or, if it is relative, below its directory. */
static int find_socket(const struct vmm_process *process, char *path, size_t size)
{
	char own[OPTION_MAX];

	if (!read_socket(process->pid, own, sizeof(own)))
		return error_set(-ENOENT,
				 "process %d (%s) was given no QMP socket that can be connected to: give its "
				 "path by --qmp, or the domain's name by --domain",
				 process->pid, process->name);
	snprintf(path, size, "/proc/%d/%s/%s", process->pid, *own == '/' ? "root" : "cwd", own);
	return 0;
}

bool monitor_known(const struct monitor_address *address, pid_t pid)
{
	char path[OPTION_MAX];

	return address->socket || address->domain || read_socket(pid, path, sizeof(path));
}

/* Opening. */

static int open_socket(struct monitor *monitor, const char *path, const struct vmm_process *process,
		       int cancel_fd)
{
	pid_t peer;
	int error = qmp_open(&monitor->qmp, path, cancel_fd, &peer);

	if (error || peer == process->pid)
		return error;
	return error_set(-EPERM, "the monitor at %s is that of process %d, not of %d (%s)", path, peer,
			 process->pid, process->name);
}

static int open_any(struct monitor *monitor, const struct monitor_address *address,
		    const struct vmm_process *process, int cancel_fd)
{
	char path[OPTION_MAX + 64];
	int error;

	if (address->socket)
		return open_socket(monitor, address->socket, process, cancel_fd);
	if (address->domain)
		return domain_open(&monitor->domain, address->domain, address->uri);
	error = find_socket(process, path, sizeof(path));
	return error ? error : open_socket(monitor, path, process, cancel_fd);
}

int monitor_open(struct monitor **result, const struct monitor_address *address,
		 const struct vmm_process *process, int cancel_fd)
{
	struct monitor *monitor = calloc(1, sizeof(*monitor));
	int error;

	if (!monitor)
		return error_set(-ENOMEM, "no memory for QEMU's monitor");
	error = open_any(monitor, address, process, cancel_fd);
	if (error)
		monitor_close(monitor);
	else
		*result = monitor;
	return error;
}

void monitor_close(struct monitor *monitor)
{
	if (!monitor)
		return;
	qmp_close(monitor->qmp);
	domain_close(monitor->domain);
	free(monitor);
}

/* Commands. */

static int ask_domain(const struct domain *domain, const char *command, json_t *arguments, json_t **result)
{
	char *text = qmp_command_text(command, arguments), *reply;
	json_t *answer;
	int error;

	if (!text)
		return error_set(-ENOMEM, "no memory to ask QEMU's monitor");
	error = domain_monitor_command(domain, text, &reply);
	free(text);
	if (error)
		return error;
	answer = strlen(reply) > QMP_MESSAGE_MAX ? NULL : json_loads(reply, 0, NULL);
	free(reply);
	error = qmp_take_answer(answer, command, result);
	json_decref(answer);
	return error;
}

int monitor_execute(struct monitor *monitor, const char *command, json_t *arguments, json_t **result)
{
	return monitor->qmp ? qmp_execute(monitor->qmp, command, arguments, result)
			    : ask_domain(monitor->domain, command, arguments, result);
}

int monitor_human(struct monitor *monitor, const char *line, json_t **result)
{
	int error = monitor_execute(monitor, "human-monitor-command",
				    json_pack("{s:s}", "command-line", line), result);

	if (error || json_is_string(*result))
		return error;
	json_decref(*result);
	return error_set(-EPROTO, "QEMU's monitor answers '%s' by no text", line);
}

int monitor_find_process(const char *path, pid_t *pid)
{
	struct qmp *qmp;
	int error = qmp_open(&qmp, path, -1, pid);

	if (error)
		return error;
	qmp_close(qmp);
	return *pid > 0 ? 0
			: error_set(-ENOENT,
				    "the process that listens at %s is in no PID namespace seen here", path);
}
