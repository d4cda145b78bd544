/* SPDX-License-Identifier: Apache-2.0 */
/* The host by vsock (vsock(7)), for a VM that has no port for the agent. */
#ifndef KVMSCOPE_GUEST_AGENT_HOST_VSOCK_H
#define KVMSCOPE_GUEST_AGENT_HOST_VSOCK_H

#include <stdbool.h>

/* Where to: "CID:PORT" in numbers. */
struct vsock_address {
	unsigned int cid, port;
};

/* Takes TEXT, "CID:PORT" or "PORT" of the host. False where it is neither. */
bool vsock_parse(const char *text, struct vsock_address *address);

/*
 * A connection that does not block from now on. Making one takes 2 s at most. -ENOENT where nobody
 * listens there (yet), or there is no device; else a negative errno.
 */
int vsock_open(const struct vsock_address *address);

#endif
