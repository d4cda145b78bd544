/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/screen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "shared/printable.h"

bool screen_has_color(void)
{
	const char *terminal = getenv("TERM"), *refused = getenv("NO_COLOR");

	return isatty(STDOUT_FILENO) && !(refused && *refused) && terminal &&
	       strcmp(terminal, "dumb") != 0;
}

static struct winsize size(void)
{
	struct winsize size;

	return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) ? (struct winsize){ 0 } : size;
}

unsigned int screen_columns(void)
{
	return size().ws_col;
}

unsigned int screen_lines(void)
{
	return size().ws_row;
}

void screen_print(const char *text)
{
	for (; *text; text++) {
		size_t control = control_character_size(text);

		putchar(control ? '?' : *text);
		text += control ? control - 1 : 0;
	}
}

void screen_print_json(const json_t *object)
{
	json_dumpf(object, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(9));
	putchar('\n');
}

const char *answer_text(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

double answer_number(const json_t *object, const char *key)
{
	return json_number_value(json_object_get(object, key));
}
