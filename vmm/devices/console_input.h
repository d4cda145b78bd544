/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies bytes from a file descriptor to a console, in the event loop. A pipe, socket or file is
 * read only while the console has room, so nothing is lost. A terminal (with a filter) is always
 * read, so that its escape keys work even if the guest does not read; bytes without room are
 * dropped.
 */
#ifndef KVMSCOPE_DEVICES_CONSOLE_INPUT_H
#define KVMSCOPE_DEVICES_CONSOLE_INPUT_H

#include <stddef.h>
#include <stdint.h>

#include "vmm/devices/event_loop.h"

struct console_input_options {
	int fd; /* not owned; -1: no input */
	/* Removes and handles its own keys in BYTES, in place. Returns the number of remaining
	 * bytes. May be NULL. */
	size_t (*filter)(void *context, uint8_t *bytes, size_t size);
	void *filter_context;
	/* Number of bytes for which the console has room. */
	size_t (*room)(void *context);
	/* Passes bytes to the console; without a filter never more than it has room for. */
	void (*receive)(void *context, const uint8_t *bytes, size_t size);
	void *context; /* of room() and receive(). All three callbacks run on the loop's thread,
			  without a lock */
};

struct console_input;

/* The errors of the event loop. Any thread. */
int console_input_create(struct console_input **input, const struct console_input_options *options,
			 struct event_loop *loop);
/* Not on the loop's thread, nor with a lock that receive() takes. NULL is a no-op. */
void console_input_destroy(struct console_input *input);

/* The console has room again: resumes reading if it was paused. Any thread. */
void console_input_resume(struct console_input *input);

#endif
