/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A 16550A UART (National Semiconductor PC16550D data sheet; Linux, drivers/tty/serial/8250): FIFO,
 * receive and THR-empty interrupts, loopback.
 *
 * A byte counts as transmitted once it is in the output buffer, so THRE and TEMT change together.
 * Both are clear while that buffer is nearly full, which throttles an interrupt-driven driver
 * without loss if the reader is slow. A driver that writes without checking (Linux's console does
 * after 10 ms) blocks its vCPU until there is room, up to a second: see console_output.h. Input
 * waits until the guest raises RTS, which drivers do when they are ready. Baud rate, parity and
 * errors are accepted and ignored.
 */
#ifndef KVMSCOPE_DEVICES_SERIAL_H
#define KVMSCOPE_DEVICES_SERIAL_H

#include <stddef.h>
#include <stdint.h>

#include "vmm/devices/bus.h"
#include "vmm/devices/console_output.h"
#include "vmm/devices/event_loop.h"

/* The first one of a PC: COM1, ttyS0. */
#define SERIAL_PORT 0x3f8
#define SERIAL_GSI  4

struct serial_options {
	int output_fd; /* not owned; -1 discards */
	int input_fd;  /* not owned; -1: none. A file, pipe or socket is read at the guest's pace */
	/* As in console_input_options: terminal_filter() if input_fd is a terminal, else NULL. */
	size_t (*filter)(void *context, uint8_t *bytes, size_t size);
	void *filter_context;
	/* Each printed line, on a vCPU's thread with the port's lock held. May be NULL. */
	console_line_handler *line;
	void *line_context;
};

struct serial;

/* LINE may be edge or level triggered. -ENOMEM and the errors of the descriptors. Any thread. */
int serial_create(struct serial **serial, const struct serial_options *options,
		  struct event_loop *loop, struct irq_line line);

/* Writes out pending output. After the vCPUs have ended, not on the loop's thread. NULL is a
 * no-op. */
void serial_destroy(struct serial *serial);

/* Resets the registers and drops input that the guest has not read. No vCPU runs. */
void serial_reset(struct serial *serial);

/* Adds the eight ports from PORT to BUS. The errors of bus_add(). */
int serial_add(struct serial *serial, struct bus *bus, uint16_t port);

#endif
