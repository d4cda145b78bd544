/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes from a file descriptor to a console, through the event loop. A pipe,
 * socket or file is read only while the console has room, so that nothing is
 * lost; a terminal (one with a filter) is read always, so that its escape
 * keys work on a guest that does not listen, and what has no room is dropped.
 */
#ifndef KVMSCOPE_DEVICES_CONSOLE_INPUT_H
#define KVMSCOPE_DEVICES_CONSOLE_INPUT_H

#include <stddef.h>
#include <stdint.h>

#include "vmm/devices/event_loop.h"

struct console_input_options {
	int fd; /* not owned; -1: no input */
	/* Takes keys of its own out of BYTES, in place; returns how many are left. May be NULL. */
	size_t (*filter)(void *context, uint8_t *bytes, size_t size);
	void *filter_context;
	/* How many bytes the console can take now. */
	size_t (*room)(void *context);
	/* Gives the console bytes, without a filter never more than it has room for. */
	void (*receive)(void *context, const uint8_t *bytes, size_t size);
	void *context; /* of room() and receive(): all three functions on the loop's thread, no lock
			  held */
};

struct console_input;

/* The errors of the event loop. Any thread. */
int console_input_create(struct console_input **input, const struct console_input_options *options,
			 struct event_loop *loop);
/* Not on the loop's thread, nor with a lock held that receive() takes; works on NULL. */
void console_input_destroy(struct console_input *input);

/* The console has room again: goes on reading if that had stopped. Any thread. */
void console_input_resume(struct console_input *input);

#endif
