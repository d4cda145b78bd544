/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Input: the bytes that a client of the control socket sends, in pieces that the socket cuts, or
 * the bytes of a reply.
 */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "vmm/control/control_protocol.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/*
 * Parses a line and replies with the arguments of the request: everything that can be parsed can be
 * written.
 */
static char *reply(const char *line, size_t size)
{
	struct control_request request;
	char *text;

	if (control_request_parse(&request, line, size))
		text = control_error_format(request.id, -22, "no");
	else
		text = control_result_format(request.id, request.arguments);
	assert(text && strchr(text, '\n') == text + strlen(text) - 1);
	control_request_free(&request);
	return text;
}

static void serve(struct control_peer *peer)
{
	const char *line;
	size_t size;

	while ((line = control_peer_line(peer, &size))) {
		control_peer_answer(peer, size, reply(line, size));
		free(peer->answer);
		peer->answer = NULL;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct control_peer peer;
	json_t *result = NULL;
	int ends[2];

	if (!size)
		return 0;
	control_answer_parse((const char *)data, size, &result);
	json_decref(result);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends))
		return 0;
	control_peer_open(&peer, ends[0]);
	for (size_t at = 1; at < size && !control_peer_overflown(&peer);) {
		size_t piece = 1 + data[0] * 16u < size - at ? 1 + data[0] * 16u : size - at;

		if (send(ends[1], data + at, piece, MSG_NOSIGNAL) != (ssize_t)piece)
			break;
		while (!control_peer_overflown(&peer) &&
		       recv(peer.fd, (char[1]){ 0 }, 1, MSG_PEEK) == 1 &&
		       control_peer_receive(&peer))
			serve(&peer);
		at += piece;
	}
	control_peer_close(&peer);
	close(ends[1]);
	return 0;
}
