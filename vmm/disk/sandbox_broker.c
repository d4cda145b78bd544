/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/disk/sandbox_broker.h"

#include <cap-ng.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "shared/error.h"

#define ARGUMENTS_MAX 4
#define TEXT_MAX      (3 * PATH_MAX)
#define ASK_MS        100 /* how often is_over() is called */
/* The broker's end of the socket; besides it has only the standard descriptors. */
#define BROKER_FD (STDERR_FILENO + 1)

static int check_file(const struct disk_file *file, const struct stat *status)
{
	if (file->inode && (status->st_ino != file->inode || status->st_dev != file->device))
		return -ESTALE;
	return S_ISREG(status->st_mode) || S_ISBLK(status->st_mode) ? 0 : -ENOTBLK;
}

/* Opens the identified file itself, wherever its path leads by now. */
static int read_start(int found, struct disk_probe *probe)
{
	char path[32];
	ssize_t size;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", found);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	size = pread(fd, probe->start, sizeof(probe->start), 0);
	probe->size = size > 0 ? (size_t)size : 0;
	close(fd);
	return 0;
}

int disk_probe(const struct disk_file *file, struct disk_probe *probe)
{
	int found = open(file->path, O_PATH | O_CLOEXEC);
	struct stat status;
	int error;

	*probe = (struct disk_probe){ 0 };
	if (found < 0)
		return -errno;
	error = fstat(found, &status) ? -errno : check_file(file, &status);
	if (!error) {
		probe->uid = status.st_uid;
		probe->gid = status.st_gid;
		error = read_start(found, probe);
	}
	close(found);
	return error;
}

struct file {
	char path[PATH_MAX];
	int error; /* of probing it */
	struct disk_probe probe;
};

struct sandbox_broker {
	const char *program;
	struct file files[SANDBOX_BROKER_FILES_MAX];
	size_t count;
	pid_t pid;
	int fd;
};

struct request {
	uint32_t file, seconds;
	uint64_t output_max;
	uint32_t size; /* of the arguments that follow, each with its NUL */
};

struct reply {
	int32_t error;
	char message[ERROR_MESSAGE_SIZE];
	uint64_t size; /* of the output that follows */
};

static bool send_all(int fd, const void *bytes, size_t size)
{
	const char *at = bytes;

	while (size) {
		ssize_t sent = send(fd, at, size, MSG_NOSIGNAL);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent <= 0)
			return false;
		at += sent;
		size -= (size_t)sent;
	}
	return true;
}

/* The broker's process. */

static bool receive_all(int fd, void *bytes, size_t size)
{
	return recv(fd, bytes, size, MSG_WAITALL) == (ssize_t)size;
}

/* True if the caller has exited. */
static bool has_caller_exited(void *context)
{
	struct pollfd caller = { .fd = BROKER_FD, .events = POLLRDHUP };

	return poll(&caller, 1, 0) > 0;
}

/* Splits the arguments after the program and the file. */
static bool split(const char *text, size_t size, const char **arguments)
{
	size_t count = 0;

	if (!size || text[size - 1])
		return false;
	for (const char *at = text; at < text + size && count < ARGUMENTS_MAX; at += strlen(at) + 1)
		arguments[count++] = at;
	arguments[count] = NULL;
	return true;
}

static bool send_reply(int error, const struct bytes *output)
{
	struct reply reply = { .error = error, .size = output->size };

	if (error)
		snprintf(reply.message, sizeof(reply.message), "%s", error_message());
	return send_all(BROKER_FD, &reply, sizeof(reply)) &&
	       send_all(BROKER_FD, output->data, output->size);
}

