/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/run_console.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/log.h"

/* A process in the background is stopped if it touches the terminal (SIGTTOU). */
static bool terminal_is_ours(void)
{
	return isatty(STDIN_FILENO) && tcgetpgrp(STDIN_FILENO) == getpgrp();
}

static int open_stdio(struct console *console, const struct run_options *options,
		      void (*quit)(void *context), void *context, struct machine_options *machine)
{
	bool data_on_stdout = options->profile && !strcmp(options->record.output, "-");
	int error;

	machine->console_output = data_on_stdout ? STDERR_FILENO : STDOUT_FILENO;
	if (!isatty(STDIN_FILENO)) {
		machine->console_input = STDIN_FILENO;
		return 0;
	}
	if (!terminal_is_ours())
		return 0;
	machine->console_input = STDIN_FILENO;
	machine->console_filter = terminal_filter;
	error = terminal_create(&console->terminal, STDIN_FILENO, quit, context);
	machine->console_filter_context = console->terminal;
	return error;
}

static int open_file(struct console *console, const char *path, struct machine_options *machine)
{
	console->file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (console->file < 0) {
		int error = errno;

		return error_set(-error, "cannot open %s for the console's output: %s", path,
				 strerror(error));
	}
	machine->console_output = console->file;
	return 0;
}

int console_open(struct console *console, const struct run_options *options,
		 void (*quit)(void *context), void *context, struct machine_options *machine)
{
	*console = (struct console){ .file = -1 };
	machine->console_output = machine->console_input = -1;
	switch (options->console) {
	case RUN_CONSOLE_STDIO:
		return open_stdio(console, options, quit, context, machine);
	case RUN_CONSOLE_FILE:
		return open_file(console, options->console_path, machine);
	case RUN_CONSOLE_NONE:
		break;
	}
	return 0;
}

void console_announce(const struct console *console)
{
	if (console->terminal)
		log_info(
			"this terminal is the guest's: Ctrl-A x ends the guest, Ctrl-A h lists the keys");
}

void console_close(struct console *console)
{
	terminal_destroy(console->terminal);
	if (console->file >= 0)
		close(console->file);
	*console = (struct console){ .file = -1 };
}
