/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client of QEMU's machine protocol on a UNIX socket (QEMU: docs/interop/qmp-spec.txt): one
 * command at a time, each with a time limit for the answer. The peer is not trusted: input is
 * bounded and checked. One thread at a time. Blocks only as documented.
 */
#ifndef KVMSCOPE_ATTACH_QMP_CONNECTION_H
#define KVMSCOPE_ATTACH_QMP_CONNECTION_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Bytes of a message; the registers of 1024 vCPUs are about 4 MiB. */
#define QMP_MESSAGE_MAX (16ul << 20)

struct qmp;

/*
 * Connects to the socket at PATH and waits for the greeting. PEER gets the listening process in our
 * PID namespace (0: not visible). When CANCEL_FD becomes readable, waits end with -ECANCELED.
 * -EBUSY: no greeting, as another client is connected; -EPROTO: not a monitor; and the errors of
 * connect().
 */
int qmp_open(struct qmp **qmp, const char *path, int cancel_fd, pid_t *peer);

/*
 * Executes COMMAND with ARGUMENTS (consumed; NULL: none). The caller frees RESULT. -ENOTSUP:
 * unknown command; -EREMOTEIO: it failed, the message has QEMU's own; after other errors the
 * connection is unusable.
 */
int qmp_execute(struct qmp *qmp, const char *command, json_t *arguments, json_t **result);

/* NULL is allowed. */
void qmp_close(struct qmp *qmp);

/* Parts for other ways to a monitor. */

/* The text of a command, for free(); NULL without memory. ARGUMENTS are consumed. */
char *qmp_command_text(const char *command, json_t *arguments);

/* Parses the answer to COMMAND: 0 with RESULT, -ENOTSUP or -EREMOTEIO as above; -EPROTO: not an
 * answer. */
int qmp_parse_answer(json_t *answer, const char *command, json_t **result);

/* Finds the ends of messages in a stream. */
struct qmp_frame {
	size_t length; /* bytes of the message so far */
	unsigned int depth;
	bool in_string, escaped;
};

/*
 * Processes SIZE more bytes. Returns the number of bytes that belong to the message; COMPLETE: it
 * ends with the last of those. Leading white space is part of a message. -EPROTO: not the beginning
 * of a message.
 */
ssize_t qmp_frame_feed(struct qmp_frame *frame, const char *bytes, size_t size, bool *complete);

#endif
