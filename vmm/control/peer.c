/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/control/peer.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void control_peer_open(struct control_peer *peer, int fd)
{
	peer->fd = fd;
	peer->answer = NULL;
	peer->last = false;
	peer->received = 0;
}

void control_peer_close(struct control_peer *peer)
{
	if (peer->fd < 0)
		return;
	close(peer->fd);
	peer->fd = -1;
	free(peer->answer);
	peer->answer = NULL;
}

short control_peer_events(const struct control_peer *peer)
{
	return peer->answer ? POLLOUT : POLLIN;
}

static bool is_temporary(int error)
{
	return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

bool control_peer_send(struct control_peer *peer)
{
	ssize_t count;

	if (!peer->answer)
		return true;
	count = send(peer->fd, peer->answer + peer->sent, peer->size - peer->sent, MSG_NOSIGNAL);
	if (count < 0)
		return is_temporary(errno);
	peer->sent += (size_t)count;
	if (peer->sent < peer->size)
		return true;
	free(peer->answer);
	peer->answer = NULL;
	return !peer->last;
}

bool control_peer_receive(struct control_peer *peer)
{
	size_t room = sizeof(peer->lines) - peer->received;
	ssize_t count;

	assert(room && !peer->answer);
	count = recv(peer->fd, peer->lines + peer->received, room, 0);
	if (count < 0)
		return is_temporary(errno);
	peer->received += (size_t)count;
	return count > 0;
}

const char *control_peer_line(const struct control_peer *peer, size_t *size)
{
	const char *end = memchr(peer->lines, '\n', peer->received);

	if (!end || peer->answer)
		return NULL;
	*size = (size_t)(end - peer->lines);
	return peer->lines;
}

bool control_peer_overflown(const struct control_peer *peer)
{
	return peer->received == sizeof(peer->lines) && !memchr(peer->lines, '\n', peer->received);
}

void control_peer_answer(struct control_peer *peer, size_t size, char *answer)
{
	size_t used = size < peer->received ? size + 1 : size; /* with its newline */

	assert(!peer->answer);
	peer->received -= used;
	memmove(peer->lines, peer->lines + used, peer->received);
	peer->answer = answer;
	peer->size = answer ? strlen(answer) : 0;
	peer->sent = 0;
}

bool control_peer_is_allowed(int fd)
{
	struct ucred other;
	socklen_t size = sizeof(other);

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &size) &&
	       (other.uid == 0 || other.uid == geteuid());
}
