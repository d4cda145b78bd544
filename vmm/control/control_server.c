/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/control/control_server.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/log.h"
#include "shared/thread_check.h"
#include "shared/thread_start.h"
#include "vmm/control/control_protocol.h"

/* ms without accepting clients after there was no descriptor or memory for one. */
#define REST_MS 100

struct command {
	const char *name;
	control_command *run;
	void *context;
};

/* After control_start() everything but stop_fd belongs to the thread. */
struct control {
	struct command commands[CONTROL_COMMANDS_MAX];
	size_t command_count;
	struct control_peer peers[CONTROL_CLIENTS_MAX];
	uint64_t active[CONTROL_CLIENTS_MAX]; /* the last turn in which a peer was active */
	uint64_t turn;
	bool resting; /* for REST_MS */
	int listener;
	int stop_fd;
	struct thread_check owner; /* of the thread */
	pthread_t thread;
	bool started;
};

int control_no_arguments(const json_t *arguments)
{
	return json_object_size(arguments) ? error_set(-EINVAL, "this command takes no arguments")
					   : 0;
}

static int list_commands(void *context, json_t *arguments, json_t *result)
{
	const struct control *control = context;
	int error = control_no_arguments(arguments);
	json_t *names = json_array();

	for (size_t i = 0; i < control->command_count && !error; i++)
		if (json_array_append_new(names, json_string(control->commands[i].name)))
			error = error_set(-ENOMEM, "no memory for the list of commands");
	json_object_set_new(result, "commands", names);
	return error;
}

int control_create(struct control **result)
{
	struct control *control = calloc(1, sizeof(*control));

	*result = control;
	if (!control)
		return error_set(-ENOMEM, "no memory for the control socket");
	control->stop_fd = -1;
	for (size_t i = 0; i < CONTROL_CLIENTS_MAX; i++)
		control->peers[i].fd = -1;
	control_add(control, "commands", list_commands, control);
	return 0;
}

static const struct command *find_command(const struct control *control, const char *name)
{
	for (size_t i = 0; i < control->command_count; i++)
		if (!strcmp(control->commands[i].name, name))
			return &control->commands[i];
	return NULL;
}

void control_add(struct control *control, const char *name, control_command *run, void *context)
{
	assert(!control->started && !find_command(control, name));
	assert(control->command_count < CONTROL_COMMANDS_MAX);
	control->commands[control->command_count++] =
		(struct command){ .name = name, .run = run, .context = context };
}

static int run_command(const struct control *control, const struct control_request *request,
		       json_t *result)
{
	const struct command *command = find_command(control, request->command);

	if (!command)
		return error_set(
			-ENOENT,
			"there is no command \"%.64s\"; \"commands\" lists those of this run",
			request->command);
	return command->run(command->context, request->arguments, result);
}

static char *answer_to(const struct control *control, const char *line, size_t size)
{
	struct control_request request;
	json_t *result = json_object();
	int error = control_request_parse(&request, line, size);
	char *answer;

	if (!error)
		error = run_command(control, &request, result);
	answer = error ? control_error_format(request.id, error, error_message())
		       : control_result_format(request.id, result);
	json_decref(result);
	control_request_free(&request);
	return answer;
}

/* After a line without an end nothing can be parsed: it is the last one. */
static void refuse_long_line(struct control_peer *peer)
{
	error_set(-EMSGSIZE, "a request is one line of at most %d bytes", CONTROL_REQUEST_MAX);
	peer->last = true;
	control_peer_answer(peer, peer->received,
			    control_error_format(NULL, -EMSGSIZE, error_message()));
}

/* One request at a time, so that no client delays the others. False: close the connection. */
static bool serve_line(const struct control *control, struct control_peer *peer)
{
	size_t size;
	const char *line = control_peer_line(peer, &size);

	if (line)
		control_peer_answer(peer, size, answer_to(control, line, size));
	else if (control_peer_overflown(peer))
		refuse_long_line(peer);
	else
		return true;
	return peer->answer && control_peer_send(peer);
}

