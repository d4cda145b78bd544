/* SPDX-License-Identifier: Apache-2.0 */
/* The guest's serial console: the terminal, a file, or nothing. Main thread. */
#ifndef KVMSCOPE_CLI_RUN_CONSOLE_H
#define KVMSCOPE_CLI_RUN_CONSOLE_H

#include "vmm/cli/run_options.h"
#include "vmm/devices/terminal.h"
#include "vmm/machine/machine.h"

struct console {
	struct terminal *terminal; /* NULL: standard input is not a terminal, or used by others */
	int file;                  /* owned; -1: none */
};

/*
 * Opens the console of OPTIONS and fills in MACHINE's console fields. QUIT is called on the
 * devices' thread when the user types Ctrl-A x. The errors of open(2).
 */
int console_open(struct console *console, const struct run_options *options,
		 void (*quit)(void *context), void *context, struct machine_options *machine);

/* Logs the keys of a terminal that the guest's console uses. Before the guest starts. */
void console_announce(const struct console *console);

/* Restores the terminal. After the machine is destroyed; also if opening failed. */
void console_close(struct console *console);

#endif
