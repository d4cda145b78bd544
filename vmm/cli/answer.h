/* SPDX-License-Identifier: Apache-2.0 */
/* What a run answered by its control socket. It is another program: nothing of it is believed. */
#ifndef KVMSCOPE_CLI_ANSWER_H
#define KVMSCOPE_CLI_ANSWER_H

#include <jansson.h>

/* What is missing in OBJECT, or something else, is "" or 0. */
const char *answer_text(const json_t *object, const char *key);
double answer_number(const json_t *object, const char *key);

/* To standard output. Names of files and guests are shown, never obeyed by the terminal. */
void answer_print(const char *text);

#endif