static bool serve(const struct sandbox_broker *broker)
{
	const char *arguments[ARGUMENTS_MAX + 3] = { broker->program };
	struct bytes output = { 0 };
	struct request request;
	char text[TEXT_MAX];
	bool answered;
	int error;

	if (!receive_all(BROKER_FD, &request, sizeof(request)) || request.file >= broker->count ||
	    broker->files[request.file].error || request.size > sizeof(text) ||
	    !receive_all(BROKER_FD, text, request.size) ||
	    !split(text, request.size, arguments + 2))
		return false;
	arguments[1] = broker->files[request.file].path;
	error = sandbox_run(&(struct sandbox){ .readable = arguments[1],
					       .uid = broker->files[request.file].probe.uid,
					       .gid = broker->files[request.file].probe.gid,
					       .seconds = request.seconds,
					       .output_max = request.output_max,
					       .is_over = has_caller_exited },
			    arguments, &output);
	answered = send_reply(error, &output);
	free(output.data);
	return answered;
}

/* Keeps the capabilities that a sandbox needs to become a file's owner. */
static int keep_rights(void)
{
	static const unsigned int kept[] = { CAP_SETUID, CAP_SETGID };
	bool has[2];

	if (capng_get_caps_process())
		return -EPERM;
	for (size_t i = 0; i < 2; i++)
		has[i] = capng_have_capability(CAPNG_PERMITTED, kept[i]);
	capng_clear(CAPNG_SELECT_CAPS);
	for (size_t i = 0; i < 2; i++)
		if (has[i])
			capng_update(CAPNG_ADD, CAPNG_EFFECTIVE | CAPNG_PERMITTED, kept[i]);
	return capng_apply(CAPNG_SELECT_CAPS) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ? -EPERM
											: 0;
}

/* Inherits nothing from the caller, which samples a VM, but its end of the socket. */
static _Noreturn void run_broker(const struct sandbox_broker *broker, int fd, pid_t caller)
{
	sigset_t none;

	sigemptyset(&none);
	signal(SIGINT, SIG_IGN); /* from the terminal: the caller may need symbols after it */
	signal(SIGQUIT, SIG_IGN);
	signal(SIGCHLD, SIG_DFL);
	pthread_sigmask(SIG_SETMASK, &none, NULL);
	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) || getppid() != caller)
		_exit(1);
	if (fd != BROKER_FD && dup2(fd, BROKER_FD) < 0)
		_exit(1);
	if (close_range(BROKER_FD + 1, UINT_MAX, 0) || keep_rights())
		_exit(1);
	fcntl(BROKER_FD, F_SETFD, FD_CLOEXEC);
	while (serve(broker))
		;
	_exit(0);
}

/* The caller. */

static void probe_file(struct file *file, const struct disk_file *disk)
{
	snprintf(file->path, sizeof(file->path), "%s", disk->path);
	file->error = disk_probe(disk, &file->probe);
}

static int start(struct sandbox_broker *broker)
{
	pid_t caller = getpid();
	int ends[2], error = 0;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		return error_set(-errno, "cannot create a socket: %m");
	fflush(NULL);
	broker->pid = fork();
	if (!broker->pid)
		run_broker(broker, ends[1], caller);
	if (broker->pid < 0)
		error = error_set(-errno, "cannot start the process that reads disks: %m");
	close(ends[1]);
	broker->fd = ends[0];
	return error;
}

int sandbox_broker_start(struct sandbox_broker **result, const char *program,
			 const struct disk_file *files, size_t count)
{
	struct sandbox_broker *broker = calloc(1, sizeof(*broker));
	int error;

	if (!broker)
		return error_set(-ENOMEM, "no memory for the process that reads disks");
	broker->program = program;
	broker->pid = broker->fd = -1;
	for (; broker->count < count && broker->count < SANDBOX_BROKER_FILES_MAX; broker->count++)
		probe_file(&broker->files[broker->count], &files[broker->count]);
	error = start(broker);
	if (error)
		sandbox_broker_end(broker);
	else
		*result = broker;
	return error;
}

static size_t find(const struct sandbox_broker *broker, const char *path)
{
	size_t i = 0;

	while (i < broker->count && strcmp(broker->files[i].path, path) != 0)
		i++;
	return i;
}

int sandbox_broker_probe(const struct sandbox_broker *broker, const char *path,
			 struct disk_probe *probe)
{
	size_t file = find(broker, path);

