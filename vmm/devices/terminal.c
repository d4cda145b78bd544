/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/devices/terminal.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "shared/error.h"

#define ESCAPE 0x01 /* Ctrl-A */

struct terminal {
	int fd;
	void (*quit)(void *context);
	void *context;
	bool escaped; /* the last key was Ctrl-A */
};

/* For exit() and the signal handler: set before `taken` becomes true. */
static struct termios saved_settings;
static int saved_fd;
static atomic_bool taken;

/* Signals that end a process by default and that a user or a bug may raise. */
static const int ending_signals[] = { SIGHUP,  SIGINT, SIGQUIT, SIGTERM, SIGABRT,
				      SIGSEGV, SIGBUS, SIGILL,  SIGFPE };
#define ENDING_SIGNALS (sizeof(ending_signals) / sizeof(ending_signals[0]))

void terminal_restore(void)
{
	if (atomic_exchange(&taken, false))
		tcsetattr(saved_fd, TCSANOW, &saved_settings);
}

/* The default action is in place again (SA_RESETHAND), so raising the signal ends the process. */
static void restore_and_end(int signal)
{
	terminal_restore();
	raise(signal);
}

static void catch_signals(void)
{
	struct sigaction action = { .sa_handler = restore_and_end, .sa_flags = SA_RESETHAND };
	struct sigaction old;

	for (size_t i = 0; i < ENDING_SIGNALS; i++) {
		sigaction(ending_signals[i], NULL, &old);
		if (old.sa_handler == SIG_DFL)
			sigaction(ending_signals[i], &action, NULL);
	}
}

static void release_signals(void)
{
	struct sigaction old;

	for (size_t i = 0; i < ENDING_SIGNALS; i++) {
		sigaction(ending_signals[i], NULL, &old);
		if (old.sa_handler == restore_and_end)
			signal(ending_signals[i], SIG_DFL);
	}
}

static void register_exit(void)
{
	atexit(terminal_restore);
}

static int take_over(int fd)
{
	static pthread_once_t registered = PTHREAD_ONCE_INIT;
	struct termios raw;

	if (atomic_load(&taken))
		return error_set(-EBUSY, "the terminal is already in use as a console");
	if (tcgetattr(fd, &saved_settings))
		return error_set(-errno, "cannot read the terminal's settings: %m");
	saved_fd = fd;
	pthread_once(&registered, register_exit);
	raw = saved_settings;
	cfmakeraw(&raw);
	raw.c_oflag = saved_settings.c_oflag;
	atomic_store(&taken, true);
	catch_signals();
	if (tcsetattr(fd, TCSANOW, &raw)) {
		int error = errno;

		release_signals();
		atomic_store(&taken, false);
		return error_set(-error, "cannot change the terminal's settings: %s",
				 strerror(error));
	}
	return 0;
}

int terminal_create(struct terminal **result, int fd, void (*quit)(void *context), void *context)
{
	struct terminal *terminal = calloc(1, sizeof(*terminal));
	int error;

	*result = NULL;
	if (!terminal)
		return error_set(-ENOMEM, "no memory for the terminal");
	*terminal = (struct terminal){ .fd = fd, .quit = quit, .context = context };
	error = take_over(fd);
	if (error)
		free(terminal);
	else
		*result = terminal;
	return error;
}

void terminal_destroy(struct terminal *terminal)
{
	if (!terminal)
		return;
	terminal_restore();
	release_signals();
	free(terminal);
}

static void help(const struct terminal *terminal)
{
	static const char text[] = "\r\n"
				   "Ctrl-A x       stop the guest and quit\r\n"
				   "Ctrl-A Ctrl-A  send Ctrl-A to the guest\r\n"
				   "Ctrl-A h       this help\r\n";

	if (write(terminal->fd, text, sizeof(text) - 1) < 0)
		return; /* a terminal that cannot be written to */
}

/* Handles the key after Ctrl-A. True if it is for the guest. */
static bool escaped_key(struct terminal *terminal, uint8_t key)
{
	if (key == 'x')
		terminal->quit(terminal->context);
	else if (key == 'h')
		help(terminal);
	return key == ESCAPE;
}

size_t terminal_filter(void *context, uint8_t *bytes, size_t size)
{
	struct terminal *terminal = context;
	size_t kept = 0;

	for (size_t i = 0; i < size; i++) {
		bool keep =
			terminal->escaped ? escaped_key(terminal, bytes[i]) : bytes[i] != ESCAPE;

		terminal->escaped = !terminal->escaped && bytes[i] == ESCAPE;
		if (keep)
			bytes[kept++] = bytes[i];
	}
	return kept;
}
