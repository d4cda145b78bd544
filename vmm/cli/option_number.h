/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers on command lines. */
#ifndef KVMSCOPE_CLI_OPTION_NUMBER_H
#define KVMSCOPE_CLI_OPTION_NUMBER_H

#include <argp.h>

/*
 * TEXT as a decimal number from LOW to HIGH, or the end of the program
 * (EXIT_USAGE) with a message that says what NAME, an option as the user wrote
 * it, may be.
 */
unsigned int option_number(const struct argp_state *state, const char *name, const char *text,
			   unsigned int low, unsigned int high);

#endif
