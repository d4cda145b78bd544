/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/top_worker.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/log.h"
#include "vmm/attach/agent_channel.h"
#include "vmm/attach/rights.h"
#include "vmm/cli/private_directory.h"
#include "vmm/cli/top_counts.h"
#include "vmm/cli/top_functions.h"
#include "vmm/session/attach_source.h"

/* Descriptor of the worker's end of the socket: all others are closed. */
#define SOCKET_FD (STDERR_FILENO + 1)
/* Bytes of each vCPU's ring: some seconds at the usual frequencies. */
#define RING_SIZE (128ul << 10)
/*
 * Bytes of an allocation that is returned to the kernel when it is freed. Each file has tables of
 * 20 MB, of which few pages are used: malloc() would keep them, and calloc() clear all of them.
 */
#define LARGE (128 << 10)

struct worker {
	struct top_worker_options options;
	struct attach *attach;
	struct session *session;
	struct image_parser *parser;
	struct top_counts *counts;
	struct collector_files files; /* collector's thread after session_start() */
	char directory[PATH_MAX];
	unsigned int number;       /* of the present file; collector's thread */
	uint64_t begun;            /* ns of CLOCK_MONOTONIC, the present file; the same */
	_Atomic uint64_t interval; /* ns */
	_Atomic uint64_t sampling; /* ns of CLOCK_MONOTONIC, its start; 0: not yet */
	/* The collector passes a complete file to the main thread through a pipe, which has room
	 * for many. */
	int complete[2];
};

struct complete_file {
	unsigned int number;
	int error;
	uint64_t begin, end; /* ns of CLOCK_MONOTONIC */
};

/* Files are numbered, so that reading one does not delay the next. */
static void path_of(const struct worker *worker, unsigned int number, char *path, size_t size)
{
	snprintf(path, size, "%.4000s/%u.perf.data", worker->directory, number);
}

static int begin_file(void *context, char *path, size_t size)
{
	struct worker *worker = context;

	path_of(worker, ++worker->number, path, size);
	worker->begun = clock_ns(CLOCK_MONOTONIC);
	return 0;
}

static void end_file(void *context, const struct collector_file *file)
{
	struct worker *worker = context;
	const struct complete_file complete = { worker->number, file->error, worker->begun,
						clock_ns(CLOCK_MONOTONIC) };

	worker->files.interval = atomic_load(&worker->interval);
	/* The pipe is full: the main thread is many files late, and this one is dropped. */
	if (write(worker->complete[1], &complete, sizeof(complete)) != sizeof(complete))
		unlink(file->path);
}

static int open_files(struct worker *worker)
{
	worker->files = (struct collector_files){ .begin = begin_file,
						  .end = end_file,
						  .interval = worker->options.interval,
						  .context = worker };
	atomic_store(&worker->interval, worker->options.interval);
	if (pipe2(worker->complete, O_CLOEXEC | O_NONBLOCK))
		return error_set(-errno, "cannot create a pipe: %s", strerror(errno));
	return private_directory_make(worker->directory);
}

/* As kvmscope attach. */
static int give_up_rights(const struct worker *worker)
{
	char path[AGENT_CHANNEL_PATH], descriptors[32];
	const struct vmm_process *process = attach_process(worker->attach);
	const struct rights_file files[] = {
		{ .path = descriptors, .mode = R_OK },
		{ .path = agent_channel_path(process, path) ? path : NULL, .mode = W_OK },
		{ .path = getenv("HOME"), .mode = W_OK }, /* the build-id cache */
	};

	snprintf(descriptors, sizeof(descriptors), "/proc/%d/fd", process->pid);
	return rights_keep(files, sizeof(files) / sizeof(files[0]), false);
}

static int open_session(struct worker *worker)
{
	const struct attach_options attach = { .pid = worker->options.pid,
					       .vm = worker->options.vm,
					       .backend = "auto",
					       .frequency = worker->options.frequency,
					       .callchains = worker->options.callchains,
					       .ring_size = RING_SIZE };
	struct session_options session = { .callchains = worker->options.callchains,
					   .files = &worker->files,
					   .vmlinux = worker->options.vmlinux,
					   .command_line = "kvmscope top",
					   .buildid_cache = true,
					   .guest_memory = GUEST_ACCOUNT_DEFAULT };
	struct session_agent_options agent;
	int error = attach_open(&worker->attach, &attach);

	if (!error)
		error = top_counts_open(&worker->counts, worker->options.pid, worker->options.vm);
	if (!error)
		error = open_files(worker);
	if (!error)
		error = attach_source_parser(worker->attach, worker->options.vmlinux,
					     &worker->parser);
	if (!error)
		error = give_up_rights(worker);
	if (error)
		return error;
	session.source = attach_source(worker->attach);
	session.parser = worker->parser;
	if (attach_source_agent(worker->attach, NULL, &agent))
		session.agent = &agent;
	error = session_open(&worker->session, &session);
	return error ? error : session_start(worker->session);
}

