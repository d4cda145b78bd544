/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest agent by vsock (vsock(7)), for a VM with a device as QEMU's vhost-vsock-pci:
 * kvmscope-agent
 * --vsock PORT connects from the guest, and its kernel says of which guest it is. Any thread.
 */
#ifndef KVMSCOPE_ATTACH_AGENT_VSOCK_H
#define KVMSCOPE_ATTACH_AGENT_VSOCK_H

#include <stdbool.h>

struct agent_vsock_address {
	unsigned int cid; /* of the guest */
	unsigned int port;
};

/* "vsock:CID:PORT". False: TEXT is none. */
bool agent_vsock_parse(const char *text, struct agent_vsock_address *address);

/*
 * Listens at ADDRESS's port, with the guest's CID or whoever asks: the descriptor, non-blocking.
 * -EADDRINUSE: another one does; -EAFNOSUPPORT: this kernel has no vsock; and the errors of
 * socket(2) and bind(2).
 */
int agent_vsock_listen(const struct agent_vsock_address *address);

/* The guest that has connected with LISTENER, from a port below 1024, as its root can:
 * non-blocking. -EAGAIN: it has not; others are sent away, some at each call. */
int agent_vsock_accept(int listener, const struct agent_vsock_address *address);

#endif
