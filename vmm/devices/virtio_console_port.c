/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/devices/virtio_console_port.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/devices/unix_listener.h"

/* Number of chains that a port moves at a time, so that a busy one does not block the loop. */
#define CHAINS_AT_ONCE 64

static void on_peer(void *context, int fd, uint32_t events);
static void on_connection(void *context, int fd, uint32_t events);

unsigned int console_port_receive_queue(uint32_t id)
{
	return id ? 2 + 2 * id : 0;
}

unsigned int console_port_transmit_queue(uint32_t id)
{
	return console_port_receive_queue(id) + 1;
}

static void queue_messages(struct console_port *port, unsigned int messages)
{
	if (!port->ready && !(messages & PORT_MESSAGE_ADD))
		return;
	port->messages |= messages;
	port->messages_wait(port->device);
}

/*
 * Events to watch on the peer. Without a buffer for its bytes nothing can be done about them, and
 * its end would be reported endlessly: it is ignored until the guest adds a buffer. While the guest
 * has the port closed, the end of the peer is watched, so that the next one can connect.
 */
static uint32_t needed_events(const struct console_port *port)
{
	uint32_t events = 0;

	if (port->fd < 0 || port->closing)
		return 0;
	if (port->sending)
		events |= EPOLLOUT;
	if (!port->guest_open)
		events |= EPOLLRDHUP;
	else if (!port->starved)
		events |= EPOLLIN | EPOLLRDHUP;
	return events;
}

static void watch_peer(struct console_port *port)
{
	struct event_loop *loop = port->device->loop;
	uint32_t needed = needed_events(port);

	if (needed == port->watched)
		return;
	if (!port->watched) {
		if (event_loop_add(loop, port->fd, needed, on_peer, port)) {
			log_warning("virtio-console: port %s: %s", port->name, error_message());
			return;
		}
	} else if (needed) {
		event_loop_modify(loop, port->fd, needed);
	} else {
		event_loop_remove(loop, port->fd);
	}
	port->watched = needed;
}

static void watch_listener(struct console_port *port)
{
	struct event_loop *loop = port->device->loop;
	bool listen = port->listen_fd >= 0 && port->fd < 0 && !port->closing;

	if (listen == port->listening)
		return;
	if (!listen)
		event_loop_remove(loop, port->listen_fd);
	else if (event_loop_add(loop, port->listen_fd, EPOLLIN, on_connection, port))
		log_warning("virtio-console: port %s: %s", port->name, error_message());
	port->listening = listen;
}

static void finish_sending(struct console_port *port)
{
	port->sending = false;
	virtio_device_push(port->device, console_port_transmit_queue(port->id), &port->out, 0);
}

static void disconnect(struct console_port *port)
{
	if (port->watched)
		event_loop_remove(port->device->loop, port->fd);
	port->watched = 0;
	close(port->fd);
	port->fd = -1;
	if (port->sending)
		finish_sending(port);
	port->messages &= ~PORT_MESSAGE_OPENED;
	queue_messages(port, PORT_MESSAGE_CLOSED);
}

/* False if the peer accepts no more now. For a peer that has left everything is dropped. */
static bool send_chain(struct console_port *port)
{
	struct virtio_buffers *buffers = &port->out.readable;

	while (port->fd >= 0 && buffers->count) {
		struct msghdr message = { .msg_iov = buffers->vectors,
					  .msg_iovlen = buffers->count };
		ssize_t sent = sendmsg(port->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (sent >= 0)
			virtio_buffers_advance(buffers, (uint64_t)sent);
		else if (errno == EAGAIN)
			return false;
		else if (errno != EINTR)
			disconnect(port);
	}
	return true;
}

static bool next_chain(struct console_port *port)
{
	if (!port->sending)
		port->sending = virtio_device_pop(
			port->device, console_port_transmit_queue(port->id), &port->out);
	return port->sending;
}

/* Guest to host. True if there are more chains. */
static bool transmit(struct console_port *port)
{
	unsigned int chains = 0;

	while (chains++ < CHAINS_AT_ONCE && next_chain(port)) {
		if (!send_chain(port))
			return false;
		/* disconnect() has finished the chain. */
		if (port->sending)
			finish_sending(port);
	}
	return chains > CHAINS_AT_ONCE;
}

/* Fills the popped chain from the peer. False if nothing was received. */
static bool receive_chain(struct console_port *port, unsigned int queue)
{
	struct virtio_buffers *buffers = &port->in.writable;
	struct msghdr message = { .msg_iov = buffers->vectors, .msg_iovlen = buffers->count };
	ssize_t received;

	if (!buffers->size) {
		virtio_device_fault(port->device, "a receive buffer that is not writable");
		return false;
	}
	do {
		received = recvmsg(port->fd, &message, MSG_DONTWAIT);
	} while (received < 0 && errno == EINTR);
	if (received > 0) {
		virtio_device_push(port->device, queue, &port->in, (uint32_t)received);
		return true;
	}
	virtio_queue_undo_pop(&port->device->queues[queue]);
	if (!received || errno != EAGAIN)
		disconnect(port);
	return false;
}

/* Host to guest. True if the peer may have sent more. */
static bool receive(struct console_port *port)
{
	unsigned int queue = console_port_receive_queue(port->id);
	unsigned int chains = 0;

	while (port->fd >= 0 && port->guest_open && chains++ < CHAINS_AT_ONCE) {
		port->starved = !virtio_device_pop(port->device, queue, &port->in);
		if (port->starved || !receive_chain(port, queue))
			return false;
	}
	return chains > CHAINS_AT_ONCE;
}

void console_port_serve(struct console_port *port)
{
	unsigned int receive_queue = console_port_receive_queue(port->id);
	unsigned int transmit_queue = console_port_transmit_queue(port->id);

	assert(event_loop_on_thread(port->device->loop));
	if (transmit(port))
		virtio_device_notify(port->device, transmit_queue);
	receive(port); /* the remaining bytes are still readable, so the watch fires again */
	watch_peer(port);
	watch_listener(port);
	virtio_device_interrupt(port->device, receive_queue);
	virtio_device_interrupt(port->device, transmit_queue);
}

static void on_peer(void *context, int fd, uint32_t events)
{
	struct console_port *port = context;

	pthread_mutex_lock(&port->device->lock);
	if (!port->closing) {
		if (!port->guest_open && (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)))
			disconnect(port);
		console_port_serve(port);
	}
	pthread_mutex_unlock(&port->device->lock);
}