	if (file == broker->count)
		return -EINVAL;
	*probe = broker->files[file].probe;
	return broker->files[file].error;
}

static int send_request(const struct sandbox_broker *broker, const struct sandbox *sandbox,
			size_t file, const char *const *arguments)
{
	struct request request = { .file = (uint32_t)file,
				   .seconds = sandbox->seconds,
				   .output_max = sandbox->output_max };
	char text[TEXT_MAX];

	for (; *arguments; arguments++) {
		size_t size = strlen(*arguments) + 1;

		if (size > sizeof(text) - request.size)
			return -ENAMETOOLONG;
		memcpy(text + request.size, *arguments, size);
		request.size += (uint32_t)size;
	}
	return send_all(broker->fd, &request, sizeof(request)) &&
			       send_all(broker->fd, text, request.size)
		       ? 0
		       : -EPIPE;
}

static int receive(const struct sandbox_broker *broker, const struct sandbox *sandbox, void *bytes,
		   size_t size)
{
	struct pollfd ready = { .fd = broker->fd, .events = POLLIN };
	char *at = bytes;

	while (size) {
		ssize_t got;

		if (sandbox->is_over && sandbox->is_over(sandbox->context))
			return -ECANCELED;
		if (poll(&ready, 1, ASK_MS) <= 0)
			continue;
		got = recv(broker->fd, at, size, MSG_DONTWAIT);
		if (!got)
			return -EPIPE;
		if (got < 0 && errno != EAGAIN && errno != EINTR)
			return -errno;
		at += got > 0 ? got : 0;
		size -= got > 0 ? (size_t)got : 0;
	}
	return 0;
}

static int receive_reply(const struct sandbox_broker *broker, const struct sandbox *sandbox,
			 struct bytes *output, struct reply *reply)
{
	int error = receive(broker, sandbox, reply, sizeof(*reply));

	if (error || !reply->size)
		return error;
	if (reply->size > sandbox->output_max)
		return -EFBIG;
	output->data = malloc(reply->size);
	if (!output->data)
		return -ENOMEM;
	error = receive(broker, sandbox, output->data, reply->size);
	if (!error)
		output->size = reply->size;
	return error;
}

/* Otherwise the next request would get the answer to this one. */
static void disconnect(struct sandbox_broker *broker)
{
	close(broker->fd);
	broker->fd = -1;
}

int sandbox_broker_run(struct sandbox_broker *broker, const struct sandbox *sandbox,
		       const char *path, const char *const *arguments, struct bytes *output)
{
	size_t file = find(broker, path);
	struct reply reply = { 0 };
	int error;

	*output = (struct bytes){ 0 };
	if (file == broker->count)
		return error_set(-EINVAL, "%s is not a disk of the VM", path);
	if (broker->files[file].error)
		return error_set(broker->files[file].error, "%s: %s", path,
				 strerror(-broker->files[file].error));
	if (broker->fd < 0)
		return error_set(-ECANCELED, "%s: cancelled", path);
	error = send_request(broker, sandbox, file, arguments);
	if (!error)
		error = receive_reply(broker, sandbox, output, &reply);
	if (error) {
		disconnect(broker);
		return error_set(error, "%s: %s", broker->program, strerror(-error));
	}
	reply.message[sizeof(reply.message) - 1] = '\0';
	return reply.error ? error_set(reply.error, "%s", reply.message) : 0;
}

int sandbox_broker_fd(const struct sandbox_broker *broker)
{
	return broker ? broker->fd : -1;
}

void sandbox_broker_leave(struct sandbox_broker *broker)
{
	if (broker && broker->fd >= 0)
		close(broker->fd);
	free(broker);
}

void sandbox_broker_end(struct sandbox_broker *broker)
{
	if (broker && broker->pid > 0) {
		kill(broker->pid, SIGKILL);
		waitpid(broker->pid, NULL, 0);
	}
	sandbox_broker_leave(broker);
}
