/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One port of the console device: the host's sockets, the port's two queues, and its pending
 * messages for the control queue. All functions are called with the device's lock held, and on the
 * loop's thread unless noted otherwise.
 */
#ifndef KVMSCOPE_DEVICES_VIRTIO_CONSOLE_PORT_H
#define KVMSCOPE_DEVICES_VIRTIO_CONSOLE_PORT_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/devices/virtio_console.h"
#include "vmm/devices/virtio_device.h"

/* Control messages that wait for a driver's buffer, as bits, sent in this order. CLOSED and
 * OPENED are two messages, so that the guest notices a new peer. */
enum port_message {
	PORT_MESSAGE_ADD = 1 << 0,
	PORT_MESSAGE_NAME = 1 << 1,
	PORT_MESSAGE_CLOSED = 1 << 2,
	PORT_MESSAGE_OPENED = 1 << 3,
};

struct console_port {
	struct virtio_device *device;
	/* Called with the lock held after a bit was set in `messages`. */
	void (*messages_wait)(struct virtio_device *device);
	uint32_t id;
	char name[VIRTIO_CONSOLE_NAME_MAX + 1];
	char *socket_path; /* owned; NULL without */
	int listen_fd;     /* -1 without */
	int fd;            /* of the peer, -1 without */
	bool closing;      /* being destroyed: no new watches */
	bool listening;    /* listen_fd is watched */
	uint32_t watched;  /* events watched on fd; 0: none */
	/* The driver's view; cleared by reset. */
	unsigned int messages;
	bool ready;      /* the driver has the port */
	bool guest_open; /* a process in the guest has it open */
	bool starved;    /* bytes may wait at fd, but the guest has no buffer */
	bool sending;    /* `out` has a chain that fd has not fully accepted */
	struct virtio_chain out;
	struct virtio_chain in;
};

/* The queues of port ID, section 5.3.2. */
unsigned int console_port_receive_queue(uint32_t id);
unsigned int console_port_transmit_queue(uint32_t id);

/* Opens the sockets, duplicates OPTIONS->fd. Before the device runs, any thread. After a
 * failure, console_port_close() is still required. */
int console_port_open(struct console_port *port, const struct virtio_console_port *options);

/* Takes the lock itself; not on the loop's thread. Works on a zeroed port. */
void console_port_close(struct console_port *port);

/* Closes the port for the guest and drops its chains. Any thread. */
void console_port_reset(struct console_port *port);

/* The driver sent PORT_READY. */
void console_port_set_ready(struct console_port *port);
/* The guest opened or closed the port. */
void console_port_set_guest_open(struct console_port *port, bool open);

/* Moves bytes both ways as far as possible, and watches for the rest. */
void console_port_serve(struct console_port *port);

#endif
