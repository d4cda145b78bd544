/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages on their way to the host: a buffer of fixed size in front of a
 * descriptor that does not block. What does not fit is not taken: the caller
 * keeps it where it is (the kernel's rings, /proc), or does without.
 */
#ifndef KVMSCOPE_GUEST_AGENT_SEND_QUEUE_H
#define KVMSCOPE_GUEST_AGENT_SEND_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shared/agent_protocol.h"

#define OUTPUT_SIZE (8ul * AGENT_MESSAGE_MAX)

struct output {
	int fd; /* not owned */
	size_t begin, end;
	size_t boundary; /* from begin on the first place where a message begins or the last one
			    ends */
	uint8_t data[OUTPUT_SIZE] __attribute__((aligned(8)));
};

/* Begins anew on FD; forgets what was not sent. */
void output_open(struct output *output, int fd);

/* Forgets what was not sent, but for the rest of a message that the host has a part of. */
void output_drop(struct output *output);

/* Bytes of payload that a message may have now; 0 if there is no room. */
size_t output_room(const struct output *output);

/* Appends a message with SIZE bytes of payload, all zero, to be filled at once; NULL if there is no
 * room. */
void *output_message(struct output *output, enum agent_message_type type, size_t size);

/* Takes back the end of the message appended last, so that SIZE bytes of its payload are left. */
void output_shorten(struct output *output, void *payload, size_t size);

bool output_empty(const struct output *output);
/* Bytes that are to be sent. */
size_t output_waiting(const struct output *output);

/* Writes what the descriptor takes. 0 or the errno, negative, of a host that is gone. */
int output_flush(struct output *output);

#endif
