/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The console device with named ports (virtio 1.2, section 5.3,
 * VIRTIO_CONSOLE_F_MULTIPORT): in a Linux guest /dev/virtio-ports/NAME, on the
 * host one stream socket each. Either a listening UNIX socket, whose peers
 * come and go one at a time (others wait in its backlog), or a connected
 * socket given at the start: one end of a socketpair() is how a part of this
 * program talks to the guest.
 *
 * The guest sees a port open while a peer is connected. Bytes are never
 * dropped between two open ends: a peer that does not read makes the guest
 * wait, and the other way round. What the guest writes while there is no peer
 * is dropped, and so is what a peer sent and left before the guest opened.
 *
 * Port 0 is not used, so that a driver without multiport finds a console that
 * is silent.
 */
#ifndef KVMSCOPE_DEVICES_VIRTIO_CONSOLE_H
#define KVMSCOPE_DEVICES_VIRTIO_CONSOLE_H

#include <stddef.h>

#include "vmm/devices/virtio_device.h"

#define VIRTIO_CONSOLE_PORTS_MAX 15
#define VIRTIO_CONSOLE_NAME_MAX  63

struct virtio_console_port {
	const char *name; /* "org.kvmscope.agent.0" */
	const char
		*socket_path; /* to listen on, for the owner only, removed at the end; NULL: fd */
	int fd; /* connected stream socket, duplicated: close yours afterwards; -1 without */
};

struct virtio_console_options {
	const struct virtio_console_port *ports; /* copied */
	size_t port_count;
};

/*
 * -EINVAL for too many ports, a bad name or path, -EADDRINUSE if somebody
 * listens on a path; the errors of sockets and virtio_device_init(). Any
 * thread. virtio_device_destroy() ends it.
 */
int virtio_console_create(struct virtio_device **device,
			  const struct virtio_console_options *options, const struct memory *memory,
			  struct event_loop *loop, struct irq_line line);

#endif
