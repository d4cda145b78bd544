/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes that the guest prints, on their way to a file descriptor: a
 * buffer that vCPU threads fill and the event loop empties, so that a guest
 * never waits for a write. All console output passes through
 * console_output_put(): whoever wants to see it stands there.
 *
 * Bytes are collected for a millisecond before they are written, so that a
 * guest that prints byte by byte costs one write a line. No byte is lost to
 * partial writes or a reader that is slow. A reader that takes nothing at all
 * for a second does lose bytes, which are counted, so that it can not stop
 * the guest; the first loss is logged. A broken descriptor (EPIPE, ENOSPC)
 * is logged once, and takes everything from then on.
 *
 *			put	wait	ready	destroy
 * put			yes	yes	yes	no
 * wait				yes	yes	no
 * ready				yes	no
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
 * Output goes to FD, which is not owned and not changed (its file description
 * may be shared with others, so O_NONBLOCK is set only on one of our own). -1
 * discards. ROOM is called on the loop's thread, no lock held, when half of
 * a buffer is free again that console_output_ready() has denied; may be NULL.
 */
int console_output_create(struct console_output **output, int fd, struct event_loop *loop,
			  void (*room)(void *context), void *context);

/*
 * Writes out what is left, waiting a second at most for a reader that does
 * not read. Not on the loop's thread; works on NULL.
 */
void console_output_destroy(struct console_output *output);

/* Appends a byte; false where the buffer is full. Any thread; does not block. */
bool console_output_put(struct console_output *output, uint8_t byte);

/*
 * Waits until there is room; false, with the byte that was to be put counted
 * as lost, once the reader has taken nothing for a second. Any thread but the
 * loop's, no lock held that ROOM or another handler on the loop takes.
 */
bool console_output_wait(struct console_output *output);

/*
 * Is there room for CONSOLE_OUTPUT_BURST bytes, if no other thread puts any?
 * Where not, ROOM will be called. Any thread.
 */
bool console_output_ready(struct console_output *output);

/* For tests: bytes lost so far. Any thread. */
uint64_t console_output_lost(struct console_output *output);

#endif
