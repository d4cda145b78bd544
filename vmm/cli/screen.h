/* SPDX-License-Identifier: Apache-2.0 */
/* Standard output, where it is a terminal that somebody reads. Any thread. */
#ifndef KVMSCOPE_CLI_SCREEN_H
#define KVMSCOPE_CLI_SCREEN_H

#include <stdbool.h>

/* A terminal that is not dumb, and NO_COLOR (no-color.org) is not set. */
bool screen_has_color(void);

/* Characters in a line and lines on the screen; 0 where it is no terminal, or one that does not
 * tell. */
unsigned int screen_columns(void);
unsigned int screen_lines(void);

#endif
