/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One port of the console device: the host's sockets, the port's two queues,
 * and what is still to be said about it on the control queue. All functions
 * with the device's lock held, on the loop's thread where not said otherwise.
 */
#ifndef KVMSCOPE_DEVICES_VIRTIO_CONSOLE_PORT_H
#define KVMSCOPE_DEVICES_VIRTIO_CONSOLE_PORT_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/devices/virtio_console.h"
#include "vmm/devices/virtio_device.h"

/*
 * Control messages that wait for a buffer of the driver, a bit each, sent in
 * this order. A connection that ends and the next one are two messages, so
 * that the guest sees that its peer is another one.
 */
enum port_message {
	PORT_MESSAGE_ADD = 1 << 0,
	PORT_MESSAGE_NAME = 1 << 1,
	PORT_MESSAGE_CLOSED = 1 << 2,
	PORT_MESSAGE_OPENED = 1 << 3,
};

struct console_port {
	struct virtio_device *device;
	/* Called with the lock held when `messages` has got a bit. */
	void (*messages_wait)(struct virtio_device *device);
	uint32_t id;
	char name[VIRTIO_CONSOLE_NAME_MAX + 1];
	char *socket_path; /* owned; NULL without */
	int listen_fd;     /* -1 without */
	int fd;            /* of the peer, -1 without */
	bool closing;      /* being destroyed: nothing is watched any more */
	bool listening;    /* listen_fd is watched */
	uint32_t watched;  /* events that fd is watched for, 0: not watched */
	/* As the driver sees it; forgotten by reset. */
	unsigned int messages;
	bool ready;      /* the driver knows the port */
	bool guest_open; /* somebody in the guest has it open */
	bool starved;    /* bytes may wait at fd and the guest has no buffer for them */
	bool sending;    /* `out` holds a chain that fd has not taken whole */
	struct virtio_chain out;
	struct virtio_chain in;
};

/* The queues of port ID, section 5.3.2. */
unsigned int console_port_receive_queue(uint32_t id);
unsigned int console_port_transmit_queue(uint32_t id);

/*
 * Opens the sockets, duplicates OPTIONS->fd. Before the device runs, any
 * thread. On failure console_port_close() is still to be called.
 */
int console_port_open(struct console_port *port, const struct virtio_console_port *options);

/* Without the lock, which it takes; not on the loop's thread. Works on a port that is all zero. */
void console_port_close(struct console_port *port);

/* Closes the port for the guest and forgets its chains. Any thread. */
void console_port_reset(struct console_port *port);

/* The driver said PORT_READY. */
void console_port_set_ready(struct console_port *port);
/* The guest opened or closed the port. */
void console_port_set_guest_open(struct console_port *port, bool open);

/* Moves what can be moved, both ways, and watches for what can not yet. */
void console_port_serve(struct console_port *port);

#endif