static void on_connection(void *context, int fd, uint32_t events)
{
	struct console_port *port = context;
	int peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	int error = errno;

	pthread_mutex_lock(&port->device->lock);
	assert(port->fd < 0);
	if (peer >= 0) {
		port->fd = peer;
		queue_messages(port, PORT_MESSAGE_OPENED);
		console_port_serve(port);
	} else if (error == EMFILE || error == ENFILE || error == ENOMEM) {
		/* It would be reported again at once; the guest's next action retries. */
		log_warning("virtio-console: port %s: cannot accept a connection: %s", port->name,
			    strerror(error));
		event_loop_remove(port->device->loop, fd);
		port->listening = false;
	}
	pthread_mutex_unlock(&port->device->lock);
}

void console_port_set_ready(struct console_port *port)
{
	port->ready = true;
	queue_messages(port, PORT_MESSAGE_NAME | (port->fd >= 0 ? PORT_MESSAGE_OPENED : 0));
}

void console_port_set_guest_open(struct console_port *port, bool open)
{
	port->guest_open = open;
	console_port_serve(port);
}

void console_port_reset(struct console_port *port)
{
	port->messages = 0;
	port->ready = false;
	port->guest_open = false;
	port->starved = false;
	port->sending = false;
}

static int open_sockets(struct console_port *port, const struct virtio_console_port *options)
{
	if (!options->socket_path) {
		port->fd = fcntl(options->fd, F_DUPFD_CLOEXEC, 0);
		if (port->fd < 0)
			return error_set(-errno,
					 "cannot duplicate the socket of console port %s: %m",
					 port->name);
		return 0;
	}
	port->socket_path = strdup(options->socket_path);
	if (!port->socket_path)
		return error_set(-ENOMEM, "no memory for port %s", port->name);
	port->listen_fd = unix_listener_open(port->socket_path);
	return port->listen_fd < 0 ? port->listen_fd : 0;
}

int console_port_open(struct console_port *port, const struct virtio_console_port *options)
{
	size_t length = strlen(options->name);
	int error;

	if (!length || length > VIRTIO_CONSOLE_NAME_MAX)
		return error_set(-EINVAL, "console port name \"%s\" must have 1 to %d bytes",
				 options->name, VIRTIO_CONSOLE_NAME_MAX);
	if (!options->socket_path && options->fd < 0)
		return error_set(-EINVAL, "console port %s has neither a socket path nor a socket",
				 options->name);
	memcpy(port->name, options->name, length);
	error = open_sockets(port, options);
	if (error)
		return error;
	pthread_mutex_lock(&port->device->lock);
	watch_peer(port);
	watch_listener(port);
	pthread_mutex_unlock(&port->device->lock);
	return 0;
}

/* `closing` stops a handler that runs meanwhile from adding watches. */
static void stop_watching(struct console_port *port)
{
	struct event_loop *loop = port->device->loop;
	int fd;

	pthread_mutex_lock(&port->device->lock);
	port->closing = true;
	fd = port->fd;
	pthread_mutex_unlock(&port->device->lock);
	if (port->listen_fd >= 0)
		event_loop_remove(loop, port->listen_fd);
	if (fd >= 0)
		event_loop_remove(loop, fd);
}

void console_port_close(struct console_port *port)
{
	if (!port->device)
		return;
	stop_watching(port);
	if (port->fd >= 0)
		close(port->fd);
	if (port->listen_fd >= 0) {
		close(port->listen_fd);
		unlink(port->socket_path);
	}
	free(port->socket_path);
}
