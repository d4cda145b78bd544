/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The user's terminal as the guest's console: each key goes to the guest at
 * once and unechoed, Ctrl-C too. Output processing stays as it was, so that
 * messages of our own between the guest's lines look right. Ctrl-A is the
 * escape key: Ctrl-A x quits, Ctrl-A Ctrl-A sends Ctrl-A, Ctrl-A h helps.
 *
 * The settings are restored by terminal_destroy(), by exit(), and before a
 * signal ends the program whose action was the default one when the terminal
 * was made. One terminal at a time; it is the process that has it.
 */
#ifndef KVMSCOPE_DEVICES_TERMINAL_H
#define KVMSCOPE_DEVICES_TERMINAL_H

#include <stddef.h>
#include <stdint.h>

struct terminal;

/*
 * Takes the terminal FD (not owned) over. QUIT is called on the thread that
 * filters. -ENOTTY where it is none, -EBUSY where there is one already. Main thread.
 */
int terminal_create(struct terminal **terminal, int fd, void (*quit)(void *context), void *context);

/* Restores the settings. Main thread, once nobody filters any more; works on NULL. */
void terminal_destroy(struct terminal *terminal);

/*
 * Takes the escape sequences out of BYTES, in place, and acts on them;
 * returns how many bytes are left for the guest, at most SIZE. CONTEXT is the
 * terminal. One thread at a time.
 */
size_t terminal_filter(void *context, uint8_t *bytes, size_t size);

#endif
