/* SPDX-License-Identifier: Apache-2.0 */
/* Assembles the bytes that a guest prints into lines, for a handler. */
#ifndef KVMSCOPE_DEVICES_CONSOLE_LINES_H
#define KVMSCOPE_DEVICES_CONSOLE_LINES_H

#include <stddef.h>
#include <stdint.h>

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
