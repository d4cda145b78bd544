/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client side of the control protocol. A call blocks for up to CONTROL_TIMEOUT_S. Any thread.
 */
#ifndef KVMSCOPE_CONTROL_CONTROL_CLIENT_H
#define KVMSCOPE_CONTROL_CONTROL_CLIENT_H

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#define CONTROL_TIMEOUT_S 5 /* s, for each read or write */

/* Connects to the socket at PATH. Returns a descriptor, which the caller closes, or the errors of
 * connect(2). */
int control_connect(const char *path);

/* True if no process listens at the socket PATH. Does not wait. */
bool control_is_dead(const char *path);

/* The process that listens at the other end; 0 if it is in a PID namespace that we cannot see. */
pid_t control_connected_pid(int fd);

/*
 * Runs COMMAND with ARGUMENTS (an object, still the caller's; NULL: none). RESULT (may be NULL)
 * gets the answer, an object to free by json_decref(). Returns the command's error with its
 * message, the errors of the socket, -ETIMEDOUT, or -EPROTO for an invalid answer.
 */
int control_call(int fd, const char *command, json_t *arguments, json_t **result);

#endif
