/* SPDX-License-Identifier: Apache-2.0 */
/* The control protocol of docs/control-protocol.md: a line of JSON for the request, a line of JSON
 * for the answer. Any thread. */
#ifndef KVMSCOPE_CONTROL_CONTROL_PROTOCOL_H
#define KVMSCOPE_CONTROL_CONTROL_PROTOCOL_H

#include <jansson.h>
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

#endif
