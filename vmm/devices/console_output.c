/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/devices/console_output.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/log.h"

#define COLLECT_NS       1000000
#define PATIENCE_SECONDS 1

/* Size of a write that may block: what poll() guarantees on a terminal. */
#define BLOCKING_CHUNK 64

enum kind {
	KIND_NONBLOCKING, /* our own file description, or a file: writes do not wait for a reader */
	KIND_SOCKET,
	KIND_BLOCKING, /* may block even after poll(): written in small pieces */
};

/*
 * lock protects all members below it. head and tail count bytes. Only the thread that writes to the
 * descriptor (the loop's, and finally the destroyer) moves tail, so it reads the bytes in between
 * without the lock.
 */
struct console_output {
	struct event_loop *loop;
	int fd; /* owned; -1 discards */
	int timer_fd;
	enum kind kind;
	void (*room)(void *context);
	void *context;

	pthread_mutex_t lock;
	pthread_cond_t drained; /* tail moved */
	uint64_t head, tail, lost;
	bool broken;  /* the descriptor has failed */
	bool stalled; /* the reader has accepted nothing for a second */
	bool room_requested;
	uint8_t bytes[CONSOLE_OUTPUT_SIZE];
};

static uint64_t used(const struct console_output *output)
{
	return output->head - output->tail;
}

static void set_timer(struct console_output *output, long nanoseconds)
{
	struct itimerspec when = { .it_value.tv_nsec = nanoseconds };

	timerfd_settime(output->timer_fd, 0, &when, NULL);
}

bool console_output_put(struct console_output *output, uint8_t byte)
{
	bool first, half, full;

	if (output->fd < 0)
		return true;
	pthread_mutex_lock(&output->lock);
	if (output->broken) {
		pthread_mutex_unlock(&output->lock);
		return true;
	}
	full = used(output) == CONSOLE_OUTPUT_SIZE;
	first = !used(output);
	if (!full)
		output->bytes[output->head++ % CONSOLE_OUTPUT_SIZE] = byte;
	half = used(output) == CONSOLE_OUTPUT_SIZE / 2;
	pthread_mutex_unlock(&output->lock);
	if (first || half)
		set_timer(output, half ? 1 : COLLECT_NS);
	return !full;
}

/* Waits until tail moves, up to a second. With the lock held. */
static bool wait_for_reader(struct console_output *output)
{
	struct timespec until;
	uint64_t tail = output->tail;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += PATIENCE_SECONDS;
	while (output->tail == tail && !output->broken && !output->stalled) {
		if (pthread_cond_clockwait(&output->drained, &output->lock, CLOCK_MONOTONIC,
					   &until))
			output->stalled = output->tail == tail;
	}
	return output->tail != tail || output->broken;
}

bool console_output_wait(struct console_output *output)
{
	bool room = true;

	assert(!event_loop_on_thread(output->loop));
	pthread_mutex_lock(&output->lock);
	if (used(output) == CONSOLE_OUTPUT_SIZE && !output->broken)
		room = wait_for_reader(output);
	if (!room && !output->lost++)
		log_warning("the reader of the guest's console does not read: output is lost");
	pthread_mutex_unlock(&output->lock);
	return room;
}

bool console_output_ready(struct console_output *output)
{
	bool ready;

	pthread_mutex_lock(&output->lock);
	ready = output->broken || used(output) <= CONSOLE_OUTPUT_SIZE - CONSOLE_OUTPUT_BURST;
	output->room_requested |= !ready;
	pthread_mutex_unlock(&output->lock);
	return ready;
}

uint64_t console_output_lost(struct console_output *output)
{
	uint64_t lost;

	pthread_mutex_lock(&output->lock);
	lost = output->lost;
	pthread_mutex_unlock(&output->lock);
	return lost;
}

