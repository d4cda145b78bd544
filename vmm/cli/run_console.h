/* SPDX-License-Identifier: Apache-2.0 */
/* The guest's serial console on the user's side: the terminal, a file, or nothing. */
#ifndef KVMSCOPE_CLI_RUN_CONSOLE_H
#define KVMSCOPE_CLI_RUN_CONSOLE_H

#include "vmm/cli/run_options.h"
#include "vmm/devices/terminal.h"
#include "vmm/machine/machine.h"

struct console {
	struct terminal *terminal; /* NULL where standard input is none, or not ours to take */
	int file;                  /* owned; -1 without */
};

/*
 * Opens what OPTIONS names and fills MACHINE's console fields. QUIT is called
 * on the devices' thread when the user types Ctrl-A x. The errors of open().
 */
int console_open(struct console *console, const struct run_options *options,
		 void (*quit)(void *context), void *context, struct machine_options *machine);

/* On standard error: how the user gets out again, where the terminal is the guest's. Before the
 * guest starts.
 */
void console_tell(const struct console *console);

/* After the machine is destroyed: gives the terminal back. Works on a console that did not open. */
void console_close(struct console *console);

#endif
