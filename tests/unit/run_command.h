/* SPDX-License-Identifier: Apache-2.0 */
/* Commands run through the shell by tests of whole programs. Main thread. */
#ifndef KVMSCOPE_TESTS_UNIT_RUN_COMMAND_H
#define KVMSCOPE_TESTS_UNIT_RUN_COMMAND_H

#include <stdbool.h>

/* What the command prints on standard output, as a string to be freed; *STATUS (may be NULL) gets
 * its exit status. */
char *command_output(int *status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Quietly. */
bool command_succeeds(const char *command);

#endif
