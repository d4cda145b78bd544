/* SPDX-License-Identifier: Apache-2.0 */
/* Standard output: terminal size, colors and pager, text of others, and answers of control sockets.
 * Main thread. */
#ifndef KVMSCOPE_CLI_SCREEN_H
#define KVMSCOPE_CLI_SCREEN_H

#include <jansson.h>
#include <stdbool.h>

/* True on a terminal that is not dumb, unless NO_COLOR (no-color.org) is set. */
bool screen_has_color(void);

/* Characters in a line and lines on the terminal; 0 if that is unknown or it is not a terminal. */
unsigned int screen_columns(void);
unsigned int screen_lines(void);

/* True if output to this terminal goes through a pager: PAGER, unless that is empty or "cat", or
 * less -FRX if it is installed. */
bool screen_has_pager(void);

/* Starts the pager, which gets standard output until screen_pager_end(). Signals from the keyboard
 * are the pager's, and writing after it was closed is -EPIPE. 0 or the errors of fork(2). */
int screen_pager_start(void);

/* Waits until the pager is closed. 0, or -ENOENT with a message: it cannot be run. */
int screen_pager_end(void);

/* Prints TEXT, which anybody may have written, with '?' for control characters. */
void screen_print(const char *text);

/* Prints OBJECT as JSON, in ASCII only. */
void screen_print_json(const json_t *object);

/* Member KEY of OBJECT, another program's answer; "" or 0 if it is missing or has another type. */
const char *answer_text(const json_t *object, const char *key);
double answer_number(const json_t *object, const char *key);

#endif
