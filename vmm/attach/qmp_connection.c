/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/qmp_connection.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"

/* Maximum ms until an answer: QEMU may be swapping or writing a snapshot. */
#define ANSWER_TIME 5000
/* Maximum ms until the greeting. */
#define GREETING_TIME 2000
#define READ_SIZE     65536
#define DEPTH_MAX     64

struct qmp {
	int fd, cancel_fd;
	struct qmp_frame frame; /* of the incoming message */
	char *bytes;            /* received and not processed */
	size_t size, room;
	uint64_t deadline; /* ms */
	json_int_t id;     /* of the last command */
};

/* Messages */

static void feed_string(struct qmp_frame *frame, char byte)
{
	if (frame->escaped)
		frame->escaped = false;
	else if (byte == '\\')
		frame->escaped = true;
	else if (byte == '"')
		frame->in_string = false;
}

static void feed_byte(struct qmp_frame *frame, char byte)
{
	if (frame->in_string)
		feed_string(frame, byte);
	else if (byte == '"')
		frame->in_string = true;
	else if (byte == '{' || byte == '[')
		frame->depth++;
	else if (byte == '}' || byte == ']')
		frame->depth--;
}

ssize_t qmp_frame_feed(struct qmp_frame *frame, const char *bytes, size_t size, bool *complete)
{
	*complete = false;
	for (size_t i = 0; i < size; i++) {
		if (!frame->depth && bytes[i] != '{' && !isspace((unsigned char)bytes[i]))
			return -EPROTO;
		feed_byte(frame, bytes[i]);
		if (frame->depth > DEPTH_MAX)
			return -EPROTO;
		frame->length++;
		if (!frame->depth && bytes[i] == '}') {
			*complete = true;
			return (ssize_t)i + 1;
		}
	}
	return (ssize_t)size;
}

/* The peer's words, for a terminal. */
static void make_printable(const char *text, char *printable, size_t size)
{
	size_t i = 0;

	for (; text[i] && i < size - 1; i++)
		printable[i] = isprint((unsigned char)text[i]) ? text[i] : '?';
	printable[i] = '\0';
}

static int parse_error(const json_t *error, const char *command)
{
	const char *kind = json_string_value(json_object_get(error, "class"));
	const char *words = json_string_value(json_object_get(error, "desc"));
	char printable[256];

	make_printable(words ? words : "no reason given", printable, sizeof(printable));
	return error_set(kind && !strcmp(kind, "CommandNotFound") ? -ENOTSUP : -EREMOTEIO,
			 "QEMU's monitor refuses %s: %s", command, printable);
}

int qmp_parse_answer(json_t *answer, const char *command, json_t **result)
{
	json_t *value = json_object_get(answer, "return");
	const json_t *error = json_object_get(answer, "error");

	if (value) {
		*result = json_incref(value);
		return 0;
	}
	return error ? parse_error(error, command)
		     : error_set(-EPROTO, "the answer to %s is not that of a QEMU monitor",
				 command);
}

/* Consumes MESSAGE; NULL without memory. */
static char *text_of(json_t *message)
{
	char *text = message ? json_dumps(message, JSON_COMPACT) : NULL;

	json_decref(message);
	return text;
}

static json_t *command_message(const char *command, json_t *arguments)
{
	return arguments ? json_pack("{s:s, s:o}", "execute", command, "arguments", arguments)
			 : json_pack("{s:s}", "execute", command);
}

char *qmp_command_text(const char *command, json_t *arguments)
{
	return text_of(command_message(command, arguments));
}

/* The connection */

static int wait_for(const struct qmp *qmp, short events)
{
	struct pollfd fds[] = { { .fd = qmp->fd, .events = events },
				{ .fd = qmp->cancel_fd, .events = POLLIN } };
	uint64_t time = clock_ms(CLOCK_MONOTONIC);
	int left = qmp->deadline > time ? (int)(qmp->deadline - time) : 0;
	int ready = poll(fds, 2, left);

	if (ready < 0)
		return errno == EINTR ? 0 : error_set(-errno, "poll(): %s", strerror(errno));
	if (fds[1].revents)
		return error_set(-ECANCELED, "the attachment ends");
	return ready ? 0 : error_set(-ETIMEDOUT, "QEMU's monitor does not answer");
}

