/* SPDX-License-Identifier: Apache-2.0 */
/* Runs shell commands for tests of whole programs. Main thread. */
#ifndef KVMSCOPE_TESTS_UNIT_RUN_COMMAND_H
#define KVMSCOPE_TESTS_UNIT_RUN_COMMAND_H

#include <stdbool.h>

/*
 * Returns the command's standard output as a string, which the caller frees. *STATUS (may be NULL)
 * gets its exit status.
 */
char *command_output(int *status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Without output. */
bool command_succeeds(const char *command);

#endif
