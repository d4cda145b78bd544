/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One client of the control socket: what it has sent and the answer that is due. Never blocks.
 * Nothing is read before the client has read its answer, so it can make us keep one request and
 * one answer. The control thread.
 */
#ifndef KVMSCOPE_CONTROL_PEER_H
#define KVMSCOPE_CONTROL_PEER_H

#include <stdbool.h>
#include <stddef.h>

#include "vmm/control/control_protocol.h"

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
