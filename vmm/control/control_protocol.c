/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/control/control_protocol.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shared/error.h"

/* Highest errno that is searched by name; an unknown name becomes EIO. */
#define ERRNO_MAX 133

static int read_id(struct control_request *request)
{
	json_t *id = json_object_get(request->object, "id");

	if (!id)
		return 0;
	if (!json_is_string(id) && !json_is_integer(id))
		return error_set(-EINVAL, "\"id\" must be a string or an integer");
	request->id = id;
	return 0;
}

static int check_version(const json_t *object)
{
	const json_t *version = json_object_get(object, "version");

	if (!version)
		return 0;
	if (!json_is_integer(version))
		return error_set(-EINVAL, "\"version\" must be an integer");
	if (json_integer_value(version) != CONTROL_VERSION)
		return error_set(-EPROTONOSUPPORT,
				 "version %" JSON_INTEGER_FORMAT
				 " of the protocol is not supported, only version %d is",
				 json_integer_value(version), CONTROL_VERSION);
	return 0;
}

/* An unknown member may be a typing error: refuse it instead of ignoring it. */
static int check_members(json_t *object)
{
	static const char *const known[] = { "version", "id", "command", "arguments" };
	const char *key;
	json_t *value;

	json_object_foreach(object, key, value)
	{
		bool found = false;

		for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
			found |= !strcmp(key, known[i]);
		if (!found)
			return error_set(-EINVAL, "a request has no member \"%.64s\"", key);
	}
	return 0;
}

static int read_command(struct control_request *request)
{
	const json_t *command = json_object_get(request->object, "command");

	request->arguments = json_object_get(request->object, "arguments");
	if (!json_is_string(command))
		return error_set(-EINVAL, "a request needs a \"command\", which is a string");
	if (request->arguments && !json_is_object(request->arguments))
		return error_set(-EINVAL, "\"arguments\" must be an object");
	if (!request->arguments) {
		request->arguments = json_object();
		if (json_object_set_new(request->object, "arguments", request->arguments))
			return error_set(-ENOMEM, "no memory for a request");
	}
	request->command = json_string_value(command);
	return 0;
}

int control_request_parse(struct control_request *request, const char *line, size_t size)
{
	json_error_t problem;
	int error;

	*request = (struct control_request){ 0 };
	request->object = json_loadb(line, size, JSON_REJECT_DUPLICATES, &problem);
	if (!request->object)
		return error_set(-EINVAL, "a request must be one JSON object on a line: %s",
				 problem.text);
	if (!json_is_object(request->object))
		return error_set(-EINVAL, "a request must be a JSON object");
	error = read_id(request);
	if (!error)
		error = check_version(request->object);
	if (!error)
		error = check_members(request->object);
	return error ? error : read_command(request);
}

void control_request_free(struct control_request *request)
{
	json_decref(request->object);
	*request = (struct control_request){ 0 };
}

/* Consumes OBJECT. The line is ASCII, so that it can be shown on a terminal whatever names a guest
 * chose. */
static char *to_line(json_t *object)
{
	char *text = object ? json_dumps(object,
					 JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(9))
			    : NULL;
	char *line = NULL;

	json_decref(object);
	if (text && asprintf(&line, "%s\n", text) < 0)
		line = NULL;
	free(text);
	return line;
}

char *control_request_format(const char *command, json_t *arguments)
{
	return to_line(json_pack("{s:i, s:s, s:O*}", "version", CONTROL_VERSION, "command", command,
				 "arguments", arguments));
}

char *control_result_format(json_t *id, json_t *result)
{
	return to_line(json_pack("{s:i, s:O*, s:O}", "version", CONTROL_VERSION, "id", id, "result",
				 result));
}

char *control_error_format(json_t *id, int error, const char *message)
{
	const char *name = strerrorname_np(-error);
	json_t *text = json_string(message);

	if (!text) /* a message with a file name may not be UTF-8 */
		text = json_string("the error's message cannot be written as JSON");
	return to_line(json_pack("{s:i, s:O*, s:{s:s, s:o}}", "version", CONTROL_VERSION, "id", id,
				 "error", "code", name ? name : "EIO", "message", text));
}

static int errno_of_name(const char *name)
{
	for (int number = 1; number <= ERRNO_MAX; number++) {
		const char *known = strerrorname_np(number);

		if (known && !strcmp(name, known))
			return -number;
	}
	return -EIO;
}

int control_answer_parse(const char *line, size_t size, json_t **result)
{
	json_t *answer = json_loadb(line, size, JSON_REJECT_DUPLICATES, NULL);
	const char *code, *message;
	int error = 0;

	*result = json_incref(json_object_get(answer, "result"));
	if (json_is_object(*result))
		goto end;
	json_decref(*result);
	*result = NULL;
	if (json_unpack(answer, "{s:{s:s, s:s}}", "error", "code", &code, "message", &message))
		error = error_set(-EPROTO,
				  "the socket did not send an answer of kvmscope's protocol");
	else
		error = error_set(errno_of_name(code), "%s", message);
end:
	json_decref(answer);
	return error;
}

/* A client. */

void control_peer_open(struct control_peer *peer, int fd)
{
	peer->fd = fd;
	peer->answer = NULL;
	peer->last = false;
	peer->received = 0;
}

void control_peer_close(struct control_peer *peer)
{
	if (peer->fd < 0)
		return;
	close(peer->fd);
	peer->fd = -1;
	free(peer->answer);
	peer->answer = NULL;
}

short control_peer_events(const struct control_peer *peer)
{
	return peer->answer ? POLLOUT : POLLIN;
}

static bool is_temporary(int error)
{
	return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

bool control_peer_send(struct control_peer *peer)
{
	ssize_t count;

	if (!peer->answer)
		return true;
	count = send(peer->fd, peer->answer + peer->sent, peer->size - peer->sent, MSG_NOSIGNAL);
	if (count < 0)
		return is_temporary(errno);
	peer->sent += (size_t)count;
	if (peer->sent < peer->size)
		return true;
	free(peer->answer);
	peer->answer = NULL;
	return !peer->last;
}

bool control_peer_receive(struct control_peer *peer)
{
	size_t room = sizeof(peer->lines) - peer->received;
	ssize_t count;

	assert(room && !peer->answer);
	count = recv(peer->fd, peer->lines + peer->received, room, 0);
	if (count < 0)
		return is_temporary(errno);
	peer->received += (size_t)count;
	return count > 0;
}

const char *control_peer_line(const struct control_peer *peer, size_t *size)
{
	const char *end = memchr(peer->lines, '\n', peer->received);

	if (!end || peer->answer)
		return NULL;
	*size = (size_t)(end - peer->lines);
	return peer->lines;
}

bool control_peer_overflown(const struct control_peer *peer)
{
	return peer->received == sizeof(peer->lines) && !memchr(peer->lines, '\n', peer->received);
}

void control_peer_answer(struct control_peer *peer, size_t size, char *answer)
{
	size_t used = size < peer->received ? size + 1 : size; /* with its newline */

	assert(!peer->answer);
	peer->received -= used;
	memmove(peer->lines, peer->lines + used, peer->received);
	peer->answer = answer;
	peer->size = answer ? strlen(answer) : 0;
	peer->sent = 0;
}

bool control_peer_is_allowed(int fd)
{
	struct ucred other;
	socklen_t size = sizeof(other);

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &size) &&
	       (other.uid == 0 || other.uid == geteuid());
}
