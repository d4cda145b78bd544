/* SPDX-License-Identifier: Apache-2.0 */
/* The screen and the keys of kvmscope top. Main thread. */
#ifndef KVMSCOPE_CLI_TOP_DISPLAY_H
#define KVMSCOPE_CLI_TOP_DISPLAY_H

#include "vmm/cli/top_print.h"

struct top_display;

/* Takes the terminal; VIEW outlives the screen, which changes it. -ENOTSUP, with the message: it is
 * not a terminal that can be used. */
int top_display_open(struct top_display **display, struct top_view *view);
/* Restores the terminal. NULL is a no-op. */
void top_display_close(struct top_display *display);

/* Draws VMS, sorted; what they point to is not used after the return. */
void top_display_draw(struct top_display *display, struct top_vm *const *vms, size_t count);

enum top_action {
	TOP_CONTINUE,
	TOP_DRAW,  /* what is shown has changed */
	TOP_DELAY, /* the same, and the view's delay */
	TOP_QUIT,
};

/* Handles all pending keys of standard input. */
enum top_action top_display_keys(struct top_display *display);

/* The terminal has another size. */
void top_display_resize(void);

/* True while the user has paused: the shown reports should not change. */
bool top_display_is_paused(const struct top_display *display);

#endif