static int make_room(struct qmp *qmp)
{
	size_t room = qmp->room ? qmp->room * 2 : READ_SIZE;
	char *bytes;

	if (qmp->room - qmp->size >= READ_SIZE / 2)
		return 0;
	if (room > 2 * QMP_MESSAGE_MAX)
		return error_set(-EPROTO, "the output of QEMU's monitor is too long");
	bytes = realloc(qmp->bytes, room);
	if (!bytes)
		return error_set(-ENOMEM, "no memory for the output of QEMU's monitor");
	qmp->bytes = bytes;
	qmp->room = room;
	return 0;
}

/* Receives more bytes, and waits for them. */
static int receive(struct qmp *qmp)
{
	ssize_t size;
	int error = make_room(qmp);

	if (error)
		return error;
	size = recv(qmp->fd, qmp->bytes + qmp->size, qmp->room - qmp->size, MSG_DONTWAIT);
	if (size > 0)
		qmp->size += (size_t)size;
	else if (!size)
		return error_set(-ECONNRESET, "QEMU's monitor has closed the connection");
	else if (errno == EAGAIN)
		return wait_for(qmp, POLLIN);
	else if (errno != EINTR)
		return error_set(-errno, "cannot read from QEMU's monitor: %s", strerror(errno));
	return 0;
}

static void drop(struct qmp *qmp, size_t length)
{
	qmp->size -= length;
	memmove(qmp->bytes, qmp->bytes + length, qmp->size);
	qmp->frame = (struct qmp_frame){ 0 };
}

/* Reads the next message of any kind. */
static int read_message(struct qmp *qmp, json_t **message)
{
	for (;;) {
		size_t seen = qmp->frame.length;
		bool complete = false;
		int error;

		if (qmp->size > seen &&
		    qmp_frame_feed(&qmp->frame, qmp->bytes + seen, qmp->size - seen, &complete) < 0)
			return error_set(-EPROTO, "the listener is not a QEMU monitor");
		if (qmp->frame.length > QMP_MESSAGE_MAX)
			return error_set(-EPROTO, "a message of QEMU's monitor is too long");
		if (complete) {
			size_t length = qmp->frame.length;

			*message = json_loadb(qmp->bytes, length, 0, NULL);
			drop(qmp, length);
			return *message ? 0
					: error_set(-EPROTO,
						    "the output of QEMU's monitor is not JSON");
		}
		error = receive(qmp);
		if (error)
			return error;
	}
}

/* Frees an unexpected MESSAGE. The time limit applies to a peer that keeps sending them, too. */
static int skip_message(const struct qmp *qmp, json_t *message)
{
	struct pollfd cancel = { .fd = qmp->cancel_fd, .events = POLLIN };

	json_decref(message);
	if (poll(&cancel, 1, 0) > 0)
		return error_set(-ECANCELED, "the attachment ends");
	if (clock_ms(CLOCK_MONOTONIC) >= qmp->deadline)
		return error_set(-ETIMEDOUT, "QEMU's monitor does not answer");
	return 0;
}

/* Reads the answer to the last command. It may be preceded by events, and by answers for the
 * previous client. */
static int read_answer(struct qmp *qmp, json_t **answer)
{
	int error;

	while (!(error = read_message(qmp, answer)) &&
	       json_integer_value(json_object_get(*answer, "id")) != qmp->id) {
		error = skip_message(qmp, *answer);
		if (error)
			break;
	}
	return error;
}

static int send_text(struct qmp *qmp, const char *text, size_t size)
{
	while (size) {
		ssize_t sent = send(qmp->fd, text, size, MSG_DONTWAIT | MSG_NOSIGNAL);
		int error;

		if (sent >= 0) {
			text += sent;
			size -= (size_t)sent;
			continue;
		}
		if (errno != EAGAIN && errno != EINTR)
			return error_set(-errno, "cannot write to QEMU's monitor: %s",
					 strerror(errno));
		error = wait_for(qmp, POLLOUT);
		if (error)
			return error;
	}
	return 0;
}

