/* SPDX-License-Identifier: Apache-2.0 */
#include "shared/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static atomic_bool quiet_mode;
static atomic_bool verbose_mode;
static atomic_bool progress_shown;
static atomic_bool levels_shown;

#define CLEAR_LINE "\r\033[K"

/* One write() a line, so that lines of several threads do not mix. */
static void write_line(const char *level, const char *prefix, const char *end, const char *format,
		       va_list arguments)
{
	char line[2048];
	size_t length = 0;

	if (atomic_exchange(&progress_shown, false))
		length = (size_t)snprintf(line, sizeof(line), CLEAR_LINE);
	length += (size_t)snprintf(line + length, sizeof(line) - length, "%s%s",
				   atomic_load(&levels_shown) ? level : "", prefix);
	vsnprintf(line + length, sizeof(line) - length - 1, format, arguments);
	strncat(line, end, sizeof(line) - strlen(line) - 1);
	if (write(STDERR_FILENO, line, strlen(line)) < 0)
		return; /* nowhere left to say it */
}

#define LOG_FUNCTION(name, condition, level, prefix)                                                         \
	void name(const char *format, ...)                                                                   \
	{                                                                                                    \
		va_list arguments;                                                                           \
                                                                                                             \
		if (!(condition))                                                                            \
			return;                                                                              \
		va_start(arguments, format);                                                                 \
		write_line(level, prefix, "\n", format, arguments);                                          \
		va_end(arguments);                                                                           \
	}

LOG_FUNCTION(log_error, true, "<3>", "kvmscope: ")
LOG_FUNCTION(log_warning, true, "<4>", "kvmscope: warning: ")
LOG_FUNCTION(log_info, !atomic_load(&quiet_mode), "<6>", "kvmscope: ")
LOG_FUNCTION(log_debug, atomic_load(&verbose_mode), "<7>", "kvmscope: debug: ")

void log_progress(const char *format, ...)
{
	va_list arguments;

	if (atomic_load(&quiet_mode) || !isatty(STDERR_FILENO))
		return;
	va_start(arguments, format);
	write_line("", CLEAR_LINE, "", format, arguments);
	va_end(arguments);
	atomic_store(&progress_shown, *format != '\0');
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