static void serve(struct control *control, size_t index, short events)
{
	struct control_peer *peer = &control->peers[index];
	bool stays = true;
	size_t size;

	THREAD_CHECK(&control->owner);
	if (events & POLLOUT)
		stays = control_peer_send(peer);
	else if (events & (POLLIN | POLLHUP | POLLERR) && !control_peer_line(peer, &size))
		stays = !peer->answer && control_peer_receive(peer);
	if (events)
		control->active[index] = control->turn;
	if (stays && !peer->answer)
		stays = serve_line(control, peer);
	if (!stays)
		control_peer_close(peer);
}

/* If all slots are used, the client that was inactive longest loses its own: nobody can lock
 * others out by waiting. */
static size_t free_slot(struct control *control)
{
	size_t slot = 0;

	for (size_t i = 0; i < CONTROL_CLIENTS_MAX; i++) {
		if (control->peers[i].fd < 0)
			return i;
		if (control->active[i] < control->active[slot])
			slot = i;
	}
	control_peer_close(&control->peers[slot]);
	return slot;
}

static void accept_client(struct control *control)
{
	int fd = accept4(control->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct control_peer *peer;
	size_t slot;

	THREAD_CHECK(&control->owner);
	if (fd < 0) {
		control->resting = errno != EAGAIN && errno != EINTR && errno != ECONNABORTED;
		return;
	}
	slot = free_slot(control);
	peer = &control->peers[slot];
	control_peer_open(peer, fd);
	control->active[slot] = control->turn;
	if (control_peer_is_allowed(fd))
		return;
	peer->last = true;
	control_peer_answer(
		peer, 0,
		control_error_format(NULL, -EPERM,
				     "only the user who runs the guest, and root, may control it"));
	if (!control_peer_send(peer))
		control_peer_close(peer);
}

/* True if a peer has sent a further line: do not wait. */
static bool has_work(const struct control *control)
{
	size_t size;

	for (size_t i = 0; i < CONTROL_CLIENTS_MAX; i++)
		if (control->peers[i].fd >= 0 && control_peer_line(&control->peers[i], &size))
			return true;
	return false;
}

static void wait_for_events(struct control *control, struct pollfd *events)
{
	int timeout = has_work(control) ? 0 : control->resting ? REST_MS : -1;

	THREAD_CHECK(&control->owner);
	events[0] = (struct pollfd){ .fd = control->stop_fd, .events = POLLIN };
	events[1] = (struct pollfd){ .fd = control->resting ? -1 : control->listener,
				     .events = POLLIN };
	for (size_t i = 0; i < CONTROL_CLIENTS_MAX; i++)
		events[2 + i] =
			(struct pollfd){ .fd = control->peers[i].fd,
					 .events = control_peer_events(&control->peers[i]) };
	control->resting = false;
	control->turn++;
	if (poll(events, 2 + CONTROL_CLIENTS_MAX, timeout) < 0)
		for (size_t i = 0; i < 2 + CONTROL_CLIENTS_MAX; i++)
			events[i].revents = 0;
}

static void *run_control(void *argument)
{
	struct control *control = argument;
	struct pollfd events[2 + CONTROL_CLIENTS_MAX];

	for (;;) {
		wait_for_events(control, events);
		if (events[0].revents)
			return NULL;
		for (size_t i = 0; i < CONTROL_CLIENTS_MAX; i++)
			if (control->peers[i].fd >= 0)
				serve(control, i, events[2 + i].revents);
		if (events[1].revents)
			accept_client(control);
	}
}

int control_start(struct control *control, int listener)
{
	int error;

	assert(!control->started);
	control->listener = listener;
	control->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (control->stop_fd < 0)
		return error_set(-errno, "cannot create an eventfd: %s", strerror(errno));
	error = thread_start(&control->thread, "control", run_control, control);
	control->started = !error;
	return error ? error_set(error, "cannot start the control thread: %s", strerror(-error))
		     : 0;
}

void control_destroy(struct control *control)
{
	if (!control)
		return;
	if (control->started) {
		eventfd_write(control->stop_fd, 1);
		pthread_join(control->thread, NULL);
	}
	for (size_t i = 0; i < CONTROL_CLIENTS_MAX; i++)
		control_peer_close(&control->peers[i]);
	if (control->stop_fd >= 0)
		close(control->stop_fd);
	free(control);
}