/* Samples reach the file after the source's delay. Returns the seconds that FILE covers. */
static double covered(const struct worker *worker, const struct complete_file *file)
{
	uint64_t start = atomic_load(&worker->sampling);
	uint64_t from = time_later(time_before(file->begin, ATTACH_SOURCE_DELAY), start);
	uint64_t to = time_before(file->end, ATTACH_SOURCE_DELAY);

	return start && to > from ? (double)(to - from) / 1e9 : 0;
}

static int report_file(struct worker *worker, const struct complete_file *file)
{
	double seconds = covered(worker, file);
	json_t *object = json_object();
	char path[PATH_MAX];
	int error;

	path_of(worker, file->number, path, sizeof(path));
	json_object_set_new(object, "backend", json_string(attach_backend(worker->attach)->name));
	error = top_counts_report(worker->counts, object);
	if (!error && !file->error && seconds > 0)
		error = top_functions_send(object, path, worker->options.vmlinux, seconds,
					   SOCKET_FD);
	unlink(path);
	json_decref(object);
	return error;
}

/* A slow reader skips files: what is shown is the latest. */
static int report_files(struct worker *worker)
{
	struct complete_file file, next;
	char path[PATH_MAX];

	if (read(worker->complete[0], &file, sizeof(file)) != sizeof(file))
		return 0;
	while (read(worker->complete[0], &next, sizeof(next)) == sizeof(next)) {
		path_of(worker, file.number, path, sizeof(path));
		unlink(path);
		file = next;
	}
	return report_file(worker, &file);
}

/* False: top has ended, or no longer needs this VM. */
static bool read_interval(struct worker *worker)
{
	uint64_t interval;
	ssize_t got = recv(SOCKET_FD, &interval, sizeof(interval), MSG_DONTWAIT);

	if (got == sizeof(interval))
		atomic_store(&worker->interval, interval);
	return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

static int turn(struct worker *worker)
{
	int state = session_turn(worker->session);

	if (state == SESSION_SAMPLING && !atomic_load(&worker->sampling))
		atomic_store(&worker->sampling, clock_ns(CLOCK_MONOTONIC));
	return state;
}

/* Until the VM or top ends. */
static int follow(struct worker *worker)
{
	struct pollfd events[] = {
		{ .fd = session_fd(worker->session), .events = POLLIN },
		{ .fd = worker->complete[0], .events = POLLIN },
		{ .fd = SOCKET_FD, .events = POLLIN },
	};
	int state = SESSION_SEARCHING;

	while (state >= 0 && state != SESSION_ENDED) {
		int error;

		poll(events, 3, -1);
		if (!read_interval(worker))
			return 0;
		state = turn(worker);
		error = report_files(worker);
		if (error)
			return error;
	}
	return state < 0 ? state : session_stop(worker->session, NULL);
}

static void send_error(void)
{
	json_t *object = json_pack("{s:s}", "error", error_message());

	top_json_send(object, SOCKET_FD);
	json_decref(object);
}

static _Noreturn void run(const struct top_worker_options *options)
{
	struct worker worker = { .options = *options, .complete = { -1, -1 } };
	int error;

	mallopt(M_MMAP_THRESHOLD, LARGE);
	log_quiet(!options->verbose);
	log_verbose(options->verbose);
	error = open_session(&worker);
	if (!error)
		error = follow(&worker);
	if (error)
		send_error();
	session_close(worker.session);
	image_parser_end(worker.parser);
	attach_close(worker.attach);
	top_counts_close(worker.counts);
	exit(error ? EXIT_FAILURE : 0);
}

/* The terminal is top's alone. */
static void take_descriptors(int socket, bool silent)
{
	int null = open("/dev/null", O_RDWR);

	dup2(null, STDIN_FILENO);
	dup2(null, STDOUT_FILENO);
	if (silent)
		dup2(null, STDERR_FILENO);
	dup2(socket, SOCKET_FD);
	close_range(SOCKET_FD + 1, UINT_MAX, 0);
	fcntl(SOCKET_FD, F_SETFD, FD_CLOEXEC);
}

pid_t top_worker_start(const struct top_worker_options *options, int *fd)
{
	int ends[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		return error_set(-errno, "cannot create a socket: %s", strerror(errno));
	fflush(NULL); /* else the child writes it again */
	pid = fork();
	if (!pid) {
		take_descriptors(ends[1], options->silent);
		run(options);
	}
	close(ends[1]);
	if (pid < 0) {
		close(ends[0]);
		return error_set(-errno, "cannot start a process: %s", strerror(errno));
	}
	*fd = ends[0];
	return pid;
}

void top_worker_set_interval(int fd, uint64_t interval)
{
	send(fd, &interval, sizeof(interval), MSG_DONTWAIT | MSG_NOSIGNAL);
}