static ssize_t write_some(const struct console_output *output, const uint8_t *bytes, size_t size)
{
	struct pollfd writable = { .fd = output->fd, .events = POLLOUT };

	switch (output->kind) {
	case KIND_SOCKET:
		return send(output->fd, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
	case KIND_BLOCKING:
		if (poll(&writable, 1, 0) == 1)
			return write(output->fd, bytes,
				     size < BLOCKING_CHUNK ? size : BLOCKING_CHUNK);
		errno = EAGAIN;
		return -1;
	default:
		return write(output->fd, bytes, size);
	}
}

/* Removes the WRITTEN bytes; a negative value is a failed write with errno. With the lock held. */
static void account(struct console_output *output, ssize_t written)
{
	if (written >= 0) {
		output->tail += (uint64_t)written;
		output->stalled = false;
	} else if (errno != EAGAIN && errno != EINTR) {
		log_warning(
			"cannot write the guest's console output: %m; the rest of it is dropped");
		output->broken = true;
		output->tail = output->head;
	}
	pthread_cond_broadcast(&output->drained);
}

/* Writes until the buffer is empty (true) or the reader accepts no more. One thread at a time. */
static bool flush(struct console_output *output)
{
	bool empty, again = true;

	pthread_mutex_lock(&output->lock);
	while (used(output) && again) {
		size_t start = output->tail % CONSOLE_OUTPUT_SIZE;
		size_t size = used(output);
		ssize_t written;

		if (size > CONSOLE_OUTPUT_SIZE - start)
			size = CONSOLE_OUTPUT_SIZE - start;
		pthread_mutex_unlock(&output->lock);
		written = write_some(output, output->bytes + start, size);
		pthread_mutex_lock(&output->lock);
		again = written >= 0 || errno != EAGAIN;
		account(output, written);
	}
	empty = !used(output);
	pthread_mutex_unlock(&output->lock);
	return empty;
}

static void report_room(struct console_output *output)
{
	bool report;

	pthread_mutex_lock(&output->lock);
	report = output->room_requested && used(output) <= CONSOLE_OUTPUT_SIZE / 2;
	if (report)
		output->room_requested = false;
	pthread_mutex_unlock(&output->lock);
	if (report && output->room)
		output->room(output->context);
}

/* The descriptor is watched only while the reader lags; the timer may fire again meanwhile. */
static void on_writable(void *context, int fd, uint32_t events)
{
	struct console_output *output = context;

	if (flush(output))
		event_loop_remove(output->loop, output->fd);
	report_room(output);
}

static void on_timer(void *context, int fd, uint32_t events)
{
	struct console_output *output = context;
	uint64_t expirations;

	if (read(fd, &expirations, sizeof(expirations)) < 0)
		return; /* it was set again in between and will fire once more */
	if (!flush(output))
		event_loop_add(output->loop, output->fd, EPOLLOUT, on_writable, output);
	report_room(output);
}

/* O_NONBLOCK belongs to the file description, which a terminal or pipe shares with the shell and
 * its other programs. Opening it again, if permitted, creates a description of our own. */
static int open_own(int fd, enum kind *kind)
{
	char path[64];
	struct stat status;
	int own;

	if (fstat(fd, &status))
		return error_set(-errno, "cannot use file descriptor %d for the console: %m", fd);
	*kind = S_ISSOCK(status.st_mode) ? KIND_SOCKET : KIND_NONBLOCKING;
	if (S_ISCHR(status.st_mode) || S_ISFIFO(status.st_mode)) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		own = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
		if (own >= 0)
			return own;
		*kind = KIND_BLOCKING;
	}
	own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (own < 0)
		return error_set(-errno, "cannot duplicate file descriptor %d: %m", fd);
	return own;
}

static int open_output(struct console_output *output, int fd)
{
	if (fd < 0)
		return 0;
	output->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (output->timer_fd < 0)
		return error_set(-errno, "cannot create a timer for the console: %m");
	output->fd = open_own(fd, &output->kind);
	if (output->fd < 0)
		return output->fd;
	return event_loop_add(output->loop, output->timer_fd, EPOLLIN, on_timer, output);
}

int console_output_create(struct console_output **result, int fd, struct event_loop *loop,
			  void (*room)(void *context), void *context)
{
	struct console_output *output = calloc(1, sizeof(*output));
	int error;

	*result = NULL;
	if (!output)
		return error_set(-ENOMEM, "no memory for the console's output");
	output->loop = loop;
	output->fd = -1;
	output->timer_fd = -1;
	output->room = room;
	output->context = context;
	pthread_mutex_init(&output->lock, NULL);
	pthread_cond_init(&output->drained, NULL);
	error = open_output(output, fd);
	if (error)
		console_output_destroy(output);
	else
		*result = output;
	return error;
}

static void flush_patiently(struct console_output *output)
{
	struct pollfd writable = { .fd = output->fd, .events = POLLOUT };

	while (!flush(output) && poll(&writable, 1, PATIENCE_SECONDS * 1000) > 0)
		;
}

void console_output_destroy(struct console_output *output)
{
	if (!output)
		return;
	if (output->timer_fd >= 0) {
		event_loop_remove(output->loop, output->timer_fd);
		close(output->timer_fd);
	}
	if (output->fd >= 0) {
		event_loop_remove(output->loop, output->fd);
		flush_patiently(output);
		close(output->fd);
	}
	pthread_cond_destroy(&output->drained);
	pthread_mutex_destroy(&output->lock);
	free(output);
}

void console_lines_put(struct console_lines *lines, uint8_t byte)
{
	if (!lines->handler)
		return;
	if (byte == '\n') {
		lines->line[lines->size] = '\0';
		lines->size = 0;
		lines->handler(lines->context, lines->line);
	} else if (byte && byte != '\r' && lines->size < CONSOLE_LINE_MAX) {
		lines->line[lines->size++] = (char)byte;
	}
}
