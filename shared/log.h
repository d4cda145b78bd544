/* SPDX-License-Identifier: Apache-2.0 */
/* Messages for the user on standard error, one line each, prefixed with "kvmscope: ". Further lines
 * of a message are indented, and control characters are replaced by '?', so that untrusted names
 * can neither fake a message nor control the terminal. Any thread; each line is written at once.
 * Never on the sample path.
 */
#ifndef KVMSCOPE_SHARED_LOG_H
#define KVMSCOPE_SHARED_LOG_H

#include <stdbool.h>

/* A failure that the user must know about. */
void log_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A limitation that the user may not expect. */
void log_warning(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Progress and results; silent after log_quiet(true). */
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Details for developers; shown only after log_verbose(true). */
void log_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A status line that replaces itself, only if standard error is a terminal and log_quiet() is off;
 * an empty text clears it. Any other message clears it first. If the terminal is too narrow, the
 * last parts of the comma-separated text are left out.
 */
void log_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));

void log_quiet(bool quiet);
void log_verbose(bool verbose);

/* Starts each line with its level, "<3>" to "<7>", for the journal (sd-daemon(3)). */
void log_levels(bool levels);

#endif
