/* SPDX-License-Identifier: Apache-2.0 */
/* The asking side of the control protocol. Blocks, but never longer than CONTROL_TIMEOUT_S; any
 * thread. */
#ifndef KVMSCOPE_CONTROL_CLIENT_H
#define KVMSCOPE_CONTROL_CLIENT_H

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#define CONTROL_TIMEOUT_S 5 /* s that one read or write may take */

/* The descriptor of a connection to the socket at PATH, which the caller closes; the errors of
 * connect(2). */
int control_connect(const char *path);

/* Does nobody listen at the socket PATH any more? Does not wait. */
bool control_is_dead(const char *path);

/* The process that listens at the other end, as our PID namespace knows it; 0 where it does not. */
pid_t control_connected_pid(int fd);

/*
 * Has COMMAND done with ARGUMENTS (an object, the caller's; NULL for none).
 * RESULT (may be NULL) gets what came back, an object to be freed by
 * json_decref(). The error of the command with its message; those of the
 * socket; -ETIMEDOUT; -EPROTO for an answer that is none.
 */
int control_call(int fd, const char *command, json_t *arguments, json_t **result);

#endif
