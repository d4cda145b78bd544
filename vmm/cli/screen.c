/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/screen.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

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
