/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/daemon/hook_inbox.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/log.h"
#include "shared/thread_check.h"

struct hook_inbox {
	struct thread_check thread;
	hook_handler *handle;
	void *context;
	int fd;
	struct sockaddr_un address;
	char spool[PATH_MAX];
	char *bytes; /* a message of up to HOOK_SIZE_MAX */
};

static int bind_socket(struct hook_inbox *inbox)
{
	const char *path = inbox->address.sun_path;

	inbox->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (inbox->fd < 0)
		return error_set(-errno, "cannot create a socket: %s", strerror(errno));
	unlink(path); /* the run directory belongs to one daemon, by its lock */
	if (fchmod(inbox->fd, S_IRUSR | S_IWUSR) ||
	    bind(inbox->fd, (const struct sockaddr *)&inbox->address, sizeof(inbox->address)))
		return error_set(-errno, "cannot listen to libvirt's hook at %s: %s", path,
				 strerror(errno));
	return 0;
}

static int open_inbox(struct hook_inbox *inbox, const char *directory)
{
	char *path = inbox->address.sun_path;
	size_t size = sizeof(inbox->address.sun_path);

	if (snprintf(path, size, "%s/%s", directory, HOOK_SOCKET) >= (int)size)
		return error_set(-ENAMETOOLONG, "the path %s is too long for a socket", directory);
	snprintf(inbox->spool, sizeof(inbox->spool), "%s/%s", directory, HOOK_SPOOL);
	inbox->bytes = malloc(HOOK_SIZE_MAX);
	return inbox->bytes ? bind_socket(inbox)
			    : error_set(-ENOMEM, "no memory for messages of the hook");
}

int hook_inbox_open(struct hook_inbox **result, const char *directory, hook_handler *handle,
		    void *context)
{
	struct hook_inbox *inbox = calloc(1, sizeof(*inbox));
	int error;

	if (!inbox)
		return error_set(-ENOMEM, "no memory for messages of the hook");
	*inbox = (struct hook_inbox){
		.handle = handle, .context = context, .fd = -1, .address = { .sun_family = AF_UNIX }
	};
	error = open_inbox(inbox, directory);
	if (error)
		hook_inbox_close(inbox);
	else
		*result = inbox;
	return error;
}

void hook_inbox_close(struct hook_inbox *inbox)
{
	if (!inbox)
		return;
	if (inbox->fd >= 0) {
		unlink(inbox->address.sun_path);
		close(inbox->fd);
	}
	free(inbox->bytes);
	free(inbox);
}

int hook_inbox_fd(const struct hook_inbox *inbox)
{
	return inbox->fd;
}

/* Another process wrote the file: what cannot be read from its start is ignored. */
static void read_message(struct hook_inbox *inbox, int file)
{
	struct hook_message message;
	ssize_t size = pread(file, inbox->bytes, HOOK_SIZE_MAX, 0);

	if (size < 0)
		log_warning("a message of libvirt's hook cannot be read: %s", strerror(errno));
	else if (hook_message_parse(&message, inbox->bytes, (size_t)size))
		log_warning("%s", error_message());
	else
		inbox->handle(inbox->context, &message);
}

/* Closes all descriptors, unexpected ones included. */
static void receive_files(struct hook_inbox *inbox, struct msghdr *packet)
{
	for (struct cmsghdr *head = CMSG_FIRSTHDR(packet); head; head = CMSG_NXTHDR(packet, head)) {
		size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < count; i++) {
			int file;

			memcpy(&file, CMSG_DATA(head) + i * sizeof(file), sizeof(file));
			read_message(inbox, file);
			close(file);
		}
	}
}

/* False: there is no packet. */
static bool receive_packet(struct hook_inbox *inbox)
{
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec byte = { (char[1]){ 0 }, 1 };
	struct msghdr packet = { .msg_iov = &byte,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control) };

	if (recvmsg(inbox->fd, &packet, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) < 0)
		return false;
	receive_files(inbox, &packet);
	return true;
}

/* Names of complete messages begin with a digit. */
static int is_queued(const struct dirent *entry)
{
	return *entry->d_name >= '0' && *entry->d_name <= '9';
}

static void read_queued(struct hook_inbox *inbox, const char *name)
{
	char path[2 * PATH_MAX];
	int file;

	snprintf(path, sizeof(path), "%s/%s", inbox->spool, name);
	file = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (unlink(path))
		log_warning("a message of libvirt's hook cannot be removed: %s", strerror(errno));
	if (file < 0)
		return;
	read_message(inbox, file);
	close(file);
}

/* Left by a hook that was killed or timed out; a running one is faster. */
static bool is_abandoned(int spool, const char *name)
{
	struct stat status;

	return name[0] == '.' && name[1] >= '0' && name[1] <= '9' &&
	       !fstatat(spool, name, &status, AT_SYMLINK_NOFOLLOW) &&
	       time(NULL) - status.st_mtime > 2L * HOOK_WORK_S;
}

static void remove_abandoned(const struct hook_inbox *inbox)
{
	DIR *spool = opendir(inbox->spool);
	const struct dirent *entry;

	while (spool && (entry = readdir(spool)))
		if (is_abandoned(dirfd(spool), entry->d_name))
			unlinkat(dirfd(spool), entry->d_name, 0);
	if (spool)
		closedir(spool);
}

static void read_spool(struct hook_inbox *inbox)
{
	struct dirent **entries;
	int count = scandir(inbox->spool, &entries, is_queued, alphasort);

	for (int i = 0; i < count; i++) {
		read_queued(inbox, entries[i]->d_name);
		free(entries[i]);
	}
	if (count >= 0)
		free(entries);
}

void hook_inbox_read(struct hook_inbox *inbox)
{
	THREAD_CHECK(&inbox->thread);
	remove_abandoned(inbox);
	read_spool(inbox);
	for (int i = 0; i < HOOK_SPOOL_MAX && receive_packet(inbox); i++)
		;
}

uint64_t hook_inbox_dropped(const struct hook_inbox *inbox)
{
	char path[2 * PATH_MAX];
	struct stat status;

	snprintf(path, sizeof(path), "%s/%s", inbox->spool, HOOK_DROPPED);
	return stat(path, &status) ? 0 : (uint64_t)status.st_size;
}
