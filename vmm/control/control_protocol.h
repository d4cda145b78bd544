/* SPDX-License-Identifier: Apache-2.0 */
/* The control protocol of docs/control-protocol.md: a line of JSON for the request, a line of JSON
 * for the answer. Any thread; a client belongs to one. */
#ifndef KVMSCOPE_CONTROL_CONTROL_PROTOCOL_H
#define KVMSCOPE_CONTROL_CONTROL_PROTOCOL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define CONTROL_VERSION 1

/* Largest request, with its newline, and largest answer that a client accepts, in bytes. */
#define CONTROL_REQUEST_MAX 4096
#define CONTROL_ANSWER_MAX  (1 << 20)

/* OBJECT owns everything else. */
struct control_request {
	json_t *object;      /* owned */
	const char *command; /* NULL without a request */
	json_t *arguments;   /* an object */
	json_t *id;          /* a string or an integer; NULL: none */
};

/*
 * Parses LINE of SIZE bytes, without its newline. -EINVAL for what is not a request,
 * -EPROTONOSUPPORT for another version; the id is set if one was found. -ENOMEM. Free REQUEST in
 * any case.
 */
int control_request_parse(struct control_request *request, const char *line, size_t size);
/* Works on a zeroed REQUEST. */
void control_request_free(struct control_request *request);

/* Lines with their newline, the caller's to free; NULL without memory. ID may be NULL. */
char *control_request_format(const char *command, json_t *arguments);
char *control_result_format(json_t *id, json_t *result);
/* ERROR is a negative errno. */
char *control_error_format(json_t *id, int error, const char *message);

/* Parses an answer. Returns 0 and the result, owned by the caller, or the error of the other side
 * with its message. -EPROTO for an invalid answer. */
int control_answer_parse(const char *line, size_t size, json_t **result);

/*
 * One client of the control socket: what it has sent and the answer that is due. Never blocks.
 * Nothing is read before the client has read its answer, so it can make us keep one request and
 * one answer. The control thread.
 */
struct control_peer {
	int fd;          /* owned; -1: no client */
	char *answer;    /* owned; NULL: none is due */
	size_t size;     /* of the answer */
	size_t sent;     /* of the answer */
	bool last;       /* nothing is read after this answer */
	size_t received; /* bytes in LINES */
	char lines[CONTROL_REQUEST_MAX];
};

/* Consumes FD, a connected non-blocking socket. */
void control_peer_open(struct control_peer *peer, int fd);
/* A no-op without a client. */
void control_peer_close(struct control_peer *peer);

/* The events to poll for. */
short control_peer_events(const struct control_peer *peer);

/* Sends as much of the answer as the socket accepts. False: the client has disconnected, or has
 * its last answer. */
bool control_peer_send(struct control_peer *peer);

/* Reads what has arrived. False: the client has disconnected. */
bool control_peer_receive(struct control_peer *peer);

/* The first complete line and its SIZE without the newline; NULL: there is none, or an answer is
 * due. */
const char *control_peer_line(const struct control_peer *peer, size_t *size);

/* True if it sent more bytes than a request can have, without a newline. */
bool control_peer_overflown(const struct control_peer *peer);

/* Sets ANSWER (consumed; NULL without memory: the client is disconnected) as the answer to the
 * first SIZE bytes and newline of what it sent. */
void control_peer_answer(struct control_peer *peer, size_t size, char *answer);

/* True if the process at the other end of FD runs as our user or as root (SO_PEERCRED). */
bool control_peer_is_allowed(int fd);

#endif
