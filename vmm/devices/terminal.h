/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The user's terminal as the guest's console: each key goes to the guest at once and without echo,
 * including Ctrl-C. Output processing is not changed, so that our messages between the guest's
 * lines look right. Ctrl-A is the escape key: Ctrl-A x quits, Ctrl-A Ctrl-A sends Ctrl-A, Ctrl-A h
 * prints help.
 *
 * The settings are restored by terminal_destroy(), by exit(), and before the program ends by a
 * signal that had its default action when the terminal was created. One terminal per process at a
 * time.
 */
#ifndef KVMSCOPE_DEVICES_TERMINAL_H
#define KVMSCOPE_DEVICES_TERMINAL_H

#include <stddef.h>
#include <stdint.h>

struct terminal;

/* Takes over the terminal FD (not owned). QUIT is called on the filtering thread. -ENOTTY if FD
 * is not a terminal, -EBUSY if there is one already. Main thread. */
int terminal_create(struct terminal **terminal, int fd, void (*quit)(void *context), void *context);

/* Restores the settings. Main thread, after the last terminal_filter(). NULL is a no-op. */
void terminal_destroy(struct terminal *terminal);

/* Restores the settings if a terminal was taken over, before an end without exit(). Any thread;
 * async-signal-safe. */
void terminal_restore(void);

/* Removes escape sequences from BYTES, in place, and executes them. Returns the number of bytes
 * for the guest, at most SIZE. CONTEXT is the terminal. One thread at a time. */
size_t terminal_filter(void *context, uint8_t *bytes, size_t size);

#endif
