/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A 16550A UART (National Semiconductor PC16550D data sheet; Linux,
 * drivers/tty/serial/8250): FIFO, receive and THR-empty interrupts, loopback.
 * A byte is transmitted as soon as it is in the output's buffer, so THRE and
 * TEMT go together; both are clear while that buffer is nearly full, which is
 * how a slow reader holds back an interrupt-driven driver without loss. A
 * driver that writes without looking (Linux's console does, after 10 ms) makes
 * its vCPU wait for room, a second at most: see console_output.h. Input is held
 * back until the guest raises RTS, which drivers do once they listen. Baud
 * rate, parity and errors are accepted and mean nothing.
 */
#ifndef KVMSCOPE_DEVICES_SERIAL_H
#define KVMSCOPE_DEVICES_SERIAL_H

#include <stddef.h>
#include <stdint.h>

#include "vmm/devices/bus.h"
#include "vmm/devices/console_lines.h"
#include "vmm/devices/event_loop.h"

/* The first one of a PC: COM1, ttyS0. */
#define SERIAL_PORT 0x3f8
#define SERIAL_GSI  4

struct serial_options {
	int output_fd; /* not owned; -1 discards */
	int input_fd;  /* not owned; -1: none. A file, pipe or socket is read as the guest takes it
			*/
	/* As console_input_options: terminal_filter() where input_fd is a terminal, else NULL. */
	size_t (*filter)(void *context, uint8_t *bytes, size_t size);
	void *filter_context;
	/* Each line that the guest has printed; NULL: not wanted. On a vCPU's thread, the port's
	 * lock held.
	 */
	console_line_handler *line;
	void *line_context;
};

struct serial;

/* LINE is edge or level. -ENOMEM and the errors of the descriptors. Any thread. */
int serial_create(struct serial **serial, const struct serial_options *options,
		  struct event_loop *loop, struct irq_line line);

/* Writes out what the guest has printed. After the vCPUs have ended, not on the loop's thread;
 * works on NULL.
 */
void serial_destroy(struct serial *serial);

/* The machine is reset: registers as they were at first, and what the guest has not read is lost.
 * No vCPU runs. */
void serial_reset(struct serial *serial);

/* Puts the eight ports from PORT on BUS. The errors of bus_add(). */
int serial_add(struct serial *serial, struct bus *bus, uint16_t port);

#endif
