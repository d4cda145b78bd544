/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/devices/virtio_console.h"

#include <errno.h>
#include <linux/virtio_console.h>
#include <linux/virtio_ids.h>
#include <stdlib.h>
#include <string.h>

#include "shared/error.h"
#include "vmm/devices/virtio_console_port.h"

#define QUEUE_CONTROL_RECEIVE  2
#define QUEUE_CONTROL_TRANSMIT 3

/* Linux fills each receive queue with pages (drivers/char/virtio_console.c, fill_queue()). */
#define QUEUE_SIZE 32

/* Port 0 has queues and an id, but does not exist. */
#define FIRST_PORT 1

struct virtio_console {
	struct virtio_device device;
	struct virtio_console_config config;
	struct console_port *ports; /* owned, port_count of them, ids from FIRST_PORT */
	size_t port_count;
	struct virtio_chain control;
};

static struct console_port *port_of(struct virtio_console *console, uint32_t id)
{
	return id >= FIRST_PORT && id - FIRST_PORT < console->port_count
		       ? &console->ports[id - FIRST_PORT]
		       : NULL;
}

/* Section 5.3.6.2; the name follows its message, without NUL. */
static const struct {
	unsigned int message;
	uint16_t event, value;
} messages[] = {
	{ PORT_MESSAGE_ADD, VIRTIO_CONSOLE_PORT_ADD, 1 },
	{ PORT_MESSAGE_NAME, VIRTIO_CONSOLE_PORT_NAME, 1 },
	{ PORT_MESSAGE_CLOSED, VIRTIO_CONSOLE_PORT_OPEN, 0 },
	{ PORT_MESSAGE_OPENED, VIRTIO_CONSOLE_PORT_OPEN, 1 },
};
#define MESSAGES (sizeof(messages) / sizeof(messages[0]))

/* False if the driver has no buffer now. */
static bool send_message(struct virtio_console *console, struct console_port *port, size_t number)
{
	struct virtio_console_control control = { .id = port->id,
						  .event = messages[number].event,
						  .value = messages[number].value };
	size_t name = messages[number].message == PORT_MESSAGE_NAME ? strlen(port->name) : 0;
	struct virtio_chain *chain = &console->control;

	if (!virtio_device_pop(&console->device, QUEUE_CONTROL_RECEIVE, chain))
		return false;
	if (chain->writable.size < sizeof(control) + name) {
		virtio_device_fault(&console->device, "a control buffer that is too small");
		return false;
	}
	virtio_buffers_write(&chain->writable, &control, sizeof(control));
	virtio_buffers_write(&chain->writable, port->name, name);
	virtio_device_push(&console->device, QUEUE_CONTROL_RECEIVE, chain,
			   (uint32_t)(sizeof(control) + name));
	port->messages &= ~messages[number].message;
	return true;
}

static bool send_port_messages(struct virtio_console *console, struct console_port *port)
{
	for (size_t i = 0; i < MESSAGES; i++) {
		if ((port->messages & messages[i].message) && !send_message(console, port, i))
			return false;
	}
	return true;
}

static void send_messages(struct virtio_device *device)
{
	struct virtio_console *console = (struct virtio_console *)device;

	for (size_t i = 0; i < console->port_count; i++) {
		if (!send_port_messages(console, &console->ports[i]))
			break;
	}
	virtio_device_interrupt(device, QUEUE_CONTROL_RECEIVE);
}

static void add_ports(struct virtio_console *console)
{
	for (size_t i = 0; i < console->port_count; i++)
		console->ports[i].messages |= PORT_MESSAGE_ADD;
	send_messages(&console->device);
}

/* Unknown messages, messages about missing ports and failures of the driver are ignored. */
static void handle_message(struct virtio_console *console,
			   const struct virtio_console_control *control)
{
	struct console_port *port = port_of(console, control->id);

	if (control->event == VIRTIO_CONSOLE_DEVICE_READY && control->value == 1)
		add_ports(console);
	else if (control->event == VIRTIO_CONSOLE_PORT_READY && control->value == 1 && port)
		console_port_set_ready(port);
	else if (control->event == VIRTIO_CONSOLE_PORT_OPEN && port)
		console_port_set_guest_open(port, control->value == 1);
}

