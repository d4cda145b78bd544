/* SPDX-License-Identifier: Apache-2.0 */
/* Messages to the host: a buffer of fixed size in front of a non-blocking descriptor. What does not
 * fit is rejected: the caller leaves it where it is (the kernel's rings, /proc), or drops it.
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
	size_t boundary; /* the first message boundary at or after begin */
	uint8_t data[OUTPUT_SIZE] __attribute__((aligned(8)));
};

/* Starts on FD with an empty queue. */
void output_open(struct output *output, int fd);

/* Drops unsent messages, except the rest of one that was partly sent. */
void output_drop(struct output *output);

/* Largest payload in bytes that fits now; 0: none. */
size_t output_room(const struct output *output);

/* Appends a message with a zeroed payload of SIZE bytes, which the caller fills at once. NULL
 * without room. */
void *output_message(struct output *output, enum agent_message_type type, size_t size);

/* Shortens the payload of the last message to SIZE bytes. */
void output_shorten(struct output *output, void *payload, size_t size);

bool output_empty(const struct output *output);
/* Bytes in the queue. */
size_t output_waiting(const struct output *output);

/* Writes as much as the descriptor accepts. 0, or a negative errno if the connection failed. */
int output_flush(struct output *output);

#endif
