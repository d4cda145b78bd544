/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Console output on its way to a file descriptor: vCPU threads fill a buffer and the event loop
 * drains it, so that a guest never waits for a write. All console output passes through
 * console_output_put().
 *
 * Bytes are collected for a millisecond, so that a guest that prints single bytes costs one write
 * per line. Partial writes and slow readers lose no bytes. A reader that accepts nothing for a
 * second does: it must not stop the guest. Lost bytes are counted, and the first loss is logged. A
 * broken descriptor (EPIPE, ENOSPC) is logged once, and its output is discarded.
 *
 *			put	wait	ready	destroy
 *	put			yes	yes	yes	no
 *	wait				yes	yes	no
 *	ready				yes	no
 */
#ifndef KVMSCOPE_DEVICES_CONSOLE_OUTPUT_H
#define KVMSCOPE_DEVICES_CONSOLE_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/devices/event_loop.h"

#define CONSOLE_OUTPUT_SIZE  (64u << 10)
#define CONSOLE_OUTPUT_BURST 64

struct console_output;

/*
 * Output goes to FD, which is neither owned nor changed (its file description may be shared, so
 * O_NONBLOCK is only set on one of our own); -1 discards. ROOM is called on the loop's thread,
 * without a lock, when half of the buffer is free after console_output_ready() returned false; may
 * be NULL.
 */
int console_output_create(struct console_output **output, int fd, struct event_loop *loop,
			  void (*room)(void *context), void *context);

/* Writes the remaining bytes, and waits up to a second for a reader that does not read. Not on
 * the loop's thread. NULL is a no-op. */
void console_output_destroy(struct console_output *output);

/* Appends a byte; false if the buffer is full. Any thread; does not block. */
bool console_output_put(struct console_output *output, uint8_t byte);

/*
 * Waits for room. False, with the byte counted as lost, if the reader has accepted nothing for a
 * second. Any thread but the loop's, without a lock that ROOM or another handler of the loop takes.
 */
bool console_output_wait(struct console_output *output);

/* True if there is room for CONSOLE_OUTPUT_BURST bytes, provided that no other thread writes.
 * Otherwise ROOM will be called. Any thread. */
bool console_output_ready(struct console_output *output);

/* For tests: number of lost bytes. Any thread. */
uint64_t console_output_lost(struct console_output *output);

/* Further bytes of a line are ignored. */
#define CONSOLE_LINE_MAX 511

/* LINE is without its end, NUL-terminated, and otherwise as the guest wrote it: any bytes but
 * NUL. */
typedef void console_line_handler(void *context, const char *line);

struct console_lines {
	console_line_handler *handler; /* may be NULL */
	void *context;
	char line[CONSOLE_LINE_MAX + 1];
	size_t size;
};

/* Adds a byte, and calls the handler at the end of a line. One thread at a time. */
void console_lines_put(struct console_lines *lines, uint8_t byte);

#endif
