/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages for the user on standard error, one line each, prefixed with
 * "kvmscope: ". Further lines of a message are indented, and control
 * characters are shown as '?': what others chose, as names of domains and
 * files, can neither pass for another message nor do things to a terminal.
 * May be called on any thread; a line is written whole. Never on the sample
 * path.
 */
#ifndef KVMSCOPE_SHARED_LOG_H
#define KVMSCOPE_SHARED_LOG_H

#include <stdbool.h>

/* Something failed and the user must know; the caller goes on or ends. */
void log_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Something is less than the user may expect. */
void log_warning(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* What is being done; silent after log_quiet(true). */
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Details for developers; shown only after log_verbose(true). */
void log_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));

/*
 * One line of progress that replaces itself, only where standard error is a
 * terminal and log_quiet() is off; an empty text clears it. Any other
 * message clears the line first. Where the terminal is too narrow the last
 * parts that a comma stands before are left out: what matters stands first.
 */
void log_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));

void log_quiet(bool quiet);
void log_verbose(bool verbose);

/* Each line begins with its level, "<3>" to "<7>", as the journal reads them (sd-daemon(3)). */
void log_levels(bool levels);

#endif
