/* SPDX-License-Identifier: Apache-2.0 */
/* The error convention: functions that can fail return 0 (or a count) on success and a negative
 * errno on failure, and set one message for the user: what failed, on what, why, and what to do.
 * The message belongs to the calling thread. A caller with more context replaces it; a caller that
 * handles the failure ignores it.
 */
#ifndef KVMSCOPE_SHARED_ERROR_H
#define KVMSCOPE_SHARED_ERROR_H

#define ERROR_MESSAGE_SIZE 1024

/*
 * Sets the calling thread's message and returns ERROR (a negative errno),
 * so that `return error_set(-ENOENT, ...)` is the usual form. Arguments may
 * point into the previous message. Not for the sample path: it formats.
 */
int error_set(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));

#ifdef __clang_analyzer__
/* The analyzer has to know that the result is ERROR, which is not 0. */
#include <stdio.h>
#define error_set(error, ...) ((void)snprintf(NULL, 0, __VA_ARGS__), (error))
#endif

/* The calling thread's last message, "" if none was set. Valid until the next error_set(). */
const char *error_message(void);

#endif
