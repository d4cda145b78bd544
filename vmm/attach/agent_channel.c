/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/agent_channel.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <linux/vm_sockets.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "shared/agent_protocol.h"
#include "shared/error.h"
#include "shared/parse_number.h"
#include "vmm/attach/proc_files.h"
#include "vmm/attach/qemu_command_line.h"

#define ID_MAX 128
/* Flags and states of /proc/net/unix (net/unix/af_unix.c). */
#define ACCEPTS   0x10000u
#define CONNECTED 3u

/* QEMU's command line */

static bool is_ours(const char *driver, const char *name)
{
	return !strcmp(driver, "virtserialport") && !strcmp(name, AGENT_PORT_NAME);
}

/* "virtserialport,chardev=ID,name=org.kvmscope.agent.0": the driver comes without a key. */
static bool get_plain_device(const char *value, char id[ID_MAX])
{
	char driver[ID_MAX], name[ID_MAX];
	const char *options = value;

	return qemu_next_option(&options, driver, sizeof(driver)) &&
	       qemu_get_option(options, "name", name, sizeof(name)) && is_ours(driver, name) &&
	       qemu_get_option(options, "chardev", id, ID_MAX);
}

static bool get_json_device(const char *value, char id[ID_MAX])
{
	json_t *device = json_loads(value, JSON_REJECT_DUPLICATES, NULL);
	const char *driver, *name, *chardev;
	bool found = !json_unpack(device, "{s:s,s:s,s:s}", "driver", &driver, "name", &name,
				  "chardev", &chardev) &&
		     is_ours(driver, name) && snprintf(id, ID_MAX, "%s", chardev) < ID_MAX;

	json_decref(device);
	return found;
}

static bool get_number(const char *options, const char *key, int *number)
{
	char text[12];
	const char *end;
	uint64_t value = 0;

	if (!qemu_get_option(options, key, text, sizeof(text)))
		return false;
	end = parse_decimal(text, INT_MAX, &value);
	*number = (int)value;
	return end && !*end;
}

/* "socket,id=ID,path=PATH,server=on", or fd=N instead of the path. */
static bool get_address(const char *value, const char *id, struct agent_channel_address *address)
{
	char text[ID_MAX];

	*address = (struct agent_channel_address){ .fd = -1 };
	if (strncmp(value, "socket,", 7) != 0 ||
	    !qemu_get_option(value, "id", text, sizeof(text)) || strcmp(text, id) != 0 ||
	    !qemu_get_option(value, "server", text, sizeof(text)) || strcmp(text, "on") != 0)
		return false;
	return qemu_get_option(value, "path", address->path, sizeof(address->path)) ||
	       get_number(value, "fd", &address->fd);
}

static bool find_id(struct qemu_arguments words, char id[ID_MAX])
{
	const char *option, *value;

	while (qemu_next_pair(&words, &option, &value))
		if (!strcmp(option, "-device") &&
		    (*value == '{' ? get_json_device(value, id) : get_plain_device(value, id)))
			return true;
	return false;
}

bool agent_channel_parse(const char *command_line, size_t size,
			 struct agent_channel_address *address)
{
	struct qemu_arguments words = qemu_arguments_of(command_line, size);
	const char *option, *value;
	char id[ID_MAX];

	if (!find_id(words, id))
		return false;
	while (qemu_next_pair(&words, &option, &value))
		if (!strcmp(option, "-chardev") && get_address(value, id, address))
			return true;
	return false;
}

static bool find_address(const struct vmm_process *process, struct agent_channel_address *address)
{
	size_t size;
	char *line = qemu_command_line_read(process->pid, &size);
	bool found = agent_channel_parse(line, size, address);

	free(line);
	return found;
}

bool agent_channel_exists(const struct vmm_process *process)
{
	struct agent_channel_address address;

	return find_address(process, &address);
}

/* Sockets of the process */