static void handle_messages(struct virtio_console *console)
{
	struct virtio_device *device = &console->device;
	struct virtio_chain *chain = &console->control;
	unsigned int handled = 0;

	while (handled < VIRTIO_QUEUE_SIZE_MAX &&
	       virtio_device_pop(device, QUEUE_CONTROL_TRANSMIT, chain)) {
		struct virtio_console_control control;
		size_t size = virtio_buffers_read(&chain->readable, &control, sizeof(control));

		virtio_device_push(device, QUEUE_CONTROL_TRANSMIT, chain, 0);
		if (size == sizeof(control))
			handle_message(console, &control);
		handled++;
	}
	virtio_device_interrupt(device, QUEUE_CONTROL_TRANSMIT);
	if (handled == VIRTIO_QUEUE_SIZE_MAX)
		virtio_device_notify(device, QUEUE_CONTROL_TRANSMIT);
}

static void notify(struct virtio_device *device, unsigned int queue)
{
	struct virtio_console *console = (struct virtio_console *)device;
	struct console_port *port = port_of(console, queue / 2 - 1);

	if (!virtio_device_negotiated(device, VIRTIO_CONSOLE_F_MULTIPORT))
		return;
	if (queue == QUEUE_CONTROL_TRANSMIT)
		handle_messages(console);
	else if (queue == QUEUE_CONTROL_RECEIVE)
		send_messages(device);
	else if (queue > QUEUE_CONTROL_TRANSMIT && port)
		console_port_serve(port);
}

static void reset(struct virtio_device *device)
{
	struct virtio_console *console = (struct virtio_console *)device;

	for (size_t i = 0; i < console->port_count; i++)
		console_port_reset(&console->ports[i]);
}

/* Watches for disconnecting peers again, which was suspended while the guest had no buffers. */
static void was_reset(struct virtio_device *device)
{
	struct virtio_console *console = (struct virtio_console *)device;

	for (size_t i = 0; i < console->port_count; i++)
		console_port_serve(&console->ports[i]);
}

static void destroy(struct virtio_device *device)
{
	struct virtio_console *console = (struct virtio_console *)device;

	for (size_t i = 0; i < console->port_count; i++)
		console_port_close(&console->ports[i]);
	virtio_device_release(device);
	free(console->ports);
	free(console);
}

static const struct virtio_device_operations operations = {
	.name = "virtio-console",
	.id = VIRTIO_ID_CONSOLE,
	.notify = notify,
	.reset = reset,
	.was_reset = was_reset,
	.destroy = destroy,
};

static int open_ports(struct virtio_console *console, const struct virtio_console_options *options)
{
	int error = 0;

	console->ports =
		calloc(options->port_count ? options->port_count : 1, sizeof(*console->ports));
	if (!console->ports)
		return error_set(-ENOMEM, "no memory for the ports of virtio-console");
	for (size_t i = 0; i < options->port_count && !error; i++) {
		struct console_port *port = &console->ports[i];

		port->device = &console->device;
		port->messages_wait = send_messages;
		port->id = (uint32_t)i + FIRST_PORT;
		port->listen_fd = -1;
		port->fd = -1;
		console->port_count++;
		error = console_port_open(port, &options->ports[i]);
	}
	return error;
}

int virtio_console_create(struct virtio_device **result,
			  const struct virtio_console_options *options, const struct memory *memory,
			  struct event_loop *loop, struct irq_line line)
{
	struct virtio_device_options common = { .operations = &operations,
						.memory = memory,
						.loop = loop,
						.line = line,
						.queue_size = QUEUE_SIZE,
						.features = 1ull << VIRTIO_CONSOLE_F_MULTIPORT };
	struct virtio_console *console;
	int error;

	*result = NULL;
	if (options->port_count > VIRTIO_CONSOLE_PORTS_MAX)
		return error_set(-EINVAL, "%zu console ports: at most %d fit", options->port_count,
				 VIRTIO_CONSOLE_PORTS_MAX);
	console = calloc(1, sizeof(*console));
	if (!console)
		return error_set(-ENOMEM, "no memory for virtio-console");
	console->config.max_nr_ports = (uint32_t)options->port_count + FIRST_PORT;
	common.config = &console->config;
	common.config_size = sizeof(console->config);
	common.queue_count = console_port_transmit_queue(console->config.max_nr_ports - 1) + 1;
	if (common.queue_count <= QUEUE_CONTROL_TRANSMIT)
		common.queue_count = QUEUE_CONTROL_TRANSMIT + 1;
	error = virtio_device_init(&console->device, &common);
	if (!error)
		error = open_ports(console, options);
	if (error)
		virtio_device_destroy(&console->device);
	else
		*result = &console->device;
	return error;
}
