/* SPDX-License-Identifier: Apache-2.0 */
/* Ways to reach the host: a virtio port, or vsock (vsock(7)) for a VM without one. */
#ifndef KVMSCOPE_GUEST_AGENT_HOST_TRANSPORT_H
#define KVMSCOPE_GUEST_AGENT_HOST_TRANSPORT_H

#include <stdbool.h>

/*
 * Opens the virtio port NAME as a non-blocking descriptor: /dev/virtio-ports/NAME or, without udev,
 * the device with that name in sysfs. Negative errno; -ENOENT if there is no such port (yet).
 */
int port_open(const char *name);

struct vsock_address {
	unsigned int cid, port;
};

/* Parses "CID:PORT", or "PORT" on the host. False if TEXT is neither. */
bool vsock_parse(const char *text, struct vsock_address *address);

/*
 * Connects within 2 s; the descriptor is non-blocking afterwards. -ENOENT if nothing listens there
 * (yet) or there is no device, else another negative errno.
 */
int vsock_open(const struct vsock_address *address);

#endif