/* "0000000000000000: 00000002 00000000 00010000 0001 01 12345 /run/x" */
bool agent_channel_parse_socket(char *line, struct agent_channel_socket *socket)
{
	unsigned int flags, state;
	int path = 0;

	line[strcspn(line, "\n")] = '\0';
	if (sscanf(line, "%*x: %*x %*x %x %*x %x %" SCNu64 " %n", &flags, &state, &socket->inode,
		   &path) != 3 ||
	    !path || line[path] == '\0' || line[path] == '@')
		return false;
	socket->listens = flags & ACCEPTS;
	socket->connected = state == CONNECTED;
	socket->path = line + path;
	return true;
}

static bool read_inode(int directory, const char *fd, uint64_t *inode)
{
	char link[64] = "";

	return readlinkat(directory, fd, link, sizeof(link) - 1) > 0 &&
	       sscanf(link, "socket:[%" SCNu64 "]", inode) == 1;
}

static bool has_socket(const struct vmm_process *process, uint64_t inode)
{
	DIR *descriptors = proc_open_directory(process->directory, "fd");
	const struct dirent *entry;
	bool found = false;
	uint64_t own;

	while (descriptors && !found && (entry = readdir(descriptors)))
		found = read_inode(dirfd(descriptors), entry->d_name, &own) && own == inode;
	if (descriptors)
		closedir(descriptors);
	return found;
}

/* Finds the path of the listening socket that QEMU inherited as a descriptor. */
static bool find_path(const struct vmm_process *process, struct agent_channel_address *address)
{
	struct agent_channel_socket socket;
	char line[PATH_MAX + 128], name[24];
	bool found = false;
	uint64_t inode = 0;
	FILE *sockets;

	snprintf(name, sizeof(name), "fd/%d", address->fd);
	if (!read_inode(process->directory, name, &inode) ||
	    !(sockets = proc_open_file(process->directory, "net/unix")))
		return false;
	while (!found && fgets(line, sizeof(line), sockets))
		found = agent_channel_parse_socket(line, &socket) && socket.inode == inode &&
			socket.listens;
	if (found)
		snprintf(address->path, sizeof(address->path), "%s", socket.path);
	fclose(sockets);
	return found;
}

static bool find_socket(const struct vmm_process *process, struct agent_channel_address *address)
{
	return find_address(process, address) && (*address->path || find_path(process, address));
}

/* An absolute path is in the process's root, a relative one below its working directory. */
static const char *root_of(const char *path)
{
	return *path == '/' ? "root" : "cwd/";
}

bool agent_channel_path(const struct vmm_process *process, char path[AGENT_CHANNEL_PATH])
{
	struct agent_channel_address address;

	if (!find_socket(process, &address))
		return false;
	snprintf(path, AGENT_CHANNEL_PATH, "/proc/%d/%s%s", process->pid, root_of(address.path),
		 address.path);
	return true;
}

/* An accepted socket has the path of the listening socket. */
static bool has_client(const struct vmm_process *process, const char *path)
{
	struct agent_channel_socket socket;
	char line[PATH_MAX + 128];
	FILE *sockets = proc_open_file(process->directory, "net/unix");
	bool found = false;

	while (sockets && !found && fgets(line, sizeof(line), sockets))
		found = agent_channel_parse_socket(line, &socket) && socket.connected &&
			socket.inode && !strcmp(socket.path, path) &&
			has_socket(process, socket.inode);
	if (sockets)
		fclose(sockets);
	return found;
}

/* Connecting */

/* Opens the path as a descriptor, which pins the inode. */
static int open_socket_file(const struct vmm_process *process, const char *path)
{
	char name[PATH_MAX + 8];
	struct stat status;
	int fd;

	snprintf(name, sizeof(name), "%s%s", root_of(path), path);
	fd = openat(process->directory, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (!fstat(fd, &status) && S_ISSOCK(status.st_mode))
		return fd;
	close(fd);
	return -ENOTSOCK;
}

static int check_peer(int fd, const struct vmm_process *process, const char *path)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size))
		return error_set(-errno, "cannot determine the process that listens at %s: %s",
				 path, strerror(errno));
	return peer.pid == process->pid
		       ? 0
		       : error_set(
				 -EPERM,
				 "the agent's channel at %s is that of process %d, not of %d (%s)",
				 path, peer.pid, process->pid, process->name);
}