int qmp_execute(struct qmp *qmp, const char *command, json_t *arguments, json_t **result)
{
	json_t *message = command_message(command, arguments), *answer = NULL;
	char *text;
	int error;

	if (message && json_object_set_new(message, "id", json_integer(++qmp->id))) {
		json_decref(message);
		message = NULL;
	}
	text = text_of(message);
	if (!text)
		return error_set(-ENOMEM, "no memory for a command to QEMU's monitor");
	qmp->deadline = clock_ms(CLOCK_MONOTONIC) + ANSWER_TIME;
	error = send_text(qmp, text, strlen(text));
	free(text);
	if (!error)
		error = read_answer(qmp, &answer);
	if (error)
		return error;
	error = qmp_parse_answer(answer, command, result);
	json_decref(answer);
	return error;
}

/* An answer for the previous client. */
static bool is_of_another(const json_t *message)
{
	return json_object_get(message, "return") || json_object_get(message, "error");
}

static int read_greeting(struct qmp *qmp, json_t **greeting)
{
	int error;

	qmp->deadline = clock_ms(CLOCK_MONOTONIC) + GREETING_TIME;
	while (!(error = read_message(qmp, greeting)) && is_of_another(*greeting)) {
		error = skip_message(qmp, *greeting);
		if (error)
			break;
	}
	return error;
}

/* Random, to differ from ids of other connections. */
static json_int_t first_id(const struct qmp *qmp)
{
	uint32_t number = 0;

	if (getrandom(&number, sizeof(number), GRND_NONBLOCK) != sizeof(number))
		number = (uint32_t)(qmp->deadline + (uint64_t)getpid());
	return (json_int_t)number << 20;
}

static int greet(struct qmp *qmp, const char *path)
{
	json_t *greeting = NULL, *result = NULL;
	int error = read_greeting(qmp, &greeting);

	qmp->id = first_id(qmp);
	if (error == -ETIMEDOUT)
		return error_set(
			-EBUSY,
			"the monitor at %s does not greet, as another client is connected to "
			"it: give QEMU another one with -qmp unix:PATH,server=on,wait=off",
			path);
	if (error)
		return error;
	error = json_is_object(json_object_get(greeting, "QMP"))
			? 0
			: error_set(-EPROTO, "the listener at %s is not a QEMU monitor", path);
	json_decref(greeting);
	if (!error)
		error = qmp_execute(qmp, "qmp_capabilities", NULL, &result);
	if (!error)
		json_decref(result);
	return error;
}

/* Connects by inode: a path may be longer than the 107 bytes of a socket address. */
static int connect_path(int fd, const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int node = open(path, O_PATH | O_CLOEXEC), error;

	if (node < 0)
		return -1;
	snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d", node);
	error = connect(fd, (struct sockaddr *)&address, sizeof(address)) ? errno : 0;
	close(node);
	errno = error;
	return error ? -1 : 0;
}

static int connect_to(struct qmp *qmp, const char *path, pid_t *peer)
{
	struct ucred other;
	socklen_t size = sizeof(other);

	qmp->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (qmp->fd < 0)
		return error_set(-errno, "cannot create a socket: %s", strerror(errno));
	if (connect_path(qmp->fd, path))
		return error_set(errno == EAGAIN ? -EBUSY : -errno,
				 "cannot connect to the monitor at %s: %s", path, strerror(errno));
	if (getsockopt(qmp->fd, SOL_SOCKET, SO_PEERCRED, &other, &size))
		return error_set(-errno, "cannot determine the process that listens at %s: %s",
				 path, strerror(errno));
	*peer = other.pid;
	return greet(qmp, path);
}

int qmp_open(struct qmp **result, const char *path, int cancel_fd, pid_t *peer)
{
	struct qmp *qmp = calloc(1, sizeof(*qmp));
	int error;

	if (!qmp)
		return error_set(-ENOMEM, "no memory to connect to %s", path);
	qmp->fd = -1;
	qmp->cancel_fd = cancel_fd;
	error = connect_to(qmp, path, peer);
	if (error)
		qmp_close(qmp);
	else
		*result = qmp;
	return error;
}

void qmp_close(struct qmp *qmp)
{
	if (!qmp)
		return;
	if (qmp->fd >= 0)
		close(qmp->fd);
	free(qmp->bytes);
	free(qmp);
}
