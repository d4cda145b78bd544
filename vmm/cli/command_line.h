/* SPDX-License-Identifier: Apache-2.0 */
/* The words of a command, for the recording that it makes. */
#ifndef KVMSCOPE_CLI_COMMAND_LINE_H
#define KVMSCOPE_CLI_COMMAND_LINE_H

/*
 * "kvmscope" and the words, with a space before each; for free(). NULL without memory. To be called
 * before argp_parse(), which permutes them. Any thread.
 */
char *command_line_of(int argc, char **argv);

#endif
