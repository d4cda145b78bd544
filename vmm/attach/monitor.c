/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/monitor.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shared/error.h"
#include "vmm/attach/libvirt_domain.h"
#include "vmm/attach/qemu_command_line.h"
#include "vmm/attach/qmp_connection.h"

#define OPTION_MAX QEMU_OPTION_MAX

struct monitor {
	struct qmp *qmp; /* one of the two, the other is NULL */
	struct domain *domain;
};

/* QEMU's command line */

static bool is_server(const char *options)
{
	char value[8];

	return qemu_get_option(options, "server", value, sizeof(value)) && !strcmp(value, "on");
}

/* "unix:PATH,server=on,wait=off" */
static bool get_legacy_socket(const char *value, char *path, size_t size)
{
	if (strncmp(value, "unix:", 5) != 0 || !is_server(value))
		return false;
	value += 5;
	return qemu_next_option(&value, path, size) && *path;
}

/* "socket,id=ID,path=PATH,server=on" */
static bool get_chardev_socket(struct qemu_arguments words, const char *id, char *path, size_t size)
{
	const char *option, *value;
	char found[128];

	while (qemu_next_pair(&words, &option, &value))
		if (!strcmp(option, "-chardev") && !strncmp(value, "socket,", 7) &&
		    qemu_get_option(value, "id", found, sizeof(found)) && !strcmp(found, id))
			return is_server(value) && qemu_get_option(value, "path", path, size);
	return false;
}

/* "chardev=ID,mode=control" */
static bool get_mon_socket(struct qemu_arguments words, const char *value, char *path, size_t size)
{
	char id[128], mode[16];

	return qemu_get_option(value, "chardev", id, sizeof(id)) &&
	       qemu_get_option(value, "mode", mode, sizeof(mode)) && !strcmp(mode, "control") &&
	       get_chardev_socket(words, id, path, size);
}

bool monitor_parse_command_line(const char *command_line, size_t size, char *path, size_t path_size)
{
	const struct qemu_arguments all = qemu_arguments_of(command_line, size);
	struct qemu_arguments words = all;
	const char *option, *value;

	while (qemu_next_pair(&words, &option, &value)) {
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
	size_t length;
	char *line = qemu_command_line_read(pid, &length);
	bool found = monitor_parse_command_line(line, length, path, size);

	free(line);
	return found;
}

/* The path as QEMU sees it: in its root or, if relative, below its working directory. */
static int find_socket(const struct vmm_process *process, char *path, size_t size)
{
	char own[OPTION_MAX];

	if (!read_socket(process->pid, own, sizeof(own)))
		return error_set(
			-ENOENT,
			"process %d (%s) has no QMP socket to connect to in its command line: "
			"set its path by --qmp, or the domain's name by --domain",
			process->pid, process->name);
	snprintf(path, size, "/proc/%d/%s/%s", process->pid, *own == '/' ? "root" : "cwd", own);
	return 0;
}

bool monitor_is_known(const struct monitor_address *address, pid_t pid)
{
	char path[OPTION_MAX];

	return address->socket || address->domain || read_socket(pid, path, sizeof(path));
}

/* Opening */

static int open_socket(struct monitor *monitor, const char *path, const struct vmm_process *process,
		       int cancel_fd)
{
	pid_t peer;
	int error = qmp_open(&monitor->qmp, path, cancel_fd, &peer);

	if (error || peer == process->pid)
		return error;
	return error_set(-EPERM, "the monitor at %s is that of process %d, not of %d (%s)", path,
			 peer, process->pid, process->name);
}

int monitor_socket(const struct monitor_address *address, const struct vmm_process *process,
		   char *path)
{
	if (!address->socket)
		return find_socket(process, path, MONITOR_SOCKET_PATH);
	if (strlen(address->socket) >= MONITOR_SOCKET_PATH)
		return error_set(-ENAMETOOLONG,
				 "the path of the monitor's socket is too long: %.100s...",
				 address->socket);
	snprintf(path, MONITOR_SOCKET_PATH, "%s", address->socket);
	return 0;
}

static int open_any(struct monitor *monitor, const struct monitor_address *address,
		    const struct vmm_process *process, int cancel_fd)
{
	char path[MONITOR_SOCKET_PATH];
	int error;

	if (address->domain)
		return domain_open(&monitor->domain, address->domain, address->uri);
	error = monitor_socket(address, process, path);
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

/* Commands */

static int ask_domain(const struct domain *domain, const char *command, json_t *arguments,
		      json_t **result)
{
	char *text = qmp_command_text(command, arguments), *reply;
	json_t *answer;
	int error;

	if (!text)
		return error_set(-ENOMEM, "no memory for a command to QEMU's monitor");
	error = domain_monitor_command(domain, text, &reply);
	free(text);
	if (error)
		return error;
	answer = strlen(reply) > QMP_MESSAGE_MAX ? NULL : json_loads(reply, 0, NULL);
	free(reply);
	error = qmp_parse_answer(answer, command, result);
	json_decref(answer);
	return error;
}

int monitor_execute(struct monitor *monitor, const char *command, json_t *arguments,
		    json_t **result)
{
	return monitor->qmp ? qmp_execute(monitor->qmp, command, arguments, result)
			    : ask_domain(monitor->domain, command, arguments, result);
}

int monitor_execute_hmp(struct monitor *monitor, const char *line, json_t **result)
{
	int error = monitor_execute(monitor, "human-monitor-command",
				    json_pack("{s:s}", "command-line", line), result);

	if (error || json_is_string(*result))
		return error;
	json_decref(*result);
	return error_set(-EPROTO, "QEMU's monitor does not answer '%s' with text", line);
}

static int find_process_of_domain(const struct monitor_address *address, pid_t *pid)
{
	struct domain *domain;
	int error = domain_open(&domain, address->domain, address->uri);

	if (error)
		return error;
	error = domain_find_process(domain, pid);
	domain_close(domain);
	return error;
}

int monitor_find_process(const struct monitor_address *address, pid_t *pid)
{
	struct qmp *qmp;
	int error;

	if (address->domain)
		return find_process_of_domain(address, pid);
	error = qmp_open(&qmp, address->socket, -1, pid);
	if (error)
		return error;
	qmp_close(qmp);
	return *pid > 0
		       ? 0
		       : error_set(
				 -ENOENT,
				 "the process that listens at %s is in a PID namespace that is not "
				 "visible here",
				 address->socket);
}
