/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client of QEMU's machine protocol on a UNIX socket (QEMU: docs/interop/qmp-spec.txt): one
 * command at a time, each with an answer within a time, or the connection is at its end. Who is at
 * the other side may be anybody: what comes is bounded, checked, and nothing of it is believed but
 * what it is asked for.
 *
 * One thread at a time. Nothing blocks for longer than said.
 */
#ifndef KVMSCOPE_ATTACH_QMP_CONNECTION_H
#define KVMSCOPE_ATTACH_QMP_CONNECTION_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Of one message; the registers of 1024 vCPUs are some 4 MiB. */
#define QMP_MESSAGE_MAX (16ul << 20)

struct qmp;

/*
 * Connects to the socket at PATH, and waits for a greeting. PEER is the process that listens there,
 * in our PID namespace (0: in none that we see). CANCEL_FD ends any wait by -ECANCELED once it can
 * be read. Errors: those of connect(); -EBUSY: it says nothing, as somebody else is connected;
 * -EPROTO: it is no monitor.
 */
int qmp_open(struct qmp **qmp, const char *path, int cancel_fd, pid_t *peer);

/*
 * Executes COMMAND with ARGUMENTS (taken over; NULL: none). RESULT is the caller's to free.
 * -ENOTSUP: there is no such command; -EREMOTEIO: the command failed, the message has QEMU's own
 * words; others: the connection is of no use any more.
 */
int qmp_execute(struct qmp *qmp, const char *command, json_t *arguments, json_t **result);

/* Works on NULL. */
void qmp_close(struct qmp *qmp);

/* For other ways to a monitor. */

/* The text of a command; malloc()ed, NULL without memory. ARGUMENTS are taken over. */
char *qmp_command_text(const char *command, json_t *arguments);

/* What an answer to COMMAND says: 0 with RESULT, -ENOTSUP or -EREMOTEIO as above; -EPROTO: it is
 * none. */
int qmp_parse_answer(json_t *answer, const char *command, json_t **result);

/* Where messages end in a stream of bytes. */
struct qmp_frame {
	size_t length; /* bytes of the message that were seen */
	unsigned int depth;
	bool in_string, escaped;
};

/*
 * Takes SIZE more bytes; how many of them belong to the message, and in COMPLETE whether it ends
 * with the last of those. White space before a message counts as part of it. -EPROTO: no message
 * begins like that.
 */
ssize_t qmp_frame_feed(struct qmp_frame *frame, const char *bytes, size_t size, bool *complete);

#endif
