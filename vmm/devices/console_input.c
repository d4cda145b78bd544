/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/devices/console_input.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "shared/error.h"

#define READ_SIZE 256

/* lock protects watched and ended, which two threads change. */
struct console_input {
	struct console_input_options options;
	struct event_loop *loop;
	int watch_fd;  /* options.fd, or always_fd if epoll does not support that one */
	int always_fd; /* owned, an eventfd that is always readable; -1 if not needed */
	pthread_mutex_t lock;
	bool watched;
	bool ended;
};

static void on_readable(void *context, int fd, uint32_t events);

/* With the lock held. */
static int watch(struct console_input *input)
{
	int error = event_loop_add(input->loop, input->watch_fd, EPOLLIN, on_readable, input);

	input->watched = !error;
	return error;
}

static void pause_reading(struct console_input *input, bool ended)
{
	pthread_mutex_lock(&input->lock);
	/* The console's call to resume may have come while the watch was still there. */
	if (ended || !input->options.room(input->options.context)) {
		event_loop_remove(input->loop, input->watch_fd);
		input->watched = false;
		input->ended = ended;
	}
	pthread_mutex_unlock(&input->lock);
}

void console_input_resume(struct console_input *input)
{
	if (!input || input->options.fd < 0)
		return;
	pthread_mutex_lock(&input->lock);
	if (!input->watched && !input->ended)
		watch(input);
	pthread_mutex_unlock(&input->lock);
}

/* Reads room() once, because the guest may increase it meanwhile. */
static size_t size_to_read(const struct console_input_options *options)
{
	size_t room = options->filter ? READ_SIZE : options->room(options->context);

	return room < READ_SIZE ? room : READ_SIZE;
}

static void on_readable(void *context, int fd, uint32_t events)
{
	struct console_input *input = context;
	const struct console_input_options *options = &input->options;
	size_t size = size_to_read(options);
	uint8_t bytes[READ_SIZE];
	ssize_t count;

	if (!size) {
		pause_reading(input, false);
		return;
	}
	count = read(options->fd, bytes, size);
	if (count < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (count <= 0) {
		pause_reading(input, true);
		return;
	}
	size = (size_t)count;
	if (options->filter)
		size = options->filter(options->filter_context, bytes, size);
	options->receive(options->context, bytes, size);
}

/* epoll refuses regular files, which are always ready. */
static int watch_something(struct console_input *input)
{
	int error = watch(input);

	if (error != -EPERM)
		return error;
	input->always_fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
	if (input->always_fd < 0)
		return error_set(-errno, "cannot create an eventfd for console input: %m");
	input->watch_fd = input->always_fd;
	return watch(input);
}

int console_input_create(struct console_input **result, const struct console_input_options *options,
			 struct event_loop *loop)
{
	struct console_input *input = calloc(1, sizeof(*input));
	int error = 0;

	*result = NULL;
	if (!input)
		return error_set(-ENOMEM, "no memory for the console's input");
	input->options = *options;
	input->loop = loop;
	input->watch_fd = options->fd;
	input->always_fd = -1;
	pthread_mutex_init(&input->lock, NULL);
	if (options->fd >= 0) {
		pthread_mutex_lock(&input->lock);
		error = watch_something(input);
		pthread_mutex_unlock(&input->lock);
	}
	if (error)
		console_input_destroy(input);
	else
		*result = input;
	return error;
}

void console_input_destroy(struct console_input *input)
{
	if (!input)
		return;
	if (input->watch_fd >= 0)
		event_loop_remove(input->loop, input->watch_fd);
	if (input->always_fd >= 0)
		close(input->always_fd);
	pthread_mutex_destroy(&input->lock);
	free(input);
}
