/* SPDX-License-Identifier: Apache-2.0 */
/* The guest agent over vsock (vsock(7)), for VMs with a vhost-vsock device: kvmscope-agent --vsock
 * PORT connects from the guest, and the host kernel supplies the guest's CID. Any thread. */
#ifndef KVMSCOPE_ATTACH_AGENT_VSOCK_H
#define KVMSCOPE_ATTACH_AGENT_VSOCK_H

#include <stdbool.h>

struct agent_vsock_address {
	unsigned int cid; /* the guest's */
	unsigned int port;
};

/* Parses "vsock:CID:PORT". False: TEXT is something else. */
bool agent_vsock_parse(const char *text, struct agent_vsock_address *address);

/*
 * Listens on ADDRESS's port, for connections of any CID. Returns a non-blocking descriptor.
 * -EADDRINUSE: the port is in use; -EAFNOSUPPORT: no vsock in this kernel; and the errors of
 * socket(2) and bind(2).
 */
int agent_vsock_listen(const struct agent_vsock_address *address);

/* Accepts the connection of ADDRESS's guest from a port below 1024; non-blocking. Connections of
 * others are closed, a limited number per call. -EAGAIN: the agent has not connected. */
int agent_vsock_accept(int listener, const struct agent_vsock_address *address);

#endif
