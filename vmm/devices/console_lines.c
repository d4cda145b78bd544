/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/devices/console_lines.h"

static void end_line(struct console_lines *lines)
{
	lines->line[lines->size] = '\0';
	lines->size = 0;
	lines->handler(lines->context, lines->line);
}

void console_lines_put(struct console_lines *lines, uint8_t byte)
{
	if (!lines->handler)
		return;
	if (byte == '\n')
		end_line(lines);
	else if (byte && byte != '\r' && lines->size < CONSOLE_LINE_MAX)
		lines->line[lines->size++] = (char)byte;
}
