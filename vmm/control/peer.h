/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One client of the control socket: what came from it and what it is owed.
 * Never blocks. While it has not taken its answer nothing is read from it, so
 * it can make us keep one request and one answer. The control thread only.
 */
#ifndef KVMSCOPE_CONTROL_PEER_H
#define KVMSCOPE_CONTROL_PEER_H

#include <stdbool.h>
#include <stddef.h>

#include "vmm/control/control_protocol.h"

struct control_peer {
	int fd;          /* owned; -1 while there is no client */
	char *answer;    /* owned; NULL while none is due */
	size_t size;     /* of the answer */
	size_t sent;     /* of the answer */
	bool last;       /* no more is read behind this answer */
	size_t received; /* bytes in LINES */
	char lines[CONTROL_REQUEST_MAX];
};

/* Takes FD over, a connected non-blocking socket. */
void control_peer_open(struct control_peer *peer, int fd);
/* A no-op without a client. */
void control_peer_close(struct control_peer *peer);

/* What to poll() for. */
short control_peer_events(const struct control_peer *peer);

/* Sends of the answer what the socket takes. False: the client is gone, or it has its last answer.
 */
bool control_peer_send(struct control_peer *peer);

/* Reads what there is. False: the client is gone. */
bool control_peer_receive(struct control_peer *peer);

/* The first whole line, its newline not counted in SIZE; NULL while there is none, or an answer is
 * due. */
const char *control_peer_line(const struct control_peer *peer, size_t *size);

/* Has it sent more than a request can have, and no newline? */
bool control_peer_overflown(const struct control_peer *peer);

/*
 * Owes the client ANSWER (taken over, NULL where there was no memory for it:
 * the client is cut off) to the first SIZE bytes and newline of what it sent.
 */
void control_peer_answer(struct control_peer *peer, size_t size, char *answer);

/* May the process at the other end of FD give commands: has it our user, or is it root's? By
 * SO_PEERCRED. */
bool control_peer_is_allowed(int fd);

#endif
