/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "tests/unit/shim/test.h"
#include "vmm/devices/console_output.h"

struct seen {
	int lines;
	char last[CONSOLE_LINE_MAX + 1];
};

static void on_line(void *context, const char *line)
{
	struct seen *seen = context;

	seen->lines++;
	snprintf(seen->last, sizeof(seen->last), "%s", line);
}

static void put(struct console_lines *lines, const char *bytes, size_t size)
{
	for (size_t i = 0; i < size; i++)
		console_lines_put(lines, (uint8_t)bytes[i]);
}

TEST(console_lines, come_whole_and_without_their_ends)
{
	struct seen seen = { 0 };
	struct console_lines lines = { .handler = on_line, .context = &seen };

	put(&lines, "Linux ver", 9);
	CHECK_EQUAL(seen.lines, 0);
	put(&lines, "sion 6\r\n", 8);
	CHECK_EQUAL(seen.lines, 1);
	CHECK_STRING(seen.last, "Linux version 6");
	put(&lines, "\n", 1);
	CHECK_EQUAL(seen.lines, 2);
	CHECK_STRING(seen.last, "");
}

TEST(console_lines, a_guest_may_print_anything)
{
	struct seen seen = { 0 };
	struct console_lines lines = { .handler = on_line, .context = &seen };

	for (int i = 0; i < 3 * CONSOLE_LINE_MAX; i++)
		console_lines_put(&lines, 'x');
	put(&lines, "a\0b\n", 4);
	CHECK_EQUAL(strlen(seen.last), CONSOLE_LINE_MAX);
	put(&lines, "a\0b\n", 4);
	CHECK_STRING(seen.last, "ab");
}
