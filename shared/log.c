/* SPDX-License-Identifier: Apache-2.0 */
#include "shared/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "shared/printable.h"

static atomic_bool quiet_mode;
static atomic_bool verbose_mode;
static atomic_bool progress_shown;
static atomic_bool levels_shown;

#define CLEAR_LINE "\r\033[K"
/* Largest size of a continuation's prefix and the final newline, bytes. */
#define CONTINUATION_MAX 8

/* TEXT contains untrusted names of domains, files and guest programs: only the first line looks
 * like a message, and control characters do not reach the terminal.
 */
static size_t put_text(char *to, size_t size, const char *level, const char *text)
{
	size_t length = 0;

	for (; *text && length + CONTINUATION_MAX < size; text++) {
		size_t control = *text == '\t' ? 0 : control_character_size(text);

		if (*text == '\n') {
			length += (size_t)snprintf(to + length, size - length, "\n%s  ", level);
		} else if (control) {
			to[length++] = '?';
			text += control - 1;
		} else {
			to[length++] = *text;
		}
	}
	to[length] = '\0';
	return length;
}

/* One write() per message, so that lines of several threads do not mix. */
static void __attribute__((format(printf, 4, 0)))
write_line(const char *level, const char *prefix, const char *end, const char *format,
	   va_list arguments)
{
	char text[2048], line[2 * sizeof(text)];
	const char *shown = atomic_load(&levels_shown) ? level : "";
	size_t length = 0;

	vsnprintf(text, sizeof(text), format, arguments);
	if (atomic_exchange(&progress_shown, false))
		length = (size_t)snprintf(line, sizeof(line), CLEAR_LINE);
	length += (size_t)snprintf(line + length, sizeof(line) - length, "%s%s", shown, prefix);
	length += put_text(line + length, sizeof(line) - length, shown, text);
	snprintf(line + length, sizeof(line) - length, "%s", end);
	if (write(STDERR_FILENO, line, strlen(line)) < 0)
		return; /* nowhere to report it */
}

#define LOG_FUNCTION(name, condition, level, prefix)                                               \
	void name(const char *format, ...)                                                         \
	{                                                                                          \
		va_list arguments;                                                                 \
                                                                                                   \
		if (!(condition))                                                                  \
			return;                                                                    \
		va_start(arguments, format);                                                       \
		write_line(level, prefix, "\n", format, arguments);                                \
		va_end(arguments);                                                                 \
	}

LOG_FUNCTION(log_error, true, "<3>", "kvmscope: ")
LOG_FUNCTION(log_warning, true, "<4>", "kvmscope: warning: ")
LOG_FUNCTION(log_info, !atomic_load(&quiet_mode), "<6>", "kvmscope: ")
LOG_FUNCTION(log_debug, atomic_load(&verbose_mode), "<7>", "kvmscope: debug: ")

static void show_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void show_progress(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	write_line("", CLEAR_LINE, "", format, arguments);
	va_end(arguments);
}

/* A line that is wrapped by the terminal could not be cleared. Cuts at a comma, because a cut
 * number would be wrong. */
static void cut_to_terminal(char *text)
{
	struct winsize terminal = { 0 };
	char *comma;

	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &terminal) || !terminal.ws_col)
		return;
	while (strlen(text) >= terminal.ws_col) {
		comma = strrchr(text, ',');
		*(comma ? comma : text) = '\0';
	}
}

void log_progress(const char *format, ...)
{
	va_list arguments;
	char text[512];

	if (atomic_load(&quiet_mode) || !isatty(STDERR_FILENO))
		return;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	cut_to_terminal(text);
	show_progress("%s", text);
	atomic_store(&progress_shown, *text != '\0');
}

void log_quiet(bool quiet)
{
	atomic_store(&quiet_mode, quiet);
}

void log_levels(bool levels)
{
	atomic_store(&levels_shown, levels);
}

void log_verbose(bool verbose)
{
	atomic_store(&verbose_mode, verbose);
}
