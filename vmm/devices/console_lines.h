/* SPDX-License-Identifier: Apache-2.0 */
/* The lines that a guest prints, for whoever waits for one: put together from bytes as they come.
 */
#ifndef KVMSCOPE_DEVICES_CONSOLE_LINES_H
#define KVMSCOPE_DEVICES_CONSOLE_LINES_H

#include <stddef.h>
#include <stdint.h>

/* What comes behind that many bytes of a line is not looked at. */
#define CONSOLE_LINE_MAX 511

/* LINE is without its end, NUL-terminated, and otherwise as the guest wrote it: any bytes but NUL.
 */
typedef void console_line_handler(void *context, const char *line);

struct console_lines {
	console_line_handler *handler; /* NULL: nobody waits */
	void *context;
	char line[CONSOLE_LINE_MAX + 1];
	size_t size;
};

/* Adds a byte; at the end of a line the handler is called. One thread at a time. */
void console_lines_put(struct console_lines *lines, uint8_t byte);

#endif