/* Connects through /proc/self/fd: a path may be longer than sun_path, and the name may have been
 * replaced since it was opened. */
static int connect_to(int file, const struct vmm_process *process, const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), error = 0;

	if (fd < 0)
		return error_set(-errno, "cannot create a socket for the guest agent: %s",
				 strerror(errno));
	snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d", file);
	if (connect(fd, (const struct sockaddr *)&address, sizeof(address)))
		error = errno == EAGAIN
				? error_set(-EBUSY,
					    "another client waits for the agent's channel at %s",
					    path)
				: error_set(-errno,
					    "cannot connect to the agent's channel at %s: %s", path,
					    strerror(errno));
	if (!error)
		error = check_peer(fd, process, path);
	if (error)
		close(fd);
	return error ? error : fd;
}

int agent_channel_connect(const struct vmm_process *process, const char *path)
{
	struct agent_channel_address address = { .fd = -1 };
	int file, fd;

	if (!path && !find_socket(process, &address))
		return error_set(-ENOENT,
				 "process %d (%s) has no channel " AGENT_PORT_NAME
				 " with a socket to connect to",
				 process->pid, process->name);
	file = path ? open(path, O_PATH | O_CLOEXEC) : open_socket_file(process, address.path);
	if (path && file < 0)
		file = -errno;
	path = path ? path : address.path;
	if (file < 0)
		return error_set(file, "cannot open the agent's channel at %s: %s", path,
				 strerror(-file));
	if (has_client(process, path))
		fd = error_set(-EBUSY, "another client is connected to the agent's channel at %s",
			       path);
	else
		fd = connect_to(file, process, path);
	close(file);
	return fd;
}

/* Connections checked per call, so that a client that keeps connecting cannot block the caller. */
#define ACCEPTS_MAX 16

static bool parse_number(const char **text, char end, unsigned int *number)
{
	uint64_t value = 0;
	const char *stop = parse_decimal(*text, VMADDR_CID_ANY - 1, &value);

	if (!stop || *stop != end)
		return false;
	*text = stop + 1;
	*number = (unsigned int)value;
	return true;
}

bool agent_vsock_parse(const char *text, struct agent_vsock_address *address)
{
	static const char prefix[] = "vsock:";

	if (strncmp(text, prefix, sizeof(prefix) - 1) != 0)
		return false;
	text += sizeof(prefix) - 1;
	return parse_number(&text, ':', &address->cid) && parse_number(&text, '\0', &address->port);
}

int agent_vsock_listen(const struct agent_vsock_address *address)
{
	const struct sockaddr_vm here = { .svm_family = AF_VSOCK,
					  .svm_cid = VMADDR_CID_ANY,
					  .svm_port = address->port };
	int fd = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), error;

	if (fd >= 0 && !bind(fd, (const struct sockaddr *)&here, sizeof(here)) && !listen(fd, 8))
		return fd;
	error = -errno;
	if (fd >= 0)
		close(fd);
	return error_set(error, "cannot listen for the guest agent on vsock port %u: %s%s",
			 address->port, strerror(-error),
			 error == -EAFNOSUPPORT ? " (Linux module vhost_vsock)" : "");
}

/*
 * Only root of the guest's initial user namespace can bind these ports (vsock(7)); the agent does.
 */
#define PRIVILEGED_PORT_LAST 1023u

static bool is_agent(const struct sockaddr_vm *peer, const struct agent_vsock_address *address)
{
	return peer->svm_cid == address->cid && peer->svm_port <= PRIVILEGED_PORT_LAST;
}

int agent_vsock_accept(int listener, const struct agent_vsock_address *address)
{
	struct sockaddr_vm guest = { 0 };

	errno = EAGAIN;
	for (int i = 0; i < ACCEPTS_MAX; i++) {
		socklen_t size = sizeof(guest);
		int fd = accept4(listener, (struct sockaddr *)&guest, &size,
				 SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0)
			break;
		if (is_agent(&guest, address))
			return fd;
		close(fd);
		errno = EAGAIN;
	}
	return error_set(-errno, "the guest agent has not connected over vsock: %s",
			 strerror(errno));
}
