/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The console device with named ports (virtio 1.2, section 5.3, VIRTIO_CONSOLE_F_MULTIPORT):
 * /dev/virtio-ports/NAME in a Linux guest, one stream socket each on the host. That is either a
 * listening UNIX socket, which serves one peer at a time (others wait in its backlog), or a
 * connected socket, such as one end of a socketpair() for a part of this program.
 *
 * The guest sees a port as open while a peer is connected. No bytes are dropped between two open
 * ends: a peer that does not read blocks the guest, and vice versa. Bytes of the guest without a
 * peer are dropped, as are bytes of a peer that left before the guest opened the port.
 *
 * Port 0 is not used: a driver without multiport support finds a silent console.
 */
#ifndef KVMSCOPE_DEVICES_VIRTIO_CONSOLE_H
#define KVMSCOPE_DEVICES_VIRTIO_CONSOLE_H

#include <stddef.h>

#include "vmm/devices/virtio_device.h"

#define VIRTIO_CONSOLE_PORTS_MAX 15
#define VIRTIO_CONSOLE_NAME_MAX  63

struct virtio_console_port {
	const char *name;        /* "org.kvmscope.agent.0" */
	const char *socket_path; /* listening socket for the owner only, removed at the end; NULL:
				    use fd */
	int fd; /* connected stream socket, duplicated: close yours afterwards; -1: none */
};

struct virtio_console_options {
	const struct virtio_console_port *ports; /* copied */
	size_t port_count;
};

/*
 * -EINVAL for too many ports, a bad name or path; -EADDRINUSE if another process listens at a path;
 * the errors of sockets and virtio_device_init(). Any thread. End with virtio_device_destroy().
 */
int virtio_console_create(struct virtio_device **device,
			  const struct virtio_console_options *options, const struct memory *memory,
			  struct event_loop *loop, struct irq_line line);

#endif
