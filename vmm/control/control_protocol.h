/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control protocol, as docs/control-protocol.md specifies it: a line of
 * JSON asks, a line of JSON answers. Any thread.
 */
#ifndef KVMSCOPE_CONTROL_CONTROL_PROTOCOL_H
#define KVMSCOPE_CONTROL_CONTROL_PROTOCOL_H

#include <jansson.h>
#include <stddef.h>

#define CONTROL_VERSION 1

/* Bytes of a request with its newline, and of an answer that a client takes. */
#define CONTROL_REQUEST_MAX 4096
#define CONTROL_ANSWER_MAX  (1 << 20)

/* Everything in it belongs to OBJECT. */
struct control_request {
	json_t *object;      /* owned */
	const char *command; /* NULL where there is no request */
	json_t *arguments;   /* an object */
	json_t *id;          /* a string or an integer; NULL without one */
};

/*
 * Reads LINE of SIZE bytes, without its newline. -EINVAL for what is no
 * request and -EPROTONOSUPPORT for one of another version: the answer to it
 * then still has its id, where one was found. -ENOMEM. To be freed in any case.
 */
int control_request_parse(struct control_request *request, const char *line, size_t size);
/* Frees what it holds; zeroed, it holds nothing. */
void control_request_free(struct control_request *request);

/* Lines with their newline, to be freed by free(); NULL without memory. ID may be NULL. */
char *control_request_format(const char *command, json_t *arguments);
char *control_result_format(json_t *id, json_t *result);
/* ERROR is a negative errno. */
char *control_error_format(json_t *id, int error, const char *message);

/*
 * Reads an answer. 0 and the result, owned by the caller; or the error that
 * the other side gave, with its message. -EPROTO for what is no answer.
 */
int control_answer_parse(const char *line, size_t size, json_t **result);

#endif
