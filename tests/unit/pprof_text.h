/* SPDX-License-Identifier: Apache-2.0 */
/* A pprof file as pprof's own definition of it and protoc read it: text. */
#ifndef KVMSCOPE_TESTS_UNIT_PPROF_TEXT_H
#define KVMSCOPE_TESTS_UNIT_PPROF_TEXT_H

#include <stddef.h>

/* To be freed; a file that protoc does not take fails the test. */
char *pprof_text(const char *path);

/* How often WHAT stands in TEXT. */
size_t pprof_text_count(const char *text, const char *what);

/* The place of STRING in the string table, -1 without. */
int pprof_text_place(const char *text, const char *string);

#endif
